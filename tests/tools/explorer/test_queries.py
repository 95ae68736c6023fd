"""Reading graphs, and asking them."""

import subprocess
import sys
from pathlib import Path

import nacre
import pytest
from example_graphs import BRANCH, LOOP, branch, loop
from nacre.graph import Graph


def test_package_loads_without_the_graph() -> None:
    script = (
        "import nacre, sys; nacre.load; assert 'nacre.graph' not in sys.modules and 'nacre.dialect' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    subprocess.run([sys.executable, "-c", "import nacre.graph; nacre.graph.read"], check=True)


@pytest.mark.parametrize(("name", "text"), [("m.nacre", LOOP), ("m.graph", BRANCH)])
def test_paths_and_texts_are_read_alike(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    from_path, from_text = nacre.graph.read(tmp_path / name), nacre.graph.read(text)
    assert [n.op for n in from_path] == [n.op for n in from_text]
    assert from_path.entries == from_text.entries


def test_entries() -> None:
    graph = branch()
    assert (graph.entry, graph.entries) == ("f", ("f", "g"))
    assert list(graph.results) == ["out", "other"]
    assert graph.select("g") == nacre.graph.read(BRANCH, entry="g") != graph
    assert list(graph.select("g").results) == ["result0", "result1"]
    with pytest.raises(KeyError, match="no function h"):
        graph.select("h")


def test_levels_and_passes() -> None:
    assert len(loop().find("repeat")) == 1
    optimized = nacre.graph.read(LOOP, level=2)
    assert not optimized.find("repeat") and optimized.find("fusion")
    assert nacre.graph.read(LOOP, passes="unroll-repeat").find("gelu").names != loop().find("gelu").names
    # What was read may go through passes as well.
    assert loop().apply("unroll-repeat") == nacre.graph.read(LOOP, passes="unroll-repeat")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"source": Path("nowhere.graph")}, "missing-file"),
        ({"source": "module m\n"}, "no-model"),
        ({"source": "module m\nfunc f(%x: f32[2]) -> (f32[2]) {\n  return %y\n}"}, "undefined-value"),
        ({"source": "language 1\nmodel f(x: f32[2]) -> f32[2] { return y }"}, "unknown-name"),
        ({"source": LOOP, "passes": "fold"}, "unknown-pass"),
    ],
)
def test_errors_of_the_source(arguments: dict[str, str], code: str) -> None:
    with pytest.raises(nacre.DiagnosticError) as caught:
        nacre.graph.read(**arguments)
    assert [d.code for d in caught.value.diagnostics] == [code]


def test_find() -> None:
    graph = loop()
    assert [n.op for n in graph.find("*ma[tx]*")] == ["matmul", "matmul", "softmax"]
    assert {n.scope for n in graph.find(scope="layer.*.dense")} == {"layer.{}.dense"}
    assert {n.scope for n in graph.find(scope="layer")} == {"layer.{}", "layer.{}.dense"}
    assert not graph.find(scope="lay")
    assert graph.find("add", scope="first").names == graph.find("add").names[:1]
    assert graph.find(where=lambda n: n.operator.has("contraction")) == graph.find("matmul")
    assert graph.find(name="h").names == ("h",)
    assert graph.nodes.find(scope="layer").find("gelu") == graph.find("gelu")


def test_neighbours() -> None:
    graph = branch()
    assert graph["d"].producers.names == ("b", "c")
    assert graph["a"].consumers.names == ("b", "e") == graph.consumers("a").names
    assert graph.producer("x") is None and graph.producer("e") == graph["e"]
    assert graph["c"].inputs == (graph.value("z"),)
    with pytest.raises(KeyError, match="`x` is an argument"):
        graph["x"]
    with pytest.raises(KeyError, match="no value `dd`; did you mean `d`"):
        graph["dd"]


def test_loops() -> None:
    graph = loop()
    (repeat,) = graph.find("repeat")
    (gelu,) = graph.find("gelu")
    assert gelu.around == (repeat,) and gelu in repeat.inside
    assert repeat.consumers == graph.find("softmax")
    # The loop reads what its body does, and its body's result is read by the loop.
    assert repeat in graph.consumers(graph.find("add", scope="layer")[-1].outputs[0])
    assert repeat.inside.find("matmul") == graph.find("matmul", scope="layer")


def test_between() -> None:
    graph = branch()
    assert graph.between("x", "e").names == ("a", "b", "d", "e")
    assert graph.between("b", "e").names == ("d", "e")
    assert graph.between(["b", "c"], "d").names == ("d",)
    assert graph.between("z", "b").names == ()
    assert graph.between("x", "z").names == ()
    inner = loop()
    (gelu,) = inner.find("gelu")
    (matmul,) = inner.find("matmul", scope="layer")
    assert [n.op for n in inner.between(matmul, gelu)] == ["add", "gelu"]


def test_extract() -> None:
    graph = branch().extract(["b", "c"], ["d", "b"])
    assert [v.name for v in graph.arguments] == ["b", "c"]
    assert (graph.nodes.names, list(graph.results)) == (("d",), ["result0", "result1"])
    with pytest.raises(nacre.DiagnosticError, match="`e` cannot be computed without `x`"):
        branch().extract("d", "e")


def test_extract_takes_parameters_along() -> None:
    graph = loop()
    (first, *_) = graph.find("add")
    part = graph.extract("x", first)
    assert [p.name for p in part.parameters] == ["first.weight", "first.bias"]
    assert [n.op for n in part] == ["parameter", "parameter", "transpose", "matmul", "add"]


def test_equality_is_that_of_texts() -> None:
    assert branch() == branch() and hash(branch()) == hash(branch())
    assert branch() != loop()
    one, other = branch(), branch()
    assert one["a"] == one["a"] != other["a"]


@pytest.mark.parametrize("graph", [branch(), loop(), nacre.graph.read(LOOP, level=2)], ids=["branch", "loop", "fused"])
def test_everything_shows_itself(graph: Graph) -> None:
    pages = [graph._repr_html_(), graph.nodes._repr_html_(), graph.costs()._repr_html_()]
    pages += [node._repr_html_() for node in graph]
    for page in pages:
        assert page.startswith('<div class="nacre">') and page.endswith("</div>")
        assert "http" not in page and "<script" not in page
        for tag in ("table", "tr", "td", "details", "div"):
            assert page.count(f"<{tag}>") + page.count(f"<{tag} ") == page.count(f"</{tag}>")
    for node in graph:
        assert node.name in pages[0] and node.name in pages[1]


def test_names_are_escaped() -> None:
    graph = branch().rename({"a": "<b>"})
    assert "<b>" not in graph.nodes._repr_html_().replace("<b class", "")
    assert "&lt;b&gt;" in graph["d"].producers[0].producers._repr_html_()
