"""Encoders of text, images and speech: their sources, configurations, entries and names of parameters.

Each function reads the `config.json` of one `model_type`; the defaults are those of the package `transformers`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .config_json import Configuration
from .naming import Names

_T5_CONTEXT = 512
"""The number of tokens that T5 was trained with; its file states no limit."""


@dataclass(frozen=True, slots=True)
class Encoder:
    """A source, its configuration, the names of parameters by the instance in front of them, and its entries.

    probe: a parameter that every checkpoint has, from which the prefix of the keys is derived.
    """

    source: str
    config: Mapping[str, Any]
    names: Mapping[str, Names]
    probe: str
    entries: frozenset[str]


_BERT_LAYER = {
    "attn_q": "attention.self.query",
    "attn_k": "attention.self.key",
    "attn_v": "attention.self.value",
    "attn_output": "attention.output.dense",
    "attn_output_norm": "attention.output.LayerNorm",
    "ffn_up": "intermediate.dense",
    "ffn_down": "output.dense",
    "layer_output_norm": "output.LayerNorm",
}
_BERT = {
    "token_embd": "embeddings.word_embeddings",
    "positions.position_embd": "embeddings.position_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "token_embd_norm": "embeddings.LayerNorm",
    "attn_rel": "encoder.relative_attention_bias",
    "pooler": "pooler.dense",
}
_DISTILBERT_LAYER = {
    "attn_q": "attention.q_lin",
    "attn_k": "attention.k_lin",
    "attn_v": "attention.v_lin",
    "attn_output": "attention.out_lin",
    "attn_output_norm": "sa_layer_norm",
    "ffn_up": "ffn.lin1",
    "ffn_down": "ffn.lin2",
    "layer_output_norm": "output_layer_norm",
}
_MPNET_LAYER = _BERT_LAYER | {
    "attn_q": "attention.attn.q",
    "attn_k": "attention.attn.k",
    "attn_v": "attention.attn.v",
    "attn_output": "attention.attn.o",
    "attn_output_norm": "attention.LayerNorm",
}
_VIT_LAYER = {
    "attn_norm": "layernorm_before",
    "attn_q": "attention.attention.query",
    "attn_k": "attention.attention.key",
    "attn_v": "attention.attention.value",
    "attn_output": "attention.output.dense",
    "ffn_norm": "layernorm_after",
    "ffn_up": "intermediate.dense",
    "ffn_down": "output.dense",
}
_VIT = {
    "embd.class_embd": "embeddings.cls_token",
    "embd.position_embd": "embeddings.position_embeddings",
    "embd.patch_embd": "embeddings.patch_embeddings.projection",
    "output_norm": "layernorm",
    "pooler": "pooler.dense",
}
_OPENAI_LAYER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.out_proj",
    "ffn_up": "mlp.fc1",
    "ffn_down": "mlp.fc2",
    "attn_norm": "layer_norm1",
    "ffn_norm": "layer_norm2",
}
_WHISPER_LAYER = _OPENAI_LAYER | {
    "ffn_up": "fc1",
    "ffn_down": "fc2",
    "attn_norm": "self_attn_layer_norm",
    "ffn_norm": "final_layer_norm",
}
_T5_LAYER = {
    "attn_norm": "layer.0.layer_norm",
    "attn_q": "layer.0.SelfAttention.q",
    "attn_k": "layer.0.SelfAttention.k",
    "attn_v": "layer.0.SelfAttention.v",
    "attn_output": "layer.0.SelfAttention.o",
    "ffn_norm": "layer.1.layer_norm",
    "ffn_down": "layer.1.DenseReluDense.wo",
}


def bucket_of_distances(buckets: int, most: int) -> tuple[int, ...]:
    """Returns the bucket of each distance from -most to most: small distances have their own, larger ones share them by
    their logarithm (https://arxiv.org/abs/1910.10683)."""
    half = buckets // 2
    exact = half // 2
    near = np.arange(1, most + 1, dtype=np.float32)
    shared = np.log(near / np.float32(exact)) / np.float32(math.log(most / exact)) * np.float32(half - exact)
    found = np.where(near < exact, near, np.minimum(exact + np.trunc(shared), half - 1)).astype(int)
    return (*(int(n) for n in found[::-1]), 0, *(half + int(n) for n in found))


_MOST_DISTANCE = 1 << 16
"""The maximum distance of tokens with a bucket of its own; the source lists the bucket of each distance."""


def _distances(c: Configuration, buckets: int, most: int) -> tuple[int, ...]:
    if buckets < 4 or buckets % 2 or not buckets // 4 < most <= _MOST_DISTANCE:
        raise c.unsupported(f"has {buckets} buckets for distances up to {most}")
    return bucket_of_distances(buckets, most)


def _text(c: Configuration, layer: Mapping[str, str], prefixes: tuple[str, ...], **further: Any) -> Encoder:
    width = c.size("hidden_size")
    config = {
        "width": width,
        "layers": c.layers("num_hidden_layers"),
        "heads": c.size("num_attention_heads"),
        "hidden": c.size("intermediate_size"),
        "vocabulary": c.size("vocab_size"),
        "positions": c.size("max_position_embeddings"),
        "context": c.size("max_position_embeddings"),
        "types": 0,
        "epsilon": c.number("layer_norm_eps", 1e-12),
        "activation": c.activation("hidden_act", "gelu"),
        "padding": c.count("pad_token_id", 0),
        "counts_tokens": False,
        "buckets": 0,
        "distances": (),
        **further,
    }
    c.divided(width, int(config["heads"]))
    if c.text("position_embedding_type", "absolute") != "absolute":
        raise c.unsupported("has relative positions")
    names = Names("encoder.layer", _BERT, layer, prefixes)
    entries = {"encode", "embed"} | ({"encode_pairs"} if config["types"] > 1 else set())
    if any(c.has(prefix + "pooler.dense.weight") for prefix in prefixes):
        entries.add("pool")
    return Encoder("bert.nacre", config, {"": names}, "token_embd.weight", frozenset(entries))


def _bert(c: Configuration) -> Encoder:
    return _text(c, _BERT_LAYER, ("bert.", ""), types=c.size("type_vocab_size", 2))


def _counted(c: Configuration) -> dict[str, Any]:
    """Returns the configuration of RoBERTa, whose first position is the id of the padding token + 1."""
    padding = c.count("pad_token_id", 1)
    positions = c.size("max_position_embeddings")
    if positions <= padding + 1:
        raise c.unsupported(f"has {positions} positions with the padding token {padding}")
    return {"padding": padding, "context": positions - padding - 1, "counts_tokens": True}


def _roberta(c: Configuration) -> Encoder:
    return _text(c, _BERT_LAYER, ("roberta.", ""), types=c.size("type_vocab_size", 1), **_counted(c))


def _mpnet(c: Configuration) -> Encoder:
    buckets = c.size("relative_attention_num_buckets", 32)
    further = {"buckets": buckets, "distances": _distances(c, buckets, 128)}
    return _text(c, _MPNET_LAYER, ("mpnet.", ""), **_counted(c), **further)


def _distilbert(c: Configuration) -> Encoder:
    values = {
        "hidden_size": c.size("dim", 768),
        "num_hidden_layers": c.layers("n_layers", 6),
        "num_attention_heads": c.size("n_heads", 12),
        "intermediate_size": c.size("hidden_dim", 3072),
        "hidden_act": c.text("activation", "gelu"),
        **c.values,
    }
    made = _text(Configuration(c.path, values, c.checkpoint), _DISTILBERT_LAYER, ("distilbert.", ""))
    names = Names("transformer.layer", _BERT, _DISTILBERT_LAYER, ("distilbert.", ""))
    return Encoder(made.source, made.config, {"": names}, made.probe, made.entries)


def _image(c: Configuration) -> dict[str, Any]:
    side, patch = c.size("image_size", 224), c.size("patch_size", 16)
    if side % patch:
        raise c.unsupported(f"divides a side of {side} into patches of {patch}")
    c.divided(c.size("hidden_size"), c.size("num_attention_heads"))
    return {
        "width": c.size("hidden_size"),
        "layers": c.layers("num_hidden_layers"),
        "heads": c.size("num_attention_heads"),
        "hidden": c.size("intermediate_size"),
        "side": side,
        "patch": patch,
        "channels": c.size("num_channels", 3),
    }


def _vit(c: Configuration) -> Encoder:
    if not c.flag("qkv_bias", True):
        raise c.unsupported("has products without a bias")
    prefixes = ("vit.", "")
    classes = c.checkpoint.info("classifier.weight")[1][:1] if c.has("classifier.weight") else ()
    config = {
        **_image(c),
        "epsilon": c.number("layer_norm_eps", 1e-12),
        "activation": c.activation("hidden_act", "gelu"),
        "class_has_axes": True,
        "classes": classes[0] if classes else 1,
    }
    names = Names("encoder.layer", _VIT, _VIT_LAYER, prefixes, frozenset({"classifier"}))
    entries = {"encode"} | ({"classify"} if classes else set())
    if any(c.has(prefix + "pooler.dense.weight") for prefix in prefixes):
        entries.add("pool")
    return Encoder("vit.nacre", config, {"": names}, "embd.class_embd", frozenset(entries))


def _clip(c: Configuration) -> Encoder:
    text, image = c.inner("text_config"), c.inner("vision_config")
    texts = Configuration(
        c.path,
        {
            "hidden_size": 512,
            "num_hidden_layers": 12,
            "num_attention_heads": 8,
            "intermediate_size": 2048,
            **text.values,
        },
        c.checkpoint,
    )
    images = Configuration(
        c.path,
        {
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
            "patch_size": 32,
            **image.values,
        },
        c.checkpoint,
    )
    common = [
        {"epsilon": p.number("layer_norm_eps", 1e-5), "activation": p.activation("hidden_act", "quick_gelu")}
        for p in (texts, images)
    ]
    config = {
        "shared": c.size("projection_dim", 512),
        "channels": images.size("num_channels", 3),
        "class_has_axes": False,
        "image": {**_image(images), **common[1]},
        "text": {
            "width": texts.size("hidden_size"),
            "layers": texts.layers("num_hidden_layers"),
            "heads": texts.size("num_attention_heads"),
            "hidden": texts.size("intermediate_size"),
            "vocabulary": texts.size("vocab_size", 49408),
            "context": texts.size("max_position_embeddings", 77),
            "end": texts.count("eos_token_id", 49407),
            **common[0],
        },
    }
    texts.divided(texts.size("hidden_size"), texts.size("num_attention_heads"))
    words = {
        "token_embd": "text_model.embeddings.token_embedding",
        "position_embd": "text_model.embeddings.position_embedding",
        "output_norm": "text_model.final_layer_norm",
    }
    pictures = {
        "embd.class_embd": "vision_model.embeddings.class_embedding",
        "embd.position_embd": "vision_model.embeddings.position_embedding.weight",
        "embd.patch_embd": "vision_model.embeddings.patch_embedding",
        "pre_norm": "vision_model.pre_layrnorm",
        "output_norm": "vision_model.post_layernorm",
    }
    names = {
        "text": Names("text_model.encoder.layers", words, _OPENAI_LAYER),
        "image": Names("vision_model.encoder.layers", pictures, _OPENAI_LAYER),
        "": Names("", {"image_projection": "visual_projection"}, {}),
    }
    return Encoder("clip.nacre", config, names, "text_projection.weight", frozenset({"embed_text", "embed_image"}))


def _t5(c: Configuration) -> Encoder:
    heads, gated = c.size("num_heads"), c.text("feed_forward_proj", "relu").startswith("gated-")
    kind = c.text("feed_forward_proj", "relu").removeprefix("gated-")
    act = "gelu_new" if gated and kind == "gelu" else kind
    buckets = c.size("relative_attention_num_buckets", 32)
    config = {
        "width": c.size("d_model"),
        "inner": heads * c.size("d_kv"),
        "layers": c.layers("num_layers"),
        "heads": heads,
        "hidden": c.size("d_ff"),
        "vocabulary": c.size("vocab_size"),
        "context": max(c.size("n_positions", _T5_CONTEXT), _T5_CONTEXT),
        "epsilon": c.number("layer_norm_epsilon", 1e-6),
        "activation": Configuration(c.path, {"feed_forward_proj": act}, c.checkpoint).activation("feed_forward_proj"),
        "gated": gated,
        "buckets": buckets,
        "distances": _distances(c, buckets, c.size("relative_attention_max_distance", 128)),
    }
    whole = {
        "token_embd": "shared" if c.has("shared.weight") else "encoder.embed_tokens",
        "attn_rel": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
        "output_norm": "encoder.final_layer_norm",
    }
    feed = {"ffn_gate": "wi_0", "ffn_up": "wi_1"} if gated else {"ffn_up": "wi"}
    layer = _T5_LAYER | {own: f"layer.1.DenseReluDense.{name}" for own, name in feed.items()}
    names = Names("encoder.block", whole, layer)
    return Encoder("t5.nacre", config, {"": names}, "token_embd.weight", frozenset({"encode"}))


def _whisper(c: Configuration) -> Encoder:
    width, heads = c.size("d_model"), c.size("encoder_attention_heads")
    c.divided(width, heads)
    config = {
        "width": width,
        "layers": c.layers("encoder_layers"),
        "heads": heads,
        "hidden": c.size("encoder_ffn_dim"),
        "bands": c.size("num_mel_bins", 80),
        "positions": c.size("max_source_positions", 1500),
        "activation": c.activation("activation_function", "gelu"),
        "epsilon": 1e-5,
    }
    whole = {"position_embd": "embed_positions", "output_norm": "layer_norm"}
    names = Names("layers", whole, _WHISPER_LAYER, ("model.encoder.", "encoder.", ""))
    return Encoder("whisper.nacre", config, {"": names}, "conv1.weight", frozenset({"encode"}))


ENCODERS: Mapping[str, Callable[[Configuration], Encoder]] = {
    "bert": _bert,
    "clip": _clip,
    "distilbert": _distilbert,
    "mpnet": _mpnet,
    "roberta": _roberta,
    "t5": _t5,
    "vit": _vit,
    "whisper": _whisper,
    "xlm-roberta": _roberta,
}
"""The readers of configurations, by `model_type`."""
