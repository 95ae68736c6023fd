"""Arithmetic at compile time: numbers, sizes, text and tuples, with Python's semantics.

Sizes stay exact: `/` of a symbolic size must divide, and a comparison must hold or fail for every value of the dims.
Nothing here creates a tensor.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping

from ....dialect.diagnostics import Span
from ....dialect.dims import (
    DimError,
    Poly,
    Size,
    add,
    bounds,
    divide_exactly,
    floor_divide,
    multiply,
)
from ....dialect.types import DType
from .context import SIZE_PARTS, Context, check_number, parts
from .values import ERROR, AnyValue, Poison, contains_tensor, describe, is_number, is_size, show

CONSTANTS: Mapping[str, float] = {"pi": math.pi, "inf": math.inf, "nan": math.nan}

TUPLE_LENGTH = 4096
TEXT_LENGTH = 4096
POWER = 64

_NUMBERS: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}
_ORDERS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class WrongError(Exception):
    """An operation that has no result: code, message, help."""


def binary(context: Context, symbol: str, left: AnyValue, right: AnyValue, span: Span) -> AnyValue:
    """Returns the value of `left symbol right`, both known at compile time."""
    try:
        return _binary(context, symbol, left, right, span)
    except WrongError as wrong:
        code, message, *help_text = wrong.args
        return context.reporter.error(code, message, span, help=help_text[0] if help_text else "")


def _binary(context: Context, symbol: str, left: AnyValue, right: AnyValue, span: Span) -> AnyValue:
    if symbol in ("==", "!="):
        return _equal(left, right) == (symbol == "==")
    if (is_number(left) or is_size(left)) and (is_number(right) or is_size(right)):
        if symbol in _ORDERS:
            return _ordered(symbol, left, right)
        if symbol in _NUMBERS:
            return check_number(context, _arithmetic(symbol, left, right), span)
    elif symbol == "+" and isinstance(left, str) and isinstance(right, str):
        if len(left) + len(right) > TEXT_LENGTH:
            raise WrongError("too-large", "the text is too long")
        return left + right
    elif symbol == "+" and isinstance(left, tuple) and isinstance(right, tuple):
        if len(left) + len(right) > TUPLE_LENGTH:
            raise WrongError("too-large", "the tuple is too long")
        return left + right
    raise WrongError("bad-operand", f"`{symbol}` is not defined for {describe(left)} and {describe(right)}")


def _equal(left: AnyValue, right: AnyValue) -> bool:
    if isinstance(left, Poly) or isinstance(right, Poly):
        if not (is_size(left) and is_size(right)):
            if is_number(left) or is_number(right):
                raise WrongError("undecided-size", _uncompared(left, right))
            return False
        assert isinstance(left, (int, Poly)) and isinstance(right, (int, Poly))
        low, high = bounds(add(left, multiply(-1, right)))
        if low > 0 or high < 0:
            return False
        if left == right or low == high == 0:
            return True
        message = f"whether {show(left)} is {show(right)} is not known at compile time"
        raise WrongError("undecided-size", message, _in_the_call(left, right))
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(_equal(a, b) for a, b in zip(left, right, strict=True))
    return left == right


def _in_the_call(left: AnyValue, right: AnyValue) -> str:
    size = show(left if isinstance(left, Poly) else right)
    return f"write `cast({size}, i64)` for the size as a tensor: then each call decides"


def _uncompared(left: AnyValue, right: AnyValue) -> str:
    return f"{show(left)} and {show(right)} can only be compared if the sizes are known"


def _ordered(symbol: str, left: AnyValue, right: AnyValue) -> bool:
    compare = _ORDERS[symbol]
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return compare(left, right)
    if not (is_size(left) and is_size(right)):
        raise WrongError("undecided-size", _uncompared(left, right))
    assert isinstance(left, (int, Poly)) and isinstance(right, (int, Poly))
    low, high = bounds(add(left, multiply(-1, right)))
    at_low, at_high = compare(low, 0), compare(high, 0)
    if at_low != at_high:
        text = f"{show(left)} {symbol} {show(right)}"
        raise WrongError(
            "undecided-size", f"whether {text} holds is not known at compile time", _in_the_call(left, right)
        )
    return at_low


def _arithmetic(symbol: str, left: AnyValue, right: AnyValue) -> int | float | Poly:
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return _number(symbol, left, right)
    if isinstance(left, float) or isinstance(right, float):
        size = right if isinstance(left, float) else left
        help_text = f"convert it to a tensor: cast({show(size)}, f32)"
        raise WrongError("bad-operand", f"the size {show(size)} is not a number known at compile time", help_text)
    assert isinstance(left, (int, Poly)) and isinstance(right, (int, Poly)), (left, right)
    return _size(symbol, left, right)


def _number(symbol: str, left: float, right: float) -> int | float:
    if symbol == "**" and isinstance(left, int) and isinstance(right, int) and abs(left) > 1 and right > POWER:
        raise WrongError("integer-overflow", f"{left} ** {right} does not fit 64 bits")
    try:
        result = _NUMBERS[symbol](left, right)
    except ZeroDivisionError:
        raise WrongError("division-by-zero", f"{left} {symbol} {right} divides by zero") from None
    except OverflowError:
        raise WrongError("number-overflow", f"{left} {symbol} {right} is too large for a number") from None
    if isinstance(result, complex):
        raise WrongError("bad-operand", f"{left} ** {right} is not a real number")
    return result


def _size(symbol: str, left: Size, right: Size) -> Size:
    if symbol == "+":
        return add(left, right)
    if symbol == "-":
        return add(left, multiply(-1, right))
    if symbol == "*":
        return multiply(left, right)
    if symbol == "**":
        if not isinstance(right, int) or not 0 <= right <= 8:
            raise WrongError("bad-operand", f"a size cannot be raised to {show(right)}")
        power: Size = 1
        for _ in range(right):
            power = multiply(power, left)
            if parts(power) >= SIZE_PARTS:
                raise WrongError("size-too-complex", "the formula of this size is too long")
        return power
    if right == 0:
        raise WrongError("division-by-zero", f"{show(left)} {symbol} {show(right)} divides by zero")
    if symbol == "/":
        exact = divide_exactly(left, right)
        if exact is None:
            message = f"{show(right)} does not divide {show(left)} for every value of the dims"
            raise WrongError("not-divisible", message, "`//` rounds down")
        return exact
    try:
        quotient = floor_divide(left, right)
    except DimError as error:
        raise WrongError("bad-operand", str(error)) from None
    return quotient if symbol == "//" else add(left, multiply(-1, multiply(quotient, right)))


def negative(context: Context, value: AnyValue, span: Span) -> AnyValue:
    if isinstance(value, Poly):
        return multiply(-1, value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return -value
    return context.reporter.error("bad-operand", f"`-` does not apply to {describe(value)}", span)


# --- requirements of a source location ---


def demand_size(context: Context, value: AnyValue, span: Span, what: str = "a size") -> Size | Poison:
    """Returns the value as a size; a float is accepted if it is whole."""
    if value is ERROR:
        return ERROR
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, (int, Poly)) and not isinstance(value, bool):
        return value
    help_text = "`//` divides sizes" if isinstance(value, float) else ""
    if contains_tensor(value) and "range" in what:
        help_text = "sizes are known before a call computes: `mask_after(x, n)` masks the elements from `n` on"
    return context.reporter.error("not-a-size", f"expected {what}, not {describe(value)}", span, help=help_text)


def demand_integer(context: Context, value: AnyValue, span: Span, what: str, help: str = "") -> int | Poison:
    """Returns the value as an integer that depends on no dim."""
    size = demand_size(context, value, span, what)
    if isinstance(size, Poly):
        message = f"{what} must be known at compile time, not {show(size)}"
        return context.reporter.error("not-constant", message, span, help=help)
    return size


def demand_truth(context: Context, value: AnyValue, span: Span) -> bool | Poison:
    if value is ERROR or isinstance(value, bool):
        return value
    message = f"a condition must be known at compile time, not {describe(value)}"
    help_text = (
        "`where(condition, x, y)` selects by a tensor" if not isinstance(value, (int, float, str, DType)) else ""
    )
    return context.reporter.error("not-constant", message, span, help=help_text)
