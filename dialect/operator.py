"""The operator record, which contains all facts about an operator.

One record contains type inference, reference, gradient, lowering and example cases, so that a parametrised test can run
every field of every operator. This module defines the record and the builder that writes gradients and decompositions;
the operators themselves are in `ops/`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, overload

import numpy as np

from .diagnostics import Span
from .dims import Size
from .emitter import Emitter, Tensor
from .graph import Constant, Node, Value
from .lazy_dataclass import dataclass
from .types import ANY, Array, DType, TensorType


class InferenceError(Exception):
    """An invalid use of an operator. `operand` is the index of the invalid operand, or None.

    `code` is a diagnostic code such as `shape-mismatch`, `dtype-mismatch`, `bad-attribute`, `rank-mismatch`.
    """

    def __init__(self, code: str, message: str, *, label: str = "", operand: int | None = None, help: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.label, self.operand, self.help = code, message, label, operand, help


class InvalidOperandsError(Exception):
    """Numbers that an operator cannot compute with, found by its reference: the record of the check of the operator."""

    def __init__(self, operator: str, record: Sequence[int]) -> None:
        super().__init__(operator, *map(int, record))
        self.operator, self.record = operator, tuple(map(int, record))


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor operand and its accepted dtypes. A `variadic` operand must be the last and takes one or more tensors.

    Operands of the same `group` have the same dtype, unless they are `mixed`; inference then checks the combination.
    `optional` operands may be omitted from the end.
    """

    name: str
    dtypes: tuple[DType, ...] = ANY
    group: str = "T"
    variadic: bool = False
    optional: bool = False
    mixed: bool = False

    def accepts(self, dtype: DType) -> bool:
        # Nearly every dtype is one of the listed objects, and comparing their fields takes ten times as long.
        return any(accepted is dtype for accepted in self.dtypes) or dtype in self.dtypes


REQUIRED = object()
"""Marks an attribute without a default."""
_MOST_BY_POSITION = 3
"""The most operands of an operator whose optional operands need no name."""


@dataclass(frozen=True, slots=True)
class AttributeSpec:
    """A compile-time argument. `kind` is one of

    int, float, bool, str, dtype, constant, int?, float? and dtype? (or None), ints, ints?, axis (an int, may be
    negative), axes (an int, a tuple of them, or None for all), size, sizes (a shape, symbolic), any. `choices` lists
    the admitted strings if the set is small, `internal` those that only passes may write. Axes are those of the first
    operand, or of the result if there is no operand, or if `of_result` says so.
    """

    name: str
    kind: str
    default: Any = REQUIRED
    choices: tuple[str, ...] = ()
    internal: tuple[str, ...] = ()
    of_result: bool = False


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
    "bool?": ("true, false or none", lambda value: value is None or isinstance(value, bool)),
    "str": ("a string", lambda value: isinstance(value, str)),
    "dtype": ("a dtype", lambda value: isinstance(value, DType)),
    "dtype?": ("a dtype or none", lambda value: value is None or isinstance(value, DType)),
    "constant": ("a constant", lambda value: isinstance(value, Constant)),
    "axis": ("an axis", _is_int),
    "axes": ("an axis or several", _is_axes),
}
"""The name of each kind, and a predicate for its values. Inference checks the other kinds."""


Attributes = Mapping[str, Any]
"""Attributes by name, complete with defaults."""


