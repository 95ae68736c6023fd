"""The configuration of `decoder.nacre`, and the names of its parameters.

Readers fill it from the metadata of a GGUF file or from the `config.json` of a folder, and from settings of the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ....dialect.diagnostics import Diagnostic, DiagnosticError

_STRUCTURE = frozenset({"decoder", "head", "layers", "llama", "gpt2", "phi", "mamba", "feed", "ffn", "shared", "ssm"})
"""Instances that only group parameters: the names of GGUF files do not contain them."""
_SETTINGS = ("page", "cache")
MOST_ROTATED = 1 << 16
"""The maximum number of features of a head that rotary positions rotate; each pair has a divisor in the source."""
CACHES = ("f32", "f16", "int8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """The hyper-parameters of a causal language model.

    family: the source of its layers: `llama`, `gpt2`, `phi` or `mamba`.
    context: the longest session and the longest call, in tokens.
    width, hidden: the features of a token between layers, and inside of a feed-forward layer, an expert or a mixer.
    heads, shared, head: the number of query heads, the number of key-value heads, and the features of a head.
    rotated, neighbours: the number of features of a head that rotary positions rotate, and whether the two features of
        a pair are adjacent or half of `rotated` apart.
    base, local_base: the base of the angles of rotary positions; `local_base` is for layers with a window, 0 if equal.
    factors, rotary_scale: the divisors of the frequencies of pairs, empty if all are 1; a factor of sine and cosine.
    has_factors: whether the divisors are a parameter, `rope_freqs.weight`.
    windows: by layer, the number of tokens in the attention window; 0 for all tokens.
    activation: `silu`, `gelu`, `gelu-tanh` or `relu`.
    norm_offset: the number that is added to the stored gains of normalizations.
    fused: whether one product computes queries, keys and values, and one computes gate and feed-forward.
    experts, chosen: the number of experts of a layer (0: none), and the number of selected experts of a token.
    shares_are_normed: whether the weights of the selected experts are normalized to add up to 1.
    shared_hidden: the width of the expert that processes all tokens; 0: none.
    original, long_factors: the greatest capacity of a session to which `factors` apply, and the divisors in sessions of
        a greater capacity; 0 and empty if `factors` apply to all.
    states, taps, rank: of a Mamba mixer, the states of a channel, the length of the convolution, and the rank of steps.
    decays_are_stored: whether a Mamba mixer stores its decays and the matrix of its convolution, or the logarithms of
        the negated decays and a convolution of groups.
    page: the number of tokens in a page of the cache that several texts share; 0: no such cache, and no entries for it.
        A page of Mamba holds the states of one text, however long.
    cache: the format of stored keys and values, one of `CACHES`; `int8` has a scale for each token and head.
    """

    family: str = "llama"
    context: int
    width: int
    layers: int
    vocabulary: int
    hidden: int
    tied: bool
    epsilon: float
    heads: int = 1
    shared: int = 1
    head: int = 1
    query_scale: float = 1.0
    attention_cap: float = 0.0
    logit_cap: float = 0.0
    head_biased: bool = False
    embedding_scale: float = 1.0
    rotated: int = 0
    neighbours: bool = False
    base: float = 10000.0
    local_base: float = 0.0
    factors: tuple[float, ...] = ()
    rotary_scale: float = 1.0
    original: int = 0
    long_factors: tuple[float, ...] = ()
    has_factors: bool = False
    windows: tuple[int, ...] = ()
    activation: str = "silu"
    norm_offset: float = 0.0
    biased: bool = False
    output_biased: bool = False
    feed_biased: bool = False
    fused: bool = False
    heads_are_normed: bool = False
    results_are_normed: bool = False
    experts: int = 0
    chosen: int = 0
    shares_are_normed: bool = True
    shared_hidden: int = 0
    gate_is_row: bool = True
    states: int = 0
    taps: int = 1
    rank: int = 0
    convolution_biased: bool = False
    decays_are_stored: bool = False
    page: int = 0
    cache: str = "f32"

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources of the entries."""
        return ("language_model.nacre", *(("paged_language_model.nacre",) if self.page else ()))

    def config(self) -> dict[str, Any]:
        """Returns the values that the sources read."""
        page = self.page or 1
        row_pages = 1 if self.family == "mamba" else -(-self.context // page)
        return asdict(self) | {"page": page, "row_pages": row_pages}


def with_settings(decoder: Decoder, settings: Mapping[str, Any]) -> Decoder:
    """Returns the configuration with the settings of a caller. Raises DiagnosticError."""
    for name, value in settings.items():
        if name not in _SETTINGS:
            raise _bad_setting(f"a language model has no setting `{name}`", f"it has {', '.join(_SETTINGS)}")
        if name == "page" and (type(value) is not int or not 0 <= value <= decoder.context):
            raise _bad_setting(f"`page` is {value!r}, not a number of tokens from 0 to {decoder.context}")
        if name == "cache" and value not in CACHES:
            raise _bad_setting(f"`cache` is {value!r}, not one of {', '.join(CACHES)}")
        if name == "cache" and value != "f32" and decoder.family == "mamba":
            raise _bad_setting("`cache` is for models with a cache of tokens; Mamba has none")
        decoder = replace(decoder, **{name: value})
    return decoder


def _bad_setting(message: str, help: str = "") -> DiagnosticError:
    return DiagnosticError([Diagnostic("bad-setting", message, help=help)])


def stored_name(path: str) -> str:
    """Returns the name in GGUF files: `decoder.llama.blk.0.feed.ffn_up.weight` is `blk.0.ffn_up.weight`."""
    return ".".join(part for part in path.split(".") if part not in _STRUCTURE)
