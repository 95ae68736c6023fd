"""An entry that returns bytes stored in the artifact, such as the tokenizer: a function that returns a constant."""

from __future__ import annotations

import numpy as np

from ....dialect.graph import Constant, Function, Module, Node, Value
from ....dialect.types import U8, TensorType

TOKENIZER = "tokenizer"


def with_resource(module: Module, name: str, content: bytes) -> Module:
    """Returns the module with an entry `name() -> content: u8[...]`."""
    value = Value("content", TensorType(U8, (len(content),)))
    data = Constant(np.frombuffer(content, np.uint8))
    node = Node("constant", (), (value,), (("value", data),))
    function = Function(name, (), (node,), (value,), ("content",))
    return Module(module.name, module.dims, module.parameters, (*module.functions, function), module.states)
