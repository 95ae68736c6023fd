"""Einstein summation over any number of operands, with repeated labels, an ellipsis, and broadcasting sizes of 1.

Operands are multiplied from left to right, two at a time, and each label is summed as soon as neither a later operand
nor the result uses it.

    einsum("ij,jk,kl->il", x, y, z)
    t[i, k] = sum of x[i, j] * y[j, k] over j      neither z nor the result uses j
    r[i, l] = sum of t[i, k] * z[k, l] over k
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence

import numpy as np

from ..dims import Size
from ..emitter import ZERO, Emitter, IndexMap, Loop, Result, Scalar, ScalarEmitter, Tensor, loop
from ..graph import Value
from ..lazy_dataclass import dataclass
from ..operator import Attributes, AttributeSpec, Axes, Builder, Case, InferenceError, LateCases, Operand, Operator, Use
from ..types import I8, I32, U8, DType, TensorType
from .support.accumulate import (
    FACTOR_DTYPES,
    INTO,
    Numbers,
    add_up,
    finish,
    gradient_into,
    infer_sum,
    mixtures,
    multiply_add,
    widen,
)
from .support.common import compute_dtype, lower_cast

Labels = tuple[str, ...]
"""One label for each axis: a letter, or `.n` for the axis of an ellipsis that is `n` positions from its end."""


@dataclass(frozen=True, slots=True)
class Equation:
    operands: tuple[Labels, ...]
    result: Labels

    def sizes(self, types: Sequence[TensorType]) -> dict[str, Size]:
        """Returns the size of every label. Raises InferenceError if two operands disagree and neither size is 1."""
        sizes: dict[str, Size] = {}
        for number, (type, labels) in enumerate(zip(types, self.operands, strict=True)):
            own: dict[str, Size] = {}
            for size, label in zip(type.shape, labels, strict=True):
                if own.setdefault(label, size) != size:
                    raise InferenceError(
                        "shape-mismatch", f"`einsum` takes a diagonal of {type}, which is not square", operand=number
                    )
                known = sizes.setdefault(label, size)
                if known == 1:
                    sizes[label] = size
                elif size not in (1, known):
                    name = "of `...`" if label.startswith(".") else f"`{label}`"
                    raise InferenceError(
                        "shape-mismatch",
                        f"`einsum` gives the index {name} two sizes, {known} and {size}",
                        label=f"this is {type}",
                        operand=number,
                    )
        return sizes


def _bad(equation: str, why: str, operand: int | None = None) -> InferenceError:
    return InferenceError("bad-attribute", f"`einsum` cannot read `{equation}`: {why}", operand=operand)


def parse_equation(equation: str, ranks: Sequence[int]) -> Equation:
    """Parses the labels of each axis. Raises InferenceError if the equation does not fit operands of these ranks."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise _bad(equation, f"it has {len(terms)} operands, given are {len(ranks)}")
    longest = 0
    operands: list[Labels] = []
    for number, (term, rank) in enumerate(zip(terms, ranks, strict=True)):
        before, dots, after = term.partition("...")
        for letter in before + after:
            if letter not in string.ascii_letters:
                raise _bad(equation, f"`{letter}` is not a letter", number)
        extra = rank - len(before) - len(after)
        if extra < 0 or (extra and not dots):
            raise _bad(equation, f"`{term}` does not name the {rank} axes of operand {number + 1}", number)
        longest = max(longest, extra)
        operands.append((*before, *(f".{i}" for i in reversed(range(extra))), *after))
    ellipsis = tuple(f".{i}" for i in reversed(range(longest)))
    used = [label for labels in operands for label in labels]
    if not arrow:
        # Without an arrow, the result has the letters that occur once, in alphabetical order, after the ellipsis.
        return Equation(
            tuple(operands), (*ellipsis, *sorted(x for x in set(used) if x.isalpha() and used.count(x) == 1))
        )
    before, dots, after = right.partition("...")
    if ellipsis and not dots:
        raise _bad(equation, "the result must name the `...` of the operands")
    result = (*before, *(ellipsis if dots else ()), *after)
    for label in (*before, *after):
        if label not in used:
            raise _bad(equation, f"no operand has the index `{label}` of the result")
    if len(set(result)) != len(result):
        raise _bad(equation, "the result names an index twice")
    return Equation(tuple(operands), result)


