"""Matrices in Q2_K to Q6_K, IQ4_NL and MXFP4 stay quantized; results are those of the numbers of the package `gguf`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from click.testing import CliRunner
from nacre.compiler.checking import read_model
from nacre.compiler.cli.importing import import_command
from nacre.compiler.lower.lowered import static_bytes
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.quantization.choose import in_precision
from nacre.compiler.quantization.effects import find_faster_precision
from nacre.compiler.targets.target import parse_targets
from nacre.compiler.validate.checker import choose_observer
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.graph import walk
from nacre.dialect.types import F32
from readers.huggingface.interpreted import InterpretedSession
from weights.gguf_bytes import Stored, gguf_bytes

quants = pytest.importorskip("gguf.quants", reason="the package gguf is not installed")
constants = pytest.importorskip("gguf.constants")

Array = np.ndarray[Any, Any]
FORMATS = {"Q2_K": (10, 84), "Q3_K": (11, 110), "Q4_K": (12, 144), "Q5_K": (13, 176), "Q6_K": (14, 210)}
FORMATS |= {"IQ4_NL": (20, 8 * 18), "MXFP4": (39, 8 * 17)}
"""The number of each format in a file, and the bytes of 256 numbers."""
SCALES = {"Q2_K": (80, 2, 0.25), "Q3_K": (108, 1, 1), "Q4_K": (0, 2, 8), "Q5_K": (0, 2, 8), "Q6_K": (208, 1, 32)}
"""The place and the count of the scales in f16 of a block, and a divisor that gives all numbers the same magnitude."""
BITS = {"Q2_K": 8.5, "Q3_K": 6.5, "Q4_K": 6.25, "Q5_K": 10, "Q6_K": 10, "IQ4_NL": 4.5, "MXFP4": 4.5}
"""The bits of a number of a matrix in an artifact: the value, and a part of the f32 scale, the minimum and the zero
point of its block."""
WIDTH, VOCABULARY, CONTEXT = 256, 24, 8
IDS = np.array([3, 0, 23, 11, 7, 7, 15, 1], np.int32)
METADATA: dict[str, object] = {
    "general.architecture": "llama",
    "llama.context_length": CONTEXT,
    "llama.embedding_length": WIDTH,
    "llama.block_count": 1,
    "llama.feed_forward_length": WIDTH,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 1,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
}
MATRICES = {"token_embd": VOCABULARY, "output": VOCABULARY} | {
    f"blk.0.{name}": rows
    for name, rows in {
        "attn_q": 256, "attn_k": 64, "attn_v": 64, "attn_output": 256, "ffn_gate": 256, "ffn_up": 256, "ffn_down": 256,
    }.items()
}  # fmt: skip


def _blocks(kind: str, rows: int, seed: int) -> Array:
    """Returns rows of 256 random numbers of a magnitude of about 1 / 16."""
    _, size = FORMATS[kind]
    random = np.random.default_rng(seed)
    data = random.integers(0, 256, (rows, size)).astype(np.uint8)
    if kind == "MXFP4":
        data[:, ::17] = random.integers(120, 123, (rows, 8))
        return data
    if kind == "IQ4_NL":
        parts = data.reshape(-1, 18)
        parts[:, :2] = random.uniform(5e-4, 1e-3, (len(parts), 1)).astype(np.float16).view(np.uint8)
        return data
    begin, count, divisor = SCALES[kind]
    scales = random.uniform(1e-3, 2e-3, (rows, count)).astype(np.float16) / np.float16(divisor)
    data[:, begin : begin + 2 * count] = scales.view(np.uint8)
    return data


def _write(path: Path, kind: str, *, decoded: bool) -> None:
    number, _ = FORMATS[kind]
    tensors = [Stored(f"{n}.weight", (WIDTH,), 0, np.ones(WIDTH, np.float32).tobytes()) for n in
               ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm")]  # fmt: skip
    for seed, (name, rows) in enumerate(MATRICES.items()):
        data = _blocks(kind, rows, seed)
        if decoded:
            floats = quants.dequantize(data, constants.GGMLQuantizationType(number))
            tensors.append(Stored(f"{name}.weight", (rows, WIDTH), 0, floats.astype(np.float32).tobytes()))
        else:
            tensors.append(Stored(f"{name}.weight", (rows, WIDTH), number, data.tobytes()))
    path.write_bytes(gguf_bytes(tensors, METADATA))


@dataclass(frozen=True)
class Case:
    """The build of a file in one format, which checks its stages, and the logits of the numbers that it holds."""

    build: Build
    expected: Array

    @property
    def tolerance(self) -> float:
        return 1e-5 * float(np.abs(self.expected).max())


@pytest.fixture(scope="module")
def case_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    """Returns the case of a format, which its tests share."""

    @cache
    def make(kind: str) -> Case:
        folder = tmp_path_factory.mktemp(kind)
        _write(folder / "floats.gguf", kind, decoded=True)
        expected = InterpretedSession(read_model(folder / "floats.gguf"), S=CONTEXT).call("score", IDS)
        _write(folder / "model.gguf", kind, decoded=False)
        source, options = read_model(folder / "model.gguf"), Options()
        return Case(Build(source, options, observer=choose_observer(source, options, check=False)), expected)

    return make


@pytest.mark.parametrize("kind", FORMATS)
def test_matrices_stay_quantized(kind: str, case_of: Callable[[str], Case]) -> None:
    case = case_of(kind)
    found = InterpretedSession(case.build.source_model, S=CONTEXT).call("score", IDS)
    np.testing.assert_allclose(found, case.expected, rtol=0, atol=case.tolerance)
    case.build.make("optimized")
    module = case.build.optimized
    assert module is not None
    large = [p for p in module.parameters if p.type.dtype is F32 and p.type.elements >= VOCABULARY * WIDTH]
    assert not large, [str(p) for p in large]
    stored = sum(static_bytes(p.type) for p in module.parameters if "blk" in p.name and p.type.rank > 1)
    count = WIDTH * sum(rows for name, rows in MATRICES.items() if name.startswith("blk"))
    assert stored * 8 == BITS[kind] * count, [str(p) for p in module.parameters]
    operators = [node.op for node in walk(module.function("decode").body)]
    assert operators.count("block_matmul") == len(MATRICES) - 1


@pytest.mark.parametrize("kind", ["Q3_K", "Q4_K", "Q6_K", "IQ4_NL", "MXFP4"])
def test_products_with_rounded_activations_are_integer(kind: str, case_of: Callable[[str], Case]) -> None:
    expected = case_of(kind).expected
    plain, targets = case_of(kind).build.source_model, parse_targets("znver4")
    rounded = in_precision(plain, "a8")
    assert [find_faster_precision(each.module, targets) for each in (plain, rounded)] == ["a8", None]
    found = InterpretedSession(rounded, S=CONTEXT).call("score", IDS)
    # The largest of 256 factors is 2.8 deviations, so steps of 1 / 127 of it add 0.64 % of noise to a product, and
    # seven products in a row 1.7 %. Twice as much is allowed, since layers amplify noise.
    error = float(np.abs(found - expected).max() / np.abs(expected).max())
    assert 1e-4 < error < 0.034, error
    operators = [node.op for node in walk(Build(rounded).optimize().function("decode").body)]
    assert operators.count("block_dot") == len(MATRICES) - 1 and "block_matmul" not in operators


def test_parameters_in_blocks_cannot_be_imported_as_text(tmp_path: Path) -> None:
    _write(tmp_path / "model.gguf", "Q4_K", decoded=False)
    run = CliRunner().invoke(import_command, [str(tmp_path / "model.gguf")])
    assert isinstance(run.exception, DiagnosticError)
    assert [d.code for d in run.exception.diagnostics] == ["not-expressible"]
    assert not (tmp_path / "model.nacre").exists()


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("kind", FORMATS)
def test_compiled_models_agree(
    kind: str, level: int, case_of: Callable[[str], Case], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    if level == 0 and not pytestconfig.getoption("--variants"):
        pytest.skip("level 0 runs with --variants; the interpreter checks it by default")
    case, path = case_of(kind), tmp_path / "model.so"
    if level == case.build.options.level:
        case.build.run(path)
    else:
        nacre.compile(case.build.source_model, path, opt_level=level)
    session = nacre.load(path).session(S=CONTEXT)
    check = partial(np.testing.assert_allclose, rtol=0, atol=case.tolerance)
    check(session.entries["score"](IDS), case.expected)
    session.reset()
    for token, row in zip(IDS, case.expected, strict=True):
        check(session.entries["decode"](np.array([token])), row)
