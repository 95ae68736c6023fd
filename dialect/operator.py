"""What an operator is: one record that holds everything there is to know about it.

Type inference, reference, gradient, lowering and example cases stand in one place, so that the parametrised test can
run every slot of every operator. This module defines the record and the builder with which gradients and decompositions
are written; the operators themselves stand in `ops/`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .diagnostics import Span
from .dims import Size
from .emitter import Emitter, Tensor
from .graph import Constant, Node, Value
from .types import ANY, Array, DType, TensorType


class InferenceError(Exception):
    """A use of an operator that has no type. `operand` numbers the operand at fault, or None.

    `code` is a diagnostic code such as `shape-mismatch`, `dtype-mismatch`, `bad-attribute`, `rank-mismatch`.
    """

    def __init__(self, code: str, message: str, *, label: str = "", operand: int | None = None, help: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.label, self.operand, self.help = code, message, label, operand, help


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor operand: the dtypes it accepts. `variadic` (one, the last) takes any number, at least one.

    Operands with the same `group` must have one dtype, unless they may be `mixed`: then inference says which dtypes go
    together. An `optional` one may be left out from the end.
    """

    name: str
    dtypes: tuple[DType, ...] = ANY
    group: str = "T"
    variadic: bool = False
    optional: bool = False
    mixed: bool = False


REQUIRED = object()
"""The default of an attribute that has none."""


@dataclass(frozen=True, slots=True)
class AttributeSpec:
    """A compile-time argument. `kind` is one of

    int, float, bool, str, dtype, constant, int?, float? and dtype? (or None), ints, ints?, axis (an int, may be
    negative), axes (an int, a tuple of them, or None for all), size, sizes (a shape, symbolic), any.
    `choices` lists the admitted strings where there are few.
    """

    name: str
    kind: str
    default: Any = REQUIRED
    choices: tuple[str, ...] = ()


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_int(value) or isinstance(value, float)


def _is_axes(value: Any) -> bool:
    return value is None or all(map(_is_int, value if isinstance(value, tuple) else (value,)))


_KINDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "int": ("an integer", _is_int),
    "int?": ("an integer or none", lambda value: value is None or _is_int(value)),
    "float": ("a number", _is_number),
    "float?": ("a number or none", lambda value: value is None or _is_number(value)),
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "str": ("a string", lambda value: isinstance(value, str)),
    "dtype": ("a dtype", lambda value: isinstance(value, DType)),
    "dtype?": ("a dtype or none", lambda value: value is None or isinstance(value, DType)),
    "constant": ("a constant", lambda value: isinstance(value, Constant)),
    "axis": ("an axis", _is_int),
    "axes": ("an axis or several", _is_axes),
}
"""What a value of a kind is called, and whether something is one. Kinds that are missing here are read by inference."""


Attributes = Mapping[str, Any]
"""Attributes by name, complete with defaults."""


@dataclass(frozen=True, slots=True)
class Case:
    """An example use for the tests: shapes (or arrays) of operands, attributes, and how close the result must be.

    `domain` bounds the random values of float operands; `arrays` gives operands by number where random ones make no
    sense (indices, masks). `dtypes` restricts the case; by default it runs for every dtype that the operands of group
    `T` accept (of the first operand, where no group is called so); `mixed` gives those of operands, by number, that
    have another one. `gradient` is False where finite differences do not
    apply (a kink inside the domain). `tolerance` counts in units of the dtype's epsilon times the square root of
    `terms`, relative to the largest result.
    """

    shapes: tuple[tuple[int, ...], ...]
    attributes: Attributes = field(default_factory=dict)
    domain: tuple[float, float] = (-2.0, 2.0)
    arrays: Mapping[int, Array] = field(default_factory=dict)
    dtypes: tuple[DType, ...] | None = None
    mixed: Mapping[int, DType] = field(default_factory=dict)
    gradient: bool = True
    tolerance: float = 4.0
    terms: int = 1


@dataclass(frozen=True, slots=True)
class Use:
    """What a gradient is written from: the operator's operands, results, attributes and the results' gradients.

    The gradient of a result that nothing depends on is None.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    attributes: Attributes
    gradients: tuple[Value | None, ...]

    @property
    def gradient(self) -> Value:
        """The gradient of the only result."""
        assert self.gradients[0] is not None
        return self.gradients[0]


Infer = Callable[[Sequence[TensorType], Attributes], tuple[TensorType, ...]]
Reference = Callable[..., Any]
"""`reference(*arrays, **attributes) -> array or tuple of arrays`, in the dtype of its operands.

