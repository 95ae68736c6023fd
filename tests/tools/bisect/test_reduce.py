"""`nacre reduce` keeps what fails and lets go of the rest."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nacre.compiler.cli.main import run
from nacre.dialect.graph import Node
from nacre.dialect.ops import indexing
from nacre.dialect.types import I64
from nacre.passes.simplify import cse
from planted.faults import FAULTS
from planted.planting import plant, write_model

pytestmark = pytest.mark.usefixtures("unchecked")

MODEL = """dim B in 1..8

model f(x: f32[B, 40]) -> f32[B, 24], f32[B, 40] {
  weights "weights.npz"
  param weight: f32[40, 24]
  y = softmax(exp(x) / 2)
  z = tanh(y @ weight) + 1
  return relu(z), y
}
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.nacre"
    path.write_text(MODEL)
    np.savez(tmp_path / "weights.npz", weight=np.ones((40, 24), np.float32))
    return path


def body(path: Path) -> str:
    return path.read_text().split("{\n", 1)[1].split("}")[0]


def test_a_crash_of_a_pass_is_kept(model: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    node_key = cse.node_key

    def key(node: Node, numbers: dict[str, int]) -> Any:
        assert node.op != "tanh" or node.output.type.shape[-1] < 3, "no such row"
        return node_key(node, numbers)

    monkeypatch.setattr(cse, "node_key", key)
    small = model.with_name("small.nacre")
    assert run(["reduce", str(model), "--fails", "crash", "-o", str(small), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["failure"] == {
        "kind": "crash",
        "origin": "stage cse",
        "message": "AssertionError: no such row",
    }
    assert report["nodes"] == 1 and "tanh(" in body(small)
    assert "f32[1, 3]" in small.read_text()


def test_wrong_numbers_are_kept_and_shown(tmp_path: Path, capsys: Any) -> None:
    fault = FAULTS["dropped-shift"]
    model, small = write_model(fault, tmp_path), tmp_path / "small.nacre"
    with plant(fault, tmp_path / "cache"):
        assert run(["reduce", str(model), "--fails", "numbers", "-o", str(small), "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["failure"]["kind"] == "numbers" and report["failure"]["origin"] == "passes"
        assert report["nodes"] <= 6 and "conv2d(" in body(small)
        assert run(["test", str(small)]) == 1
    assert run(["test", str(small), "--no-cache"]) == 0


def test_a_crash_of_the_code_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Rows are read wherever their numbers say."""
    monkeypatch.setattr(indexing, "clamped", lambda s, index, size, mode: s.cast(index, I64))
    model, small = tmp_path / "model.nacre", tmp_path / "small.nacre"
    model.write_text(
        "dim B in 1..4\n\nmodel f(table: f32[10, 6], ids: i64[B]) -> f32[B, 6] {\n"
        '  return softmax(tanh(gather(exp(table), ids, mode="clamp")))\n}\n'
    )
    np.save(tmp_path / "table.npy", np.ones((10, 6), np.float32))
    inputs = ["--input", f"table={tmp_path / 'table.npy'}", "--input", "ids=[1, 1000000000]"]
    assert run(["reduce", str(model), *inputs, "--fails", "crash", "-o", str(small), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["failure"]["origin"] == "the artifact" and "SIGSEGV" in report["failure"]["message"]
    assert report["nodes"] == 1 and "gather(" in body(small)
    monkeypatch.undo()
    assert run(["test", str(small), "--no-cache"]) == 0


def test_invalid_memory_accesses_are_reduced(tmp_path: Path, capsys: Any) -> None:
    fault = FAULTS["missing-mask"]
    model, small = write_model(fault, tmp_path), tmp_path / "small.nacre"
    with plant(fault, tmp_path / "cache"):
        assert run(["reduce", str(model), "--fails", "memory", "-o", str(small), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["failure"]["origin"] == "a kernel alone" and report["nodes"] <= 1


def test_time_outs_are_reduced(model: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    node_key = cse.node_key

    def key(node: Node, numbers: dict[str, int]) -> Any:
        if node.op == "tanh":
            time.sleep(60)
        return node_key(node, numbers)

    monkeypatch.setattr(cse, "node_key", key)
    small = model.with_name("small.nacre")
    arguments = ["--fails", "timeout", "--timeout", "0.5", "--effort", "40", "-o", str(small), "--json"]
    assert run(["reduce", str(model), *arguments]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["failure"]["kind"] == "timeout" and report["failure"]["origin"] == "the passes"
    assert report["nodes"] < 4 and "tanh(" in body(small)
    monkeypatch.undo()
    assert run(["test", str(small)]) == 0


def test_the_message_of_a_command_is_kept(model: Path, capsys: Any) -> None:
    small = model.with_name("small.nacre")
    arguments = ["reduce", str(model), "--at", "B=2", "-o", str(small)]
    assert run([*arguments, "--fails", "grep -q softmax", "--exits", "zero"]) == 0
    assert "wrote" in capsys.readouterr().err
    assert body(small).count(" = ") == 1 and "softmax" in body(small)
    assert sorted(p.name for p in model.parent.glob("small*")) == [
        "small.expected.npz",
        "small.inputs.npz",
        "small.nacre",
    ]


def test_models_that_do_not_fail_are_not_reduced(model: Path, capsys: Any) -> None:
    small = model.with_name("small.nacre")
    assert run(["reduce", str(model), "--fails", "true", "-o", str(small)]) == 1
    assert "error[does-not-fail]" in capsys.readouterr().err
    assert not small.exists()
