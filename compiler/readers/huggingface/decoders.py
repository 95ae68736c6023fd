"""Causal language models: their configuration for `language_model.nacre`, and the names of their parameters.

Each function reads the `config.json` of one `model_type`; the defaults are those of the package `transformers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..architectures.decoder import MOST_ROTATED, Decoder
from .config_json import Configuration
from .naming import Names
from .positions import read_rotary, rotary_parameters

_MAMBA_CONTEXT = 65536
"""The maximum number of tokens in a call of Mamba; its sessions have no maximum."""

LLAMA = Names(
    "layers",
    {"token_embd": "embed_tokens", "output_norm": "norm", "output": "lm_head"},
    {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_qkv": "self_attn.qkv_proj",
        "attn_q_norm": "self_attn.q_norm",
        "attn_k_norm": "self_attn.k_norm",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_gate_up": "mlp.gate_up_proj",
        "ffn_down": "mlp.down_proj",
        "ffn_gate_inp": "mlp.gate",
        "ffn_gate_exps": "mlp.experts.*.gate_proj",
        "ffn_up_exps": "mlp.experts.*.up_proj",
        "ffn_down_exps": "mlp.experts.*.down_proj",
        "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
        "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
        "ffn_up_shexp": "mlp.shared_expert.up_proj",
        "ffn_down_shexp": "mlp.shared_expert.down_proj",
    },
    prefixes=("model.", "", "language_model.model.", "model.language_model."),
    bare=frozenset({"output"}),
)
GEMMA2 = replace(
    LLAMA,
    inner={
        **LLAMA.inner,
        "post_attention_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    },
)
MIXTRAL = replace(
    LLAMA,
    inner={
        **LLAMA.inner,
        "ffn_gate_inp": "block_sparse_moe.gate",
        "ffn_gate_exps": "block_sparse_moe.experts.*.w1",
        "ffn_up_exps": "block_sparse_moe.experts.*.w3",
        "ffn_down_exps": "block_sparse_moe.experts.*.w2",
    },
)
PHI = replace(
    LLAMA,
    whole={**LLAMA.whole, "output_norm": "final_layernorm"},
    inner={
        **LLAMA.inner,
        "attn_output": "self_attn.dense",
        "ffn_up": "mlp.fc1",
        "ffn_down": "mlp.fc2",
    },
)
GPT2 = Names(
    "h",
    {"token_embd": "wte", "position_embd": "wpe", "output_norm": "ln_f", "output": "lm_head"},
    {
        "attn_norm": "ln_1",
        "attn_qkv": "attn.c_attn",
        "attn_output": "attn.c_proj",
        "ffn_norm": "ln_2",
        "ffn_up": "mlp.c_fc",
        "ffn_down": "mlp.c_proj",
    },
    prefixes=("transformer.", ""),
    bare=frozenset({"output"}),
    transposed=frozenset({"attn_qkv", "attn_output", "ffn_up", "ffn_down"}),
)
MAMBA = Names(
    "layers",
    {"token_embd": "embeddings", "output_norm": "norm_f", "output": "lm_head"},
    {
        "attn_norm": "norm",
        "ssm_a.log": "mixer.A_log",
        "ssm_d": "mixer.D",
        "ssm_conv1d": "mixer.conv1d",
        "ssm_in": "mixer.in_proj",
        "ssm_x": "mixer.x_proj",
        "ssm_dt": "mixer.dt_proj",
        "ssm_out": "mixer.out_proj",
    },
    prefixes=("backbone.", "model.", ""),
    bare=frozenset({"output"}),
)


def _tied(c: Configuration, default: bool) -> bool:
    return c.flag("tie_word_embeddings", default) or not c.has("lm_head.weight")


def _windows(c: Configuration, layers: int, default: Callable[[int], bool]) -> tuple[int, ...]:
    """Returns the window of each layer. `default` defines which layers have one if the file does not."""
    types = c.find("layer_types")
    if types is not None and (not isinstance(types, list) or len(types) != layers):
        raise c.wrong("layer_types", f"a list of {layers} types")
    unknown = sorted({str(kind) for kind in types or () if kind not in ("full_attention", "sliding_attention")})
    if unknown:
        raise c.unsupported(f"has layers of the types {', '.join(unknown)}")
    narrow = [default(i) if types is None else types[i] == "sliding_attention" for i in range(layers)]
    return tuple(c.size("sliding_window") if is_narrow else 0 for is_narrow in narrow)


def _llama(c: Configuration, *, theta_kind: str = "", tied: bool = False) -> Decoder:
    width, heads, layers = c.size("hidden_size"), c.size("num_attention_heads"), c.layers("num_hidden_layers")
    head = c.size("head_dim", max(1, width // heads))
    shared = c.size("num_key_value_heads", heads)
    if heads % shared:
        raise c.unsupported(f"has {heads} heads of queries for {shared} heads of keys")
    part = rotary_parameters(c, theta_kind).positive("partial_rotary_factor", c.find("partial_rotary_factor", 1.0))
    if part > 1:
        raise c.unsupported(f"has the `partial_rotary_factor` {part}")
    rotated = int(head * part)
    if rotated % 2 or not 0 < rotated <= MOST_ROTATED:
        raise c.unsupported(f"rotates {rotated} of {head} numbers of a head")
    rotary = read_rotary(c, rotated, theta_kind)
    biased = c.flag("attention_bias", False)
    return Decoder(
        context=c.size("max_position_embeddings"),
        width=width,
        layers=layers,
        vocabulary=c.size("vocab_size"),
        hidden=c.size("intermediate_size"),
        tied=_tied(c, tied),
        epsilon=c.number("rms_norm_eps", 1e-6),
        heads=heads,
        shared=shared,
        head=head,
        query_scale=head**-0.5,
        rotated=rotated,
        base=rotary.base,
        factors=rotary.factors,
        rotary_scale=rotary.scale,
        original=rotary.original,
        long_factors=rotary.long_factors,
        windows=(0,) * layers,
        activation=c.activation("hidden_act", "silu"),
        biased=biased,
        output_biased=biased,
        feed_biased=c.flag("mlp_bias", False),
    )


def _mistral(c: Configuration) -> Decoder:
    made = _llama(c)
    return replace(made, windows=_windows(c, made.layers, lambda i: bool(c.find("sliding_window"))))


def _qwen(c: Configuration, made: Decoder) -> Decoder:
    first = c.count("max_window_layers", 28)
    narrow = c.flag("use_sliding_window", False)
    return replace(made, windows=_windows(c, made.layers, lambda i: narrow and i >= first))


def _qwen2(c: Configuration) -> Decoder:
    return _qwen(c, replace(_llama(c), biased=True))


def _qwen3(c: Configuration) -> Decoder:
    return _qwen(c, replace(_llama(c), heads_are_normed=True))


def _with_experts(c: Configuration, made: Decoder, hidden: str, normed: bool) -> Decoder:
    if c.count("decoder_sparse_step", 1) != 1 or c.find("mlp_only_layers"):
        raise c.unsupported("has layers with experts and layers without")
    experts = c.size("num_experts" if c.find("num_local_experts") is None else "num_local_experts")
    chosen = c.size("num_experts_per_tok")
    if chosen > experts:
        raise c.unsupported(f"chooses {chosen} of {experts} experts")
    return replace(made, experts=experts, chosen=chosen, hidden=c.size(hidden), shares_are_normed=normed)


def _mixtral(c: Configuration) -> Decoder:
    return _with_experts(c, _mistral(c), "intermediate_size", True)


def _qwen2_moe(c: Configuration) -> Decoder:
    made = _with_experts(c, _qwen2(c), "moe_intermediate_size", c.flag("norm_topk_prob", False))
    return replace(made, biased=c.flag("qkv_bias", True), shared_hidden=c.size("shared_expert_intermediate_size"))


def _qwen3_moe(c: Configuration) -> Decoder:
    return _with_experts(c, _qwen3(c), "moe_intermediate_size", c.flag("norm_topk_prob", False))


def _gemma(c: Configuration, kind: str = "") -> Decoder:
    made = _llama(c, theta_kind=kind, tied=True)
    name = "hidden_activation" if c.find("hidden_activation") is not None else "hidden_act"
    return replace(
        made,
        activation=c.activation(name, "gelu_pytorch_tanh") if name == "hidden_activation" else "gelu-tanh",
        embedding_scale=made.width**0.5,
        norm_offset=1.0,
    )


def _gemma2(c: Configuration, kind: str = "") -> Decoder:
    made = _gemma(c, kind)
    return replace(
        made,
        query_scale=c.positive("query_pre_attn_scalar", 256) ** -0.5,
        attention_cap=c.number("attn_logit_softcapping", 0.0),
        logit_cap=c.number("final_logit_softcapping", 0.0),
        results_are_normed=True,
        windows=_windows(c, made.layers, lambda i: i % 2 == 0),
    )


def _gemma3(c: Configuration) -> Decoder:
    if c.flag("use_bidirectional_attention", False):
        raise c.unsupported("attends in both directions")
    made = _gemma2(c, "full_attention")
    every = c.size("sliding_window_pattern", 6)
    near = read_rotary(c, made.rotated, "sliding_attention").base if c.find("rope_parameters") else None
    return replace(
        made,
        heads_are_normed=True,
        windows=_windows(c, made.layers, lambda i: (i + 1) % every != 0),
        local_base=c.positive("rope_local_base_freq", 10000.0) if near is None else near,
    )


def _phi(c: Configuration) -> Decoder:
    if c.flag("qk_layernorm", False):
        raise c.unsupported("normalizes queries and keys")
    values = {"partial_rotary_factor": 0.5, "hidden_act": "gelu_new", **c.values}
    made = _llama(replace(c, values=values))
    return replace(made, family="phi", epsilon=c.number("layer_norm_eps", 1e-5), head_biased=True)


def _phi3(c: Configuration) -> Decoder:
    return replace(_mistral(c), fused=True)


def _gpt2(c: Configuration) -> Decoder:
    width, heads = c.size("n_embd"), c.size("n_head")
    if c.flag("scale_attn_by_inverse_layer_idx", False) or not c.flag("scale_attn_weights", True):
        raise c.unsupported("scales attention by another factor")
    return Decoder(
        family="gpt2",
        context=c.size("n_positions"),
        width=width,
        layers=c.layers("n_layer"),
        vocabulary=c.size("vocab_size"),
        hidden=c.size("n_inner", 4 * width),
        tied=_tied(c, True),
        epsilon=c.number("layer_norm_epsilon", 1e-5),
        heads=heads,
        shared=heads,
        head=c.divided(width, heads),
        query_scale=(width // heads) ** -0.5,
        activation=c.activation("activation_function", "gelu_new"),
    )


def _mamba(c: Configuration) -> Decoder:
    width = c.size("hidden_size")
    rank = c.find("time_step_rank", "auto")
    return Decoder(
        family="mamba",
        context=_MAMBA_CONTEXT,
        width=width,
        layers=c.layers("num_hidden_layers"),
        vocabulary=c.size("vocab_size"),
        hidden=c.size("intermediate_size", width * c.size("expand", 2)),
        tied=_tied(c, True),
        epsilon=c.number("layer_norm_epsilon", 1e-5),
        activation=c.activation("hidden_act", "silu"),
        states=c.size("state_size", 16),
        taps=c.size("conv_kernel", 4),
        rank=-(-width // 16) if rank == "auto" else c.size("time_step_rank"),
        biased=c.flag("use_bias", False),
        convolution_biased=c.flag("use_conv_bias", True),
    )


DECODERS: Mapping[str, tuple[Callable[[Configuration], Decoder], Names]] = {
    "gemma": (_gemma, LLAMA),
    "gemma2": (_gemma2, GEMMA2),
    "gemma3": (lambda c: _gemma3(c.inner("text_config") if c.find("text_config") else c), GEMMA2),
    "gemma3_text": (_gemma3, GEMMA2),
    "gpt2": (_gpt2, GPT2),
    "llama": (_llama, LLAMA),
    "mamba": (_mamba, MAMBA),
    "mistral": (_mistral, LLAMA),
    "mixtral": (_mixtral, MIXTRAL),
    "phi": (_phi, PHI),
    "phi3": (_phi3, LLAMA),
    "qwen2": (_qwen2, LLAMA),
    "qwen2_moe": (_qwen2_moe, LLAMA),
    "qwen3": (_qwen3, LLAMA),
    "qwen3_moe": (_qwen3_moe, LLAMA),
}
"""The reader of the configuration and the names of parameters, by `model_type`."""
