"""GGUF files of the models whose results by the package `transformers` are stored."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from readers.huggingface.tiny_folders import CONTEXT, LONGROPE, REFERENCES, fill
from tiny import neighbours
from weights.gguf_bytes import Stored, gguf_bytes

Array = np.ndarray[Any, Any]
Change = Callable[[str, Array], tuple[int, bytes]]

PARTS = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down", "w1": "gate", "w3": "up", "w2": "down"}
"""Names of the matrices of an expert in `transformers`, and in files."""
SIZES = {
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "expert_count": "num_local_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
}
"""Keys of files, and those of `transformers`."""
GPT2 = {
    "embedding_length": "n_embd",
    "block_count": "n_layer",
    "attention.head_count": "n_head",
    "attention.layer_norm_epsilon": "layer_norm_epsilon",
}
PHI = {**SIZES, "attention.layer_norm_epsilon": "layer_norm_eps"}
MAMBA = {
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "attention.layer_norm_rms_epsilon": "layer_norm_epsilon",
    "ssm.inner_size": "intermediate_size",
    "ssm.state_size": "state_size",
    "ssm.conv_kernel": "conv_kernel",
    "ssm.time_step_rank": "time_step_rank",
}


def _with_offset(name: str, data: Array) -> Array:
    """Gains of Gemma are stored whole."""
    return data + 1 if "norm" in name else data


def _with_query_scale(part: str) -> Callable[[str, Array], Array]:
    """Files have no number by which queries are divided other than the length of a head, which is half of it here."""

    def store(name: str, data: Array) -> Array:
        data = _with_offset(name, data)
        return data * np.float32(0.5**0.5) if f".{part}." in name else data

    return store


def _transposed(name: str, data: Array) -> Array:
    return data.T if name.startswith("blk") and data.ndim == 2 else data


def _of_mamba(name: str, data: Array) -> Array:
    return -np.exp(data) if name.endswith("ssm_a") else data[:, 0] if name.endswith("conv1d.weight") else data


@dataclass(frozen=True)
class File:
    """The architecture of a file, its keys, further values, the change of tensors on their way into it, and further
    tensors."""

    architecture: str
    keys: Mapping[str, str] = field(default_factory=lambda: SIZES)
    values: Mapping[str, Any] = field(default_factory=dict)
    store: Callable[[str, Array], Array] = lambda name, data: data
    tensors: Mapping[str, Array] = field(default_factory=dict)


def _longrope(original: int) -> File:
    """Returns a file that scales rotary positions by LongRoPE from an original context."""
    values = {
        "rope.scaling.original_context_length": original,
        "rope.scaling.attn_factor": math.sqrt(1 + math.log(4 * CONTEXT / original) / math.log(original)),
    }
    factors = {
        f"rope_factors_{kind}.weight": np.array(LONGROPE["rope_parameters"][f"{kind}_factor"], np.float32)
        for kind in ("short", "long")
    }
    return File("phi3", values=values, tensors=factors)


FILES: Mapping[str, File] = {
    "llama-linear": File("llama", values={"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}),
    "llama-yarn": File(
        "llama",
        values={
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 8,
        },
    ),
    "mistral": File("llama"),
    "qwen2": File("qwen2", values={"attention.sliding_window_pattern": [True, False]}),
    "qwen3": File("qwen3"),
    "gemma": File("gemma", store=_with_offset),
    "gemma2": File("gemma2", store=_with_query_scale("attn_q")),
    "gemma3": File(
        "gemma3",
        values={
            "attention.sliding_window_pattern": 2,
            "rope.freq_base_swa": 20.0,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 4.0,
        },
        store=_with_query_scale("attn_q_norm"),
    ),
    "phi": File("phi2", PHI, {"rope.dimension_count": 4}),
    "phi3": File("phi3"),
    "phi3-short": _longrope(CONTEXT),
    "phi3-long": _longrope(CONTEXT - 1),
    "gpt2": File("gpt2", GPT2, {"feed_forward_length": 128}, _transposed),
    "mamba": File("mamba", MAMBA, store=_of_mamba),
}
"""The files of dense models, by the name of their results."""
EXPERTS: Mapping[str, File] = {
    "mixtral": File("llama", {key: other for key, other in SIZES.items() if not key.startswith("expert_feed")}),
    "qwen2-moe": File("qwen2moe"),
    "qwen3-moe": File("qwen3moe", values={"expert_weights_norm": True}),
}


def write_reference(
    path: Path, name: str, change: Change | None = None, further: Mapping[str, Array] | None = None
) -> Array:
    """Writes a file; returns the expected logits of the last tokens. `change` stores a tensor in another format;
    `further` are more tensors, or others in place of those of the model."""
    file = {**FILES, **EXPERTS}[name]
    with np.load(REFERENCES) as stored:
        described, expected = json.loads(bytes(stored[f"{name}/described"])), stored[f"{name}/score"]
    config: Mapping[str, Any] = described["config"]
    tensors = _tensors(file, config, described["shapes"])
    made = []
    for key, tensor in {**tensors, **file.tensors, **(further or {})}.items():
        kind, data = (0, np.ascontiguousarray(tensor).tobytes()) if change is None else change(key, tensor)
        made.append(Stored(key, tensor.shape, kind, data))
    path.write_bytes(gguf_bytes(made, _metadata(file, config)))
    return np.asarray(expected)


def _metadata(file: File, config: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {"context_length": config.get("max_position_embeddings", CONTEXT)}
    rope = config.get("rope_parameters") or {}
    theta = rope.get("full_attention", rope).get("rope_theta")
    if theta is not None:
        values["rope.freq_base"] = float(theta)
    found = {key: config.get(other) for key, other in file.keys.items()}
    values |= {key: value for key, value in found.items() if value} | dict(file.values)
    return {"general.architecture": file.architecture} | {f"{file.architecture}.{k}": v for k, v in values.items()}


def _tensors(file: File, config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    architecture = next(kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == file.architecture)
    names = gguf.get_tensor_name_map(architecture, 2)
    heads = {"attn_q": config.get("num_attention_heads"), "attn_k": config.get("num_key_value_heads")}
    tensors: dict[str, Array] = {}
    experts: dict[str, dict[int, Array]] = {}
    for key, shape in shapes.items():
        data = fill(key, shape)
        expert = re.fullmatch(r"model\.layers\.(\d+)\..*\.experts\.(\d+)\.(\w+)\.weight", key)
        if expert is not None:
            experts.setdefault(f"blk.{expert[1]}.ffn_{PARTS[expert[3]]}_exps.weight", {})[int(expert[2])] = data
            continue
        name = names.get_name(key, try_suffixes=(".weight", ".bias"))
        assert name is not None, key
        turned = heads.get(name.split(".")[2] if name.startswith("blk") else "")
        if file.architecture == "llama" and turned is not None:
            data = neighbours(data, turned)
        tensors[name] = data.reshape(-1) if "ffn_gate_inp_shexp" in name else file.store(name, data)
    tensors |= {name: np.stack([parts[n] for n in sorted(parts)]) for name, parts in experts.items()}
    return tensors
