"""Changes of graphs: what comes out, that it is valid, and what is refused."""

import inspect

import nacre
import numpy as np
import pytest
from example_graphs import branch, loop
from nacre.dialect.verifier import verify
from nacre.graph import Graph

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
Z = X[::-1].copy()


def weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    names = ["first", *(f"layer.{i}.dense" for i in range(3))]
    return {
        f"{name}.{kind}": rng.normal(size=shape, scale=0.3).astype(np.float32)
        for name in names
        for kind, shape in (("weight", (16, 16)), ("bias", (16,)))
    }


def out(graph: Graph) -> np.ndarray:
    return graph.run(X, Z)[0]


def test_replace() -> None:
    before = branch()
    after = before.replace("b", lambda b, x: b.square(b.negate(x)))
    assert [n.op for n in after] == ["relu", "negate", "square", "tanh", "add", "multiply"]
    # Readers keep the name, the new nodes the block; the old graph is what it was.
    assert after["b"].op == "square" and {n.scope for n in after.find(scope="left.inner")} == {"left.inner"}
    assert before == branch()
    np.testing.assert_array_equal(out(after), (np.maximum(X, 0) ** 2 + np.tanh(Z)) * np.maximum(X, 0))


def test_methods_of_a_builder_are_documented_as_operators_are() -> None:
    graph = nacre.graph.read("model m(x: f32[4]) -> f32[4] { return relu(x) }\n")
    seen = []
    graph.replace(graph.find("relu"), lambda b, x: (seen.append(inspect.getdoc(b.softmax)), b.softmax(x))[1])
    assert "Dtypes: floats." in seen[0] and "Example: `softmax(x: f32[3, 5], axis=-1)`" in seen[0]


def test_replace_several_in_a_loop() -> None:
    graph = loop()
    after = graph.replace(graph.find("gelu"), lambda b, x: b.gelu(x, approximate="tanh"))
    assert after.find("gelu")[0].attributes["approximate"] == "tanh"
    x = np.ones((1, 16), np.float32)
    difference = np.abs(after.run(x, weights=weights()) - graph.run(x, weights=weights())).max()
    assert 0 < difference < 1e-3


def test_replace_by_an_operand() -> None:
    after = branch().replace("b", lambda b, x: x)
    assert after["d"].inputs[0].name == "a" and "b" not in after.nodes.names


def test_replace_part() -> None:
    graph = branch()
    after = graph.replace_part(graph.find(name="[bd]"), lambda b, a, c: b.subtract(a, c))
    assert [n.name for n in after] == ["a", "c", "d", "e"]
    np.testing.assert_array_equal(out(after), (np.maximum(X, 0) - np.tanh(Z)) * np.maximum(X, 0))
    inner = loop()
    part = inner.between(inner.find("matmul", scope="layer")[0].inputs[0], inner.find("gelu")[0])
    after = inner.replace_part(part, lambda b, h, weight, bias: b.add(b.matmul(h, weight), bias))
    assert not after.find("gelu") and len(after.find("repeat")) == 1


def test_replaced_part_may_give_several_values() -> None:
    graph = branch()
    after = graph.replace_part(graph.find(name="[ac]"), lambda b, x, z: (b.abs(x), z))
    assert (after["b"].inputs[0].name, after["d"].inputs[1].name) == ("a", "z")
    assert [v.name for v in after.results.values()] == ["e", "z"]


def test_insert() -> None:
    graph = branch()
    after = graph.insert("a", lambda b, a: b.multiply(a, b.like(2.0, a)))
    doubled = after.consumers("a")
    assert doubled.names == after.find("multiply").names[:1]
    assert after["b"].inputs == doubled[0].outputs == after["e"].inputs[1:]
    np.testing.assert_allclose(
        out(after), (np.exp(2 * np.maximum(X, 0)) + np.tanh(Z)) * 2 * np.maximum(X, 0), rtol=1e-6
    )


def test_insert_behind_a_result_an_argument_and_in_a_loop() -> None:
    graph = branch()
    np.testing.assert_array_equal(out(graph.insert("e", lambda b, e: b.negate(e))), -out(graph))
    first = graph.insert("x", lambda b, x: b.negate(x))
    assert (first.nodes[0].op, first["a"].inputs) == ("negate", first.nodes[0].outputs)
    inner = loop()
    (repeat,) = inner.find("repeat")
    carried = repeat.node.regions[0].arguments[1]
    after = inner.insert(carried, lambda b, h: b.negate(h))
    assert after.find("repeat")[0].inside[0].op == "negate"


def test_remove() -> None:
    graph = branch()
    after = graph.remove("b")
    assert after["d"].inputs[0].name == "a"
    assert graph.remove("d", by="c")["e"].inputs[0].name == "c"
    assert graph.remove("d", by="c").remove("b").nodes.names == ("a", "c", "e")
    summing = nacre.graph.read("language 1\nmodel f(x: f32[2, 3]) -> f32[2] { return sum(x, axis=1) }")
    with pytest.raises(nacre.DiagnosticError, match="no operand of it is f32\\[2\\]"):
        summing.remove(summing.nodes[0])


def test_rename() -> None:
    after = branch().rename({"x": "image", "a": "positive"})
    assert [v.name for v in after.arguments] == ["image", "z"]
    assert after["e"].inputs[1].name == "positive"
    with pytest.raises(nacre.DiagnosticError) as caught:
        branch().rename({"a": "b"})
    assert caught.value.diagnostics[0].code == "duplicate-value"


def test_set() -> None:
    graph = loop()
    after = graph.set(graph.find("softmax")[0], axis=0)
    assert after.find("softmax")[0].attributes == {"axis": 0}
    for given, code in (({"axes": 1}, "bad-attribute"), ({"axis": 7}, "bad-axis")):
        with pytest.raises(nacre.DiagnosticError) as caught:
            graph.set(graph.find("softmax")[0], **given)
        assert caught.value.diagnostics[0].code == code


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda g: g.replace("b", lambda b, x: b.sum(x, axis=1)), "type-mismatch"),
        (
            lambda g: g.replace("b", lambda b, x: (x, x)),
            "wrong-results",
        ),
        (lambda g: g.replace("b", lambda b, x: b.matmul(x, x)), "shape-mismatch"),
        # What is not there yet cannot be read.
        (lambda g: g.replace("a", lambda b, x: g.value("e")), "undefined-value"),
        (lambda g: g.remove("a", by="d"), "undefined-value"),
        # `e` reads `d`, which reads `a`: they are not one part without `d`.
        (lambda g: g.replace_part(g.find(name="[ae]"), lambda b, x, d: (b.add(x, d), d)), "not-one-part"),
    ],
)
def test_invalid_edits_are_refused(change, code: str) -> None:
    graph = branch()
    with pytest.raises(nacre.DiagnosticError) as caught:
        change(graph)
    assert caught.value.diagnostics[0].code == code
    verify(graph.module)


def test_part_across_a_loop_is_refused() -> None:
    graph = loop()
    with pytest.raises(nacre.DiagnosticError, match="inside a loop"):
        graph.replace_part(graph.find("matmul"), lambda b, *values: values)
