"""GGUF files that are valid but describe no model give one diagnostic."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from nacre.compiler.checking import read_model
from nacre.compiler.model.parameters import open_parameters
from nacre.compiler.readers.gguf.decoder_families import FAMILIES
from nacre.compiler.readers.gguf.metadata import read_metadata
from nacre.compiler.readers.gguf.vocabulary import tokenizer_document
from nacre.compiler.weights.gguf_file import open_gguf
from nacre.dialect.diagnostics import DiagnosticError
from reference_files import write_reference
from weights.gguf_bytes import Stored, gguf_bytes

GOOD: dict[str, object] = {
    "general.architecture": "llama",
    "llama.context_length": 16,
    "llama.embedding_length": 32,
    "llama.block_count": 1,
    "llama.feed_forward_length": 32,
    "llama.attention.head_count": 4,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
}
TENSORS = [
    Stored("token_embd.weight", (8, 32), 0, bytes(1024)),
    Stored("output_norm.weight", (32,), 0, bytes(128)),
    Stored("blk.0.attn_norm.weight", (32,), 0, bytes(128)),
]
LETTERS: dict[str, object] = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": ["a", "b"],
    "tokenizer.ggml.scores": [0.0, 0.0],
}
BAD: dict[str, tuple[dict[str, object], str]] = {
    "no architecture": ({"general.architecture": None}, "does not state its `general.architecture`"),
    "other architecture": ({"general.architecture": "whisper"}, "has the unknown architecture `whisper`"),
    "no size": ({"llama.context_length": None}, "does not state its `llama.context_length`"),
    "many layers": ({"llama.block_count": 1 << 30}, "has 1073741824 blocks, without tensors of the last one"),
    "factor": (
        {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 0.0},
        "`llama.rope.scaling.factor` of .* is 0.0, which is not positive",
    ),
    "window": ({"llama.attention.sliding_window": [1, 2]}, "sliding_window` .*, not a count"),
    "pattern of windows": (
        {"llama.attention.sliding_window": 4, "llama.attention.sliding_window_pattern": [True, False]},
        "sliding_window_pattern` of .* is .True, False., not a flag for each of 1 blocks",
    ),
    "no layers": ({"llama.block_count": 0}, "`llama.block_count` of .* is 0, not a size"),
    "text": ({"llama.embedding_length": "32"}, "`llama.embedding_length` of .* is '32', not a size"),
    "huge": ({"llama.embedding_length": 0xFFFFFFFF}, "is 4294967295, not a size"),
    "heads": ({"llama.attention.head_count_kv": 3}, "has 4 heads of queries for 3 heads of keys"),
    "rotated": ({"llama.rope.dimension_count": 10}, "rotates 10 of 8 numbers of a head"),
    "odd": ({"llama.rope.dimension_count": 7}, "rotates 7 of 8 numbers of a head"),
    "not finite": (
        {"llama.rope.freq_base": float("inf")},
        "`llama.rope.freq_base` of .* is inf, not a number",
    ),
    "scaling": ({"llama.rope.scaling.type": "longrope"}, "positions of the base 10000.0 by `longrope`, which is not"),
    "base": (
        {"llama.rope.scaling.type": "yarn", "llama.rope.freq_base": 0.5},
        "of the base 0.5 by `yarn`, which is not",
    ),
    "extrapolated": (
        {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.yarn_ext_factor": 0.5},
        "states its `rope.scaling.yarn_ext_factor`, which is not supported",
    ),
    "experts": ({"llama.expert_count": 8}, "does not state its `llama.expert_used_count`"),
    "chosen": ({"llama.expert_count": 8, "llama.expert_used_count": 9}, "chooses 9 of 8 experts"),
    "numbers as text": ({"llama.rope.scaling.type": [1, 2]}, "scaling.type` of .*, not text"),
    "text as a number": ({"llama.attention.sliding_window": "a"}, "sliding_window` of .* is 'a', not a count"),
    "texts as a number": ({"llama.expert_count": ["a", "b"]}, "expert_count` of .*, not a count"),
    "lengths of values": ({"llama.attention.value_length": [1, 2]}, "value_length` of .*, not a size"),
    "beyond f32": (
        {"llama.rope.freq_base": np.float64(1e300)},
        r"`llama.rope.freq_base` of .* is 1e\+300, not a number",
    ),
    "missing tensors": ({}, "has no tensor|is missing"),
    "tokenizer": ({"tokenizer.ggml.model": "bert"}, "tokenizer of the unknown kind `bert`"),
    "kinds of tokenizers": ({"tokenizer.ggml.model": [1, 2]}, "tokenizer of the unknown kind"),
    "bytes": ({**LETTERS, "tokenizer.ggml.tokens": ["a", "\udcff"]}, "token 1 of the tokenizer of .* is not UTF-8"),
    "template": ({**LETTERS, "tokenizer.chat_template": "\udcff"}, "the template of conversations of .* is not UTF-8"),
    "begin": (
        {**LETTERS, "tokenizer.ggml.bos_token_id": 2},
        "begin with token 2, and its tokenizer has 2 tokens",
    ),
    "begin flag": (
        {**LETTERS, "tokenizer.ggml.add_bos_token": [1, 2]},
        "`tokenizer.ggml.add_bos_token` of .*, not true or false",
    ),
    "space flag": (
        {**LETTERS, "tokenizer.ggml.add_space_prefix": "a"},
        "`tokenizer.ggml.add_space_prefix` of .* is 'a', not true or false",
    ),
    "part of a merge": (
        {**LETTERS, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.merges": ["a c"]},
        "merges `a` and `c`, which are not tokens, or make none",
    ),
    "merged": (
        {**LETTERS, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.merges": ["a b"]},
        "merges `a` and `b`, which are not tokens, or make none",
    ),
    "no tokens": ({"tokenizer.ggml.model": "gpt2"}, "a tokenizer without tokens"),
    "no merges": (
        {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a"]},
        "a tokenizer without merges",
    ),
    "no scores": (
        {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["a"]},
        "without a score for each token",
    ),
    "types": (
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": ["a"],
            "tokenizer.ggml.token_type": [1, 1],
        },
        "has 1 tokens and 2 types of them",
    ),
    "splits": (
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.tokens": ["a"],
            "tokenizer.ggml.merges": ["a a"],
            "tokenizer.ggml.pre": "x",
        },
        "splits text like `x`",
    ),
}


def test_a_vector_that_is_stored_as_a_matrix(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    tensors = [replace(tensor, shape=(1, *tensor.shape)) if len(tensor.shape) == 1 else tensor for tensor in TENSORS]
    path.write_bytes(gguf_bytes(tensors, GOOD))
    with pytest.raises(DiagnosticError, match=r"`output_norm.weight`.*f32\[1, 32\]"):
        open_parameters(read_model(path))


def test_positions_scaled_by_yarn(tmp_path: Path) -> None:
    """The numbers are those of the same parameters in a folder, which tests of folders compare with transformers."""
    changes: dict[str, object] = {
        "llama.rope.scaling.type": "yarn",
        "llama.rope.scaling.factor": 4.0,
        "llama.rope.scaling.original_context_length": 64,
        "llama.attention.key_length": 16,
    }
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_bytes(TENSORS, GOOD | changes))
    opened = open_gguf(path)
    decoder = FAMILIES["llama"](read_metadata(opened.header, opened.checkpoint))
    np.testing.assert_allclose(decoder.factors, (1.0, 1.333333, 2.0, *[4.0] * 5), rtol=2e-6)
    np.testing.assert_allclose(decoder.rotary_scale, 1.1386294, rtol=1e-6)


def test_tensors_that_the_model_does_not_read(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_reference(path, "qwen3", further={f"blk.{n}.attn_sinks.weight": np.zeros(4, np.float32) for n in range(2)})
    message = "does not read: `blk.0.attn_sinks.weight`, `blk.1.attn_sinks.weight`$"
    with pytest.raises(DiagnosticError, match=message):
        read_model(path)


@pytest.mark.parametrize("divisors", [[1.0, 0.0, 1.0, 1.0], [1.0, np.nan, 1.0, 1.0], [1.0, 1.0]])
def test_bad_divisors_of_frequencies(divisors: list[float], tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_reference(path, "phi3-long", further={"rope_factors_long.weight": np.array(divisors, np.float32)})
    with pytest.raises(DiagnosticError, match="is not one positive divisor for each of 4 pairs"):
        read_model(path)


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_describes_no_model(name: str, tmp_path: Path) -> None:
    changes, message = BAD[name]
    metadata = {key: value for key, value in (GOOD | changes).items() if value is not None}
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_bytes(TENSORS, metadata))
    with pytest.raises(DiagnosticError, match=message):
        open_parameters(read_model(path))


def test_tokens_for_filling_in_the_middle(tmp_path: Path) -> None:
    """A file states the ids of all three tokens, or the tokens are found by their texts."""
    path = tmp_path / "model.gguf"
    ids = {"tokenizer.ggml.fim_pre_token_id": 1, "tokenizer.ggml.fim_suf_token_id": 0}
    texts = ["<fim_prefix>", "<fim_suffix>", "a", "<fim_middle>", "<fim_pad>"]
    named = {"tokenizer.ggml.tokens": texts, "tokenizer.ggml.scores": [0.0] * 5}
    cases: list[tuple[dict[str, object], list[int] | None, list[int]]] = [
        ({**ids, "tokenizer.ggml.fim_mid_token_id": 1, "tokenizer.ggml.fim_pad_token_id": 0}, [1, 0, 1], [0]),
        (ids, None, []),
        ({**ids, "tokenizer.ggml.fim_mid_token_id": 9}, None, []),
        (named, [0, 1, 3], [4]),
    ]
    for changes, fill, end in cases:
        templates = {"tokenizer.chat_template": "a", "tokenizer.chat_template.tool_use": "b"}
        path.write_bytes(gguf_bytes(TENSORS, {**LETTERS, **changes, **templates}))
        document = json.loads(tokenizer_document(open_gguf(path).header) or b"")
        assert (document.get("fill"), document["end"]) == (fill, end)
        assert (document["template"], document["tool_template"]) == ("a", "b")
