"""The plans that the loader keeps: calls that differ in type, dtype, shape or strides do not share one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from nacre.runtime.arguments import Array
from nacre.runtime.loader import ArgumentError, Entry, load


class Subclass(np.ndarray):  # type: ignore[type-arg]
    """Another type of array, which the loader takes as the array that it is."""


class Shared:
    """A tensor of another framework, which has `__dlpack__` alone."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __dlpack__(self, **options: object) -> object:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


class Described(Shared):
    """One that also describes itself as NumPy does."""

    def __init__(self, array: Array) -> None:
        super().__init__(array)
        self.dtype, self.shape, self.strides = array.dtype, array.shape, array.strides


def dense() -> Array:
    return np.arange(1, 5, dtype=np.float32).reshape(2, 2)


VARIANTS: Mapping[str, Callable[[], object]] = {
    "dense": dense,
    # The strides alone differ.
    "transposed": lambda: dense().T,
    "reversed": lambda: dense()[:, ::-1],
    "every second row": lambda: np.repeat(dense(), 2, axis=0)[::2],
    "the same row twice": lambda: np.broadcast_to(dense()[0], (2, 2)),
    # The dtype alone, of the same width.
    "integers": lambda: dense().view(np.int32),
    "swapped bytes": lambda: dense().view(">f4"),
    # The shape alone, with the strides of two rows.
    "one row": lambda: np.ones((2, 2), np.float32)[:1],
    "one column": lambda: np.ones((2, 2), np.float32)[:, :1],
    "more rows": lambda: np.ones((3, 2), np.float32),
    # The type alone.
    "subclass": lambda: dense().view(Subclass),
    "shared": lambda: Shared(dense()),
    "described": lambda: Described(dense()),
    "shared transposed": lambda: Shared(dense().T),
    "scalar": lambda: np.float32(3),
    "number": lambda: 3.0,
}


def outcome(call: Callable[[], Array]) -> object:
    """The result as bytes, or the message of a call that is refused."""
    try:
        return call().tobytes()
    except ArgumentError as error:
        return str(error)


@pytest.fixture(scope="module")
def fresh(zoo_file: Path) -> Iterator[Callable[[], Entry]]:
    """Gives the entry `add` without any plan."""
    entry = load(zoo_file).entries["add"]

    def clear() -> Entry:
        entry._plans.clear()
        return entry

    yield clear


@pytest.mark.parametrize("name", VARIANTS)
def test_no_call_takes_the_plan_of_another(name: str, fresh: Callable[[], Entry]) -> None:
    """Whatever was called before, a call gives what it gives as the first one."""
    x, make = dense(), VARIANTS[name]
    for order in (lambda e, other: e(x, other), lambda e, other: e(other, x)):
        alone = outcome(lambda order=order: order(fresh(), make()))  # type: ignore[misc]
        for earlier in VARIANTS.values():
            entry = fresh()
            outcome(lambda order=order, entry=entry, earlier=earlier: order(entry, earlier()))  # type: ignore[misc]
            assert outcome(lambda order=order, entry=entry: order(entry, make())) == alone  # type: ignore[misc]


def test_variants_are_either_computed_or_refused(fresh: Callable[[], Entry]) -> None:
    results = {name: outcome(lambda make=make: fresh()(dense(), make())) for name, make in VARIANTS.items()}  # type: ignore[misc]
    computed = {name: result for name, result in results.items() if isinstance(result, bytes)}
    # Views are copied.
    assert set(VARIANTS) - set(computed) == {
        *("integers", "swapped bytes", "one row", "one column", "more rows", "scalar", "number")
    }
    assert computed["dense"] == computed["subclass"] == computed["shared"] == computed["described"]
    for name, result in computed.items():
        made = VARIANTS[name]()
        plain = np.array(made.array if isinstance(made, Shared) else made, order="C")
        assert result == fresh()(dense(), plain).tobytes(), name
