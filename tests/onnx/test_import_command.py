"""`nacre import`: the written text and parameters are the model of the ONNX file."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import onnx
import pytest
from nacre.compiler.cli.main import run
from nacre.compiler.tools.reference.reader_operators import ONNX
from onnx import helper, parser

TEXT = """net (float[N, 5] x) => (float[N, 7] y) {
  h = Gemm<transB = 1>(x, layer.weight, layer.bias)
  r = Relu(h)
  y = Softmax(r)
}""".replace("layer.", "layer_")


def saved(folder: Path) -> Path:
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> {TEXT}')
    rng = np.random.default_rng(0)
    for name, shape in (("layer_weight", (7, 5)), ("layer_bias", (7,))):
        values = rng.standard_normal(shape).astype(np.float32)
        stored = name.replace("_", ".", 1)
        model.graph.initializer.append(helper.make_tensor(stored, 1, shape, values.reshape(-1)))
        for node in model.graph.node:
            for number, used in enumerate(node.input):
                if used == name:
                    node.input[number] = stored
    path = folder / "net.onnx"
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("suffix", [".nacre", ".graph"])
def test_the_written_model_computes_the_same(suffix: str, tmp_path: Path) -> None:
    path, written = saved(tmp_path), tmp_path / f"written{suffix}"
    assert run(["import", str(path), "-o", str(written)]) == 0
    stored = written.with_suffix(".safetensors")
    text = written.read_text()
    assert "layer.weight" in text and stored.exists()
    weights = None if suffix == ".nacre" else stored
    model = nacre.compile(written, tmp_path / "written.so", weights=weights)
    x = np.random.default_rng(1).standard_normal((4, 5)).astype(np.float32)
    np.testing.assert_array_equal(model(x), nacre.compile(path, tmp_path / "net.so")(x))


def test_without_an_output_the_text_is_written_beside_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And not in the current folder; the command and its help say so."""
    path = saved(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert run(["import", str(path)]) == 0
    written = path.with_suffix(".nacre"), path.with_suffix(".safetensors")
    assert all(each.exists() for each in written) and not list(Path().iterdir())
    assert f"wrote {written[0]} and {written[1]}" in capsys.readouterr().err
    assert run(["import", "--help"]) == 0
    assert "the text is written beside FILE" in capsys.readouterr().out


def test_another_suffix_is_refused(tmp_path: Path) -> None:
    assert run(["import", str(saved(tmp_path)), "-o", str(tmp_path / "net.txt")]) == 2


def test_the_committed_table_is_the_generated_one() -> None:
    page = ONNX.path.read_text(encoding="utf-8")
    assert page == ONNX.current(), "run python -m nacre.compiler.tools.reference.reader_operators"
