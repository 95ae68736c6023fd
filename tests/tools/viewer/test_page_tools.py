"""The tools of a page: figures of weights, the search for kinds, files to save, and two models beside each other."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_models import DIGITS, build, decoder
from nacre.compiler.cli.main import run
from nacre.compiler.tools.viewer.assets import read_asset
from nacre.compiler.tools.viewer.drawing import drawing_of
from nacre.compiler.tools.viewer.page import SCRIPTS
from nacre.compiler.tools.viewer.pictures import make_page
from safetensors.numpy import load_file, save_file

SCALE = """model scale(x: f32[4]) -> f32[4] {
  weights "scale.npz"
  param factor: f32[4]
  return relu(x * factor)
}
"""


def data_in(text: str) -> Any:
    (found,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)
    return json.loads(found)


def page_of(folder: Path, *arguments: str | Path) -> Any:
    path = folder / "page.html"
    assert run(["graph", *map(str, arguments), "-o", str(path)]) == 0
    return data_in(path.read_text())


def test_figures_of_weights(tmp_path: Path) -> None:
    shown = page_of(tmp_path, DIGITS)["weights"]
    stored = load_file(DIGITS.with_name("digits.safetensors"))
    assert set(shown) == set(stored)
    for name, figures in shown.items():
        values = stored[name].astype(np.float64).reshape(-1)
        assert (figures["min"], figures["max"]) == (values.min(), values.max())
        assert figures["mean"] == pytest.approx(values.mean(), rel=1e-9)
        assert figures["deviation"] == pytest.approx(values.std(), rel=1e-9)
        assert figures["counts"] == np.histogram(values, 32)[0].tolist() and sum(figures["counts"]) == values.size
        assert figures["first"] == values[:6].tolist()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 1, 1, 1], {"min": 1, "max": 1, "unusual": 0, "zeros": 0}),
        ([0, np.nan, np.inf, 2], {"min": 0, "max": 2, "unusual": 2, "zeros": 1, "first": [0, "nan", "inf", 2]}),
        ([np.nan] * 4, {"unusual": 4, "zeros": 0}),
    ],
)
def test_unusual_weights(tmp_path: Path, values: list[float], expected: dict[str, Any]) -> None:
    path = tmp_path / "scale.nacre"
    path.write_text(SCALE)
    np.savez(tmp_path / "scale.npz", factor=np.array(values, np.float32))
    figures = page_of(tmp_path, path)["weights"]["factor"]
    assert figures | expected == figures
    assert sum(figures.get("counts", [])) == 4 - expected["unusual"]


def test_weights_of_a_loop_count_together_and_absent_ones_do_not(tmp_path: Path) -> None:
    path = tmp_path / "decoder.nacre"
    path.write_text(decoder(3).replace("{\n  use layer[", '{\n  weights "w.safetensors"\n  use layer['))
    assert page_of(tmp_path, path)["weights"] == {}
    ends = {"query": 16, "key": 16, "value": 16, "output": 16}
    sizes = {f"attention.{name}": (16, size) for name, size in ends.items()} | {"first": (64, 16), "second": (16, 64)}
    arrays = {f"layer.{i}.{n}.weight": np.full(s, i, np.float32) for i in range(3) for n, s in sizes.items()}
    arrays |= {f"layer.{i}.{n}.bias": np.zeros(s[0], np.float32) for i in range(3) for n, s in sizes.items()}
    save_file(arrays, tmp_path / "w.safetensors")
    figures = page_of(tmp_path, path)["weights"]["layer.{}.first.weight"]
    assert (figures["copies"], figures["min"], figures["max"], figures["mean"]) == (3, 0, 2, 1)


def test_two_models(tmp_path: Path) -> None:
    first, second = tmp_path / "a" / "m.nacre", tmp_path / "b" / "m.nacre"
    for path, body in ((first, "y = relu(x + 1)\n  return y * 2"), (second, "y = gelu(exp(x) + 1)\n  return y * 3")):
        path.parent.mkdir()
        path.write_text(f"model m(x: f32[4]) -> f32[4] {{\n  {body}\n}}\n")
    data = page_of(tmp_path, first, "--diff", second)
    assert [stage["name"] for stage in data["stages"]] == [str(first), str(second)] and data["first"] == 1
    stage = data["stages"][1]
    assert sorted(data["nodes"][number][1] for number in stage["added"]) == ["exp", "gelu"]
    assert stage["removed"] == 1
    # The spans of each model lead into its own text, although the files have the same name.
    texts = {data["nodes"][n][1]: data["sources"][data["nodes"][n][6][0]]["text"] for n in range(len(data["nodes"]))}
    assert "relu" in texts["relu"] and "gelu" in texts["gelu"]
    same = page_of(tmp_path, first, "--diff", first)["stages"][1]
    assert (same["added"], same["changed"], same["removed"]) == ([], [], 0)


def test_two_models_need_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["graph", str(DIGITS), "--diff", str(DIGITS), "-o", str(tmp_path / "x.svg")]) == 2
    assert "--diff" in capsys.readouterr().err


@pytest.fixture(scope="module")
def node() -> str:
    found = shutil.which("node")
    if found is None:
        pytest.skip("there is no node on this machine: the scripts are not run")
    return found


STUBS = """
const known = { [Symbol.iterator]: () => [][Symbol.iterator](), [Symbol.toPrimitive]: () => "" };
const get = (_, name) => known[name] ?? element();
const element = () => new Proxy(function () {}, { get, set: () => true, apply: () => element() });
for (const name of ["document", "svg", "scene", "getComputedStyle", "matchMedia"]) globalThis[name] = element();
globalThis.escapeText = String;
const state = { hits: [], hit: -1 };
const stageNow = () => data.stages[data.stages.length - 1];
const elementOf = () => null;
const nodes = new Map();
"""


def test_search_finds_kinds_and_kernels(node: str, tmp_path: Path) -> None:
    data = data_in(make_page(drawing_of(build(decoder(2))), {"T": 32}))
    script = tmp_path / "search.js"
    ask = """for (const words of ["attention", "kernel", "kernel attention", "nowhere"]) {
      find(words);
      console.log(state.hits.length);
    }"""
    parts = [f"const data = {json.dumps(data)};", STUBS, read_asset("panel.js"), read_asset("search.js"), ask]
    script.write_text("\n".join(parts).replace('"use strict";', ""))
    done = subprocess.run([node, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    attention, kernels, both, nowhere = map(int, done.stdout.split())
    last = data["stages"][-1]

    def reached(body: int) -> list[Any]:
        items = [data["items"][number] for number in data["bodies"][body]["items"]]
        return items + [inner for item in items if item["body"] is not None for inner in reached(item["body"])]

    boxes = reached(last["root"])
    assert kernels == sum(item["role"] == "kernel" for item in boxes) > 0
    assert attention >= sum(item["kind"] == "attention" for item in boxes) > 0
    assert 0 < both < attention and nowhere == 0


def test_histogram_is_drawn(node: str, tmp_path: Path) -> None:
    script = tmp_path / "weights.js"
    weight = {"type": "f32[3]", "copies": 1, "counted": 3, "unusual": 1, "zeros": 0, "first": [1.5, "nan", 2]}
    weight |= {"min": 1.5, "max": 2, "mean": 1.75, "deviation": 0.25, "counts": [1, 0, 1]}
    parts = [f"const data = {json.dumps({'weights': {'w': weight}})};", STUBS, read_asset("weights.js")]
    script.write_text("\n".join([*parts, 'console.log(drawWeight("w"));']).replace('"use strict";', ""))
    text = subprocess.run([node, str(script)], capture_output=True, text=True, check=True).stdout
    assert re.findall(r'height="([\d.]+)"', text) == ["60.0", "0.0", "60.0"]
    assert "begins 1.5, nan, 2" in text and "1 are NaN or infinite" in text


def test_every_button_of_the_page_has_a_handler() -> None:
    buttons = re.findall(r'<button id="(\w+)"', read_asset("page.html"))
    scripts = "\n".join(read_asset(name) for name in SCRIPTS)
    assert {"svg", "png", "dark", "fit"} <= set(buttons)
    for button in buttons:
        assert f'getElementById("{button}").addEventListener("click"' in scripts, button
    assert re.search(r"showStage\(data.first\);\nfit\(\);", scripts)
