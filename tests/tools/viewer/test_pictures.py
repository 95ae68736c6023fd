"""What a page holds: data that fits together, in one file that asks for nothing; and the SVG and DOT forms."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from graph_models import DIGITS, build, decoder, items_of, measured, nodes_of
from nacre.compiler.cli.main import run
from nacre.compiler.lower.kinds import KINDS
from nacre.compiler.pipeline import Build
from nacre.compiler.tools.explorer.measured_times import read_profile
from nacre.compiler.tools.viewer.assets import read_asset
from nacre.compiler.tools.viewer.drawing import drawing_of
from nacre.compiler.tools.viewer.groups import is_leaf
from nacre.compiler.tools.viewer.pictures import make_dot, make_page, make_svg
from nacre.compiler.tools.viewer.tree import build_tree
from nacre.dialect.diagnostics import DiagnosticError

SVG = "{http://www.w3.org/2000/svg}"


def data_of(page: str) -> Any:
    (text,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


@pytest.fixture(scope="module")
def made() -> Build:
    return build(decoder(6))


@pytest.fixture(scope="module")
def data(made: Build) -> Any:
    return data_of(make_page(drawing_of(made), {"T": 32}))


def reached(data: Any, root: int) -> set[int]:
    """The boxes of a stage by number."""
    items = set(data["bodies"][root]["items"])
    inner = (data["items"][number]["body"] for number in data["bodies"][root]["items"])
    return items.union(*(reached(data, body) for body in inner if body is not None))


def node(data: Any, item: Any) -> Any:
    return dict(zip(data["fields"], data["nodes"][item["node"]], strict=True))


def test_tables_fit_together(data: Any) -> None:
    for body in data["bodies"]:
        grid = data["grids"][body["grid"]]
        assert len(grid["rows"]) == len(grid["columns"]) == len(body["items"])
        for source, target, turns in grid["edges"]:
            assert len(turns) == grid["rows"][target] - grid["rows"][source] - 1
    for item in data["items"]:
        assert item["body"] is None or 0 <= item["body"] < len(data["bodies"])
        assert item["node"] is None or 0 <= item["node"] < len(data["nodes"])
    rows = [json.dumps(row) for table in ("items", "bodies", "nodes") for row in data[table]]
    assert len(rows) == len(set(rows))
    everything = set().union(*(reached(data, stage["root"]) for stage in data["stages"]))
    assert everything == set(range(len(data["items"])))


def test_every_stage_shows_its_whole_graph(made: Build, data: Any) -> None:
    assert [stage["name"] for stage in data["stages"]] == ["graph", *(stage.name for stage in made.stages[1:])]
    for stage, row in zip(made.stages, data["stages"], strict=True):
        shown = [data["items"][number] for number in reached(data, row["root"])]
        names = {node(data, item)["results"][0][0] for item in shown if item["node"] is not None}
        assert names == {n.outputs[0].name for n in nodes_of(stage.module) if n.outputs and not is_leaf(n)}
        assert sum(count for _, count in row["rules"]) == stage.rewrites


def test_marks_show_the_changes_of_a_pass(data: Any) -> None:
    stages = {stage["name"]: stage for stage in data["stages"]}
    first, unrolled = data["stages"][0], stages["unroll-repeat"]
    assert (first["added"], first["changed"], first["removed"]) == ([], [], 0)
    added = {data["nodes"][number][data["fields"].index("scope")] for number in unrolled["added"]}
    assert {"layer.0.attention.query", "layer.5.second"} <= added
    # Kernels are new; what they read did not change by reading from one.
    fused = {data["nodes"][number][data["fields"].index("op")] for number in stages["fuse"]["changed"]}
    assert fused == {"fusion"}
    unchanged = [stage for stage in data["stages"][1:] if not stage["rules"]]
    assert unchanged and all(not stage["added"] and not stage["changed"] for stage in unchanged)


def test_costs_are_those_of_the_whole_model(made: Build, data: Any) -> None:
    """The loop costs what its unrolled body does, and kernels compute what their nodes do."""

    def total(root: int, field: str) -> int:
        sum = 0
        for item in (data["items"][number] for number in data["bodies"][root]["items"]):
            if item["node"] is not None:
                sum += node(data, item)[field][1]
            elif item["body"] is not None:
                sum += total(item["body"], field)
        return sum

    flops = [total(stage["root"], "flops") for stage in data["stages"]]
    report = made.report({"T": 32})[0]
    assert flops[0] == flops[2] > 0
    assert flops[-1] == report.value(report.total((k.calls, k.flops) for k in report.kernels))
    moved = report.value(report.total((k.calls, k.bytes) for k in report.kernels if k.kind != "copy"))
    assert total(data["stages"][-1]["root"], "bytes") == moved


def test_operands_that_are_parameters_have_their_names(data: Any) -> None:
    found = [node(data, item) for item in data["items"] if item["node"] is not None]
    names = {(n["scope"], name) for n in found for _, _, name in n["operands"] if name is not None}
    assert ("layer.{}.first", "layer.{}.first.bias") in names
    # Also where they are arguments of a kernel.
    inner = [n for n in found if n["op"] == "matmul" and n["scope"] == "layer.2.first"]
    assert ["layer.2.first.weight.folded"] in [[name for _, _, name in n["operands"] if name] for n in inner]


def test_views_move_nothing() -> None:
    data = data_of(
        make_page(drawing_of(build("model f(x: f32[4, 6]) -> f32[24] { return relu(x) |> flatten(0) }", level=0)), {})
    )
    costs = {n["op"]: (n["flops"], n["bytes"]) for n in (node(data, i) for i in data["items"] if i["node"] is not None)}
    assert costs == {"relu": (["24", 24], ["192", 192]), "flatten": (["0", 0], ["0", 0])}


def test_places_are_in_the_texts(data: Any) -> None:
    text = data["sources"][0]["text"].splitlines()
    found = [node(data, item) for item in data["items"] if item["node"] is not None]
    (softmax,) = {tuple(n["span"]) for n in found if n["op"] == "softmax"}
    _, line, column, end_line, end_column = softmax
    assert line == end_line and text[line - 1][column - 1 : end_column - 1].startswith("softmax(")


def test_a_page_asks_for_nothing(made: Build) -> None:
    page = make_page(drawing_of(made), {})
    assert "http" not in page.replace("http-equiv", "")
    assert not re.search(r'\b(src|href)="|url\((?!#)|@import|\bfetch\(|XMLHttpRequest', page)


def test_text_of_a_model_cannot_end_the_script(tmp_path: Path) -> None:
    path = tmp_path / "tricky.nacre"
    path.write_text("# </script><script>alert(1)</script> <!--\nmodel f(x: f32[2]) -> f32[2] { return relu(x) }\n")
    page = make_page(drawing_of(build(path)), {})
    assert page.count("</script>") == page.count("<script")
    assert "</script><script>alert(1)" in data_of(page)["sources"][0]["text"]


def test_the_same_model_gives_the_same_page(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from nacre.compiler.cli.main import run\n"
        "sys.exit(run(['graph', sys.argv[1], '-o', sys.argv[2]]))"
    )
    pages = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        folder.mkdir()
        (folder / "decoder.nacre").write_text(decoder(2))
        command = [sys.executable, "-c", program, str(folder / "decoder.nacre"), str(folder / "page.html")]
        variables = {"PYTHONHASHSEED": seed, "PATH": "", "NACRE_CACHE": os.environ["NACRE_CACHE"]}
        subprocess.run(command, check=True, capture_output=True, env=variables)
        pages.append((folder / "page.html").read_bytes())
    assert pages[0] == pages[1]


def test_a_profile_gives_nodes_their_times(made: Build, tmp_path: Path) -> None:
    times = measured(made, tmp_path / "profile.json")
    profile = read_profile(tmp_path / "profile.json")
    data = data_of(make_page(drawing_of(made), profile.dims, profile=profile))
    assert data["dims"] == {"T": 32}
    assert data["profile"]["peak"] == {"flops": 1e11, "bytes": 2e10, "products": {"i8": 4e11}}
    assert data["profile"]["ideal"] == dict.fromkeys(data["profile"]["nodes"], 1e-9)
    timed = {int(number): seconds for number, seconds in data["profile"]["nodes"].items()}
    assert sorted(timed.values()) == sorted(times.values())
    op = data["fields"].index("op")
    assert {data["nodes"][number][op] for number in timed} == {"fusion"}


def test_a_profile_of_another_graph_is_refused(made: Build, tmp_path: Path) -> None:
    measured(made, tmp_path / "profile.json")
    with pytest.raises(DiagnosticError, match="it was measured for another graph than `decode`"):
        make_page(drawing_of(build(decoder(6), level=0)), {"T": 32}, profile=read_profile(tmp_path / "profile.json"))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"entry": 1, "dims": 2}', '{"calls": [{"values": []}]}', "\x00"])
def test_files_that_are_no_profile_are_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(DiagnosticError, match=r"it is not the output of `nacre profile --json`"):
        read_profile(tmp_path / "p.json")


def test_functions_of_one_file_stand_side_by_side() -> None:
    text = "model f(x: f32[2]) -> f32[2] { return relu(x) }\nmodel g(x: f32[3]) -> f32[3] { return relu(x) }\n"
    data = data_of(make_page(drawing_of(build(text)), {}))
    items = [data["items"][number] for number in data["bodies"][data["stages"][-1]["root"]]["items"]]
    assert [item["title"] for item in items] == ["f", "g"] and data["functions"] == 2


@pytest.mark.parametrize("depth", [0, 1, None])
def test_svg(depth: int | None) -> None:
    stage = build(DIGITS).stages[-1]
    root = ElementTree.fromstring(make_svg(stage, depth))
    texts = [text.text or "" for text in root.iter(f"{SVG}text")]
    assert any("conv2d + add + relu" in text for text in texts)
    # With a depth kernels are unfolded too; without one they are not.
    assert any(text == "relu" for text in texts) == (depth == 1)
    groups = [g for g in root.iter(f"{SVG}g") if "box" in g.get("class", "").split()]
    assert len(groups) == len(build_tree(stage.module).items) or depth != 0


def test_svg_has_its_colours_without_a_style_sheet() -> None:
    root = ElementTree.fromstring(make_svg(build(DIGITS).stages[-1], 1))
    frames = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "frame"]
    assert frames and all(re.fullmatch("#[0-9a-f]{6}", rect.get("fill", "")) for rect in frames)
    # Of the light colours: paper is nearly white.
    assert all(int(rect.get("fill", "")[1:3], 16) > 0xB0 for rect in frames)


def test_dot_names_every_box_once() -> None:
    stage = next(stage for stage in build(decoder(2)).stages if stage.name == "unroll-repeat")
    text = make_dot(stage, 99)
    assert text.startswith('digraph "model" {') and text.endswith("}\n")
    named = re.findall(r"^ *(n\d+) \[", text, re.MULTILINE) + re.findall(r"subgraph cluster_(n\d+) ", text)
    assert len(named) == len(set(named)) == len(items_of(build_tree(stage.module)))
    for source, target in re.findall(r"(n\d+) -> (n\d+)", text):
        assert source in named and target in named
    assert text.count("{") == text.count("}")


def test_dot_folds() -> None:
    stage = next(stage for stage in build(decoder(2)).stages if stage.name == "unroll-repeat")
    assert "subgraph" not in make_dot(stage, 0) and "layer.1" in make_dot(stage, 0)


def test_every_kind_has_a_colour_in_light_and_dark() -> None:
    style = read_asset("graph.css")
    for kind in KINDS:
        assert len(re.findall(rf"--{kind}: #[0-9a-f]{{6}};", style)) == 2, kind
        assert f".{kind} {{ --kind: var(--{kind}); }}" in style


def test_a_model_that_checks_indices_is_drawn(tmp_path: Path) -> None:
    model = tmp_path / "rows.nacre"
    model.write_text("dim B in 1..8\nmodel f(x: f32[5], i: i64[B]) -> f32[B] { return x[i] }\n")
    assert run(["graph", str(model), "-o", str(tmp_path / "rows.svg")]) == 0
    assert "check_indices" in (tmp_path / "rows.svg").read_text()
