"""Classes whose methods are made late behave as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, fields, replace
from typing import Any

import pytest
from nacre.dialect.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: float = 0.5
    names: list[str] = field(default_factory=list, hash=False)
    place: str = field(default="", kw_only=True, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Long(Point):
    z: int = 3
    total: float = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", self.x + self.y + self.z)


@dataclass(frozen=True)
class Own:
    value: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and self.value % 10 == other.value % 10

    def __hash__(self) -> int:
        return self.value % 10

    def __repr__(self) -> str:
        return f"<{self.value}>"


@dataclass(frozen=True, slots=True, eq=False)
class ByIdentity:
    value: int


@dataclass(frozen=True, slots=True)
class Empty:
    pass


def test_fields_are_those_of_the_standard_decorator() -> None:
    assert [f.name for f in fields(Point)] == ["x", "y", "names", "place"]
    assert [f.name for f in fields(Long)] == ["x", "y", "names", "place", "z", "total"]
    assert Long.__match_args__ == ("x", "y", "names", "z")
    assert dataclasses.asdict(Point(1)) == {"x": 1, "y": 0.5, "names": [], "place": ""}
    assert not hasattr(Point(1), "__dict__") and hasattr(Own(1), "__dict__")


def test_representation_and_equality() -> None:
    assert repr(Point(1, names=["a"], place="here")) == "Point(x=1, y=0.5, names=['a'])"
    assert Point(1, place="here") == Point(1) != Point(2)
    assert Point(1) != Long(1) and Long(1) == Long(1)
    assert repr(Empty()) == "Empty()" and Empty() == Empty() and hash(Empty()) == hash(Empty())


def test_instances_are_not_shared() -> None:
    assert Point(1).names is not Point(1).names


def test_hashes() -> None:
    assert hash(Own(3)) == hash(Own(13)) and Own(3) == Own(13) and repr(Own(3)) == "<3>"
    assert ByIdentity(1) != ByIdentity(1) and len({ByIdentity(1), ByIdentity(1)}) == 2
    assert hash(Point(1, names=["a"])) == hash(Point(1, place="here")), "names and place are not hashed"
    assert hash(Point(1)) != hash(Point(2))
    with pytest.raises(TypeError, match="unhashable"):
        hash(Holder([]))


@dataclass(frozen=True, slots=True)
class Holder:
    items: list[int]


def test_post_init_and_replacement() -> None:
    assert Long(1).total == 4.5
    assert replace(Long(1), z=5).total == 6.5
    with pytest.raises(TypeError, match="unexpected keyword"):
        replace(Long(1), other=5)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies_are_equal(copied: Callable[[Any], Any]) -> None:
    for value in (Point(1, names=["a"], place="here"), Long(2), Own(3), Empty()):
        other = copied(value)
        assert type(other) is type(value) and other == value
    assert copied(Point(1, place="here")).place == "here"


def test_assignments_and_deletions_raise() -> None:
    for value, name in ((Point(1), "x"), (Long(1), "y"), (Own(1), "value"), (Own(1), "unknown")):
        with pytest.raises(FrozenInstanceError, match=f"cannot assign to field '{name}'"):
            setattr(value, name, 2)
        with pytest.raises(FrozenInstanceError, match=f"cannot delete field '{name}'"):
            delattr(value, name)


@pytest.mark.parametrize("arguments", [((), {}), ((1, 2.0, [], 4), {}), ((1,), {"x": 2}), ((1,), {"unknown": 2})])
def test_wrong_arguments_raise(arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
    positional, named = arguments
    with pytest.raises(TypeError, match=r"__init__\(\)"):
        Point(*positional, **named)


def test_a_match_statement_takes_positions() -> None:
    match Point(1, 2.5):
        case Point(x, y):
            assert (x, y) == (1, 2.5)


@dataclass(slots=True)
class Counter:
    count: int = 0
    names: list[str] = field(default_factory=list)
    limit: int = field(default=9, init=False)


def test_classes_that_change_have_the_standard_methods() -> None:
    counter = Counter()
    counter.count += 1
    counter.names.append("a")
    assert counter == Counter(1, ["a"]) != Counter(1) and counter.limit == 9
    assert Counter.__hash__ is None
    assert repr(counter) == "Counter(count=1, names=['a'], limit=9)"
    for other in (copy.copy(counter), copy.deepcopy(counter), pickle.loads(pickle.dumps(counter))):
        assert other == counter