def format_equation(operands: Sequence[Labels], result: Labels) -> str:
    """Returns the text of labels, with spare letters for those of an ellipsis."""
    labels = sorted({label for term in (*operands, result) for label in term})
    spare = (x for x in string.ascii_letters if x not in labels)
    letters = {label: label if label.isalpha() else next(spare) for label in labels}
    return ",".join("".join(letters[x] for x in term) for term in operands) + "->" + "".join(letters[x] for x in result)


def _infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    equation = parse_equation(attributes["equation"], [t.rank for t in types])
    sizes = equation.sizes(types)
    dtype = infer_sum("einsum", types, attributes["into"])
    return (TensorType(dtype, tuple(sizes[x] for x in equation.result)),)


def _reference(*arrays: Numbers, equation: str, into: DType | None) -> Numbers:
    labels = parse_equation(equation, [x.ndim for x in arrays])
    # numpy interprets an ellipsis and sizes of 1 identically; letters for all labels avoid the dependence on it.
    total = np.einsum(format_equation(labels.operands, labels.result), *(widen(x, into) for x in arrays))
    return finish(total, arrays[0], into)


def _contract(
    e: Emitter, terms: Sequence[tuple[Tensor, Labels]], result: Labels, sizes: Mapping[str, Size], dtype: DType
) -> Tensor:
    """Sums over every label of one or two operands that the result lacks."""
    summed = sorted({x for _, labels in terms for x in labels} - set(result))
    order = [*result, *summed]
    if result and any(labels and labels[-1] == result[-1] for _, labels in terms):
        # The innermost loop runs along rows of the result and of an operand.
        order = [*result[:-1], *summed, result[-1]]
    position = {label: loop(number) for number, label in enumerate(order)}

    def index(x: Tensor, labels: Labels) -> tuple[Tensor, IndexMap]:
        pairs = zip(x.type.shape, labels, strict=True)
        return x, tuple(ZERO if size == 1 and sizes[label] != 1 else position[label] for size, label in pairs)

    def copy(s: ScalarEmitter, x: Scalar) -> Scalar:
        return s.cast(x, dtype)

    def multiply(s: ScalarEmitter, x: Scalar, y: Scalar) -> Scalar:
        return s.binary("mul", s.cast(x, dtype), s.cast(y, dtype))

    inputs = [index(x, labels) for x, labels in terms]
    type = TensorType(dtype, tuple(sizes[x] for x in result))
    if not summed:
        return e.map(type, inputs, copy if len(terms) == 1 else multiply)
    return e.structured(
        [Loop(sizes[label], parallel=label in result) for label in order],
        inputs,
        [Result(type, tuple(position[x] for x in result), initial=0)],
        add_up if len(terms) == 1 else multiply_add,
    )[0]


