"""The remainder of two floats in vectors, exactly as `fmod`: its sign is that of the dividend.

Where the quotient is small enough for its whole part to be exact, so is x - trunc(x / y) * y, computed with one
rounding: it is a multiple of the last place of y, and not larger than y. Division rounds to the nearest, so that the
whole part is at most one too large, and never too small; then the difference has the other sign, and y is added again.
A vector with any other quotient, or an infinite divisor, takes the operation as it is: a call for each lane.
"""

from __future__ import annotations

from collections.abc import Mapping

from .text import Value, Writer

LARGEST: Mapping[str, str] = {"f32": "4194304.0", "f64": "2251799813685248.0"}
"""Below these quotients, 2 to the 22 and to the 51, whole parts are exact, and one more is too."""
_INFINITE: Mapping[str, str] = {"f32": "0x7F800000", "f64": "0x7FF0000000000000"}


def remainder(writer: Writer, x: Value, y: Value) -> Value:
    """The remainder of two vectors of f32 or f64."""
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
        # Too large a whole part leaves a difference against the sign of x.
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
