"""The boxes of a graph: every node in one place, no circles, and blocks as they were written."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from graph_models import DIGITS, build, decoder, items_of, nodes_of, parse
from nacre.compiler.tools.viewer.groups import components, is_leaf
from nacre.compiler.tools.viewer.tree import Body, Item, build_tree, count_boxes, usual_depth
from nacre.dialect.graph import Module
from nacre.passes.manager import Stage
from random_graphs import random_module


def assert_whole(module: Module) -> Body:
    """Every node that is no parameter or constant has a box of its own, and what it reads stands before it."""
    tree = build_tree(module)
    items = items_of(tree)
    shown = [item.node.outputs[0].name for item in items if item.node is not None]
    assert len(shown) == len(set(shown))
    computed = {node.outputs[0].name for node in nodes_of(module) if node.outputs and not is_leaf(node)}
    leaves = {node.outputs[0].name for node in nodes_of(module) if is_leaf(node)}
    assert computed <= set(shown) <= computed | leaves
    for body in [tree, *(item.body for item in items if item.body is not None)]:
        assert len({item.key for item in body.items}) == len(body.items)
        assert all(source < reader for source, reader in body.edges)
        assert len(set(body.edges)) == len(body.edges)
    return tree


def after(stages: Sequence[Stage], name: str) -> Module:
    """The graph that a pass leaves."""
    return next(stage.module for stage in stages if stage.name == name)


def box(body: Body, *path: str) -> Item:
    """The box at a path of keys."""
    (found,) = [item for item in body.items if item.key == path[0]]
    if len(path) == 1:
        return found
    assert found.body is not None, path
    return box(found.body, *path[1:])


def edge_names(body: Body) -> set[tuple[str, str]]:
    return {(body.items[source].key, body.items[reader].key) for source, reader in body.edges}


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs(seed: int) -> None:
    assert_whole(random_module(seed))


@pytest.mark.parametrize("source", [DIGITS, decoder(3)], ids=["digits", "decoder"])
def test_every_stage(source: str) -> None:
    for stage in build(source).stages:
        assert_whole(stage.module)


def test_blocks_are_those_of_the_model() -> None:
    stages = build(decoder(3)).stages
    tree = build_tree(stages[0].module)
    loop = next(item for item in tree.items if item.role == "loop")
    assert loop.title == "repeat 3 times" and loop.body is not None
    attention = box(loop.body, "layer.{}", "attention")
    assert attention.role == "block" and attention.body is not None
    assert {"query", "key", "value", "output"} <= {item.key for item in attention.body.items}
    query = box(attention.body, "query")
    assert query.body is not None
    matmul = next(item for item in query.body.items if item.title == "matmul")
    assert matmul.lines == ("f32[T, 16]",)
    assert [item.role for item in query.body.items if item.is_port] == ["input", "result"]
    # A parameter stands in the text of what reads it, without the path of the block that it is in.
    assert [item.lines for item in query.body.items if item.title == "add"] == [("f32[T, 16]", "bias f32[16]")]
    unrolled = build_tree(after(stages, "unroll-repeat"))
    assert [item.key for item in unrolled.items if item.role == "block"] == ["layer.0", "layer.1", "layer.2"]


def test_results_have_the_names_that_a_caller_sees() -> None:
    tree = build_tree(build(decoder(1)).stages[-1].module)
    assert [(item.role, item.title) for item in tree.items if item.is_port] == [
        ("input", "x"),
        ("input", "mask"),
        ("result", "y"),
    ]


def test_a_kernel_holds_its_nodes_and_names_those_that_compute() -> None:
    tree = build_tree(build(decoder(1)).stages[-1].module)
    kernels = {item.title: item for item in items_of(tree) if item.role == "kernel"}
    gelu = next(item for title, item in kernels.items() if title.endswith("gelu"))
    assert gelu.kind == "contraction" and gelu.body is not None
    assert [item.title for item in gelu.body.items if not item.is_port] == ["matmul", "add", "gelu"]


def test_movements_are_not_in_the_name_of_a_kernel() -> None:
    text = "model m(x: f32[4, 6]) -> f32[6, 4] { return exp(relu(x).T + 1) }"
    (kernel,) = [item for item in build_tree(build(text).stages[-1].module).items if item.role == "kernel"]
    assert kernel.title == "relu + add + exp" and kernel.body is not None
    assert [item.title for item in kernel.body.items if not item.is_port] == ["relu", "transpose", "add", "exp"]


def test_the_only_node_of_a_block_stands_for_it() -> None:
    tree = build_tree(
        parse("module m\n\nfunc f(%x: f32[2]) -> (f32[2]) {\n  %1 = relu(%x) : f32[2] @a.b.0\n  return %1\n}\n")
    )
    (item,) = [item for item in tree.items if not item.is_port]
    assert (item.role, item.title, item.caption) == ("node", "relu", "a.b.0")


def test_a_block_that_others_cut_in_two_is_two_boxes() -> None:
    """The node of `b` reads one of `a` and is read by another: as one box each they would lead to each other."""
    tree = build_tree(
        parse(
            "module m\n\nfunc f(%x: f32[2]) -> (f32[2]) {\n"
            "  %1 = relu(%x) : f32[2] @a\n  %2 = exp(%1) : f32[2] @a\n  %3 = tanh(%2) : f32[2] @b\n"
            "  %4 = sin(%3) : f32[2] @b\n  %5 = add(%4, %1) : f32[2] @a\n  %6 = cos(%5) : f32[2] @a\n  return %6\n}\n"
        )
    )
    assert [item.key for item in tree.items if item.role == "block"] == ["a", "b", "a 2"]
    assert {("a", "b"), ("b", "a 2"), ("a", "a 2")} <= edge_names(tree)


def test_blocks_that_lead_to_each_other_by_different_nodes() -> None:
    """No node of `a` reads itself through `b`, and yet the boxes would lead to each other."""
    tree = build_tree(
        parse(
            "module m\n\nfunc f(%x: f32[2], %y: f32[2]) -> (f32[2], f32[2]) {\n"
            "  %1 = relu(%x) : f32[2] @a\n  %2 = exp(%y) : f32[2] @b\n  %3 = tanh(%1) : f32[2] @b\n"
            "  %4 = sin(%2) : f32[2] @a\n  return %3, %4\n}\n"
        )
    )
    assert all(source < reader for source, reader in tree.edges)
    assert sum(item.caption in ("a", "a (2)") or item.key.startswith("a") for item in tree.items) == 2


def test_a_value_read_throughout_a_block_enters_at_each_reader() -> None:
    tree = build_tree(after(build(decoder(4)).stages, "unroll-repeat"))
    masks = [item.key for item in tree.items if item.role == "input" and item.title == "mask"]
    assert masks == ["input mask", "input mask 2", "input mask 3", "input mask 4"]
    assert {(f"input mask{part}", f"layer.{i}") for i, part in enumerate(("", " 2", " 3", " 4"))} <= edge_names(tree)


def test_a_value_read_far_below_has_no_long_edge() -> None:
    chain = "".join(f"  %{i} = relu(%{i - 1}) : f32[2]\n" for i in range(2, 60))
    body = f"  %1 = relu(%x) : f32[2]\n{chain}  %60 = add(%59, %1) : f32[2]\n  return %60\n"
    edges = edge_names(build_tree(parse(f"module m\n\nfunc f(%x: f32[2]) -> (f32[2]) {{\n{body}}}\n")))
    assert ("1", "60") not in edges and ("input 1", "60") in edges and ("59", "60") in edges


def test_functions_are_blocks_where_there_are_several() -> None:
    text = "model f(x: f32[2]) -> f32[2] { return relu(x) }\nmodel g(x: f32[2]) -> f32[2] { return exp(x) }\n"
    tree = build_tree(build(text).stages[-1].module)
    assert [(item.role, item.title) for item in tree.items] == [("block", "f"), ("block", "g")]


@pytest.mark.parametrize(
    ("scope", "parts"),
    [
        ("", ()),
        ("encoder.layer.0.attention", ("encoder", "layer.0", "attention")),
        ("layer.{}.part.{+1}.x", ("layer.{}", "part.{+1}", "x")),
    ],
)
def test_numbers_belong_to_the_array_before_them(scope: str, parts: tuple[str, ...]) -> None:
    assert components(scope) == parts


def test_usual_depth_keeps_a_picture_small() -> None:
    tree = build_tree(after(build(decoder(12)).stages, "unroll-repeat"))
    depth = usual_depth(tree)
    assert count_boxes(tree, depth) <= 60 < count_boxes(tree, depth + 1)
