"""The configuration of `language_model.nacre`, and the names of its parameters.

Readers fill it from the metadata of a GGUF file, or from the `config.json` of a folder.
"""

from __future__ import annotations

from dataclasses import dataclass

_STRUCTURE = frozenset({"decoder", "head", "llama", "gpt2", "phi", "mamba", "feed", "ffn", "shared", "ssm"})
"""Instances that only group parameters: the names of GGUF files do not contain them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """The hyper-parameters of a causal language model.

    family: the source of its layers: `llama`, `gpt2`, `phi` or `mamba`.
    context: the longest session and the longest call, in tokens.
    width, hidden: numbers of a token between layers, and inside of a feed-forward layer, an expert or a mixer.
    heads, shared, head: heads of queries, heads of keys and values, and numbers of a head.
    rotated, neighbours: numbers of a head that positions rotate, and whether pairs are neighbours or half a row apart.
    base, local_base: of the angles of positions; `local_base` of layers with a window, 0 if it is the same.
    factors, rotary_scale: divisors of the frequencies of pairs, empty if they are 1, and a factor of both functions.
    has_factors: the divisors are a parameter, `rope_freqs.weight`.
    windows: by layer, the number of tokens that attention sees; 0 for all.
    activation: `silu`, `gelu`, `gelu-tanh` or `relu`.
    norm_offset: the difference of gains from the stored values.
    fused: queries, keys and values are one product, and so are gate and feed-forward.
    experts, chosen, shares_are_normed: experts of a layer, 0 for none, those of a token, and whether their shares add
        up to 1; shared_hidden: the width of the expert of all tokens, 0 for none.
    states, taps, rank: of a mixer: numbers of a channel, length of its convolution, and rank of its steps.
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
    states: int = 0
    taps: int = 1
    rank: int = 0
    convolution_biased: bool = False


def stored_name(path: str) -> str:
    """Returns the name in GGUF files: `decoder.llama.blk.0.feed.ffn_up.weight` is `blk.0.ffn_up.weight`."""
    return ".".join(part for part in path.split(".") if part not in _STRUCTURE)
