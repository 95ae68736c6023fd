"""Small models with random weights: as GGUF files, and as the models of the package `transformers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from weights.gguf_bytes import Stored, gguf_bytes

NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""Names of parameters in `transformers`, and in files."""
GPT2 = {
    "transformer.wte": "token_embd",
    "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm",
    "ln_1": "attn_norm",
    "ln_2": "ffn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
VOCABULARY, CONTEXT = 41, 24


def write_gpt2(path: Path, model: Any) -> None:
    """Writes a GPT-2, whose products are stored transposed in `transformers`."""
    c = model.config
    tensors = []
    for key, tensor in model.state_dict().items():
        rest = key.removeprefix("transformer.h.")
        number, own = rest.split(".", 1) if rest != key else ("", key)
        name, _, last = own.rpartition(".")
        if name in GPT2:
            data = tensor.detach().numpy().astype(np.float32)
            data = np.ascontiguousarray(data.T if ".c_" in name and data.ndim == 2 else data)
            full = f"blk.{number}.{GPT2[name]}.{last}" if number else f"{GPT2[name]}.{last}"
            tensors.append(Stored(full, data.shape, 0, data.tobytes()))
    values: dict[str, object] = {
        "context_length": c.n_positions,
        "embedding_length": c.n_embd,
        "block_count": c.n_layer,
        "feed_forward_length": 4 * c.n_embd,
        "attention.head_count": c.n_head,
        "attention.layer_norm_epsilon": float(c.layer_norm_epsilon),
    }
    path.write_bytes(
        gguf_bytes(tensors, {"general.architecture": "gpt2"} | {f"gpt2.{k}": v for k, v in values.items()})
    )


def name_of(key: str) -> str:
    if key.startswith("model.layers."):
        number, rest = key.removeprefix("model.layers.").split(".", 1)
        return f"blk.{number}.{name_of(rest)}"
    for other, own in NAMES.items():
        if key == other or (key.startswith(f"{other}.") and not other.endswith(".weight")):
            return own + key.removeprefix(other)
    raise KeyError(key)


def neighbours(weight: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Orders the rows of each head so that pairs that are half a head apart become neighbours."""
    rest = weight.shape[1:]
    return weight.reshape(heads, 2, -1, *rest).swapaxes(1, 2).reshape(weight.shape)


def write_model(path: Path, model: Any, architecture: str) -> None:
    """Writes the parameters and hyper-parameters of a model of `transformers`."""
    c = model.config
    heads = {"attn_q": c.num_attention_heads, "attn_k": c.num_key_value_heads}
    tensors = []
    for key, tensor in model.state_dict().items():
        if key == "lm_head.weight" and c.tie_word_embeddings:
            continue
        name, data = name_of(key), tensor.detach().numpy().astype(np.float32)
        part = name.split(".")[-2]
        if architecture == "llama" and part in heads:
            data = neighbours(data, heads[part])
        if architecture == "gemma" and "norm" in part:
            data = data + 1
        tensors.append(Stored(name, data.shape, 0, np.ascontiguousarray(data).tobytes()))
    values = {
        "context_length": CONTEXT,
        "embedding_length": c.hidden_size,
        "block_count": c.num_hidden_layers,
        "feed_forward_length": c.intermediate_size,
        "attention.head_count": c.num_attention_heads,
        "attention.head_count_kv": c.num_key_value_heads,
        "attention.key_length": c.head_dim,
        "attention.layer_norm_rms_epsilon": float(c.rms_norm_eps),
        "rope.freq_base": float(c.rope_parameters["rope_theta"]),
    }
    if getattr(c, "sliding_window", None):
        values["attention.sliding_window"] = c.sliding_window
    metadata = {"general.architecture": architecture} | {f"{architecture}.{k}": v for k, v in values.items()}
    path.write_bytes(gguf_bytes(tensors, metadata))
