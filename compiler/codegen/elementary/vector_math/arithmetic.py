"""Building blocks of formulas beyond operators: fused steps, polynomials, signs, and one kind of control flow.

The control flow is `either` and `rarely`: they skip work that no lane needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...isa import Instruction
from .writer import Lanes, Operand, Writer

SIGN, MAGNITUDE = -0x80000000, 0x7FFFFFFF


def _intrinsic(name: str, x: Lanes, *operands: Operand) -> Lanes:
    # These are the intrinsics themselves: the lowering would treat operations of the math dialect as libm functions.
    type = x.writer.type_of(x.element)
    names = ", ".join((x.name, *(x.lift(operand).name for operand in operands)))
    types = ", ".join([type] * (1 + len(operands)))
    return x.writer.let(f"llvm.intr.{name}({names}) : ({types}) -> {type}", x.element)


def fma(x: Lanes, y: Operand, z: Operand) -> Lanes:
    """Returns x * y + z of f32, rounded once. Without a fused instruction, it uses f64, which holds the product
    exactly."""
    if x.writer.fuses:
        return _intrinsic("fma", x, y, z)
    return (x.to_f64() * x.lift(y).to_f64() + x.lift(z).to_f64()).narrow()


def square_root(x: Lanes) -> Lanes:
    return _intrinsic("sqrt", x)


def truncate(x: Lanes) -> Lanes:
    return _intrinsic("trunc", x)


def nearest_integer(x: Lanes) -> Lanes:
    """Returns the i32 nearest to an f32, halves to even. The result must fit an i32, or be unused."""
    lanes = "" if x.writer.lanes is None else f"v{x.writer.lanes}"
    types = f"({x.writer.type_of('f32')}) -> {x.writer.type_of('i32')}"
    return x.writer.let(f'llvm.call_intrinsic "llvm.lrint.{lanes}i32.{lanes}f32"({x.name}) : {types}', "i32")


def funnel_shift(high: Lanes, low: Lanes, count: Lanes) -> Lanes:
    """Returns the upper half of high:low shifted left."""
    return _intrinsic("fshl", high, low, count)


def polynomial(x: Lanes, coefficients: Sequence[float], square: Lanes | None = None) -> Lanes:
    """Evaluates a polynomial; the constant coefficient comes first.

    If the square is given, all terms but the constant are summed in pairs: the same number of steps, but a chain of
    half the length.
    """
    first, *rest = coefficients
    if square is None or len(rest) < 3:
        total = fma(x, rest[-1], rest[-2]) if len(rest) > 1 else x.lift(rest[0])
        for c in reversed(rest[:-2]):
            total = fma(total, x, c)
    else:
        pairs = [fma(x, rest[i + 1], rest[i]) for i in range(0, len(rest) - 1, 2)]
        if len(rest) % 2:
            *pairs, last = pairs
            total = fma(square, rest[-1], last)
        else:
            *pairs, total = pairs
        for pair in reversed(pairs):
            total = fma(total, square, pair)
    return fma(total, x, first)


def rarely(condition: Lanes, usual: Sequence[Lanes], rare: Callable[[], Sequence[Lanes]]) -> list[Lanes]:
    """Returns the result of `rare` in the lanes where the condition holds, else the usual one; skips `rare` if no lane
    needs it."""

    def chosen() -> list[Lanes]:
        return [condition.choose(value, other) for value, other in zip(rare(), usual, strict=True)]

    return either(condition, chosen, lambda: usual)


def either(condition: Lanes, some: Callable[[], Sequence[Lanes]], none: Callable[[], Sequence[Lanes]]) -> list[Lanes]:
    """Returns the results of `some` if the condition holds in any lane, else those of `none`; computes only the ones
    that it returns."""
    writer, name = condition.writer, condition.name
    if writer.lanes is not None:
        mask = writer.type_of("i1")
        name = writer.let(f"vector.reduction <or>, {name} : {mask} into i1", "i1").name
    (first, yielded), (second, _) = (_branch(writer, values) for values in (some, none))
    types = ", ".join(writer.type_of(value.element) for value in yielded)
    result = writer.fresh_name()
    writer.write(f"{result}:{len(yielded)} = scf.if {name} -> ({types}) {{")
    for line in (*first, "} else {", *second, "}"):
        writer.write(line)
    return [Lanes(writer, f"{result}#{i}", value.element) for i, value in enumerate(yielded)]


def _branch(writer: Writer, values: Callable[[], Sequence[Lanes]]) -> tuple[list[str], Sequence[Lanes]]:
    """Returns the lines of a branch, which end with its results, and the results."""
    with writer.apart() as lines:
        yielded = values()
        types = ", ".join(writer.type_of(value.element) for value in yielded)
        writer.write(f"scf.yield {', '.join(value.name for value in yielded)} : {types}")
    return lines, yielded


def minimum(x: Lanes, bound: float) -> Lanes:
    """Returns the smaller number; NaN stays NaN."""
    return (x > bound).choose(bound, x)


def maximum(x: Lanes, bound: float) -> Lanes:
    """Returns the larger number; NaN stays NaN."""
    return (x < bound).choose(bound, x)


def magnitude(x: Lanes) -> Lanes:
    return (x.bits() & MAGNITUDE).as_float()


def with_sign_of(x: Lanes, sign: Lanes) -> Lanes:
    """Returns `x`, which is not negative, with the sign of `sign`."""
    return (x.bits() | (sign.bits() & SIGN)).as_float()


def scale_by_instruction(instruction: Instruction, p: Lanes, n: Lanes, zero: Lanes | None = None) -> Lanes:
    """Returns p * 2**n, rounded once, and zero in the lanes of `zero`, if given, for any operands."""
    writer = p.writer
    every, rounding = (f"llvm.mlir.constant({text}) : {text.split(' : ')[1]}" for text in instruction.trailing)
    mask = instruction.trailing[0].split(" : ")[1]
    if zero is None:
        lanes, other = writer.let(every, mask), p
    else:
        lanes = writer.let(f"llvm.bitcast {(~zero).name} : {writer.type_of('i1')} to {mask}", mask)
        other = p.lift(0.0)
    call = instruction.call([p.name, n.name, other.name], [lanes.name, writer.let(rounding, "i32").name])
    return writer.let(call, p.element)
