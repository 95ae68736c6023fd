"""What was checked and found correct is not checked again; everything else is."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.base.compiler_errors import WrongNumbersError
from nacre.compiler.base.environment import CHECK_PASSES
from nacre.compiler.validate.judge import Judge
from nacre.dialect.graph import Module
from planted.faults import FAULTS
from planted.planting import plant, write_model
from saving import save_npz

MODEL = 'model f(x: f32[B, 4]) -> f32[B, 4] {\n  weights "w.npz"\n  param w: f32[4, 4]\n  return relu(x @ w + 1)\n}\n'


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Functions of which a result is judged, in this process or in one that it forks."""
    found: list[str] = []
    made = Judge.__init__

    def watch(self: Judge, module: Module, *rest: object, **named: object) -> None:
        found.append(module.name)
        made(self, module, *rest, **named)  # type: ignore[arg-type]  # handed on as it came

    monkeypatch.setattr(Judge, "__init__", watch)
    monkeypatch.setenv(CHECK_PASSES, str(tmp_path / "passed"))
    return found


def build(folder: Path, text: str = MODEL, weight: float = 1.0, **options: object) -> None:
    (folder / "m.nacre").write_text(f"dim B in 1..64\n\n{text}")
    save_npz(folder / "w.npz", {"w": np.full((4, 4), weight, np.float32)})
    nacre.compile(folder / "m.nacre", folder / "m.so", **options)  # type: ignore[arg-type]  # options as they are given


def test_a_check_is_passed_once(tmp_path: Path, judged: list[str]) -> None:
    build(tmp_path)
    assert judged
    judged.clear()
    build(tmp_path)
    assert judged == []


@pytest.mark.parametrize("change", ["graph", "data", "level", "asked for", "everything"])
def test_a_change_is_checked(tmp_path: Path, judged: list[str], monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    build(tmp_path)
    judged.clear()
    if change == "everything":
        monkeypatch.setenv(CHECK_PASSES, "1")
    changes = {"graph": {"text": MODEL.replace("+ 1", "+ 2")}, "data": {"weight": 2.0}, "level": {"opt_level": 0}}
    build(tmp_path, **{"asked for": {"check_passes": True}, **changes}.get(change, {}))  # type: ignore[arg-type]
    assert judged


@pytest.mark.parametrize("name", ["wrong-fold", "lost-rows", "stale-memory"])
def test_a_failed_check_is_not_recorded(tmp_path: Path, judged: list[str], name: str) -> None:
    """A pass, a kernel, and the plan of memory."""
    model = write_model(FAULTS[name], tmp_path)
    nacre.compile(model, tmp_path / "right.so")
    for _ in range(2):
        with plant(FAULTS[name], tmp_path / "cache"), pytest.raises(WrongNumbersError):
            nacre.compile(model, tmp_path / "wrong.so")
    nacre.compile(model, tmp_path / "right.so")
