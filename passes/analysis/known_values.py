"""Values of a function that are known before a call: constant and parameter-only subgraphs.

This module finds known values and their formulas; passes decide whether to use them.

    w * s                     known, with the leaves w and s
    w * s + x                 unknown if x is an argument
    full(shape=(B, 4))        unknown: its size depends on a dim
    broadcast_to(w, (64, 64)) known, but not stored in place of a w of 64 elements: it takes 64 times the bytes
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from ...dialect.dims import Poly
from ...dialect.graph import Attribute, Formula, Node, Parameter, Value, parameter_of
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS

GROWTH = 1.25
"""The largest ratio of a stored value's bytes to the bytes of its leaves. Repeated data is therefore not stored."""
PASSING = 8
"""The largest ratio for intermediate values, such as quantized values that are widened to be summed."""
SMALL = 64
"""The bytes that both ratios may be exceeded by, so that a few elements may always be converted."""
MOST = 16 << 20
"""The most bytes of a value that is stored because it is costly to compute, such as a matrix of cosines, and of its
intermediate values."""


@dataclass(frozen=True, slots=True)
class Known:
    """The leaves of a known value: names with their bytes, in order of first use. `fits` says whether the value is
    small enough to be stored instead of the leaves. `costly` is the size in bytes of the largest value in its
    computation, including itself, with expensive elements.

    A tensor that was rounded to a short dtype is also a leaf, in place of the leaves that it was `rounded` from.
    """

    leaves: tuple[tuple[str, int], ...]
    has_parameter: bool
    fits: bool = True
    rounded: frozenset[str] = frozenset()
    costly: int = 0

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self.leaves)


class KnownValues:
    """Answers queries about values by name. `definitions` may grow between queries, as long as no definition
    changes."""

    def __init__(self, definitions: Mapping[str, Node], parameters: Mapping[str, Parameter]) -> None:
        self.definitions, self.parameters = definitions, parameters
        self._found: dict[str, Known | None] = {}

    def find(self, value: Value) -> Known | None:
        """Returns the leaves of the value; None if it is not known, or too large to be stored."""
        known = self._made(value)
        return known if known is not None and known.fits else None

    def _made(self, value: Value) -> Known | None:
        if value.name not in self._found:
            node = self.definitions.get(value.name)
            self._found[value.name] = None if node is None else self._of(node, value)
        return self._found[value.name]

    def is_known(self, value: Value) -> bool:
        """Returns whether constants and parameters alone determine the value, even if it is too large to be stored."""
        return self._made(value) is not None

    def is_leaf(self, value: Value) -> bool:
        node = self.definitions.get(value.name)
        return node is not None and OPERATORS[node.op].has("stored")

    def _of(self, node: Node, value: Value) -> Known | None:
        if OPERATORS[node.op].has("stored") and not node.inputs:
            size = value.type.bytes
            return Known(((value.name, size),), parameter_of(node) is not None) if isinstance(size, int) else None
        if not _is_foldable(node):
            return None
        operands = [self._made(v) for v in node.inputs]
        made = [known for known in operands if known is not None]
        if len(made) < len(operands):
            return None
        # The size of dequantize(q, scale) is compared with that of q, even if both come from one f32 tensor.
        rounded = frozenset[str]().union(*(known.rounded for known in made))
        leaves = {name: size for known in made for name, size in known.leaves if name not in rounded}
        has_parameter = any(k.has_parameter for k in made)
        operator = OPERATORS[node.op]
        size = sum(v.type.bytes for v in node.outputs)
        assert isinstance(size, int), node
        if _rounds(node):
            return Known(((value.name, size),), has_parameter, rounded=rounded | leaves.keys())
        costly = max((k.costly for k in made), default=0)
        if operator.has("costly") and size <= MOST:
            costly = max(costly, size)
        known = Known(tuple(leaves.items()), has_parameter, rounded=rounded, costly=costly)
        fits = size <= max(known.bytes, costly) * GROWTH + SMALL or operator.has("precomputed")
        return replace(known, fits=fits) if fits or size <= max(known.bytes * PASSING + SMALL, MOST) else None

    def formula(self, value: Value, *, stepwise: bool = False) -> Formula:
        """Returns the formula of a known value in terms of stored parameters. Equal computations give equal
        formulas."""
        writer = _Writer(self.definitions, self.parameters)
        result = writer.copy(value)
        return Formula(tuple(writer.stored.values()), tuple(writer.body), result, stepwise)


