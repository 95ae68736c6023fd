"""Graphs written as model text and read again: the text is canonical, and computes the same bits.

Samples, the models of `tests/files/run` and random graphs go there and back, as they are and after the passes of every
level. Texts and refusals stand in `tests/files/write`.
"""

import json
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from differential.generator import random_graph
from differential.inputs import make_trial
from nacre.compiler.graph_passes import GRAPH_PASSES, STRICT_PASSES
from nacre.compiler.readers.language import load_module
from nacre.compiler.readers.language.format import format_source
from nacre.compiler.readers.language.model_writer import write_model
from nacre.compiler.readers.language.operators import BUILTINS
from nacre.compiler.validate.inputs import made_up
from nacre.dialect.graph import Module, walk
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.ops import OPERATORS
from nacre.passes.manager import PassManager
from nacre.passes.pass_list import parse_pipeline
from operator_source import program
from random_graphs import assert_same_bits, random_array, random_module, run_module

VISION = ["mobilenetv2", "resnet18", "resnet50"]
TESTS = Path(__file__).parents[2]
FOLDER = TESTS.parent / "samples"
SAMPLES = ["digits/digits.nacre", "minilm/minilm.nacre", *(f"vision/{name}.nacre" for name in VISION)]
RUN = sorted((TESTS / "files" / "run").glob("*.nacre"))
PASSES = {"none": "", "level-1": GRAPH_PASSES[1], "strict": STRICT_PASSES[2], "level-2": GRAPH_PASSES[2]}
SMALL_MINILM = {
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
    "vocab_size": 50,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
}


def written(module: Module) -> Module:
    """There and back."""
    text = write_model(module)
    assert format_source(text) == text
    return load_module(text, text=True).module


def optimized(module: Module, passes: str) -> Module:
    return PassManager(parse_pipeline(passes)).run(module) if passes else module


# A cast to the same dtype is none in the text, and a size that is known is a number.
@pytest.mark.parametrize("name", sorted(BUILTINS.keys() - {"cast", "size_value"}))
def test_operator_comes_back(name: str) -> None:
    for case in BUILTINS[name].cases:
        module = load_module(program(BUILTINS[name], case), text=True).module
        assert nodes_of(written(module)) == nodes_of(module)


@pytest.mark.parametrize("passes", PASSES)
@pytest.mark.parametrize("seed", range(40))
def test_random_graph_comes_back(seed: int, passes: str) -> None:
    module = optimized(random_module(7000 + seed, exact=False), PASSES[passes])
    assert_same_bits(run_module(module, seed), run_module(written(module), seed))


@pytest.mark.parametrize("passes", PASSES)
@pytest.mark.parametrize("first", range(0, 24, 12))
def test_grown_graphs_come_back(first: int, passes: str) -> None:
    for seed in range(first, first + 12):
        graph = random_graph(seed)
        before = optimized(graph.module, PASSES[passes])
        if has_words(before):
            arguments = make_trial(graph, graph.bindings[0], "ordinary").arguments
            after = written(before)
            compare(before, after, graph.name, arguments)


def has_words(module: Module) -> bool:
    """Nothing in it that only passes bring in: `tests/files/write` shows what is said of that."""
    return not any(OPERATORS[node.op].has("internal") for f in module.functions for node in walk(f.body))


def compare(before: Module, after: Module, name: str, arguments: Sequence[Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what numpy has to say about NaN and empty slices
        expected = Interpreter(before, made_up).run(name, arguments)
        actual = Interpreter(after, made_up).run(name, arguments)
    assert [a.tobytes() for a in actual] == [e.tobytes() for e in expected]
    assert [a.type for a in after.function(name).arguments] == [a.type for a in before.function(name).arguments]


@pytest.mark.parametrize("path", RUN, ids=lambda path: path.stem)
def test_models_of_the_tests_come_back(path: Path) -> None:
    module = load_module(path).module
    after = written(module)
    for function in module.functions:
        dims = {s.name: max(s.low, 2 * s.multiple) for s in function.symbols()}
        rng = np.random.default_rng(0)
        arguments = [random_array(a.type.concrete(dims), a.type.dtype, rng) for a in function.arguments]
        compare(module, after, function.name, arguments)


@pytest.mark.parametrize("passes", PASSES)
def test_small_minilm_comes_back(tmp_path: Path, passes: str) -> None:
    module = optimized(load_sample("minilm/minilm.nacre", tmp_path), PASSES[passes])
    ids = np.random.default_rng(0).integers(0, 50, (2, 5))
    compare(module, written(module), "embed", [ids, ids * 0 + 1])


@pytest.mark.parametrize("path", SAMPLES)
def test_sample_comes_back_as_the_same_nodes(path: str, tmp_path: Path) -> None:
    module = load_sample(path, tmp_path)
    after = written(module)
    assert nodes_of(after) == nodes_of(module)
    assert {p.key: (p.type, p.counts, p.transpose) for p in after.parameters} == {
        p.key: (p.type, p.counts, p.transpose) for p in module.parameters
    }
    (function,), (back,) = module.functions, after.functions
    assert (back.name, back.arguments, back.result_names) == (function.name, function.arguments, function.result_names)


def test_checkpoints_are_named() -> None:
    module = load_module(FOLDER / "digits" / "digits.nacre").module
    text = write_model(module, {"classify": 'a "b".npz'})
    assert load_module(text, text=True).weights["classify"] == Path.cwd() / 'a "b".npz'


def load_sample(path: str, folder: Path) -> Module:
    (folder / "config.json").write_text(json.dumps(SMALL_MINILM))
    return load_module(FOLDER / path, weights=folder).module


def nodes_of(module: Module) -> Counter[Any]:
    """The nodes in any order, and without their names and places; names of parameters count by their keys."""
    keys = {p.name: p.key for p in module.parameters}
    return Counter(
        (
            n.op,
            n.attributes if n.op != "parameter" else keys[str(n.attribute("name"))],
            tuple(v.type for v in n.outputs),
        )
        for function in module.functions
        for n in walk(function.body)
    )