Symbolic sizes among the attributes come as integers.
"""
Gradient = Callable[["Builder", Use], Sequence["Value | None"]]
"""`gradient(b, use) -> one value per operand`, None for an operand that has no gradient (an index)."""
Lower = Callable[[Emitter, Sequence[Tensor], Attributes, Sequence[TensorType]], Sequence[Tensor]]
"""`lower(e, operands, attributes, result types) -> results`."""
Decompose = Callable[["Builder", Sequence[Value], Attributes], Sequence[Value]]
"""`decompose(b, operands, attributes) -> results`, written with other operators."""


@dataclass(frozen=True, slots=True)
class Addressing:
    """An operand of indices: they address axes of `sizes` in turn, each the start of a window of so many elements."""

    operand: int
    sizes: tuple[Size, ...]
    window: Size = 1


Addresses = Callable[[Sequence[TensorType], Attributes], tuple[Addressing, ...]]
"""`addresses(types of the operands, attributes)` lists the operands of indices."""
Inside = Callable[["Builder", Sequence[Value], Attributes], Value]
"""`inside(b, operands, attributes) -> mask`, which broadcasts to the result."""
RowAxes = Callable[[TensorType, Attributes], tuple[int, ...]]
"""`row_axes(type of the first operand, attributes) -> axes`, counted from 0, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator. `lower` and `decompose`: exactly one is given. `gradient` None means: there is none to take.

    Only what is `structure` or `blocked` may be without a way to lower it and without cases: whoever walks the graph
    knows it.

    Properties are what passes ask for: `elementwise` (each result element depends on the operands' elements at its own
    place, after broadcasting), `contraction` (sums of products), `reduction`, `movement` (elements are copied, not
    computed), `commutative`, `idempotent` (`f(f(x)) == f(x)`), `involution` (`f(f(x)) == x`), `view` (the same memory
    read under another shape).

    And for those that put operators together: `pointwise` (an element depends on the first operand's element at its own
    place; other operands are read as a whole, or the place itself matters), `rowwise` (the first operand's shape, and
    each element depends on the row through its place), `strided` (a movement from places that are linear forms of the
    result's, once axes are split), `gathering` (whole slices of the first operand, by number), `generator` (told from
    places alone), `sequential` (elements in an order, one after another), `attention` (two contractions around what is
    rowwise), `costly` (an element costs many additions), `precomputed` (of a parameter it is computed once, even if the
    result is larger), `blocked` (makes or reads a value that is stored in blocks, which `split-blocks` takes apart:
    no code is made of it as it is), `internal` (only passes bring it in, when nothing is differentiated any more: it
    has no gradient and no name in the language), `checking` (its result says whether the call fails; it stays even if
    nothing reads that).

    And for how results are rounded, where operands are exact: `exact` (not at all; movements and generators need not
    say it), `rounded` (once), `summing` (with every term of a sum; contractions need not say it); what says none is a
    function that may be off by a few roundings. `extreme` (an exact choice of the greatest or least, which may be a
    zero of either sign), `stepped` (rounded to the dtype that an attribute names, which is part of what is asked for:
    an error before may make a whole step of it, and so may its own unless it is `exact`).

    `row_axes` gives the axes of the first operand that each element of the result takes in whole; every `rowwise`
    operator has it, and the reductions over axes. `addresses` lists the operands of indices. With the value
    `error` of an attribute `mode` an index that is out of range fails the call. An operator that reads elements by
    index has `inside`, the mask of the elements of its result whose indices are in range.
    """

    name: str
    summary: str
    operands: tuple[Operand, ...]
    attributes: tuple[AttributeSpec, ...] = ()
    infer: Infer
    reference: Reference
    gradient: Gradient | None
    lower: Lower | None = None
    decompose: Decompose | None = None
    cases: tuple[Case, ...]
    properties: frozenset[str] = frozenset()
    row_axes: RowAxes | None = None
    addresses: Addresses | None = None
    inside: Inside | None = None
    results: tuple[str, ...] = ("result",)

    def __post_init__(self) -> None:
        ways = (self.lower is not None) + (self.decompose is not None)
        apart = bool(self.properties & {"structure", "blocked"})
        assert ways == 1 or apart, f"{self.name}: give lower or decompose"
        assert self.cases or apart, f"{self.name}: has no case"
        assert self.properties <= PROPERTIES, (self.name, self.properties - PROPERTIES)
        assert len(self.properties & {"exact", "rounded", "summing"}) <= 1, f"{self.name}: rounded in one way alone"
        modes = any(a.name == "mode" and "error" in a.choices for a in self.attributes)
        assert not modes or self.addresses is not None, f"{self.name}: give addresses"
        assert self.inside is None or self.addresses is not None, f"{self.name}: give addresses"
        assert self.row_axes is not None or "rowwise" not in self.properties, f"{self.name}: give row_axes"

    def has(self, property: str) -> bool:
        assert property in PROPERTIES, property
        return property in self.properties

    def complete(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All attributes, with defaults for those not given. Raises InferenceError for an unknown or missing one."""
        known = {a.name: a for a in self.attributes}
        for name in given:
            if name not in known:
                raise InferenceError("bad-attribute", f"`{self.name}` has no argument `{name}`")
        full: dict[str, Any] = {}
        for name, spec in known.items():
            value = given.get(name, spec.default)
            if value is REQUIRED:
                raise InferenceError("missing-argument", f"`{self.name}` needs the argument `{name}`")
            expected, is_kind = _KINDS.get(spec.kind, ("", None))
            if is_kind is not None and not is_kind(value):
                raise InferenceError("bad-attribute", f"`{name}` of `{self.name}` is {value!r}, expected {expected}")
            if spec.choices and value not in spec.choices:
                raise InferenceError(
                    "bad-attribute",
                    f"`{name}` of `{self.name}` is {value!r}, expected one of {', '.join(map(repr, spec.choices))}",
                )
            full[name] = value
        return full

    def check(self, types: Sequence[TensorType], given: Mapping[str, Any]) -> tuple[TensorType, ...]:
        """The types of the results. Raises InferenceError at a wrong number of operands, dtype, shape or attribute."""
        attributes = self.complete(given)
        required = sum(not o.optional for o in self.operands)
        variadic = bool(self.operands) and self.operands[-1].variadic
        if len(types) < required or (len(types) > len(self.operands) and not variadic):
            expected = f"at least {required}" if variadic or required != len(self.operands) else str(required)
            raise InferenceError("wrong-operands", f"`{self.name}` takes {expected} tensors, not {len(types)}")
        groups: dict[str, DType] = {}
        for number, type in enumerate(types):
            operand = self.operands[min(number, len(self.operands) - 1)]
            if type.dtype not in operand.dtypes:
                accepted = ", ".join(d.name for d in operand.dtypes)
                raise InferenceError(
                    "dtype-mismatch",
                    f"`{operand.name}` of `{self.name}` cannot be {type.dtype}",
                    label=f"this is {type}; accepted: {accepted}",
                    operand=number,
                )
            first = groups.setdefault(operand.group, type.dtype)
            if first != type.dtype and not operand.mixed:
                raise InferenceError(
                    "dtype-mismatch",
                    f"`{self.name}` mixes {first} and {type.dtype}",
                    label=f"this is {type}",
                    operand=number,
                    help=f"convert one of them: cast(..., {first})",
                )
        for value in attributes.values():
            if isinstance(value, DType) and value.is_blocked and "blocked" not in self.properties:
                message, help_text = f"`{self.name}` gives nothing in blocks", f"quantize_blocks(..., {value})"
                raise InferenceError("bad-attribute", message, help=help_text)
        return self.infer(types, attributes)