@dataclass(frozen=True, slots=True)
class Case:
    """An example for the tests: shapes or arrays of operands, attributes, and the tolerance of the result.

    `domain` bounds random values of float operands. `arrays` gives operands by position that cannot be random, such as
    indices and masks. `dtypes` restricts the case; by default it runs for every dtype accepted by the operands of group
    `T`, or by the first operand if there is no such group. `mixed` gives the dtypes of other operands, by position.
    `gradient` is False if finite differences do not apply (a kink inside the domain). `tolerance` is in units of the
    dtype's epsilon times the square root of `terms`, relative to the largest result.
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

    def __post_init__(self) -> None:
        """Completes the shapes by those of further operands that `arrays` gives."""
        further = [np.asarray(self.arrays[i]).shape for i in range(len(self.shapes), 1 + max(self.arrays, default=-1))]
        object.__setattr__(self, "shapes", (*self.shapes, *further))


class LateCases(Sequence[Case]):
    """Cases that are made when they are first read: a command that runs no tests draws no numbers for them."""

    def __init__(self, make: Callable[[], Iterable[Case]]) -> None:
        self._make = make
        self._made: tuple[Case, ...] | None = None

    @property
    def made(self) -> tuple[Case, ...]:
        if self._made is None:
            self._made = tuple(self._make())
        return self._made

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        return len(self.made)

    @overload
    def __getitem__(self, index: int) -> Case: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Case]: ...
    def __getitem__(self, index: int | slice) -> Case | Sequence[Case]:
        return self.made[index]


@dataclass(frozen=True, slots=True)
class Use:
    """The input of a gradient function: the operator's operands, results, attributes and the results' gradients.

    The gradient of an unused result is None.
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

Symbolic sizes among the attributes are passed as integers.
"""
Gradient = Callable[["Builder", Use], Sequence["Value | None"]]
"""`gradient(b, use) -> one value per operand`, None for an operand that has no gradient (an index)."""
Lower = Callable[[Emitter, Sequence[Tensor], Attributes, Sequence[TensorType]], Sequence[Tensor]]
"""`lower(e, operands, attributes, result types) -> results`."""
Decompose = Callable[["Builder", Sequence[Value], Attributes], Sequence[Value]]
"""`decompose(b, operands, attributes) -> results`, written with other operators."""


@dataclass(frozen=True, slots=True)
class Addressing:
    """An operand with indices into axes of `sizes`; an index is the start of a window of `window` elements. With a
    window of 0, an index is a length: the end of the elements before it. An index equal to `ignored` addresses
    nothing. A negative index counts from the end unless `from_end` is False; then it is out of range."""

    operand: int
    sizes: tuple[Size, ...]
    window: Size = 1
    ignored: int | None = None
    from_end: bool = True


Addresses = Callable[[Sequence[TensorType], Attributes], tuple[Addressing, ...]]
"""`addresses(types of the operands, attributes)` lists the index operands."""
Inside = Callable[["Builder", Sequence[Value], Attributes], Value]
"""`inside(b, operands, attributes) -> mask`, which broadcasts to the result."""
RowAxes = Callable[[TensorType, Attributes], tuple[int, ...]]
"""`row_axes(type of the first operand, attributes) -> axes`, counted from 0, in order."""
AxisOrder = Callable[[TensorType, Attributes], tuple[int, ...]]
"""`axis_order(type of the operand, attributes) -> axes`: the operand's axis for each axis of the result."""
Resolve = Callable[[Sequence[TensorType], Attributes], Attributes]
"""`resolve(types of the operands, attributes) -> attributes`."""
Axes = tuple[int, ...]
Needed = Callable[[Sequence[TensorType], Attributes], tuple[Size, ...]]
"""`needed(types of the operands, attributes) -> sizes`."""
SummedAxes = Callable[[Sequence[TensorType], Attributes], tuple[Axes, Axes] | None]
"""`summed_axes(types of the operands, attributes) -> axes of the first two operands`; negative axes count from the end.
None if there are not two operands."""


@dataclass(frozen=True, slots=True)
class Channels:
    """The axes of a contraction's channels: `result_axis` of the result corresponds to `weight_axis` of the weight, the
    second operand. Negative axes count from the end."""

    result_axis: int
    weight_axis: int


