"""The configuration of a model source, from the metadata and the tensors of a GGUF file.

The names of keys are those of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, each after the name of the
architecture: `llama.block_count`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ...weights.gguf_header import GgufHeader
from ..architectures.decoder import Decoder
from ..architectures.yarn import Yarn, yarn_scale

_GREATEST = float(np.finfo(np.float32).max)
"""The largest number that hyper-parameters can have: files store them as f32."""


def bad_gguf(message: str, help: str = "") -> DiagnosticError:
    return DiagnosticError([Diagnostic("bad-gguf", message, help=help)])


@dataclass(frozen=True, slots=True)
class Metadata:
    """The metadata of a file, read by keys without the name of the architecture."""

    path: Path
    architecture: str
    values: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]

    def find(self, key: str, default: Any = None) -> Any:
        return self.values.get(f"{self.architecture}.{key}", default)

    def size(self, key: str, default: int | None = None) -> int:
        """Returns a positive integer."""
        value = self._value(key, default)
        if type(value) is not int or not 0 < value < 1 << 31:
            raise self.wrong(key, value, "a size")
        return value

    def count(self, key: str) -> int:
        """Returns an integer that may be 0, which is the default."""
        value = self._value(key, 0)
        if type(value) is not int or not 0 <= value < 1 << 31:
            raise self.wrong(key, value, "a count")
        return value

    def text(self, key: str, default: str) -> str:
        value = self.find(key, default)
        if not isinstance(value, str):
            raise self.wrong(key, value, "text")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.find(key, default)
        if type(value) not in (bool, int):
            raise self.wrong(key, value, "true or false")
        return bool(value)

    def wrong(self, key: str, value: Any, wanted: str) -> DiagnosticError:
        return bad_gguf(f"`{self.architecture}.{key}` of `{self.path}` is {value!r}, not {wanted}")

    def _value(self, key: str, default: Any) -> Any:
        """Returns a value that must exist; of an array of equal integers, one for each layer, its element."""
        value = self.find(key, default)
        if value is None:
            raise bad_gguf(f"`{self.path}` does not state its `{self.architecture}.{key}`")
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size and (value == value[0]).all():
            return int(value[0])
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Returns a finite number."""
        value = self._value(key, default)
        if type(value) not in (int, float) or not abs(value) <= _GREATEST:
            raise self.wrong(key, value, "a number of f32")
        # The file stores f32: the shortest decimal of this f32 is 1e-5, and not 9.999999747e-06.
        return float(str(np.float32(value)))

    def positive(self, key: str, default: float) -> float:
        value = self.number(key, default)
        if value <= 0:
            raise bad_gguf(f"`{self.architecture}.{key}` of `{self.path}` is {value}, which is not positive")
        return value

    def has(self, tensor: str) -> bool:
        return tensor in self.shapes


def read_metadata(header: GgufHeader) -> Metadata:
    architecture = header.metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise bad_gguf(f"`{header.path}` does not state its `general.architecture`")
    shapes = {tensor.name: tensor.shape for tensor in header.tensors}
    return Metadata(header.path, architecture, header.metadata, shapes)


class Family(Protocol):
    """A function that derives the configuration of a source from the metadata."""

    def config(self, m: Metadata) -> Decoder: ...


def _layers(m: Metadata) -> int:
    layers = m.size("block_count")
    if not m.has(f"blk.{layers - 1}.attn_norm.weight"):
        raise bad_gguf(f"`{m.path}` has {layers} blocks, without tensors of the last one")
    return layers


def _vocabulary(m: Metadata) -> int:
    embedding = m.shapes.get("token_embd.weight", ())
    return embedding[0] if len(embedding) == 2 else m.size("vocab_size")


