"""`multinomial`: indices drawn with given probabilities, from the counter-based generator of `random_numbers`.

With replacement, an index is the position of a uniform number in the cumulative sum of the probabilities. Without, the
indices are those of the greatest `log(p) - log(e)` with exponential random numbers e (Gumbel's method), so an index
with probability 0 is drawn only if there are fewer others than samples.
"""

from __future__ import annotations

from ....dialect.diagnostics import Span
from ....dialect.dims import at_least
from ....dialect.graph import Value
from ....dialect.types import F32, F64, I64
from .context import Context, check_size
from .nodes import Maker
from .random_numbers import read_source
from .statics import demand_size, demand_truth
from .values import ERROR, AnyValue, Frame, Given, contains_error, describe


def multinomial(context: Context, frame: Frame, bound: dict[str, Given], span: Span) -> AnyValue:
    """Returns i64 indices [..., samples] of the last axis of `probabilities`, which need not add up to 1."""
    report, x, given = context.reporter.error, bound["probabilities"], bound["samples"]
    if contains_error(x.value) or contains_error(given.value):
        return ERROR
    if not isinstance(x.value, Value) or not x.value.type.rank or x.value.type.dtype not in (F32, F64):
        message = f"`probabilities` of `multinomial` must be a tensor of f32 or f64, not {describe(x.value)}"
        return report("not-a-tensor", message, x.span)
    samples = demand_size(context, given.value, given.span, "`samples` of `multinomial`, the number of indices")
    samples = ERROR if samples is ERROR else check_size(context, samples, given.span)
    replaced = demand_truth(context, bound["replacement"].value, span) if "replacement" in bound else True
    if samples is ERROR or replaced is ERROR:
        return ERROR
    *outer, classes = x.value.type.shape
    if not at_least(classes, 1):
        return report("empty-reduction", f"`multinomial` has no index to draw: {x.value.type}", x.span)
    if not replaced and not at_least(classes, samples):
        message = f"`multinomial` cannot draw {samples} of {classes} indices without replacement"
        return report("bad-attribute", message, given.span)
    shape = (*outer, samples if replaced else classes)
    source = read_source(context, frame, bound["seed"], shape, span, "multinomial")
    if source is ERROR:
        return ERROR
    make, p, dtype = Maker(context, frame, span), x.value, x.value.type.dtype
    uniform = source.shaped(source.uniform(dtype, 0, 1))
    rank = len(shape)
    if replaced:
        sums = make("cumsum", p, axis=rank - 1)
        total = make("max", sums, axis=rank - 1, keepdims=True)
        # A number that is rounded up to the total is at the last index with a probability.
        last = make("searchsorted", sums, total)
        return make("minimum", make("searchsorted", sums, make("multiply", uniform, total), right=True), last)
    least = make.number(2.0**-60, dtype)
    exponential = make("maximum", make("negate", make("log1p", make("negate", uniform))), least)
    key = make("subtract", make("log", p), make("log", exponential))
    key = make("where", make("greater", p, make.number(0.0, dtype)), key, make.number(float("-inf"), dtype))
    order = make("argsort", key, axis=rank - 1, descending=True)
    assert order.type.dtype == I64
    return make("slice", order, starts=(None,) * (rank - 1) + (0,), stops=(None,) * (rank - 1) + (samples,))
