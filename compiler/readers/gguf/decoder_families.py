"""The configuration of a model source for each architecture of GGUF files.

Defaults are those of llama.cpp, whose converters write the files. Gains of normalizations are stored whole, also those
that `transformers` stores as a difference from 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from ..architectures.decoder import MOST_ROTATED, Decoder
from ..architectures.yarn import Yarn, yarn_scale
from .metadata import Metadata, bad_gguf

Family = Callable[[Metadata], Decoder]

_MAMBA_CONTEXT = 1 << 20
"""The maximum number of tokens in a call of Mamba if a file states none; its sessions have no maximum."""

SHORT_FACTORS, LONG_FACTORS = "rope_factors_short.weight", "rope_factors_long.weight"
"""The tensors with the divisors of frequencies of a model that scales rotary positions by LongRoPE."""


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


def _windows(m: Metadata, layers: int, *, window: int = 0, period: int = 0) -> tuple[int, ...]:
    """Returns the window of each layer. The last layer of each `period` has none; with period 0, all have one. `window`
    and `period` are used if the file states none."""
    window = m.count("attention.sliding_window", window)
    pattern = m.find("attention.sliding_window_pattern", period)
    if isinstance(pattern, np.ndarray):
        if pattern.shape != (layers,) or pattern.dtype.kind not in "biu":
            raise m.wrong("attention.sliding_window_pattern", pattern.tolist(), f"a flag for each of {layers} blocks")
        return tuple(window if narrow else 0 for narrow in pattern)
    period = m.count("attention.sliding_window_pattern", period)
    return tuple(window if period == 0 or i % period < period - 1 else 0 for i in range(layers))


def _llama(
    m: Metadata,
    *,
    neighbours: bool = False,
    activation: str = "silu",
    shares_are_normed: bool = True,
    norm: str = "attention.layer_norm_rms_epsilon",
) -> Decoder:
    """Returns a member of the Llama family. The options are the properties that the metadata do not contain.

    shares_are_normed: whether the weights of the selected experts of a token are normalized to add up to 1.
    norm: the key of the epsilon of normalizations.
    """
    width, heads = m.size("embedding_length"), m.size("attention.head_count")
    head = m.size("attention.key_length", max(1, width // heads))
    if m.size("attention.value_length", head) != head:
        raise bad_gguf(f"`{m.path}` has values of another length than keys, which is not supported")
    shared = m.size("attention.head_count_kv", heads)
    if heads % shared:
        raise bad_gguf(f"`{m.path}` has {heads} heads of queries for {shared} heads of keys")
    rotated = m.size("rope.dimension_count", head)
    if rotated > min(head, MOST_ROTATED) or rotated % 2:
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
        neighbours=neighbours,
        base=base,
        factors=factors,
        rotary_scale=scale,
        has_factors=m.has("rope_freqs.weight"),
        epsilon=m.number(norm),
        query_scale=head**-0.5,
        attention_cap=m.number("attn_logit_softcapping", 0.0),
        logit_cap=m.number("final_logit_softcapping", 0.0),
        biased=m.has("blk.0.attn_q.bias"),
        output_biased=m.has("blk.0.attn_output.bias"),
        feed_biased=m.has("blk.0.ffn_up.bias"),
        heads_are_normed=m.has("blk.0.attn_q_norm.weight"),
        results_are_normed=m.has("blk.0.post_ffw_norm.weight"),
        activation=activation,
        windows=_windows(m, layers),
        tied=not m.has("output.weight"),
    )
    return _with_experts(m, made, shares_are_normed) if m.count("expert_count") else made


def _with_experts(m: Metadata, made: Decoder, shares_are_normed: bool) -> Decoder:
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
    shared = m.has("blk.0.ffn_gate_shexp.weight")
    return replace(
        made,
        experts=experts,
        chosen=chosen,
        hidden=m.size("expert_feed_forward_length", made.hidden),
        shares_are_normed=m.flag("expert_weights_norm", shares_are_normed),
        shared_hidden=m.size("expert_shared_feed_forward_length") if shared else 0,
        gate_is_row=len(m.shapes.get("blk.0.ffn_gate_inp_shexp.weight", ())) == 2,
    )


def _gemma(m: Metadata) -> Decoder:
    made = _llama(m, activation="gelu-tanh")
    return replace(made, embedding_scale=made.width**0.5)


def _gemma_of_heads(m: Metadata, layers_of_27b: int) -> Decoder:
    """Returns a Gemma whose queries are divided by the root of the length of a head, or, in the model with 27 billion
    parameters, by the root of the share of a head in the width. The metadata do not contain this number."""
    made = _gemma(m)
    if made.layers == layers_of_27b:
        return replace(made, query_scale=(made.width / made.heads) ** -0.5)
    return made


def _gemma2(m: Metadata) -> Decoder:
    made = _gemma_of_heads(m, 46)
    return replace(
        made,
        attention_cap=m.number("attn_logit_softcapping", 50.0),
        logit_cap=m.number("final_logit_softcapping", 30.0),
        windows=_windows(m, made.layers, window=4096, period=2),
    )


def _gemma3(m: Metadata) -> Decoder:
    made = _gemma_of_heads(m, 62)
    windows = _windows(m, made.layers, period=6)
    # Layers with a window have angles of their own, which `rope.scaling` does not change.
    local = m.positive("rope.freq_base_swa", 10000.0) if any(windows) else 0.0
    return replace(made, windows=windows, local_base=local)


def _phi2(m: Metadata) -> Decoder:
    made = _llama(m, activation="gelu-tanh", norm="attention.layer_norm_epsilon")
    return replace(made, family="phi", head_biased=True, tied=False)


def _phi3(m: Metadata) -> Decoder:
    made = replace(_llama(m), fused=True)
    if not m.has(LONG_FACTORS):
        return made
    pairs = made.rotated // 2
    return replace(
        made,
        original=m.size("rope.scaling.original_context_length"),
        factors=m.divisors(SHORT_FACTORS, pairs),
        long_factors=m.divisors(LONG_FACTORS, pairs),
        rotary_scale=m.positive("rope.scaling.attn_factor", 1.0),
    )


def _gpt2(m: Metadata) -> Decoder:
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


def _mamba(m: Metadata) -> Decoder:
    if m.flag("ssm.dt_b_c_rms", False):
        raise bad_gguf(f"`{m.path}` normalizes the steps of Mamba, which is not supported")
    return Decoder(
        family="mamba",
        context=m.size("context_length", _MAMBA_CONTEXT),
        width=m.size("embedding_length"),
        layers=_layers(m),
        vocabulary=_vocabulary(m),
        hidden=m.size("ssm.inner_size"),
        states=m.size("ssm.state_size"),
        taps=m.size("ssm.conv_kernel"),
        rank=m.size("ssm.time_step_rank"),
        epsilon=m.number("attention.layer_norm_rms_epsilon"),
        convolution_biased=True,
        decays_are_stored=True,
        tied=not m.has("output.weight"),
    )


FAMILIES: Mapping[str, Family] = {
    "llama": partial(_llama, neighbours=True),
    "mistral": partial(_llama, neighbours=True),
    "qwen2": _llama,
    "qwen3": _llama,
    "qwen2moe": partial(_llama, shares_are_normed=False),
    "qwen3moe": _llama,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "phi2": _phi2,
    "phi3": _phi3,
    "gpt2": _gpt2,
    "mamba": _mamba,
}
"""The reader of the configuration by the name of the architecture in a file."""
