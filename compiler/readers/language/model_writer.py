"""Writes a graph as model text, which reads back to a graph that computes the same bits.

Each node becomes one statement, in order. `model_blocks` restores blocks on request; otherwise, a comment names the
origin of the nodes, and states get names without dots. Loops and branches stay, states keep their initial values, fused
groups are expanded, and a parameter that is computed from others becomes that computation, in float64. Graphs that the
language cannot express (operators that only passes create, constants of more than 65536 elements, names of parameters
with unknown numbers) are a diagnostic, `not-expressible`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ....dialect.graph import Constant, Function, Module, Node, Value, walk
from ....dialect.operator import REQUIRED, Operator
from ....dialect.printer import format_attribute
from ....dialect.types import BOOL, I64
from .expressions import OPERATORS as INFIX
from .format import format_source
from .imports import DIM_LIMIT
from .model_analysis import SIGNS_OF_INDICES, count_written_uses, is_check, is_index, transposition
from .model_blocks import BLOCK, Block, Restored, has_index, restore_blocks
from .model_control import WRITERS as CONTROL_WRITERS
from .model_expansion import expand_function
from .model_library import BlockLibrary
from .model_parameters import ParameterTable
from .model_states import StateWriter, full_starts, initial_parameters, name_states
from .model_text import (
    KEYWORDS,
    RESERVED,
    Expression,
    Names,
    Words,
    flattened,
    not_expressible,
    write_constant,
    write_element,
)
from .model_trees import TreeBlock, TreeNodes, only_in_blocks
from .operators import BUILTINS
from .unknown import FUNCTIONS

_SIGN = {name: sign for sign, name in INFIX.items()} | {"matmul": "@"}
_LEAST_RANK = {"matmul": 2}
_ALWAYS_NEEDED = RESERVED - FUNCTIONS | {"cast", "full", "tensor", "min", "max"}


def write_model(module: Module, weights: Mapping[str, str] | None = None, *, blocks: bool = False) -> str:
    """Returns the text of a module, one `model` for each function, in the form of `nacre fmt`.

    weights: the checkpoint that a model names in its text, by the name of the function.
    blocks: restores the blocks that the scopes of the nodes name.

    Raises DiagnosticError if the language cannot express a part of the graph.
    """
    expanded = [expand_function(function, module) for function in module.functions]
    # Dims, models and arguments keep their names if these hide no needed name.
    needed = {node.op for function, _ in expanded for node in walk(function.body)} & FUNCTIONS | _ALWAYS_NEEDED
    symbols = [s for s in module.dims if any(s in function.symbols() for function, _ in expanded)]
    reserved = {*needed, *(flattened(s.name) for s in symbols), *(function.name for function, _ in expanded)}
    restored = restore_blocks(expanded, module, reserved) if blocks else [Restored.plain(*each) for each in expanded]
    file_names = Names({name for each in restored for name in each.bound_sizes({s.name for s in module.dims})})
    dims = {s.name: file_names.give(flattened(s.name), needed) for s in symbols}
    models = [file_names.give(flattened(function.name, "model"), needed) for function, _ in expanded]
    words = Words(lambda name: dims.get(name, name))
    arguments = {flattened(a.name) for function, _ in expanded for a in function.inputs}
    outer = {name: name for each in restored for name in each.states}
    spelled = name_states(outer, Names(set(dims.values())), needed | arguments)
    parts = ["language 1"]
    for s in symbols:
        multiple = f" multiple {s.multiple}" if s.multiple != 1 else ""
        parts.append(f"dim {dims[s.name]} in {s.low}..{min(s.high, DIM_LIMIT)}{multiple}")
    library = BlockLibrary(file_names, TreeNodes.of([each.function for each in restored]))
    writers = [_FunctionWriter(module, each, words, file_names, needed, spelled, library) for each in restored]
    written = [
        writer.write(name, (weights or {}).get(writer.function.name))
        for name, writer in zip(models, writers, strict=True)
    ]
    parts += [line for text in library.texts for line in ("", text)]
    parts += [line for texts in written for line in ("", *texts)]
    return format_source("\n".join(parts) + "\n")


@dataclass(frozen=True)
class _Instance:
    """An instance, or an array of them: its name, the writer of its block, and the line that makes it."""

    name: str
    writer: _FunctionWriter
    declaration: str


class _FunctionWriter:
    """Writes one function. All functions of a module name their parameters and blocks before the first one is
    written."""

    def __init__(
        self,
        module: Module,
        restored: Restored,
        words: Words,
        file_names: Names,
        needed: Collection[str],
        spelled: Mapping[str, str],
        library: BlockLibrary,
        path: str | None = "",
        in_block: bool = False,
        arrays: int = 0,
    ) -> None:
        self.module, self.needed, self.library, self.path = module, needed, library, path
        function = restored.function
        self.restored, self.function, self.words, self.file_names = restored, function, words, file_names
        self.instances: dict[str, _Instance] = {}
        self.in_block, self.arrays = in_block, arrays
        self.uses = count_written_uses(function)
        self.texts: dict[str, Expression] = {}
        self.makers: dict[str, Node] = {}
        self.indices: dict[str, str] = {}  # the loop variables, by the name of their value in the graph
        self.lines: list[str] = []
        self.scope = ""
        # `check-indices` gives a check the span of the operator that it guards.
        self.checks = {_origin(node, node.attribute("operator")) for node in walk(function.body) if is_check(node)}
        self.used_here: set[str] = set()  # names that the nodes of the body itself use, not nodes of inner loops
        self.names = file_names.inside()
        self.names.taken |= {*spelled.values(), *(symbol.name for symbol in function.symbols())}
        for argument in function.inputs:
            word = "x" if in_block and len(function.inputs) == 1 else self.word(argument, "x")
            self.texts[argument.name] = Expression(self.names.give(word, needed))
        for block in restored.blocks.values():
            self.instances[block.path] = self.instance(block)
        read = {str(n.attribute("name")) for n in walk(function.body) if n.op == "parameter"}
        stored = {name: restored.parameters[name] for name in restored.parameters if name in read}
        stored = {name: found for name, found in stored.items() if self.access(name, found.counts) is None}
        stored |= {p.name: p for p in initial_parameters(module, restored.states, arrays)}
        self.table = ParameterTable(stored.values(), file_names, self.names, words, path, arrays)
        self.states = StateWriter(
            module, function, words, self.table, spelled, self.uses, restored.states, library, arrays
        )
        self.depth = 0
        self.trees = library.trees.blocks(function, words, self.attributes)
        self.tables_of_trees = only_in_blocks(function, self.trees)
        self.tree_blocks: list[str] = []  # the declarations of instances of blocks of trees

    def write(self, name: str, weights: str | None) -> list[str]:
        """Writes the blocks that the model needs, and the model."""
        self.names.taken |= self.file_names.taken
        head = f"weights {self.words.attribute(weights)}\n" if weights is not None else ""
        lines = self.body()
        return [*self.table.blocks(), f"model {name}{self.head()} {{\n{head}{lines}\n}}"]

    def head(self) -> str:
        head = ", ".join(f"{self.texts[a.name].expression}: {self.words.type(a.type)}" for a in self.function.inputs)
        return f"({head}) -> {self.results()}"

    def body(self) -> str:
        """Writes declarations and nodes."""
        states = self.states.declarations(self)
        self.nodes(self.function.body)
        self.states.finish(self)
        self.lines.append(f"return {self.expressions(self.function.outputs)}")
        declared = [*self.table.declarations(self.table.model), *(each.declaration for each in self.instances.values())]
        declared += self.tree_blocks
        return "\n".join([*declared, *states, *self.lines])

    def instance(self, block: Block) -> _Instance:
        """Writes the block of an instance, or of an array of instances."""
        name = self.names.give(flattened(block.path), _called_in(self.function))
        element = ".{}" if block.count else ""
        names, called = Names(), _called_in(block.inside.function)
        inner = _FunctionWriter(
            self.module,
            block.inside,
            self.words,
            self.file_names,
            self.needed,
            {state: names.give(flattened(own, "state"), called) for state, own in block.inside.states.items()},
            self.library,
            f"{self.path}{block.path}{element}." if name == block.path and self.path is not None else None,
            in_block=True,
            arrays=self.arrays + bool(block.count),
        )
        lines = inner.body()
        written = self.library.add(name, inner.head(), lines)
        self.library.texts[:0] = inner.table.blocks()
        count = f"[{block.count}]" if block.count else ""
        return _Instance(name, inner, f"use {name}{count} = {written}")

    def block(self, node: Node) -> None:
        """Writes the call of an instance."""
        name, element = self.instances[str(node.attribute("path"))].name, node.attribute("element")
        index = f"[{self.selected(node.inputs[0], node) if has_index(node) else element}]" if element else ""
        self.assign(node, f"{name}{index}({self.expressions(node.inputs[has_index(node) :])})")

    def access(self, name: str, indices: Sequence[object]) -> str | None:
        """Returns the expression for a parameter of an instance at these indices; None if no instance declares it."""
        for path, instance in self.instances.items():
            found = re.match(rf"{re.escape(path)}\.(?:(\d+|{{}})\.)?", name)
            if found is None:
                continue
            taken = int(found[1] == "{}")
            index = "" if found[1] is None else f"[{indices[0] if taken else found[1]}]"
            own, rest = name[found.end() :], indices[taken:]
            inside = instance.writer.access(own, rest)
            if inside is None and own in instance.writer.table:
                inside = instance.writer.table.access(own, [str(each) for each in rest])
            return None if inside is None else f"{instance.name}{index}.{inside}"
        return None

    def expressions(self, values: Iterable[Value]) -> str:
        return ", ".join(self.texts[v.name].expression for v in values)

    def results(self) -> str:
        types = [self.words.type(v.type) for v in self.function.outputs]
        given = self.function.result_names[: len(types)]
        if not given or given == ("result",):
            return ", ".join(types)
        names = Names()
        return ", ".join(
            f"{names.give(flattened(name, 'result'), KEYWORDS)}: {type}"
            for name, type in zip(given, types, strict=True)
        )

    # --- nodes ---

    def nodes(self, nodes: Sequence[Node]) -> None:
        around, self.used_here = self.used_here, {v.name for node in nodes for v in node.inputs}
        self.depth += 1
        for node in nodes:
            self.makers |= {v.name: node for v in node.outputs}
            if (is_index(node) and not self.uses[node.output.name]) or is_check(node):
                continue
            write = _STRUCTURE.get(node.op, _FunctionWriter.operator)
            write(self, node)
        self.depth -= 1
        self.used_here = around

    def assign(self, node: Node, expression: str) -> None:
        several = len(node.outputs) > 1 or node.op == BLOCK
        # Nothing warns about an unused name that begins with `_`.
        unused = ["_" if several and not self.uses[v.name] else "" for v in node.outputs]
        names = [self.names.give(mark + self.word(v)) for mark, v in zip(unused, node.outputs, strict=True)]
        self.texts |= {v.name: Expression(name) for v, name in zip(node.outputs, names, strict=True)}
        if node.scope and node.scope != self.scope:
            self.lines.append(f"# {' '.join(node.scope.split())}")
        self.scope = node.scope
        self.lines.append(f"{', '.join(names)} = {expression}")

    def word(self, value: Value, default: str = "v") -> str:
        """Returns the name for a value. In a block, the name does not depend on numbers or on names of the caller, so
        that equal blocks have equal texts."""
        if not self.in_block:
            return flattened(value.name)
        if value in self.function.outputs and value not in self.function.inputs:
            return default  # the caller has named it
        name = re.sub(r"(?<=.)_?\d+$", "", flattened(value.name))
        return default if name == "v" else name

    def known(self, node: Node, text: Expression) -> None:
        """Writes a known value inline if it has one use, otherwise as an assignment."""
        if self.uses[node.output.name] == 1 and text.literal:
            self.texts[node.output.name] = text
        else:
            self.assign(node, text.expression)

    def constant(self, node: Node) -> None:
        if node.output.name in self.tables_of_trees:
            return
        value = node.attribute("value")
        assert isinstance(value, Constant)
        literal = write_element(value) if value.array is not None and value.array.ndim == 0 else ""
        self.known(node, Expression(write_constant(value), literal))

    def size_value(self, node: Node) -> None:
        literal = self.words.attribute(node.attribute("size"))
        self.known(node, Expression(f"cast({literal}, {I64})", literal, literal))

    def parameter(self, node: Node) -> None:
        name = str(node.attribute("name"))
        indices = [self.selected(value, node) for value in node.inputs]
        access = self.access(name, indices) or self.table.access(name, indices)
        self.texts[node.output.name] = Expression(access)

    def selected(self, value: Value, node: Node) -> str:
        """Returns the number of an instance as it stands between brackets."""
        text = self.index(value, node)
        return text[1:-1] if text.startswith("(") else text

    def index(self, value: Value, node: Node) -> str:
        """Returns the number of an instance as an expression of loop variables."""
        if value.name in self.indices:
            return self.indices[value.name]
        maker = self.makers.get(value.name)
        if maker is not None and maker.op == "constant":
            constant = maker.attribute("value")
            assert isinstance(constant, Constant)
            return write_element(constant)
        if maker is None or maker.op not in SIGNS_OF_INDICES:
            kind = "instance" if node.op == BLOCK else "parameter"
            named = node.attribute("path" if node.op == BLOCK else "name")
            message = f"the {kind} `{named}` is selected by a computed index"
            raise not_expressible(message, node.span)
        left, right = (self.index(v, node) for v in maker.inputs)
        return f"({left} {SIGNS_OF_INDICES[maker.op]} {right})"

    def repeat(self, node: Node) -> None:
        (region,) = node.regions
        variable, *carried = region.arguments
        names = [self.names.give(flattened(value.name)) for value in carried]
        if not names:
            return
        targets = ", ".join(names)
        self.lines.append(f"{targets} = {self.expressions(node.inputs)}")
        index = self.names.give(flattened(variable.name, "i"))
        self.texts[variable.name] = Expression(f"cast({index}, {I64})", index, index)
        self.indices[variable.name] = index
        self.texts |= {v.name: Expression(name) for v, name in zip(carried, names, strict=True)}
        self.texts |= {v.name: Expression(name) for v, name in zip(node.outputs, names, strict=True)}
        self.lines.append(f"repeat {index} in 0..{node.attribute('count')} {{")
        self.nodes(region.body)
        self.lines.append(f"{targets} = {self.expressions(region.results)}")
        self.lines.append("}")

    def update_slice(self, node: Node) -> None:
        # A body cannot assign states.
        if self.depth == 1 and self.states.update_slice(self, node):
            return
        operands = [*(self.texts[v.name].expression for v in node.inputs[:2]), *full_starts(self.words, self, node)]
        self.assign(node, f"dynamic_update_slice({', '.join(operands)})")

    def operator(self, node: Node) -> None:
        if node.op not in BUILTINS:
            raise not_expressible(f"the language cannot express `{node.op}`", node.span)
        if node.outputs[0].name in self.trees:
            self.tree_block(node, self.trees[node.outputs[0].name])
            return
        if _origin(node, node.op) in self.checks:
            node = replace(node, attributes=tuple((n, v) for n, v in node.attributes if n != "mode"))
        operands = self.operands(node, BUILTINS[node.op])
        attributes = self.attributes(node, BUILTINS[node.op])
        ranks = [v.type.rank for v in node.inputs]
        if node.op in _SIGN and not attributes and min(ranks) >= _LEAST_RANK.get(node.op, 0):
            self.assign(node, f" {_SIGN[node.op]} ".join(operands))
        elif (suffix := transposition(node)) and self.uses[node.output.name] == 1 and self.is_used_here(node):
            self.texts[node.output.name] = Expression(operands[0] + suffix)
        elif node.op == "cast":
            self.assign(node, f"cast({self.texts[node.inputs[0].name].size or operands[0]}, {node.output.type.dtype})")
        else:
            self.assign(node, f"{node.op}({', '.join([*operands, *attributes])})")

    def tree_block(self, node: Node, block: TreeBlock) -> None:
        """Writes the call of a block that computes the node."""
        written = self.library.add(block.instance, block.head, block.lines)
        instance = self.names.give(block.instance, self.needed)
        self.tree_blocks.append(f"use {instance} = {written}")
        arguments = self.expressions(node.inputs[: block.arguments])
        name = self.names.give(self.word(node.output), self.needed)
        names = [name if n == block.own else self.names.give(f"_{each}") for n, each in enumerate(block.results)]
        self.texts[node.output.name] = Expression(name)
        self.lines.append(f"{', '.join(names)} = {instance}({arguments})")

    def is_used_here(self, node: Node) -> bool:
        return node.output.name in self.used_here

    def operands(self, node: Node, record: Operator) -> list[str]:
        """Writes the operands. A known scalar becomes a plain number if another operand determines its dtype."""
        specs = [record.operands[min(n, len(record.operands) - 1)] for n in range(len(node.inputs))]
        texts = [self.texts[v.name] for v in node.inputs]
        typed = {spec.group for spec, text in zip(specs, texts, strict=True) if not text.literal}
        written: list[str] = []
        for spec, text in zip(specs, texts, strict=True):
            is_plain = text.literal and spec.group in typed and not (spec.optional or spec.variadic)
            # A known left side of `and` and `or` decides the result alone.
            is_plain = is_plain and spec.dtypes != (BOOL,)
            # A sum, or a sign on the left, would change the binding.
            is_bare = node.op not in _SIGN or re.fullmatch(r"-?[\w.]+" if written else r"[\w.]+", text.literal)
            literal = text.literal if is_bare else f"({text.literal})"
            name = f"{spec.name}=" if spec in record.named else ""
            written.append(name + (literal if is_plain else text.expression))
        return written

    def attributes(self, node: Node, record: Operator) -> list[str]:
        """Returns the attributes that differ from their defaults, by name."""
        specs = {spec.name: spec for spec in record.attributes}
        return [
            f"{name}={self.words.attribute(value)}"
            for name, value in node.attributes
            if specs[name].default is REQUIRED or format_attribute(value) != format_attribute(specs[name].default)
        ]


def _called_in(function: Function) -> set[str]:
    """Returns the names that instances and states of a function must not hide."""
    return {node.op for node in walk(function.body)} & FUNCTIONS | _ALWAYS_NEEDED | {"dynamic_update_slice"}


def _origin(node: Node, operator: object) -> tuple[object, ...]:
    return operator, node.scope, node.span


_STRUCTURE: Mapping[str, Callable[[_FunctionWriter, Node], None]] = {
    "constant": _FunctionWriter.constant,
    "size_value": _FunctionWriter.size_value,
    "parameter": _FunctionWriter.parameter,
    "repeat": _FunctionWriter.repeat,
    "update_slice": _FunctionWriter.update_slice,
    BLOCK: _FunctionWriter.block,
    **CONTROL_WRITERS,
}
