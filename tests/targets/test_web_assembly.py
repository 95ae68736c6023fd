"""Modules of WebAssembly: their code, the errors about them, and the program of the documentation."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.dumps import Dumps
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.readers.language import load_module
from nacre.compiler.targets.target import parse_targets
from nacre.dialect.diagnostics import DiagnosticError
from nacre.runtime.library import ArtifactError, read_note
from web_assembly import TRIPLE, Instance, compile_module, need_engine

PAGE = Path(__file__).parents[2] / "compiler" / "docs" / "artifact.md"
SOFTMAX = "model m(x: f32[4]) -> f32[4] { return softmax(x) * 2 }"
ROWS = "dim N in 1..64\nmodel m(table: f32[N, 3], i: i64[]) -> f32[3] { return table[i] }"
X = np.array([-1, 0.5, 2, 3], np.float32)
EXPECTED = 2 * np.exp(X) / np.exp(X).sum()


def build(text: str, folder: Path, **options: object) -> Path:
    path = folder / "model.wasm"
    Build(load_module(text, text=True), Options(targets=parse_targets(TRIPLE), **options)).run(path)  # type: ignore[arg-type]
    return path


def test_matrix_products_use_vectors_and_keep_8_accumulators(tmp_path: Path) -> None:
    text = "model m(x: f32[128, 384], w: f32[384, 1536]) -> f32[128, 1536] { return x @ w }"
    made = Build(load_module(text, text=True), Options(targets=parse_targets(TRIPLE)), Dumps(tmp_path))
    program = made.generate(made.lower(made.optimize()))
    assert not program.untiled
    made.generate_entries(program)
    (path,) = tmp_path.glob("*-assembly.s")
    loops = re.split(r"\tloop ", path.read_text())[1:]
    best = max(loops, key=lambda loop: loop.split("end_loop")[0].count("f32x4.mul"))
    inner = best.split("end_loop")[0]
    assert inner.count("f32x4.mul") == inner.count("f32x4.add") == 8, inner
    assert "v128.store" not in inner


def test_the_program_of_the_documentation(tmp_path: Path) -> None:
    need_engine()
    if shutil.which("node") is None:
        pytest.skip("needs Node.js")
    (program,) = re.findall(r"```js\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "call.mjs").write_text(program)
    command = ["node", "--no-warnings", str(tmp_path / "call.mjs"), str(build(SOFTMAX, tmp_path))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose([float(x) for x in done.stdout.split()], EXPECTED, atol=2e-6)


def test_the_same_model_gives_the_same_module(tmp_path: Path) -> None:
    need_engine()
    first = build(SOFTMAX, tmp_path).read_bytes()
    assert build(SOFTMAX, tmp_path).read_bytes() == first


def test_an_index_out_of_range_fails_the_call(tmp_path: Path) -> None:
    need_engine()
    instance = Instance(compile_module(build(ROWS, tmp_path)))
    table = np.arange(6, dtype=np.float32).reshape(2, 3)
    result = np.zeros(3, np.float32)
    (row,) = instance.run(0, [table, np.array(1)], [result])  # type: ignore[misc]
    np.testing.assert_array_equal(row, table[1])
    assert instance.run(0, [table, np.array(2)], [result]) == 6
    assert "index 2 is out of range for an axis of size 2" in instance.text(instance.call("last_error"))


def test_weights_cannot_be_beside_a_module(tmp_path: Path) -> None:
    need_engine()
    with pytest.raises(DiagnosticError, match="no file system to read external weights"):
        build(SOFTMAX, tmp_path, weights="external")
    assert not list(tmp_path.iterdir())


def test_a_module_is_not_loaded_as_a_library(tmp_path: Path) -> None:
    path = tmp_path / "model.wasm"
    path.write_bytes(b"\0asm\1\0\0\0")
    with pytest.raises(ArtifactError, match="is for WebAssembly, this machine is"):
        read_note(path)
    with pytest.raises(nacre.NacreError, match="is for WebAssembly"):
        nacre.load(path)
