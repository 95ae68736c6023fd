"""`If`, `Loop` and `Scan` as regions of the graph.

If the condition of an `If` is known while the file is read, only its branch is converted. If the condition compares
sizes and the results of the branches differ in type, only the first branch is converted, and calls that would take the
other branch fail. A loop with a known number of iterations becomes a `scan`, or is unrolled if a carried value changes
its type. Any other loop becomes a `while`, or a `scan` of the declared length if it collects values.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....dialect.dims import Size, maximum
from .....dialect.graph import Region
from .....dialect.types import BOOL, I64, TensorType
from ...writing.tensors import BoundedTensor, Held, Tensor, TensorSequence, known
from ..writing.records import GraphRecord
from ..writing.use import Converters, Use

_MOST_UNROLLED = 128


class _TypesDifferError(Exception):
    """A carried value changes its type in an iteration, or the loop ends after the first one."""


class _EarlyEndError(Exception):
    """An iteration may end the loop, by a condition that it computes in the call."""


def _tensors(use: Use, held: Sequence[Held]) -> list[Tensor]:
    for each in held:
        if isinstance(each, TensorSequence):
            use.fail("carries a sequence", code="unsupported-type")
        if isinstance(each, BoundedTensor):
            use.fail("carries a tensor whose size depends on data", code="data-dependent")
    return [each for each in held if isinstance(each, Tensor)]


def _flag(use: Use, condition: Tensor) -> Tensor:
    """Returns a condition as a scalar. Raises DiagnosticError if it is not a single boolean."""
    if condition.dtype != BOOL or any(size != 1 for size in condition.shape if isinstance(size, int)):
        use.fail(f"has a condition of type {condition.type}, expected one boolean", code="wrong-operands")
    return use.g.reshape(condition, shape=()) if condition.rank else condition


def _if(use: Use) -> Sequence[Held]:
    condition, g = _flag(use, use.input()), use.g
    then, otherwise = use.graph("then_branch"), use.graph("else_branch")
    if not len(then.outputs) == len(otherwise.outputs) == len(use.node.outputs):
        use.fail("has branches whose number of results differs from its own", code="wrong-operands")
    if condition.array is not None:
        return use.run_graph(then if bool(condition.array) else otherwise, ())

    def build(graph: GraphRecord) -> Region:
        return g.region([], lambda _: _tensors(use, use.run_graph(graph, ())))

    regions = [build(then), build(otherwise)]
    types = [value.type for value in regions[0].results]
    differ = [a.type for a in regions[0].results] != [b.type for b in regions[1].results]
    if differ and condition.elements is not None:
        # The condition compares sizes, as around an optional `Squeeze`. Calls that would take the second branch fail.
        use.require(condition)
        return use.run_graph(then, ())
    for number, (a, b) in enumerate(zip(regions[0].results, regions[1].results, strict=True)):
        if a.type != b.type:
            use.fail(
                f"gives `{use.node.outputs[number]}` as {a.type} in one branch and as {b.type} in the other",
                code="data-dependent",
            )
    return g.control("if", [condition], {}, regions, types)


def _loop(use: Use) -> Sequence[Held]:
    body = use.graph("body")
    trips, condition = use.optional(0), use.optional(1)
    condition = None if condition is None else _flag(use, condition)
    if trips is not None and (not trips.dtype.is_integer or trips.type.elements != 1):
        use.fail(f"has a number of iterations of type {trips.type}, expected one integer", code="wrong-operands")
    carries = len(use.operands) - 2
    if (
        len(body.inputs) != carries + 2
        or len(body.outputs) != len(use.node.outputs) + 1
        or any(held is None for held in use.operands[2:])
    ):
        use.fail("has a body whose arguments or results do not fit its own", code="wrong-operands")
    if any(isinstance(held, TensorSequence) for held in use.operands[2:]):
        return _unrolled(use, body, trips, condition)
    carried = [use.input(index) for index in range(2, len(use.operands))]
    count = None if trips is None or trips.sizes is None else trips.sizes[0]
    # A negative number of iterations is none.
    count = None if count is None else maximum(count, 0)
    starts = condition is None or (condition.array is not None and bool(condition.array))
    if condition is not None and condition.array is not None and not starts:
        count = 0
    if count is not None and (starts or count == 0):
        try:
            return _counted(use, body, carried, count)
        except _TypesDifferError:
            return _unrolled(use, body, trips, condition)
        except _EarlyEndError:
            pass
    return _while(use, body, carried, trips, condition)


def _counted(use: Use, body: GraphRecord, carried: Sequence[Tensor], count: Size) -> Sequence[Tensor]:
    """Writes a `scan`, if the condition stays true and carried values keep their types."""
    g = use.g

    def build(arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        step, *values = arguments
        goes_on, *results = _tensors(use, use.run_graph(body, [step, known(True), *values]))
        goes_on = _flag(use, goes_on)
        if any(a.type != b.type for a, b in zip(results, carried, strict=False)):
            raise _TypesDifferError
        if goes_on.array is None:
            raise _EarlyEndError
        if not bool(goes_on.array):
            raise _TypesDifferError
        return results

    region = g.region([TensorType(I64), *(x.type for x in carried)], build)
    return scan(use, carried, region, count)


def scan(use: Use, carried: Sequence[Tensor], region: Region, count: Size) -> tuple[Tensor, ...]:
    collected = [value.type for value in region.results[len(carried) :]]
    types = [*(x.type for x in carried), *(t.with_shape((count, *t.shape)) for t in collected)]
    attributes = {"carried": len(carried), "count": count}
    return use.g.control("scan", carried, attributes, [region], types)


def _unrolled(use: Use, body: GraphRecord, trips: Tensor | None, condition: Tensor | None) -> Sequence[Held]:
    values: list[Held] = [held for held in use.operands[2:] if held is not None]
    count = None if trips is None or trips.sizes is None else trips.sizes[0]
    limit = count if isinstance(count, int) else _MOST_UNROLLED + 1
    if trips is not None and not isinstance(count, int):
        use.fail_unknown("a number of iterations")
    going = condition if condition is not None else known(True)
    stacks: list[list[Tensor]] = []
    step = 0
    while step < limit:
        if going.array is None:
            use.fail_unknown("a condition")
        if not bool(going.array):
            break
        if step >= _MOST_UNROLLED:
            use.fail(f"has more than {_MOST_UNROLLED} iterations, with values that change their type")
        found = use.run_graph(body, [known(np.int64(step)), going, *values])  # type: ignore[list-item]  # tensors
        going, after = _flag(use, _tensors(use, found[:1])[0]), found[1:]
        values = after[: len(values)]
        slices = _tensors(use, after[len(values) :])
        stacks = stacks or [[] for _ in slices]
        for stack, part in zip(stacks, slices, strict=True):
            stack.append(part)
        step += 1
    if not stacks and len(body.outputs) > 1 + len(values):
        use.fail("collects values in no iteration", code="data-dependent")
    return [*values, *(use.g.stack(*stack, axis=0) for stack in stacks)]


def _while(
    use: Use, body: GraphRecord, carried: Sequence[Tensor], trips: Tensor | None, condition: Tensor | None
) -> Sequence[Tensor]:
    g = use.g
    if len(body.outputs) > 1 + len(carried):
        return _collecting(use, body, carried, trips, condition)
    zero, one = known(np.int64(0)), known(np.int64(1))
    first = known(True) if condition is None else condition
    types = [TensorType(I64), TensorType(BOOL), *(x.type for x in carried)]
    limit = None if trips is None else g.cast(g.reshape(trips, shape=()), dtype=I64)

    def goes_on(arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        step, going = arguments[:2]
        return [going if limit is None else g.logical_and(going, g.less(step, limit))]

    def build(arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        step, going, *values = arguments
        next_going, *results = _tensors(use, use.run_graph(body, [step, going, *values]))
        for number, (a, b) in enumerate(zip(results, carried, strict=True)):
            if a.type != b.type:
                name = use.node.inputs[number + 2]
                use.fail(f"carries `{name}` as {b.type} and then as {a.type}", code="data-dependent")
        return [g.add(step, one), _flag(use, next_going), *results]

    regions = [g.region(types, goes_on), g.region(types, build)]
    return g.control("while", [zero, first, *carried], {}, regions, types)[2:]


def _collecting(
    use: Use, body: GraphRecord, carried: Sequence[Tensor], trips: Tensor | None, condition: Tensor | None
) -> Sequence[Tensor]:
    """Writes a loop that collects values. The declared shape gives the number of iterations, which the call checks."""
    g, count = use.g, use.declared_shape("a number of iterations", len(carried))[0]
    zero, one = known(np.int64(0)), known(np.int64(1))
    first = known(True) if condition is None else condition

    def build(arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        step, going, taken, *values = arguments
        next_going, *results = _tensors(use, use.run_graph(body, [step, going, *values]))
        for a, b in zip(results, carried, strict=False):
            if a.type != b.type:
                use.fail(f"carries a value as {b.type} and then as {a.type}", code="data-dependent")
        goes = g.logical_and(going, _flag(use, next_going))
        return [goes, g.add(taken, g.where(going, one, zero)), *results]

    types = [TensorType(I64), TensorType(BOOL), TensorType(I64), *(x.type for x in carried)]
    region = g.region(types, build)
    going, taken, *results = scan(use, [first, zero, *carried], region, count)
    # The loop must end after exactly the declared number of iterations, by its condition or by its limit.
    ended = g.logical_not(going)
    if trips is not None:
        ended = g.logical_or(ended, g.equal(g.cast(g.reshape(trips, shape=()), dtype=I64), g.size(count)))
    use.require(g.logical_and(g.equal(taken, g.size(count)), ended))
    return results


def _scan(use: Use) -> Sequence[Tensor]:
    body, g, count = use.graph("body"), use.g, use.integer("num_scan_inputs")
    operands = list(use.operands)
    batched = use.version < 9
    if batched:
        if operands[0] is not None:
            use.fail("has sequences of different lengths")
        operands = operands[1:]
    inputs = _tensors(use, [held for held in operands if held is not None])
    if not 0 < count <= len(inputs) or len(body.inputs) != len(inputs) or len(body.outputs) != len(use.node.outputs):
        use.fail("has a body whose arguments or results do not fit its own", code="wrong-operands")
    states, sequences = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
    outputs = len(body.outputs) - len(states)
    if batched:
        return _batched_scan(use, body, states, sequences)
    axes = use.ints_of("scan_input_axes", (0,) * count)
    directions = use.ints_of("scan_input_directions", (0,) * count)
    out_axes = use.ints_of("scan_output_axes", (0,) * outputs)
    out_directions = use.ints_of("scan_output_directions", (0,) * outputs)
    if [len(axes), len(directions), len(out_axes), len(out_directions)] != [count, count, outputs, outputs]:
        use.fail("has axes or directions that do not fit its sequences", code="bad-attribute")
    if not set((*directions, *out_directions)) <= {0, 1}:
        use.fail(f"has the directions {list(directions)} and {list(out_directions)}", code="bad-attribute")
    axes = [_axis_in(use, axis, x) for axis, x in zip(axes, sequences, strict=True)]
    length = sequences[0].shape[axes[0]]
    for x, axis in zip(sequences[1:], axes[1:], strict=True):
        if x.shape[axis] != length:
            _require_length(use, x.shape[axis], length)

    def build(arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        step, *values = arguments
        back = g.subtract(g.size(length - 1), step) if any(directions) else step
        slices = [
            g.gather(x, back if reverse else step, axis=axis)
            for x, axis, reverse in zip(sequences, axes, directions, strict=True)
        ]
        return _tensors(use, use.run_graph(body, [*values, *slices]))

    region = g.region([TensorType(I64), *(x.type for x in states)], build)
    made = scan(use, states, region, length)
    results = list(made[: len(states)])
    for x, axis, reverse in zip(made[len(states) :], out_axes, out_directions, strict=True):
        x = g.flip(x, axes=(0,)) if reverse else x
        axis = _axis_in(use, axis, x)
        order = [*range(1, axis + 1), 0, *range(axis + 1, x.rank)]
        results.append(g.transpose(x, axes=tuple(order)) if axis else x)
    return results


def _require_length(use: Use, length: Size, first: Size) -> None:
    if isinstance(length, int) and isinstance(first, int):
        use.fail(f"has sequences of {first} and of {length} elements", code="shape-mismatch")
    use.require(use.g.equal(use.g.size(length), use.g.size(first)))


def _axis_in(use: Use, axis: int, x: Tensor) -> int:
    if not -x.rank <= axis < x.rank:
        use.fail(f"has no axis {axis} of {x.type}", code="bad-axis")
    return axis % x.rank


def _batched_scan(
    use: Use, body: GraphRecord, states: Sequence[Tensor], sequences: Sequence[Tensor]
) -> Sequence[Tensor]:
    """Writes the scan of version 8: a loop over the batch around the loop over the sequence."""
    g = use.g
    batch, length = sequences[0].shape[:2]
    if any(use.ints_of("directions", ())):
        use.fail("scans backwards in a batch")

    def outer(arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        (image,) = arguments
        firsts = [g.gather(x, image, axis=0) for x in states]
        rows = [g.gather(x, image, axis=0) for x in sequences]

        def inner(values: Sequence[Tensor]) -> Sequence[Tensor]:
            step, *carried = values
            slices = [g.gather(x, step, axis=0) for x in rows]
            return _tensors(use, use.run_graph(body, [*carried, *slices]))

        region = g.region([TensorType(I64), *(x.type for x in firsts)], inner)
        return scan(use, firsts, region, length)

    return scan(use, [], g.region([TensorType(I64)], outer), batch)


CONVERTERS: Converters = {"If": _if, "Loop": _loop, "Scan": _scan}