def _is_foldable(node: Node) -> bool:
    operator = OPERATORS[node.op]
    # Sums of products are excluded: the result of a matrix library may depend on the machine and its threads.
    if operator.has("structure") or operator.has("contraction") or operator.has("checking") or node.regions:
        return False
    if dict(node.attributes).get("each_call"):
        return False
    return all(v.type.is_static for v in node.outputs) and not any(_is_symbolic(a) for _, a in node.attributes)


def _rounds(node: Node) -> bool:
    """Returns whether the node stores a tensor in a dtype that takes fewer bytes."""
    return (
        OPERATORS[node.op].has("conversion")
        and node.output.type.dtype.is_short
        and node.output.type.dtype.bits < node.inputs[0].type.dtype.bits
    )


def _is_symbolic(value: Attribute) -> bool:
    return any(map(_is_symbolic, value)) if isinstance(value, tuple) else isinstance(value, Poly)


class _Writer:
    """Copies the nodes that compute a value, with numbers for names and without scopes and spans."""

    def __init__(self, definitions: Mapping[str, Node], parameters: Mapping[str, Parameter]) -> None:
        self.definitions, self.parameters = definitions, parameters
        self.stored: dict[str, Parameter] = {}
        self.body: list[Node] = []
        self._copies: dict[str, Value] = {}
        self._read: dict[str, Value] = {}
        self._count = 0

    def copy(self, value: Value) -> Value:
        if value.name not in self._copies:
            node = self.definitions[value.name]
            name = parameter_of(node)
            if name is not None:
                self._copies[value.name] = self._parameter(self.parameters[name], node)
            else:
                inputs = tuple(map(self.copy, node.inputs))
                self._add(node, inputs, self._copies)
        return self._copies[value.name]

    def _parameter(self, parameter: Parameter, node: Node) -> Value:
        """Returns the only read of a parameter in the body. A parameter with a formula is expanded."""
        if parameter.name not in self._read:
            if parameter.formula is not None:
                self._read[parameter.name] = self._inline(parameter.formula)
            else:
                self.stored[parameter.name] = parameter
                read = replace(node, inputs=(), outputs=(self._fresh(node.output),), scope="", span=None)
                self.body.append(read)
                self._read[parameter.name] = read.output
        return self._read[parameter.name]

    def _inline(self, formula: Formula) -> Value:
        stored = {p.name: p for p in formula.parameters}
        copies: dict[str, Value] = {}
        for node in formula.body:
            name = parameter_of(node)
            if name is not None:
                copies[node.output.name] = self._parameter(stored[name], node)
            else:
                self._add(node, tuple(copies[v.name] for v in node.inputs), copies)
        return copies[formula.result.name]

    def _add(self, node: Node, inputs: tuple[Value, ...], copies: dict[str, Value]) -> None:
        outputs = tuple(self._fresh(v) for v in node.outputs)
        self.body.append(replace(node, inputs=inputs, outputs=outputs, scope="", span=None))
        copies.update((old.name, new) for old, new in zip(node.outputs, outputs, strict=True))

    def _fresh(self, value: Value) -> Value:
        self._count += 1
        return Value(str(self._count), value.type)


def definitions_in(nodes: Iterable[Node]) -> dict[str, Node]:
    """Returns the node of every value, including those in regions: names are unique in a function."""
    found: dict[str, Node] = {}
    for node in nodes:
        found.update((v.name, node) for v in node.outputs)
        for region in node.regions:
            found |= definitions_in(region.body)
    return found


def last_known(
    known: KnownValues, nodes: Iterable[Node], results: Iterable[Value], wanted: Callable[[Known], bool]
) -> set[str]:
    """Returns the names of the known values that an unknown node or a result uses. Leaves are excluded, and a view is
    replaced by its operand."""
    found: set[str] = set()

    def use(value: Value) -> None:
        made = known.find(value)
        if made is None or not wanted(made) or known.is_leaf(value):
            return
        node = known.definitions[value.name]
        if OPERATORS[node.op].has("view"):
            use(node.inputs[0])
        else:
            found.add(value.name)

    def walk(nodes: Iterable[Node], results: Iterable[Value]) -> None:
        for node in nodes:
            if not all(known.find(v) for v in node.outputs):
                for value in node.inputs:
                    use(value)
            for region in node.regions:
                walk(region.body, region.results)
        for value in results:
            use(value)

    walk(nodes, results)
    return found
