"""Nacre's graph as twins need it: one function without loops, and everything that depends on weights alone computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from nacre.dialect.dims import evaluate, symbols
from nacre.dialect.graph import Attribute, Constant, Function, Module, Node
from nacre.dialect.interpreter import Load
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import DType
from nacre.passes.manager import PassManager
from nacre.passes.pass_list import parse_pipeline

Array = npt.NDArray[Any]
PASSES = "unroll-repeat,fold-constants,cse,dce"


@dataclass(frozen=True)
class Program:
    """`body` are the nodes of `function` that depend on its arguments; `constants` are all other values, by name."""

    module: Module
    function: Function
    load: Load
    body: tuple[Node, ...]
    constants: Mapping[str, Array]


def read_program(module: Module, load: Load) -> Program:
    """The first function of a module."""
    module = PassManager(parse_pipeline(PASSES)).run(module)
    function = module.functions[0]
    constants: dict[str, Array] = {}
    body: list[Node] = []
    for node in function.body:
        if node.op == "parameter":
            assert not node.inputs, "a loop is left"
            constants[node.output.name] = load(module.parameter_index[str(node.attribute("name"))])
        elif all(v.name in constants for v in node.inputs) and not _symbolic(node):
            inputs = [constants[v.name] for v in node.inputs]
            result = OPERATORS[node.op].reference(*inputs, **concrete_attributes(node, {}))
            constants[node.output.name] = np.asarray(result).astype(node.output.type.dtype.numpy)
        else:
            body.append(node)
    return Program(module, function, load, tuple(body), constants)


def concrete_attributes(node: Node, dims: Mapping[str, int]) -> dict[str, Any]:
    """The attributes with numbers for sizes."""
    return {name: concrete(value, dims) for name, value in node.attributes}


def twin_attributes(node: Node, dims: Mapping[str, int]) -> dict[str, Any]:
    """The same without what twins take for granted."""
    attributes = concrete_attributes(node, dims)
    assert attributes.pop("layout", "channels_first") == "channels_first", node
    assert attributes.pop("into", None) is None, node
    for promise in ("sparse", "x_diagonal", "y_diagonal", "factors"):
        attributes.pop(promise, None)
    return attributes


def concrete(value: Attribute, dims: Mapping[str, int]) -> Any:
    if isinstance(value, tuple):
        return tuple(concrete(v, dims) for v in value)
    if isinstance(value, (bool, float, str, DType, Constant)) or value is None:
        return value
    return evaluate(value, dims)


def _symbolic(node: Node) -> bool:
    return any(symbols(size) for v in node.outputs for size in v.type.shape)


def pair(value: int | tuple[int, int]) -> tuple[int, int]:
    """What a window takes for both axes, or for each."""
    return (value, value) if isinstance(value, int) else value
