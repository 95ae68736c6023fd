"""`nacre bisect` on a model with a loop that ends at run time: the small model is model text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from nacre.compiler.cli.main import run
from nacre.compiler.graph_passes import GRAPH_PASSES
from nacre.dialect.graph import Constant, Module, Node
from nacre.passes.manager import Context, Pass
from nacre.passes.registry import PASSES

TEXT = """
dim N in 1..9
model m(x: f32[N], y: f32[N]) -> f32[N] {
  state calls: i64
  calls = calls + 1
  before = exp(y) + sin(x)
  while max(x) > 0.25 with x = x, n = 0 {
    x = x * 0.5
    n = n + 1
  }
  return cos(before) + x + cast(n, f32)
}
"""


@dataclass(frozen=True)
class Shrink(Pass):
    """Replaces 0.5 by 0.375 in all regions, which is wrong."""

    name: ClassVar[str] = "shrink"

    def rewrite(self, module: Module, context: Context) -> Module:
        def changed(nodes: tuple[Node, ...]) -> Iterator[Node]:
            for node in nodes:
                node = replace(node, regions=tuple(replace(r, body=tuple(changed(r.body))) for r in node.regions))
                value = dict(node.attributes).get("value")
                is_half = isinstance(value, Constant) and value.data.shape == () and value.data == 0.5
                if is_half and context.allow("shrink", node):
                    node = replace(node, attributes=(("value", Constant(np.float32(0.375))),))
                yield node

        return module.map_functions(lambda f: replace(f, body=tuple(changed(f.body))))


@pytest.mark.usefixtures("unchecked")
def test_a_wrong_pass_is_found_in_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(PASSES, Shrink.name, Shrink)
    model, small = tmp_path / "model.nacre", tmp_path / "small.nacre"
    model.write_text(TEXT)
    passes = f"{Shrink.name},{GRAPH_PASSES[0]}"
    assert run(["bisect", str(model), "--passes", passes, "-o", str(small), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["culprit"]["stage"] == Shrink.name and report["culprit"]["at"] == [f"{model}:8"]
    text = small.read_text()
    assert "while " in text and "exp(" not in text and "state " not in text, text
    assert run(["test", str(small), "--passes", passes]) == 1
    assert run(["test", str(small)]) == 0
