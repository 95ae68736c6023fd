"""Models of random weights: a step of decoding reads every weight and the cache once, and little else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from nacre.compiler.checking import read_model
from nacre.compiler.lower.lowered import static_bytes
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.quantization.choose import in_precision
from nacre.compiler.targets.target import parse_targets
from nacre.compiler.weights.gguf_header import read_header
from nacre.dialect.dims import evaluate

VARIANT = Options(targets=parse_targets("x86-64-v3"))
TOKENS = 16
"""The tokens for which the cache has room."""
UPDATES = 2
"""The kernels that write a row of a state of keys or values in place; the report counts the whole state."""


def test_files_suit_other_programs(tmp_path: Path) -> None:
    """OpenVINO GenAI needs a tokenizer and the type of the file, and stores equal matrices once."""
    language_files = pytest.importorskip("language_files", reason="needs the package gguf", exc_type=ImportError)
    path = tmp_path / "model.gguf"
    language_files.write_file(path, replace(language_files.SHAPES["llama-26m"], layers=2), "q4_0")
    header = read_header(path)
    assert header.metadata["general.file_type"] == 2
    assert len(header.metadata["tokenizer.ggml.tokens"]) == 4096
    content = path.read_bytes()
    matrices = [content[t.offset : t.offset + t.bytes] for t in header.tensors if len(t.shape) == 2]
    assert len(set(matrices)) == len(matrices)


@pytest.mark.parametrize("format", ["q4_0", "q6_k"])
@pytest.mark.parametrize("precision", [None, "a8"])
def test_a_step_of_decoding_reads_weights_and_cache_once(format: str, precision: str | None, tmp_path: Path) -> None:
    language_files = pytest.importorskip("language_files", reason="needs the package gguf", exc_type=ImportError)
    shape = replace(language_files.SHAPES["llama-26m"], layers=2, hidden=1536)
    path = tmp_path / "model.gguf"
    language_files.write_file(path, shape, format)
    build, plain = (Build(in_precision(read_model(path), each), VARIANT) for each in (precision, None))
    build.lower(build.optimize())
    # The widths of these matrices are multiples of a panel of f32, so that no weight is padded with zeros.
    weights = [w for w in plain.lower(plain.optimize()).weights if "token_embd" not in w.name]
    needed = sum(static_bytes(weight.type) for weight in weights)
    state = TOKENS * shape.width // shape.heads * shape.shared * 4
    (report,) = (report for report in build.report({"S": TOKENS}) if report.name == "decode")
    read = sum(evaluate(k.bytes, {"S": TOKENS}) * evaluate(k.calls, {"S": TOKENS}) for k in report.kernels)
    # Attention reads two states, and an update of each one counts as a read and a write.
    states = shape.layers * state * (2 + 2 * UPDATES)
    # The vectors between kernels: five of the width and of the hidden size in each layer, and the logits twice.
    vectors = 4 * (shape.layers * 5 * (shape.width + shape.hidden) + 2 * shape.vocabulary)
    most = needed + states + vectors
    assert needed <= read <= most
    # A second reading of any matrix would exceed the bound.
    assert most < read + min(t.bytes for t in read_header(path).tensors if len(t.shape) == 2)
