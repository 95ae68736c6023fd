"""A language model of one layer with random weights, as a GGUF file with a tokenizer over letters and bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from weights.gguf_bytes import Stored, gguf_bytes

LETTERS = "abcdefghijklmnopqrstuvwxyz.?"
TOKENS = [
    *("<unk>", "<s>", "</s>", "<|user|>", "<|bot|>"),
    *(f"<0x{i:02X}>" for i in range(256)),
    *("\u2581", *LETTERS, "th", "the", "\u2581the"),
]
TYPES = [2, 3, 3, 3, 3, *[6] * 256, *[1] * (len(TOKENS) - 261)]
SCORES = [*[0.0] * 261, *(-float(i) for i in range(len(TOKENS) - 261))]
TEMPLATE = (
    "{% for message in messages %}{% if message.role == 'forbidden' %}{{ raise_exception('no such role') }}{% endif %}"
    "<|{{ message.role[:4] if message.role == 'user' else 'bot' }}|>{{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|bot|>{% endif %}"
)
TOOL_TEMPLATE = (
    "{% if tools %}<tool_call>{% for tool in tools %}{{ tool.function.name }}.{% endfor %}{% endif %}"
    "{% for message in messages %}<|{{ 'user' if message.role == 'user' else 'bot' }}|>{{ message.content }}"
    "{% for call in message.tool_calls %}<tool_call>{{ call.function | tojson }}{% endfor %}{% endfor %}<|bot|>"
)
"""Describes tools, and shows calls in a notation that the server recognizes."""
CONTEXT, LONGEST, WIDTH, HIDDEN = 48, 640, 32, 32
"""The capacity of sessions in most tests, the largest capacity, and the widths of the model."""
PAGE = 5
"""Tokens of a page, in models compiled for several texts."""


def write_talker(path: Path, template: str = TEMPLATE) -> None:
    rng = np.random.default_rng(5)
    shapes = {
        "token_embd.weight": (len(TOKENS), WIDTH),
        "output.weight": (len(TOKENS), WIDTH),
        "output_norm.weight": (WIDTH,),
        **{f"blk.0.{name}_norm.weight": (WIDTH,) for name in ("attn", "ffn")},
        **{f"blk.0.attn_{name}.weight": (WIDTH, WIDTH) for name in ("q", "k", "v", "output")},
        **{f"blk.0.ffn_{name}.weight": (WIDTH, HIDDEN) for name in ("gate", "up", "down")},
    }
    tensors = []
    for name, shape in shapes.items():
        data = rng.standard_normal(shape).astype(np.float32)
        if name == "output.weight":
            data[2:261] = 0  # answers are mostly letters
        tensors.append(Stored(name, shape, 0, data.tobytes()))
    metadata: dict[str, object] = {
        "general.architecture": "llama",
        "llama.context_length": LONGEST,
        "llama.embedding_length": WIDTH,
        "llama.block_count": 1,
        "llama.feed_forward_length": HIDDEN,
        "llama.attention.head_count": 2,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.scores": SCORES,
        "tokenizer.ggml.token_type": TYPES,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    if template:
        metadata["tokenizer.chat_template"] = template
    path.write_bytes(gguf_bytes(tensors, metadata))