def _scaling(m: Metadata, base: float, rotated: int) -> tuple[tuple[float, ...], float]:
    """Returns the divisors of the frequencies of pairs, and the factor of sine and cosine."""
    scaling = m.text("rope.scaling.type", "none")
    if scaling == "none":
        return (), 1.0
    factor = m.positive("rope.scaling.factor", 1.0)
    if scaling == "linear":
        return (factor,) * (rotated // 2), 1.0
    if scaling != "yarn" or base <= 1:
        raise bad_gguf(f"`{m.path}` scales rotary positions of the base {base} by `{scaling}`, which is not supported")
    for key in ("yarn_ext_factor", "yarn_attn_factor", "yarn_log_multiplier"):
        if m.find(f"rope.scaling.{key}") is not None:
            raise bad_gguf(f"`{m.path}` states its `rope.scaling.{key}`, which is not supported")
    context = m.size("rope.scaling.original_context_length", m.size("context_length"))
    bounds = m.positive("rope.scaling.yarn_beta_fast", 32.0), m.positive("rope.scaling.yarn_beta_slow", 1.0)
    yarn = Yarn(factor, context, *bounds)
    return yarn.divisors(base, rotated), m.positive("rope.scaling.attn_factor", 1.0) * yarn_scale(factor)


@dataclass(frozen=True, slots=True)
class Gpt2:
    """GPT-2, which has no variants."""

    def config(self, m: Metadata) -> Decoder:
        width, heads = m.size("embedding_length"), m.size("attention.head_count")
        if width % heads:
            raise bad_gguf(f"`{m.path}` divides a width of {width} into {heads} heads")
        return Decoder(
            family="gpt2",
            context=m.size("context_length"),
            width=width,
            layers=_layers(m),
            heads=heads,
            shared=heads,
            head=width // heads,
            hidden=m.size("feed_forward_length"),
            vocabulary=_vocabulary(m),
            epsilon=m.number("attention.layer_norm_epsilon"),
            query_scale=(width // heads) ** -0.5,
            tied=not m.has("output.weight"),
            activation="gelu-tanh",
        )


@dataclass(frozen=True, slots=True)
class Llama:
    """A member of the Llama family: the properties that the metadata do not contain."""

    neighbours: bool = False
    activation: str = "silu"
    embedding_scaled: bool = False
    shares_are_normed: bool = True
    """Whether the weights of the selected experts of a token are normalized to add up to 1."""

    def config(self, m: Metadata) -> Decoder:
        width, heads = m.size("embedding_length"), m.size("attention.head_count")
        head = m.size("attention.key_length", max(1, width // heads))
        if m.size("attention.value_length", head) != head:
            raise bad_gguf(f"`{m.path}` has values of another length than keys, which is not supported")
        shared = m.size("attention.head_count_kv", heads)
        if heads % shared:
            raise bad_gguf(f"`{m.path}` has {heads} heads of queries for {shared} heads of keys")
        rotated = m.size("rope.dimension_count", head)
        if rotated > head or rotated % 2:
            raise bad_gguf(f"`{m.path}` rotates {rotated} of {head} numbers of a head")
        base = m.positive("rope.freq_base", 10000.0)
        factors, scale = _scaling(m, base, rotated)
        layers = _layers(m)
        made = Decoder(
            context=m.size("context_length"),
            width=width,
            layers=layers,
            heads=heads,
            shared=shared,
            head=head,
            hidden=m.size("feed_forward_length"),
            vocabulary=_vocabulary(m),
            rotated=rotated,
            neighbours=self.neighbours,
            base=base,
            factors=factors,
            rotary_scale=scale,
            has_factors=m.has("rope_freqs.weight"),
            epsilon=m.number("attention.layer_norm_rms_epsilon"),
            query_scale=head**-0.5,
            attention_cap=m.number("attn_logit_softcapping", 0.0),
            logit_cap=m.number("final_logit_softcapping", 0.0),
            biased=m.has("blk.0.attn_q.bias"),
            heads_are_normed=m.has("blk.0.attn_q_norm.weight"),
            results_are_normed=m.has("blk.0.post_ffw_norm.weight"),
            activation=self.activation,
            windows=(m.count("attention.sliding_window"),) * layers,
            embedding_scale=width**0.5 if self.embedding_scaled else 1.0,
            tied=not m.has("output.weight"),
        )
        return self._with_experts(m, made) if m.count("expert_count") else made

    def _with_experts(self, m: Metadata, made: Decoder) -> Decoder:
        experts, chosen = m.size("expert_count"), m.size("expert_used_count")
        if chosen > experts:
            raise bad_gguf(f"`{m.path}` chooses {chosen} of {experts} experts")
        for layer in range(made.layers):
            name = f"blk.{layer}.ffn_gate_exps.weight"
            if not m.has(name):
                message = f"`{m.path}` has no tensor `{name}` with the experts of block {layer}"
                raise bad_gguf(message, "all blocks have experts, those of a block as one tensor")
        if m.number("expert_weights_scale", 0.0) not in (0.0, 1.0):
            raise bad_gguf(f"`{m.path}` scales the shares of experts, which is not supported")
        normed = m.flag("expert_weights_norm", self.shares_are_normed)
        shared = m.has("blk.0.ffn_gate_shexp.weight")
        return replace(
            made,
            experts=experts,
            chosen=chosen,
            hidden=m.size("expert_feed_forward_length", made.hidden),
            shares_are_normed=normed,
            shared_hidden=m.size("expert_shared_feed_forward_length") if shared else 0,
            gate_is_row=len(m.shapes.get("blk.0.ffn_gate_inp_shexp.weight", ())) == 2,
        )
