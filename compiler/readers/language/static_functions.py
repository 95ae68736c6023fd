"""Functions of numbers and sizes that are computed at compile time: `sqrt(width / heads)`, `min`, `len`, ...

If an argument is a tensor, the call refers to the operator of the same name instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ....dialect.diagnostics import Span
from ....dialect.dims import Poly, Size, maximum, minimum
from .context import Context, check_number
from .statics import WrongError
from .values import AnyValue, InstanceArray, describe, is_number, is_size, show


def _extreme(symbolic: Callable[[Size, Size], Size], plain: Callable[..., float]) -> Callable[..., AnyValue]:
    def of(*values: AnyValue) -> AnyValue:
        items = values[0] if len(values) == 1 and isinstance(values[0], tuple) else values
        if not items or not all(is_number(v) or is_size(v) for v in items):
            raise WrongError("bad-operand", f"expected numbers or sizes, not {describe(values)}")
        if not any(isinstance(v, Poly) for v in items):
            return plain(items)
        total = items[0]
        for item in items[1:]:
            if not (isinstance(total, (int, Poly)) and isinstance(item, (int, Poly))):
                raise WrongError("undecided-size", "fractions and symbolic sizes cannot be compared")
            total = symbolic(total, item)
        return total

    return of


def _length(value: AnyValue) -> AnyValue:
    if isinstance(value, (tuple, str)):
        return len(value)
    if isinstance(value, InstanceArray):
        return value.count
    raise WrongError("bad-operand", f"{describe(value)} has no length")


def _plain(function: Callable[[float], float]) -> Callable[..., AnyValue]:
    def of(value: AnyValue) -> AnyValue:
        if isinstance(value, Poly):
            help_text = f"convert it to a tensor: cast({show(value)}, f32)"
            raise WrongError("bad-operand", f"the size {show(value)} is not a number known at compile time", help_text)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise WrongError("bad-operand", f"expected a number, not {describe(value)}")
        return function(value)

    return of


def _to_int(value: AnyValue) -> AnyValue:
    return value if isinstance(value, Poly) else _plain(int)(value)


FUNCTIONS: Mapping[str, Callable[..., AnyValue]] = {
    "min": _extreme(minimum, min),
    "max": _extreme(maximum, max),
    "minimum": _extreme(minimum, min),
    "maximum": _extreme(maximum, max),
    "len": _length,
    "int": _to_int,
    "float": _plain(float),
    "floor": _plain(math.floor),
    "ceil": _plain(math.ceil),
    "round": _plain(round),
    "trunc": _plain(math.trunc),
    "abs": _plain(abs),
    **{
        name: _plain(getattr(math, name))
        for name in (
            "sqrt",
            "cbrt",
            "exp",
            "exp2",
            "expm1",
            "log2",
            "log10",
            "log1p",
            "sin",
            "cos",
            "tan",
            "tanh",
            "erf",
        )
    },
    "log": _plain(lambda x: math.log(x)),
    "rsqrt": _plain(lambda x: 1 / math.sqrt(x)),
}
"""Functions that return numbers if all their arguments are numbers; otherwise the name refers to an operator."""


def call(context: Context, name: str, arguments: Sequence[AnyValue], span: Span) -> AnyValue:
    """Returns the value of one of FUNCTIONS for compile-time arguments."""
    try:
        result = FUNCTIONS[name](*arguments)
    except WrongError as wrong:
        code, message, *help_text = wrong.args
        return context.reporter.error(code, f"`{name}`: {message}", span, help=help_text[0] if help_text else "")
    except TypeError:
        message = f"`{name}` does not take {len(arguments)} argument{'s' if len(arguments) != 1 else ''}"
        return context.reporter.error("wrong-arguments", message, span)
    except (ValueError, ZeroDivisionError):
        shown = ", ".join(map(show, arguments))
        return context.reporter.error("bad-operand", f"`{name}` is not defined for {shown}", span)
    except OverflowError:
        shown = ", ".join(map(show, arguments))
        return context.reporter.error("number-overflow", f"`{name}({shown})` is too large for a number", span)
    return check_number(context, result, span) if isinstance(result, (int, float, Poly)) else result