PROPERTIES = frozenset(
    {
        "elementwise",
        "contraction",
        "reduction",
        "movement",
        "commutative",
        "idempotent",
        "involution",
        "view",
        "structure",
        "pointwise",
        "rowwise",
        "strided",
        "gathering",
        "generator",
        "sequential",
        "attention",
        "costly",
        "precomputed",
        "blocked",
        "internal",
        "checking",
        "exact",
        "rounded",
        "summing",
        "extreme",
        "stepped",
    }
)


class Builder:
    """Writes nodes one after another; `b.add(x, y)` and `b.softmax(x, axis=-1)` name operators of the given table.

    Every name that it gives is `prefix` and a number, so two builders over one function need two prefixes.
    Raises InferenceError where an operator does not accept its operands.
    """

    def __init__(
        self,
        operators: Mapping[str, Operator],
        prefix: str = "",
        *,
        scope: str = "",
        span: Span | None = None,
        start: int = 0,
    ) -> None:
        self.operators = operators
        self.prefix, self.scope, self.span = prefix, scope, span
        self.nodes: list[Node] = []
        self._count = start

    def __getattr__(self, name: str) -> Callable[..., Value]:
        if name.startswith("_") or name not in self.operators:
            raise AttributeError(name)

        def build(*inputs: Value, **attributes: Any) -> Value:
            results = self.apply(name, inputs, attributes)
            assert len(results) == 1, f"{name} has {len(results)} results: use apply"
            return results[0]

        return build

    def fresh(self, type: TensorType) -> Value:
        self._count += 1
        return Value(f"{self.prefix}{self._count}", type)

    def apply(
        self, name: str, inputs: Sequence[Value], attributes: Mapping[str, Any] | None = None
    ) -> tuple[Value, ...]:
        """Adds a node and gives its results."""
        operator = self.operators[name]
        full = operator.complete(attributes or {})
        types = operator.check([v.type for v in inputs], full)
        outputs = tuple(self.fresh(t) for t in types)
        self.nodes.append(
            Node(name, tuple(inputs), outputs, tuple(sorted(full.items())), scope=self.scope, span=self.span)
        )
        return outputs

    def scalar(self, value: float | int | bool, dtype: DType) -> Value:
        """A constant of rank 0."""
        return self.apply("constant", (), {"value": Constant(np.asarray(value).astype(dtype.numpy))})[0]

    def like(self, value: float | int | bool, x: Value) -> Value:
        """A constant of rank 0 with the dtype of `x`."""
        return self.scalar(value, x.type.dtype)
