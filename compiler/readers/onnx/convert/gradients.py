"""`Gradient`: the derivatives of a scalar of the graph, appended to the nodes that compute it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....dialect.differentiate import GradientError, pull_back
from ...writing.tensors import Tensor, known
from ..writing.use import REQUIRED, Converters, Use


def _gradient(use: Use) -> Sequence[Tensor]:
    """The operands of the node are the points at which the derivatives are taken. The graph computes `y` from the named
    variables, so only these variables are accepted as operands."""
    g = use.g
    xs, y = use.strings_of("xs", REQUIRED), use.look_up(use.string("y", REQUIRED))
    names = [*xs, *(use.strings_of("zs", ()) or ())]
    if list(use.node.inputs) != names:
        use.fail(
            f"takes derivatives at {list(use.node.inputs)}; its variables are {names}", code="unsupported-attribute"
        )
    if g.is_in_region:
        use.fail("is inside a branch or a loop", code="unsupported-attribute")
    if not isinstance(y, Tensor):
        use.fail(
            f"derives `{use.string('y')}`, which is not a tensor that is computed before it", code="undefined-value"
        )
    wanted = [use.input(number) for number in range(len(xs))]
    if not all(x.dtype.is_differentiable for x in (y, *wanted)):
        use.fail("derives tensors that are not floats", code="unsupported-dtype")
    if y.type.elements != 1:
        use.fail(f"derives {y.type}; only a scalar is supported", code="unsupported-attribute")
    if any(x.value is None for x in wanted):
        use.fail("derives by a constant or an initializer", code="unsupported-attribute")
    if y.value is None:
        return [g.broadcast_to(g.like(0, x), shape=x.shape) for x in wanted]
    one = g.value(g.broadcast_to(known(np.ones(()), y.dtype), shape=y.shape))
    try:
        found = pull_back(g.builder, tuple(g.builder.nodes), {y.value: one}, [g.value(x) for x in wanted])
    except GradientError as error:
        use.fail(f"derives a graph in which {error}", code="no-gradient")
    zeros = [g.broadcast_to(g.like(0, x), shape=x.shape) for x in wanted]
    return [zero if value is None else Tensor(value.type, value) for zero, value in zip(zeros, found, strict=True)]


CONVERTERS: Converters = {"ai.onnx.preview.training::Gradient": _gradient}
