"""Initial values in model text.

A small formula is an expression of nested calls. A formula that uses a value several times would repeat it, and one of
random numbers would grow beyond any limit: it is a block that names such values, and the initial value calls it.

    state rate: f32[4] = multiply(full((4,), 0.5, f32), scale)

    block InitialValue() -> f32[4] {          state noise: f32[4] = InitialValue()
      key = multiply(iota(axis=0, ...), ...)
      square = multiply(key, key)
      return cast(add(square, key), f32)
    }
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ....dialect.graph import Constant, Formula, Node
from .model_library import BlockLibrary
from .model_text import RESERVED, Words, flattened, not_expressible, write_constant
from .operators import BUILTINS


def write_initial_value(formula: Formula, words: Words, access: Callable[[str], str], library: BlockLibrary) -> str:
    """Returns the expression of an initial value; `access` returns that of a parameter. Adds a block to the library if
    the formula uses a value several times. Raises DiagnosticError if the language cannot express the formula."""
    uses = Counter(value.name for node in formula.body for value in node.inputs)
    shared = [node for node in formula.body if node.inputs and uses[node.output.name] > 1]
    texts: dict[str, str] = {}
    if not shared:
        for node in formula.body:
            texts[node.output.name] = _operation(node, texts, words, access)
        return texts[formula.result.name]
    names, lines = library.file_names.inside(), []
    given: dict[str, str] = {}
    for node in formula.body:
        name = node.output.name
        if node.op == "parameter":
            parameter = str(node.attribute("name"))
            texts[name] = names.give(flattened(parameter.rpartition(".")[2]), RESERVED)
            given[f"{texts[name]}: {words.type(node.output.type)}"] = access(parameter)
            continue
        texts[name] = _operation(node, texts, words, access)
        if node in shared:
            lines.append(f"{(word := names.give('v'))} = {texts[name]}")
            texts[name] = word
    lines.append(f"return {texts[formula.result.name]}")
    head = f"({', '.join(given)}) -> {words.type(formula.result.type)}"
    block = library.add("initial_value", head, "\n".join(lines))
    return f"{block}({', '.join(given.values())})"


def _operation(node: Node, texts: dict[str, str], words: Words, access: Callable[[str], str]) -> str:
    if node.op == "constant":
        constant = node.attribute("value")
        assert isinstance(constant, Constant), node
        return write_constant(constant)
    if node.op == "parameter":
        return access(str(node.attribute("name")))
    if node.op not in BUILTINS or len(node.outputs) > 1:
        raise not_expressible(f"an initial value that is computed by `{node.op}`", node.span)
    operands = [texts[value.name] for value in node.inputs]
    attributes = [f"{name}={words.attribute(attribute)}" for name, attribute in node.attributes]
    return f"{node.op}({', '.join([*operands, *attributes])})"
