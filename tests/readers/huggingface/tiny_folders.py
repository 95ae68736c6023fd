"""Small models as folders of Hugging Face: their configurations, and weights that are a formula of key and place."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

Array = np.ndarray[Any, Any]
REFERENCES = Path(__file__).with_name("references.npz")
VOCABULARY, CONTEXT = 41, 24
IDS = (np.arange(CONTEXT) * 17 % (VOCABULARY - 3) + 3).astype(np.int32)
"""The tokens that all decoders read."""
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": CONTEXT,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 8}
LINEAR = {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0}
LONGROPE: Mapping[str, Any] = {
    "max_position_embeddings": 4 * CONTEXT,
    "rope_parameters": {
        "rope_type": "longrope",
        "rope_theta": 500.0,
        "short_factor": [1.0, 1.25, 1.5, 2.0],
        "long_factor": [1.5, 2.0, 3.0, 4.0],
    },
}
NARROW = {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]}
EXPERTS = {**SIZES, "num_experts": 5, "num_local_experts": 5, "moe_intermediate_size": 24, "num_experts_per_tok": 2}

DECODERS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", {**SIZES, "attention_bias": True, "mlp_bias": True, "hidden_act": "gelu"}),
    "llama3": ("LlamaForCausalLM", {**SIZES, "rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    "llama-yarn": ("LlamaForCausalLM", {**SIZES, "rope_parameters": YARN, "num_key_value_heads": 1}),
    "llama-linear": ("LlamaForCausalLM", {**SIZES, "rope_parameters": LINEAR, "num_key_value_heads": 4}),
    "mistral": ("MistralForCausalLM", {**SIZES, "sliding_window": 5}),
    "qwen2": ("Qwen2ForCausalLM", {**SIZES, **NARROW, "use_sliding_window": True, "max_window_layers": 1}),
    "qwen3": ("Qwen3ForCausalLM", {**SIZES, "head_dim": 16}),
    "gemma": ("GemmaForCausalLM", SIZES),
    "gemma2": (
        "Gemma2ForCausalLM",
        {**SIZES, **NARROW, "query_pre_attn_scalar": 16, "final_logit_softcapping": 4.0, "attn_logit_softcapping": 3.0},
    ),
    "gemma3": (
        "Gemma3ForCausalLM",
        {
            **SIZES,
            **NARROW,
            "query_pre_attn_scalar": 16,
            "rope_parameters": {"full_attention": LINEAR, "sliding_attention": {"rope_theta": 20.0}},
        },
    ),
    "phi": ("PhiForCausalLM", SIZES),
    "phi3": ("Phi3ForCausalLM", {**SIZES, "sliding_window": 7}),
    "phi3-short": ("Phi3ForCausalLM", {**SIZES, **LONGROPE, "original_max_position_embeddings": CONTEXT}),
    "phi3-long": ("Phi3ForCausalLM", {**SIZES, **LONGROPE, "original_max_position_embeddings": CONTEXT - 1}),
    "gpt2": (
        "GPT2LMHeadModel",
        {"vocab_size": VOCABULARY, "n_positions": CONTEXT, "n_embd": 32, "n_layer": 2, "n_head": 4},
    ),
    "mixtral": ("MixtralForCausalLM", EXPERTS),
    "qwen2-moe": ("Qwen2MoeForCausalLM", {**EXPERTS, "shared_expert_intermediate_size": 40}),
    "qwen3-moe": ("Qwen3MoeForCausalLM", {**EXPERTS, "norm_topk_prob": True, "num_experts_per_tok": 3}),
    "mamba": (
        "MambaForCausalLM",
        {"vocab_size": VOCABULARY, "hidden_size": 32, "state_size": 5, "num_hidden_layers": 2},
    ),
}
"""Causal language models: the class of `transformers` and its configuration."""


TEXTS = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": CONTEXT + 2,
}
IMAGES = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 16,
    "patch_size": 4,
}
ENCODERS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertModel", TEXTS),
    "roberta": ("RobertaModel", {**TEXTS, "type_vocab_size": 1}),
    "distilbert": (
        "DistilBertModel",
        {
            "vocab_size": VOCABULARY,
            "dim": 32,
            "hidden_dim": 48,
            "n_layers": 2,
            "n_heads": 4,
            "max_position_embeddings": CONTEXT,
        },
    ),
    "mpnet": ("MPNetModel", {**TEXTS, "hidden_act": "gelu_new"}),
    "vit": ("ViTForImageClassification", {**IMAGES, "num_labels": 5}),
    "clip": (
        "CLIPModel",
        {
            "projection_dim": 20,
            "text_config": {**TEXTS, "eos_token_id": 40, "bos_token_id": 39, "pad_token_id": 1},
            "vision_config": {**IMAGES, "patch_size": 8},
        },
    ),
    "t5": (
        "T5EncoderModel",
        {
            "vocab_size": VOCABULARY,
            "d_model": 32,
            "d_kv": 12,
            "d_ff": 48,
            "num_layers": 2,
            "num_heads": 4,
            "feed_forward_proj": "gated-gelu",
            "relative_attention_num_buckets": 8,
            "relative_attention_max_distance": 10,
        },
    ),
    "whisper": (
        "WhisperModel",
        {
            "vocab_size": VOCABULARY,
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 1,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 16,
            "max_source_positions": 12,
            "max_target_positions": 4,
            "num_mel_bins": 8,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
        },
    ),
}
"""Encoders: the class of `transformers` and its configuration."""


def encoder_inputs(name: str) -> dict[str, list[Array]]:
    """Returns the arguments of each entry of an encoder. Texts have different lengths."""
    lengths, width = (12, 1, 7), 12
    mask = np.array([[int(t < length) for t in range(width)] for length in lengths])
    padding = 1 if name in ("roberta", "mpnet") else 0
    ids = np.where(mask == 1, np.arange(3 * width).reshape(3, width) * 17 % (VOCABULARY - 4) + 3, padding)
    pixels = [fill("pixels", (2, 3, 16, 16))]
    if name == "vit":
        return {"encode": pixels, "classify": pixels}
    if name == "clip":
        ends = np.where(np.arange(width)[None] == np.array(lengths)[:, None] - 1, 40, ids)
        return {"embed_text": [ends], "embed_image": pixels}
    if name == "whisper":
        return {"encode": [fill("features", (2, 8, 24))]}
    if name == "t5":
        return {"encode": [ids, mask]}
    found = {"encode": [ids, mask], "embed": [ids, mask]}
    if name == "bert":
        found["encode_pairs"] = [ids, mask, np.where(np.arange(width) > 4, mask, 0)]
    return found if name == "distilbert" else {**found, "pool": [ids, mask]}


def without_padding(name: str, entry: str, found: Array) -> Array:
    """Returns the vectors of an entry, zero where a text has padding."""
    if entry in ("encode", "encode_pairs") and name not in ("vit", "whisper"):
        return np.asarray(found * encoder_inputs(name)["encode"][1][:, :, None])
    return found


def fill(key: str, shape: Sequence[int]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Returns numbers between -1/2 and 1/2, a Weyl sequence that begins at a number of the key."""
    count = int(np.prod(shape, dtype=np.int64))
    numbers = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(2654435761) + np.uint64(zlib.crc32(key.encode()))
    return ((numbers % np.uint64(1 << 32)).astype(np.float64) / (1 << 32) - 0.5).astype(np.float32).reshape(shape)


def write_first_layer(path: Path, name: str) -> None:
    """Writes the folder of a decoder whose results are stored, without its second layer."""
    with np.load(REFERENCES) as stored:
        described = json.loads(bytes(stored[f"{name}/described"]))
    config = described["config"]
    config["n_layer" if name == "gpt2" else "num_hidden_layers"] = 1
    if config.get("layer_types") is not None:
        config["layer_types"] = config["layer_types"][:1]
    second = re.compile(r"\b(layers|h)\.1\.")
    write_folder(path, config, {key: shape for key, shape in described["shapes"].items() if not second.search(key)})


def write_folder(path: Path, config: Mapping[str, Any], shapes: Mapping[str, Sequence[int]], shards: int = 1) -> None:
    """Writes `config.json` and the weights, in several files with an index if there is more than one shard."""
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    keys = sorted(shapes)
    if shards == 1:
        save_file({key: fill(key, shapes[key]) for key in keys}, path / "model.safetensors")
        return
    index = {}
    for number in range(shards):
        file = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        save_file({key: fill(key, shapes[key]) for key in keys[number::shards]}, path / file)
        index |= dict.fromkeys(keys[number::shards], file)
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