FindChannels = Callable[[Attributes], Channels | None]
"""`channels(attributes) -> channels`, None if the weight has no such axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """The record of one operator. Exactly one of `lower` and `decompose` is given. `gradient` is None if the operator
    is not differentiable.

    Only `structure` and `blocked` operators may have neither a lowering nor cases; code that walks the graph handles
    them explicitly.

    Properties for passes:

    - `elementwise`: a result element depends only on the operands' elements at its own index, after broadcasting
    - `contraction`: sums of products; `reduction`; `movement`: elements are copied, not computed
    - `commutative`; `idempotent`: `f(f(x)) == f(x)`; `involution`: `f(f(x)) == x`; `selecting`: `f(x, x) == x`
    - `view`: the same memory with another shape
    - `choosing`: an element of the result needs one of several operands, depending on another one
    - `reading`: every element of every operand takes part in the result, whatever its value; implied for movements
      that gather, and for elementwise operators that are not `choosing`
    - `group`: its region becomes one kernel, and uses no values but its arguments
    - `stored`: the result is data of the artifact
    - `conversion`: the first operand's numbers in another dtype
    - `composite`: its parts are separate kernels, so it is decomposed before any other pass
    - `convolution`: a contraction over windows with a weight; `transposed`: its transpose in the input

    Properties for fusion:

    - `pointwise`: a result element depends on the first operand's element at its own index; other operands may be read
      as a whole, and the index itself may matter
    - `rowwise`: the result has the first operand's shape, and an element depends on the row through its index
    - `strided`: a movement whose source indices are linear in the result's indices, once axes are split
    - `gathering`: selects whole slices of the first operand by index
    - `paged`: joins slices of the first operand, selected by the last axis of the second, along the attribute `axis`
    - `generator`: computed from indices alone
    - `sequential`: elements are computed in order
    - `attention`: two contractions around a rowwise operator
    - `costly`: an element costs many additions
    - `precomputed`: computed once for parameters, even if the result is larger
    - `blocked`: produces or reads a block-quantized value; `expand-block-quantized` expands it before code generation
    - `packed`: computes a plane of packed floats when weights are written; it has no code
    - `internal`: created by readers and passes only; it has no name in the language
    - `checking`: its result decides whether the call fails, so it is never dead

    Properties for rounding, given exact operands (an operator without one may be off by a few roundings):

    - `exact`: not rounded; implied for movements and generators
    - `rounded`: rounded once
    - `spreading`: a NaN or an infinity may reach any element of the same row
    - `summing`: rounded with every term of a sum; implied for contractions
    - `extreme`: an exact choice of the greatest or least element; a zero may have either sign
    - `stepped`: rounded to the dtype of an attribute, so that a small error in an operand may become a whole step of
      this dtype; so may its own error unless it is `exact`
    - `bitwise`: reads the bits of its operands, which depend on their dtypes
    - `factoring`: exact for operands that differ from the given ones by a few roundings of their greatest element
    - `overwriting`: writes elements of its first operand, whose other elements are those of its only result; the
      lowering touches no other element
    - `windowed`: reads or writes a window that starts at run time and need not be known to fit; the dims of a call are
      required to admit it

    `axis_order` is for operators that only permute the axes of their operand. `summed_axes` returns the axes of a
    contraction's operands whose elements are summed together: a factor for each index of the other axes can be applied
    to the sums. `channels` returns the axes of result and weight along which the result is linear in the weight,
    slice by slice.

    `row_axes` returns the axes of the first operand that a result element depends on as a whole; required for `rowwise`
    operators and for reductions over axes. `addresses` lists the operands with indices. With the attribute
    `mode="error"`, an index out of range fails the call. `positions` lists such operands of an internal operator, whose
    indices are computed in range, or -1 for no element: nothing checks them. An operator that reads elements by index
    has `inside`, which computes the mask of result elements whose indices are in range. `magnitudes` computes the sums
    of the magnitudes of the terms that a result rounds, where they differ from the reference of the float operands'
    magnitudes: terms that are made of integers have signs too.

    `needed` returns the sizes that must not be 0: a call with such a size fails.

    `resolve` returns the attributes for a call whose sizes are known, where a default depends on the sizes: a symbolic
    size is not 1, although it may be 1 in a call.
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
    cases: Sequence[Case]
    properties: frozenset[str] = frozenset()
    row_axes: RowAxes | None = None
    axis_order: AxisOrder | None = None
    summed_axes: SummedAxes | None = None
    channels: FindChannels | None = None
    addresses: Addresses | None = None
    positions: Addresses | None = None
    inside: Inside | None = None
    magnitudes: Reference | None = None
    needed: Needed | None = None
    resolve: Resolve | None = None
    results: tuple[str, ...] = ("result",)

    def __post_init__(self) -> None:
        ways = (self.lower is not None) + (self.decompose is not None)
        apart = bool(self.properties & {"structure", "blocked", "packed"})
        assert ways == 1 or apart, f"{self.name}: give lower or decompose"
        assert self.cases or apart, f"{self.name}: has no case"
        assert self.properties <= PROPERTIES, (self.name, self.properties - PROPERTIES)
        assert len(self.properties & {"exact", "rounded", "summing"}) <= 1, f"{self.name}: rounded in one way alone"
        modes = any(a.name == "mode" and "error" in a.choices for a in self.attributes)
        assert not modes or self.addresses is not None, f"{self.name}: give addresses"
        assert self.inside is None or self.addresses is not None, f"{self.name}: give addresses"
        assert self.row_axes is not None or "rowwise" not in self.properties, f"{self.name}: give row_axes"

    @property
    def named(self) -> tuple[Operand, ...]:
        """The operands that a model file gives by name: the optional ones of an operator with more than three operands.
        They often have equal shapes, and libraries give them in different orders."""
        return tuple(o for o in self.operands if o.optional) if len(self.operands) > _MOST_BY_POSITION else ()

    def has(self, property: str) -> bool:
        assert property in PROPERTIES, property
        return property in self.properties

    def complete(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns all attributes, with defaults for omitted ones. Raises InferenceError for an unknown or missing
        one."""
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
            if spec.choices and value not in (*spec.choices, *spec.internal):
                raise InferenceError(
                    "bad-attribute",
                    f"`{name}` of `{self.name}` is {value!r}, expected one of {', '.join(map(repr, spec.choices))}",
                )
            full[name] = value
        return full

    def check(self, types: Sequence[TensorType], given: Mapping[str, Any]) -> tuple[TensorType, ...]:
        """Returns the types of the results. Raises InferenceError at a wrong number of operands, dtype, shape or
        attribute."""
        attributes = self.complete(given)
        required = sum(not o.optional for o in self.operands)
        variadic = bool(self.operands) and self.operands[-1].variadic
        if len(types) < required or (len(types) > len(self.operands) and not variadic):
            expected = f"at least {required}" if variadic or required != len(self.operands) else str(required)
            raise InferenceError("wrong-operands", f"`{self.name}` takes {expected} tensors, not {len(types)}")
        groups: dict[str, DType] = {}
        for number, type in enumerate(types):
            operand = self.operands[min(number, len(self.operands) - 1)]
            if not operand.accepts(type.dtype):
                accepted = ", ".join(d.name for d in operand.dtypes)
                raise InferenceError(
                    "dtype-mismatch",
                    f"`{operand.name}` of `{self.name}` cannot be {type.dtype}",
                    label=f"this is {type}; accepted: {accepted}",
                    operand=number,
                )
            first = groups.setdefault(operand.group, type.dtype)
            if first is not type.dtype and first != type.dtype and not operand.mixed:
                raise InferenceError(
                    "dtype-mismatch",
                    f"`{self.name}` mixes {first} and {type.dtype}",
                    label=f"this is {type}",
                    operand=number,
                    help=f"convert one of them: cast(..., {first})",
                )
        for value in attributes.values():
            if isinstance(value, DType) and value.is_blocked and "blocked" not in self.properties:
                message, help_text = (
                    f"`{self.name}` cannot produce a block-quantized result",
                    f"quantize_blocks(..., {value})",
                )
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
        "choosing",
        "reading",
        "group",
        "structure",
        "stored",
        "composite",
        "conversion",
        "convolution",
        "transposed",
        "selecting",
        "pointwise",
        "rowwise",
        "strided",
        "gathering",
        "paged",
        "generator",
        "sequential",
        "attention",
        "costly",
        "precomputed",
        "blocked",
        "packed",
        "internal",
        "checking",
        "exact",
        "rounded",
        "summing",
        "spreading",
        "extreme",
        "stepped",
        "bitwise",
        "factoring",
        "overwriting",
        "windowed",
    }
)


_SIGNATURES: dict[str, inspect.Signature] = {}
"""The signatures of the methods of builders, by operator: passes call these methods often."""


def _signature_of(operator: Operator) -> inspect.Signature:
    """Returns the operands by position, or by name if a model file names them, and the attributes by name, as a builder
    takes them."""
    operand, either, variadic, attribute = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.KEYWORD_ONLY,
    )
    parameters = []
    for each in operator.operands:
        kind = variadic if each.variadic else either if each in operator.named else operand
        default = None if each.optional and not each.variadic else inspect.Parameter.empty
        parameters.append(inspect.Parameter(each.name, kind, default=default))
    for spec in operator.attributes:
        default = inspect.Parameter.empty if spec.default is REQUIRED else spec.default
        parameters.append(inspect.Parameter(spec.name, attribute, default=default))
    return inspect.Signature(parameters)


def _operands_by_name(operator: Operator, given: int, attributes: dict[str, Any]) -> tuple[Value, ...]:
    """Returns the operands after the first `given` ones, which it removes from the attributes."""
    values = [attributes.pop(operand.name, None) for operand in operator.operands[given:]]
    while values and values[-1] is None:
        values.pop()
    if None in values:
        missing = operator.operands[given + values.index(None)].name
        raise InferenceError("missing-argument", f"`{operator.name}` needs the argument `{missing}`")
    return tuple(values)


class Builder:
    """Appends nodes one after another; `b.add(x, y)` and `b.softmax(x, axis=-1)` name operators of the given table.

    Every generated name is `prefix` and a number, so two builders over one function need two prefixes. Raises
    InferenceError if an operator does not accept its operands.
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

        operator = self.operators[name]

        def build(*inputs: Value, **attributes: Any) -> Value:
            if operator.named:
                inputs += _operands_by_name(operator, len(inputs), attributes)
            results = self.apply(name, inputs, attributes)
            assert len(results) == 1, f"{name} has {len(results)} results: use apply"
            return results[0]

        build.__name__, build.__doc__ = name, operator.summary
        if name not in _SIGNATURES:
            _SIGNATURES[name] = _signature_of(operator)
        build.__signature__ = _SIGNATURES[name]  # type: ignore[attr-defined]  # `inspect` reads it
        return build

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.operators})

    def fresh(self, type: TensorType) -> Value:
        self._count += 1
        return Value(f"{self.prefix}{self._count}", type)

    def apply(
        self, name: str, inputs: Sequence[Value], attributes: Mapping[str, Any] | None = None
    ) -> tuple[Value, ...]:
        """Adds a node and returns its results."""
        operator = self.operators[name]
        full = operator.complete(attributes or {})
        types = operator.check([v.type for v in inputs], full)
        outputs = tuple(self.fresh(t) for t in types)
        self.nodes.append(
            Node(name, tuple(inputs), outputs, tuple(sorted(full.items())), scope=self.scope, span=self.span)
        )
        return outputs

    def scalar(self, value: float | int | bool, dtype: DType) -> Value:
        """Returns a constant of rank 0."""
        return self.apply("constant", (), {"value": Constant(np.asarray(value).astype(dtype.numpy))})[0]

    def like(self, value: float | int | bool, x: Value) -> Value:
        """Returns a constant of rank 0 with the dtype of `x`."""
        return self.scalar(value, x.type.dtype)
