"""A convolution as a structured op over the padded tensor, in every layout.

Channels first, the loops are batch, channels, positions, and then the sums over channels and offsets. Channels last
they are batch, positions, channels, and then offsets and channels: the innermost parallel loop has unit stride in the
result and in the weight, and in the tensor itself if every channel has its own kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...dims import Size, divide_exactly
from ...emitter import ZERO, Emitter, Index, Loop, Result, Tensor, loop, loops
from ...lazy_dataclass import dataclass
from ...operator import Attributes
from ...types import TensorType
from .accumulate import multiply_add
from .common import compute_dtype, lower_cast
from .layouts import FIRST, LAST, kernel_first_order, pick, spatial_axis
from .windows import Windows, conv_geometry, pad_tensor, window_map


def grouped(e: Emitter, x: Tensor, axis: int, groups: int) -> Tensor:
    """Returns the tensor with `axis` split into groups and the elements of each group."""
    shape = x.type.shape
    each = divide_exactly(shape[axis], groups)
    assert each is not None, (x.type, axis, groups)
    return e.reshape(x, (*shape[:axis], groups, each, *shape[axis + 1 :]))


def start_of_sum(e: Emitter, bias: Sequence[Tensor], type: TensorType, axis: int = 1) -> Tensor | int:
    """Returns the initial value of sums of `type`: the bias of each channel along `axis`, or 0."""
    if not bias:
        return 0
    return e.map(type, [(bias[0], loops(axis))], lambda s, value: s.cast(value, type.dtype))


def lower_convolution(
    name: str, e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    x, weight, *bias = operands
    layout: str = attributes["layout"]
    rank = x.type.rank - 2
    axis = spatial_axis(layout)
    kernel = weight.type.shape
    if layout != FIRST:
        kernel = pick(kernel, kernel_first_order(rank + 2))
    w = conv_geometry(name, x.type.shape[axis : axis + rank], kernel[2:], attributes)
    type = types[0].with_dtype(compute_dtype(types[0].dtype))
    start = start_of_sum(e, bias, type, 1 if layout == FIRST else rank + 1)
    padded = pad_tensor(e, x, w, 0, axis)
    total = _Convolution(w, attributes["groups"], layout, kernel[0], kernel[1]).emit(e, padded, weight, start, type)
    return [lower_cast(e, total, types[0].dtype)]


@dataclass(frozen=True, slots=True)
class _Convolution:
    """The op by its loops, named by their ranges: `batch`, `group`, `out`, `in`, positions, offsets."""

    windows: Windows
    groups: int
    layout: str
    channels: Size
    inner: Size

    def emit(self, e: Emitter, padded: Tensor, weight: Tensor, start: Tensor | int, type: TensorType) -> Tensor:
        w, last = self.windows, self.layout != FIRST
        positions = [f"position {i}" for i in range(len(w.kernel))]
        offsets = [f"offset {i}" for i in range(len(w.kernel))]
        results = self._channels("out")
        parallel = ["batch", *positions, *results] if last else ["batch", *results, *positions]
        reduced = [*offsets, *self._summed] if last else [*self._summed, *offsets]
        number = {name: i for i, name in enumerate([*parallel, *reduced])}
        batch = padded.type.shape[0]
        sizes = {**self._sizes, "batch": batch}
        sizes.update(zip((*positions, *offsets), (*w.counts, *w.kernel), strict=True))

        def along(names: Sequence[str]) -> tuple[Index, ...]:
            return tuple(loop(number[name]) for name in names)

        def shape(names: Sequence[str]) -> tuple[Size, ...]:
            return tuple(sizes[name] for name in names)

        window = window_map(w, number[positions[0]], number[offsets[0]])
        read = self._channels("in")
        if self.layout == LAST:
            x = e.reshape(padded, (batch, *w.padded, *shape(read)))
            x_map = (*along(["batch"]), *window, *along(read))
        else:
            x = e.reshape(padded, (batch, *shape(read), *w.padded))
            x_map = (*along(["batch", *read]), *window)
        # The results of a group are adjacent, in the weight as in all tensors.
        kernel_axes = [*offsets, *self._summed, *results] if last else [*results, *self._summed, *offsets]
        kernel, kernel_map = e.reshape(weight, shape(kernel_axes)), along(kernel_axes)
        if last and kernel_axes == [*offsets, "group"]:
            # Every channel has its own kernel, and the weight has an input-channel axis of size 1.
            kernel, kernel_map = weight, (*along(offsets), ZERO, *along(["group"]))
        result = type.with_shape(shape(parallel))
        if not isinstance(start, int):
            start = e.reshape(start, result.shape)
        (total,) = e.structured(
            [Loop(sizes[name], parallel=name not in reduced) for name in number],
            [(x, x_map), (kernel, kernel_map)],
            [Result(result, along(parallel), initial=start)],
            multiply_add,
        )
        return e.reshape(total, type.shape)

    @property
    def _sizes(self) -> Mapping[str, Size]:
        out = divide_exactly(self.channels, self.groups)
        assert out is not None, (self.channels, self.groups)
        return {"group": self.groups, "out": out, "in": self.inner}

    def _channels(self, kind: str) -> list[str]:
        """Returns the loops that number the channels that are read (`in`) or computed (`out`)."""
        if self.groups == 1:
            return [kind]
        # With a kernel for every channel there is only one loop over channels, which can then be the innermost.
        return ["group"] if self._sizes[kind] == 1 else ["group", kind]

    @property
    def _summed(self) -> list[str]:
        return [name for name in self._channels("in") if name == "in"]
