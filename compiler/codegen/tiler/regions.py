"""Regions of tensors: the part that a slice reads or an insertion writes, and the rest around it."""

from __future__ import annotations

from collections.abc import Iterator

from ....dialect.dims import Size, add, multiply
from ....dialect.lazy_dataclass import dataclass
from .structure import Tensor, Unsupported, View


@dataclass(frozen=True, slots=True)
class Rest:
    """A part of memory that is left: its sizes and its view."""

    shape: tuple[Size, ...]
    view: View


def behind(shape: tuple[Size, ...], view: View, sizes: tuple[Size, ...], part: View) -> Rest | None:
    """Returns the elements of a view that lie after a part along one axis; None where the part is not its beginning,
    with the same sizes along all other axes.

    Such parts are the tensors of a concatenation after the first one, in turn.
    """
    if (part.buffer, part.offset, part.strides) != (view.buffer, view.offset, view.strides):
        return None
    axes = [axis for axis, (all, size) in enumerate(zip(shape, sizes, strict=True)) if all != size]
    if len(axes) > 1:
        return None
    axis = axes[0] if axes else len(shape) - 1
    if axis < 0:
        return Rest((0,), view)
    left = add(shape[axis], multiply(-1, sizes[axis]))
    offset = add(view.offset, multiply(sizes[axis], view.strides[axis]))
    return Rest((*shape[:axis], left, *shape[axis + 1 :]), View(view.buffer, offset, view.strides))


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a tensor: elements `start + i * step` of each axis."""

    starts: tuple[Size, ...]
    sizes: tuple[Size, ...]
    steps: tuple[Size, ...]

    def of(self, whole: Tensor) -> View:
        """Returns the view of the part."""
        if whole.view is None:
            raise Unsupported("a part of what is not in memory")
        offset = whole.view.offset
        for start, stride in zip(self.starts, whole.view.strides, strict=True):
            offset = add(offset, multiply(start, stride))
        strides = tuple(multiply(a, b) for a, b in zip(whole.view.strides, self.steps, strict=True))
        return View(whole.view.buffer, offset, strides)

    def around(self, whole: Tensor) -> Iterator[Tensor]:
        """Yields the rest of a constant tensor: for each axis the elements before and after the part, restricted to
        the part along the axes before it; the whole tensor where the part has gaps."""
        if any(step != 1 for step in self.steps):
            yield whole
            return
        if whole.view is None:
            raise Unsupported("a part of what is not in memory")
        strides, shape, offset = whole.view.strides, list(whole.shape), whole.view.offset
        for axis, (start, size, stride) in enumerate(zip(self.starts, self.sizes, strides, strict=True)):
            end = add(start, size)
            for first, count in ((0, start), (end, add(whole.shape[axis], multiply(-1, end)))):
                if count != 0:
                    view = View(whole.view.buffer, add(offset, multiply(first, stride)), strides)
                    yield Tensor((*shape[:axis], count, *shape[axis + 1 :]), whole.element, view, whole.splat)
            shape[axis], offset = size, add(offset, multiply(start, stride))
