"""A transposed convolution as ordinary ones. Results that are a stride apart form a phase, and no zeros are multiplied.

    y[m * s + r] == sum over j of x[m - j] * w[j * s + r]        for every phase r < s, here along one axis

For a kernel of 3 and a stride of 2, before the padding is cut off:

    y[2m]     == x[m] * w[0] + x[m - 1] * w[2]        phase 0: 2 taps
    y[2m + 1] == x[m] * w[1]                          phase 1: 1 tap

A part is a set of phases with equally many taps; they are the channels of one convolution with stride 1. An axis has at
most two parts, since the number of taps is K / s rounded up or down; it has one if the kernel is padded with zeros to
whole strides. The results of the parts lie as [m, r, channels]; moving r after m makes [m * s + r, channels] of them.

With a dilation that is a multiple of the stride, all taps belong to one phase, and the others are zero. Refuses other
dilations beside a stride, symbolic kernel and padding sizes, and paddings that leave nothing of the first or the last
window.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ...dialect.dims import Size, at_least, ceil_divide, product
from ...dialect.graph import Node, Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.operator import Builder
from ...dialect.ops import OPERATORS
from ...dialect.ops.conv_transpose import transposed_geometry
from ...dialect.ops.support.layouts import LAST, first_order
from ...dialect.ops.support.windows import Windows, integers


@dataclass(frozen=True, slots=True)
class Part:
    """The phases `first` to `end` along one axis, each with the same number of taps."""

    first: int
    end: int
    taps: int

    @property
    def phases(self) -> int:
        return self.end - self.first


@dataclass(frozen=True, slots=True)
class Axis:
    """One spatial axis. Taps reach the first `spread` of `stride` phases, and `dilation` is that of the convolutions.

    `low` and `high` are the padding of the input for a part with the most taps. `skipped` is the number of results
    before the first that is kept, `blocks` the number of results of each phase, and `size` the number of results that
    are kept.
    """

    kernel: int
    stride: int
    spread: int
    dilation: int
    low: int
    high: int
    skipped: int
    blocks: Size
    size: Size

    @property
    def taps(self) -> int:
        """The most taps of a phase."""
        return -(-self.kernel // self.spread)

    def parts(self, *, filled: bool) -> tuple[Part, ...]:
        """Returns the parts of all phases. With `filled`, or if a part with fewer taps would begin inside the input,
        there is one part, whose kernel is padded with zeros."""
        rest = self.kernel % self.spread
        if filled or rest == 0 or (self.taps > 1 and self.low == 0):
            return (Part(0, self.spread, self.taps),)
        parts = (Part(0, rest, self.taps), Part(rest, self.spread, self.taps - 1))
        return parts if self.taps > 1 else parts[:1]


@dataclass(frozen=True, slots=True)
class Phases:
    """A transposed convolution whose phases are ordinary convolutions."""

    node: Node
    axes: tuple[Axis, ...]
    groups: int

    @property
    def each(self) -> int:
        """The channels of the result per group."""
        size = self.node.inputs[1].type.shape[1]
        assert isinstance(size, int), self.node
        return size

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(axis.stride for axis in self.axes)

    @property
    def is_depthwise(self) -> bool:
        """Whether the convolution has several channels, each computed from one channel alone, and a stride."""
        return self.each == 1 and self.groups > 1 and set(self.strides) != {1}

    @property
    def filled(self) -> tuple[Part, ...]:
        """All phases as one convolution."""
        return tuple(axis.parts(filled=True)[0] for axis in self.axes)

    @property
    def filling(self) -> float:
        """The ratio of all products to useful ones when kernels are padded to whole strides."""
        exact = 1.0
        for axis in self.axes:
            exact *= axis.taps * axis.spread / axis.kernel
        return exact

    @property
    def channels(self) -> int:
        """The channels of one convolution for all phases that taps reach."""
        count = product(axis.spread for axis in self.axes) * self.each * self.groups
        assert isinstance(count, int), self.node
        return count

    def weight(self, b: Builder, weight: Value, parts: Sequence[Part], layout: str) -> Value:
        """Returns the kernel of the convolution that computes one part along each axis."""
        rank = len(self.axes)
        widths: list[tuple[Size, Size]] = [(0, 0), (0, 0)]
        stops: list[Size] = list(weight.type.shape[:2])
        split: list[Size] = []
        for axis, part in zip(self.axes, parts, strict=True):
            whole = part.taps * axis.spread
            widths.append((0, max(whole - axis.kernel, 0)))
            stops.append(whole)
            split += [part.taps, axis.spread]
        if any(pair != (0, 0) for pair in widths):
            weight = b.pad(weight, widths=tuple(widths))
        if weight.type.shape != tuple(stops):
            weight = b.slice(weight, starts=(0,) * (rank + 2), stops=tuple(stops))
        inner = weight.type.shape[0] // self.groups
        weight = b.reshape(weight, shape=(self.groups, inner, self.each, *split))
        if any(part.phases < axis.spread for axis, part in zip(self.axes, parts, strict=True)):
            starts = itertools.chain(*((0, part.first) for part in parts))
            ends = itertools.chain(*((part.taps, part.end) for part in parts))
            weight = b.slice(weight, starts=(0, 0, 0, *starts), stops=(*weight.type.shape[:3], *ends))
        taps, phases = range(3, 3 + 2 * rank, 2), range(4, 4 + 2 * rank, 2)
        count = product((self.groups, *(part.phases for part in parts), self.each))
        kernel = tuple(part.taps for part in parts)
        if layout == LAST:
            turned = b.transpose(weight, axes=(*taps, 1, 0, *phases, 2))
            flat, spatial = b.reshape(turned, shape=(*kernel, inner, count)), range(rank)
        else:
            turned = b.transpose(weight, axes=(0, *phases, 2, 1, *taps))
            flat, spatial = b.reshape(turned, shape=(count, inner, *kernel)), range(2, rank + 2)
        axes = tuple(axis for axis, taps in zip(spatial, kernel, strict=True) if taps > 1)
        return b.flip(flat, axes=axes) if axes else flat

    def padding(self, parts: Sequence[Part]) -> tuple[tuple[int, int], ...]:
        """Returns the padding of the input before and after each axis, for the convolution of one part along each
        axis."""
        return tuple(
            (axis.low - (axis.taps - part.taps) * axis.dilation, axis.high)
            for axis, part in zip(self.axes, parts, strict=True)
        )

    def attributes(self, layout: str, padding: Any) -> dict[str, Any]:
        dilation = tuple(axis.dilation for axis in self.axes)
        given = {"stride": 1, "padding": padding, "dilation": dilation, "groups": self.groups, "layout": layout}
        return {**given, "into": dict(self.node.attributes)["into"]}

    def for_phases(self, b: Builder, values: Value) -> Value:
        """Repeats one value per channel, [channels, ...], for the channels of all phases."""
        count, rest = product(axis.spread for axis in self.axes), values.type.shape[1:]
        if count == 1:
            return values
        apart = b.reshape(values, shape=(self.groups, 1, self.each, *rest))
        repeated = b.broadcast_to(apart, shape=(self.groups, count, self.each, *rest))
        return b.reshape(repeated, shape=(self.channels, *rest))

    def joined(self, b: Builder, results: Mapping[tuple[Part, ...], Value], layout: str) -> Value:
        """Returns the result of the transposed convolution, from those of all parts."""
        ways = [list(dict.fromkeys(parts[i] for parts in results)) for i in range(len(self.axes))]

        def join(chosen: tuple[Part, ...]) -> Value:
            i = len(chosen)
            if i == len(self.axes):
                return self._moved(b, results[chosen], chosen, layout)
            pieces = [join((*chosen, part)) for part in ways[i]]
            axis = (2 if layout == LAST else 4) + 2 * i
            whole = b.concat(*pieces, axis=axis) if len(pieces) > 1 else pieces[0]
            missing = self.axes[i].stride - ways[i][-1].end
            if missing == 0:
                return whole
            # A stride longer than the kernel leaves phases that no element reaches.
            widths = [(0, 0)] * whole.type.rank
            widths[axis] = (0, missing)
            return b.pad(whole, widths=tuple(widths))

        whole = join(())
        outer = self.node.output.type.shape[:2]
        spread = tuple(axis.blocks * axis.stride for axis in self.axes)
        kept = tuple(axis.size for axis in self.axes)
        skipped = tuple(axis.skipped for axis in self.axes)
        stops = tuple(first + size for first, size in zip(skipped, kept, strict=True))
        if layout == LAST:
            y = b.reshape(whole, shape=(outer[0], *spread, outer[1]))
            starts, ends = (0, *skipped, 0), (outer[0], *stops, outer[1])
        else:
            y = b.reshape(whole, shape=(*outer, *spread))
            starts, ends = (0, 0, *skipped), (*outer, *stops)
        if y.type.shape != tuple(end - start for start, end in zip(starts, ends, strict=True)):
            y = b.slice(y, starts=starts, stops=ends)
        return b.transpose(y, axes=first_order(y.type.rank)) if layout == LAST else y

    def _moved(self, b: Builder, y: Value, parts: Sequence[Part], layout: str) -> Value:
        """Moves the phases of a part after their positions: [N, m, r, ..., channels], or [N, group, channels, m, r,
        ...]."""
        rank = len(self.axes)
        phases = tuple(part.phases for part in parts)
        blocks = tuple(axis.blocks for axis in self.axes)
        if layout == LAST:
            y = b.reshape(y, shape=(y.type.shape[0], *blocks, self.groups, *phases, self.each))
            pairs = itertools.chain(*((1 + i, 2 + rank + i) for i in range(rank)))
            order: tuple[int, ...] = (0, *pairs, 1 + rank, 2 + 2 * rank)
        else:
            y = b.reshape(y, shape=(y.type.shape[0], self.groups, *phases, self.each, *blocks))
            pairs = itertools.chain(*((3 + rank + i, 2 + i) for i in range(rank)))
            order = (0, 1, 2 + rank, *pairs)
        kept = [axis for axis in order if y.type.shape[axis] != 1]
        if kept == sorted(kept):
            return b.reshape(y, shape=tuple(y.type.shape[axis] for axis in order))
        return b.transpose(y, axes=order)


def phases_of(node: Node) -> Phases | None:
    """Returns the phases of a transposed convolution; None for other nodes, and if the phases are not ordinary
    convolutions."""
    if not OPERATORS[node.op].has("transposed"):
        return None
    rank = node.output.type.rank - 2
    attributes = dict(node.attributes)
    x, weight = (v.type for v in node.inputs[:2])
    w = transposed_geometry(node.op, x.shape[2:], weight.shape[2:], attributes)
    if not all(isinstance(size, int) for size in (*weight.shape, *w.low)):
        return None
    axes = [_axis(w, i, size) for i, size in enumerate(x.shape[2:])]
    found = tuple(axis for axis in axes if axis is not None)
    groups = attributes["groups"]
    assert isinstance(groups, int), node
    return Phases(node, found, groups) if len(found) == rank else None


def _axis(w: Windows, i: int, size: Size) -> Axis | None:
    (kernel,), (low,) = integers(w.kernel[i : i + 1]), integers(w.low[i : i + 1])
    stride, dilation = w.stride[i], w.dilation[i]
    if kernel == 1:
        dilation = 1
    if dilation % stride == 0:
        # Every tap reaches the same phase.
        spread, apart = 1, dilation // stride
    elif dilation == 1:
        spread, apart = stride, 1
    else:
        return None
    reach = (-(-kernel // spread) - 1) * apart
    first = low // stride
    end = ceil_divide(low + w.sizes[i], stride)
    # The result at m reads x[m - reach] to x[m].
    before, after = reach - first, end - size
    if not isinstance(after, int) or before < 0 or after < 0 or end == first or not at_least(end - first, 0):
        return None
    return Axis(kernel, stride, spread, apart, before, after, low - first * stride, end - first, w.sizes[i])