def _lower(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    equation = parse_equation(attributes["equation"], [x.type.rank for x in operands])
    sizes = equation.sizes([x.type for x in operands])
    dtype = compute_dtype(types[0].dtype)
    terms = list(zip(operands, equation.operands, strict=True))
    while len(terms) > 2:
        needed = {x for _, labels in terms[2:] for x in labels} | set(equation.result)
        both = [x for _, labels in terms[:2] for x in labels]
        kept = tuple(dict.fromkeys(x for x in both if x in needed))
        # A label may have size 1 in these two operands and broadcast later.
        inner = Equation((terms[0][1], terms[1][1]), kept).sizes([terms[0][0].type, terms[1][0].type])
        terms[:2] = [(_contract(e, terms[:2], kept, inner, dtype), kept)]
    return [lower_cast(e, _contract(e, terms, equation.result, sizes, dtype), types[0].dtype)]


def _differentiate(b: Builder, use: Use) -> Sequence[Value]:
    equation = parse_equation(use.attributes["equation"], [x.type.rank for x in use.inputs])
    sizes = equation.sizes([x.type for x in use.inputs])
    everything = list(zip(use.inputs, equation.operands, strict=True))
    spare = [x for x in string.ascii_letters if all(x not in labels for labels in equation.operands)]
    gradients = []
    for number, (operand, labels) in enumerate(everything):
        terms = [(use.gradient, equation.result), *everything[:number], *everything[number + 1 :]]
        available = {x for _, term in terms for x in term}
        shape = operand.type.shape
        kept: list[str] = []
        missing: list[int] = []
        fresh = iter(spare)
        for axis, (size, label) in enumerate(zip(shape, labels, strict=True)):
            alone = label not in available and labels.count(label) == 1
            if alone or (size == 1 and sizes[label] != 1):
                missing.append(axis)
            elif label in kept:
                # The gradient lies on the diagonal of the two axes.
                other = next(fresh)
                terms.append((b.eye(n=sizes[label], dtype=operand.type.dtype), (label, other)))
                kept.append(other)
            else:
                kept.append(label)
        text = format_equation([term for _, term in terms], tuple(kept))
        gradient = b.einsum(*(x for x, _ in terms), equation=text)
        if missing:
            gradient = b.unsqueeze(gradient, axes=tuple(missing))
        if gradient.type.shape != shape:
            gradient = b.broadcast_to(gradient, shape=shape)
        gradients.append(gradient)
    return gradients


def _summed_axes(types: Sequence[TensorType], attributes: Attributes) -> tuple[Axes, Axes] | None:
    if len(types) != 2:
        return None
    equation = parse_equation(str(attributes["equation"]), [x.rank for x in types])
    x, y = (tuple(i for i, label in enumerate(own) if label not in equation.result) for own in equation.operands)
    return x, y


def _case(equation: str, *shapes: tuple[int, ...], terms: int = 1) -> Case:
    return Case(shapes, {"equation": equation}, terms=terms)


einsum = Operator(
    name="einsum",
    summary="a sum of products given by an equation such as `bij,bjk->bik`; `...` denotes leading axes that "
    "broadcast; `into` as for `matmul`",
    operands=(Operand("operands", FACTOR_DTYPES, variadic=True, mixed=True),),
    attributes=(AttributeSpec("equation", "str"), INTO),
    infer=_infer,
    reference=_reference,
    gradient=gradient_into(_differentiate),
    lower=_lower,
    summed_axes=_summed_axes,
    cases=LateCases(
        lambda: (
            _case("ij,jk->ik", (3, 5), (5, 7), terms=5),
            _case("bhid,bhjd->bhij", (2, 3, 4, 5), (2, 3, 1, 5), terms=5),
            _case("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 2), terms=4),
            _case("ij->ji", (3, 5)),
            _case("ij->", (3, 5), terms=15),
            _case("ii->i", (4, 4)),
            _case("iij->j", (3, 3, 2), terms=3),
            _case("ii", (5, 5), terms=5),
            _case("i,j", (3,), (4,)),
            _case("...i->...", (3, 0)),
            _case("i,i->i", (4,), (1,)),
            _case("ij,jk,kl->il", (2, 3), (3, 4), (4, 5), terms=48),
            _case("ij,j,jk->k", (2, 1), (3,), (1, 2), terms=24),
            _case("ab,cb->ac", (0, 3), (2, 3), terms=3),
            _case("ab,cb->ac", (4, 0), (2, 0)),
            *mixtures(((3, 2, 5), (3, 4, 5)), {"equation": "bik,bjk->bji"}, terms=5),
            Case(
                ((2, 3), (3,), (3, 2)), {"equation": "ij,j,jk->ik", "into": I32}, dtypes=(U8,), mixed={1: I8}, terms=3
            ),
        )
    ),
    properties=frozenset({"contraction"}),
)

OPERATORS = (einsum,)
