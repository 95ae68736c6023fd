"""What `--check-passes` says nothing about: builds in which nothing is wrong, whatever they are made for."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import nacre
import numpy as np
import pytest
from nacre.compiler import pipeline
from nacre.compiler.base.compiler_errors import CompilerError, WrongNumbersError
from nacre.compiler.checking import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.readers.language import load_module
from nacre.compiler.validate import isolated
from nacre.compiler.validate.alone import cut_kernels
from nacre.compiler.validate.checker import Checker
from nacre.compiler.validate.model_calls import Trials, Wrong
from nacre.dialect.graph import Module
from nacre.passes.manager import Context, Pass

MODEL = """language 1

dim B in 0..40

model f(x: f32[B, 21], ids: i64[B]) -> y: f32[B, 30], z: f32[B, 21], again: f32[B, 21] {
  w = reshape(cos(iota(630, dtype=f32)), (21, 30))
  table = reshape(iota(210, dtype=f32), (10, 21))
  rows = gather(table, ids)
  h = softmax(x + rows)
  return relu(h @ w), h, h
}
"""


def test_an_artifact_is_run_in_one_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork of a large process takes as long as compiling a kernel: one for the kernels, one for the artifact."""
    forks = []
    fork = os.fork

    def counted() -> int:
        forks.append(os.getpid())
        return fork()

    monkeypatch.setattr(isolated.os, "fork", counted)
    source = MODEL + "model g(x: f32[3]) -> f32[3] {\n  return exp(x) + 0.75\n}\n"
    nacre.compile(source, tmp_path / "model.so", check_passes=True)
    assert len(forks) == 2


@pytest.mark.parametrize("how", [{}, {"opt_level": 0}, {"target": "x86-64-v3,x86-64-v2"}, {"placement": "external"}])
def test_right_builds_pass(how: dict[str, object], tmp_path: Path) -> None:
    model = nacre.compile(MODEL, tmp_path / "model.so", check_passes=True, **how)
    y, z, again = model(np.ones((3, 21), np.float32), np.arange(3))
    assert y.shape == (3, 30) and np.array_equal(z, again)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_every_kernel_is_cut_out() -> None:
    build = Build(load_module(MODEL, text=True))
    module = build.optimize()
    lowered = build.lower(module)
    parts = cut_kernels(module, lowered)
    assert [p.symbol for p in parts] == list(dict.fromkeys(c.symbol for f in lowered.functions for c in f.calls))
    assert any(not p.nodes for p in parts), "the copy of a result"


@dataclass(frozen=True)
class Replace(Pass):
    """Replaces an operator by another one, or fails if there is none to replace."""

    old: str
    new: str
    name: ClassVar[str] = "replace"

    def rewrite(self, module: Module, context: Context) -> Module:
        (function,) = module.functions
        nodes = [n for n in function.body if n.op == self.old]
        if not nodes:
            raise ValueError(f"there is no {self.old}")
        body = tuple(replace(n, op=self.new) if n in nodes and context.allow("other", n) else n for n in function.body)
        return replace(module, functions=(replace(function, body=body),))


def optimize(passes: list[Pass], monkeypatch: pytest.MonkeyPatch) -> None:
    source, options = read_model(MODEL), Options()
    monkeypatch.setattr(pipeline, "bounded_passes", lambda *given: passes)
    Build(source, options, observer=Checker(source, options)).optimize()


@pytest.mark.parametrize(
    "passes",
    [
        [Replace("relu", "tanh")],
        [Replace("relu", "tanh"), Replace("softmax", "tanh")],
        [Replace("relu", "tanh"), Replace("relu", "tanh")],
    ],
    ids=["alone", "before-another", "before-a-failure"],
)
def test_the_first_wrong_pass_is_named(passes: list[Pass], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WrongNumbersError, match="pass `replace` changes the result of `f`") as caught:
        optimize(passes, monkeypatch)
    assert "--> model.nacre:10:10" in str(caught.value), "the line of relu"


def test_a_pass_that_fails_on_a_right_graph_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CompilerError, match="failed at stage replace: ValueError: there is no tanh"):
        optimize([Replace("tanh", "relu")], monkeypatch)


def test_right_graphs_between_passes_are_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph after the last pass shows that all are right."""
    run: list[Module] = []
    find_wrong = Trials.find_wrong

    def find(trials: Trials, module: Module) -> Wrong | None:
        run.append(module)
        return find_wrong(trials, module)

    monkeypatch.setattr(Trials, "find_wrong", find)
    source, options = read_model(MODEL), Options()
    build = Build(source, options, observer=Checker(source, options))
    optimized = build.optimize()
    assert sum(stage.changed for stage in build.stages) > 3 and run == [optimized]
