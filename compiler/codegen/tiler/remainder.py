"""The remainder of two floats in vectors, with the exact result of `fmod`: its sign is that of the dividend.

Where the quotient is small enough for an exact integer part, x - trunc(x / y) * y, computed with one rounding, is
exact: it is a multiple of y's last bit, and not larger than y. Division rounds to the nearest, so the integer part
is at most one too large, and never too small. If it is too large, the difference has the wrong sign, and y is added
again. A vector with any other quotient, or an infinite divisor, uses the original operation: a call for each lane. So
do all vectors on CPUs without an instruction that rounds `x - n * y` once.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..isa import supports
from .text import Value, Writer

LARGEST: Mapping[str, str] = {"f32": "4194304.0", "f64": "2251799813685248.0"}
"""The bounds of the quotient, 2 to the 22 and to the 51: below them, integer parts are exact, and so are their
successors."""
_INFINITE: Mapping[str, str] = {"f32": "0x7F800000", "f64": "0x7FF0000000000000"}


def remainder(writer: Writer, x: Value, y: Value) -> Value:
    """Returns the remainder of two vectors of f32 or f64."""
    element, type, masks = x.type, writer.type(x), writer.vector_type("i1")
    key = ("remainder", x.name, y.name)
    known = writer.recall(key)
    if known is not None:
        return known

    def apply(name: str, *operands: Value, result: str = element, attributes: str = "") -> Value:
        return writer.apply(name, attributes, operands, result)

    def less(left: Value, right: str) -> Value:
        bound = writer.constant(right, element)
        return apply("arith.cmpf", left, bound, result="i1", attributes="predicate = 4 : i64")

    if not supports("multiply-add", writer.features):
        return apply("arith.remf", x, y)
    quotient = apply("arith.divf", x, y)
    is_small = less(apply("math.absf", quotient), LARGEST[element])
    is_finite = less(apply("math.absf", y), _INFINITE[element])
    simple = apply("arith.andi", is_small, is_finite, result="i1")
    every = writer.let(f"vector.reduction <and>, {simple.name} : {masks} into i1")
    result = writer.fresh()
    writer.add(f"{result} = scf.if {every} -> ({type}) {{")
    with writer.scope():
        whole = apply("arith.negf", apply("math.trunc", quotient))
        rest = Value(writer.let(f"vector.fma {whole.name}, {y.name}, {x.name} : {type}"), element, True)
        # An integer part that is too large leaves a difference with the sign opposite to x.
        magnitude = apply("math.copysign", apply("math.absf", y), x)
        turned = apply("arith.mulf", apply("math.copysign", writer.broadcast(writer.constant("1.0", element)), x), rest)
        again = apply("arith.addf", rest, magnitude)
        mended = apply("arith.select", less(turned, "0.0"), again, rest)
        signed = apply("math.copysign", mended, x)
        writer.add(f"scf.yield {signed.name} : {type}")
    writer.add("} else {")
    with writer.scope():
        called = writer.let(f"arith.remf {x.name}, {y.name} : {type}")
        writer.add(f"scf.yield {called} : {type}")
    writer.add("}")
    value = Value(result, element, True)
    writer.remember(key, value)
    return value
