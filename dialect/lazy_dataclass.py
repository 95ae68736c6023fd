"""`dataclass`, at a tenth of the cost of the standard one when a module with its classes is imported.

The standard decorator compiles six methods for each class at import. Together, that takes longer than all that a
command such as `nacre check` computes. Here, a class compiles `__init__` at its first call, and its other methods are
closures over the names of the fields. `fields`, `replace`, `asdict`, `match`, pickling and copying work as for standard
dataclasses, and an assignment to a frozen instance raises FrozenInstanceError. `InitVar` is not supported, and the
bases of a class are made by this decorator, all of them frozen or none. Classes that have an order are made by the
standard decorator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, eq=True, kw_only=False, order=False):
        """Returns a dataclass, as `dataclasses.dataclass` does."""

        def decorate(cls):
            if not order:
                return _decorated(cls, slots, eq, kw_only, frozen)
            standard = dataclasses.dataclass(frozen=frozen, slots=slots, eq=eq, kw_only=kw_only, order=order)
            return standard(cls)

        return decorate if cls is None else decorate(cls)


def _decorated(cls: type, slots: bool, eq: bool, kw_only: bool, frozen: bool) -> type:
    cls.__doc__ = cls.__doc__ or cls.__name__  # the standard decorator would derive a signature
    own = {name for name, value in vars(cls).items() if value is not None}
    # Collects the fields; compiles nothing.
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
    every: Sequence[Field[Any]] = dataclasses.fields(made)
    methods: dict[str, Any] = {"__init__": _lazy_init(made, frozen), "__repr__": _repr}
    if eq:
        key = _key([f.name for f in every if f.compare])
        hashed = _key([f.name for f in every if (f.compare if f.hash is None else f.hash)])
        # An instance that changes has no hash.
        methods |= {"__eq__": _equality(key), "__hash__": (lambda self: hash(hashed(self))) if frozen else None}
    if slots and frozen:
        methods |= {"__getstate__": _get_state, "__setstate__": _set_state}
    for name, method in methods.items():
        if name not in own:
            setattr(made, name, method)
    if frozen:
        made.__setattr__ = _refuse_assignment
        made.__delattr__ = _refuse_deletion
    return made  # type: ignore[no-any-return]  # the decorated class


def _lazy_init(cls: Any, frozen: bool) -> Callable[..., None]:
    def first(self: object, *arguments: object, **named: object) -> None:
        compiled = _compiled_init(cls, frozen)
        if cls.__init__ is first:
            cls.__init__ = compiled
        compiled(self, *arguments, **named)

    first.__name__ = "__init__"
    return first


def _compiled_init(cls: Any, frozen: bool) -> Callable[..., None]:
    """Returns `def __init__(self, a, b=default_b): ...`, the method that the standard decorator compiles."""
    scope: dict[str, Any] = {"assign": object.__setattr__, "MISSING": MISSING}
    positional = ["self"]
    named: list[str] = []
    body: list[str] = []
    for field in dataclasses.fields(cls):
        name, value = field.name, field.name
        if field.default_factory is not MISSING:
            scope[f"make_{name}"] = field.default_factory
            value = f"make_{name}()" if not field.init else f"make_{name}() if {name} is MISSING else {name}"
            parameter = f"{name}=MISSING"
        elif field.default is not MISSING:
            scope[f"default_{name}"] = field.default
            parameter = f"{name}=default_{name}"
        else:
            parameter = name
        if field.init:
            (named if field.kw_only else positional).append(parameter)
        elif field.default_factory is MISSING:
            if field.default is MISSING or "__slots__" not in vars(cls):
                continue  # `__post_init__` assigns it, or the class holds its default
            value = f"default_{name}"
        body.append(f" assign(self, {name!r}, {value})" if frozen else f" self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    header = ", ".join([*positional, *(["*", *named] if named else [])])
    exec(f"def __init__({header}):\n" + "\n".join(body or [" pass"]), scope)
    compiled: Callable[..., None] = scope["__init__"]
    compiled.__qualname__ = f"{cls.__qualname__}.__init__"
    return compiled


def _key(names: Sequence[str]) -> Callable[[Any], object]:
    """Returns the function from an instance to the values of these fields."""
    return attrgetter(*names) if names else lambda instance: ()


def _equality(key: Callable[[Any], object]) -> Callable[[object, object], bool]:
    def equal(self: object, other: object) -> bool:
        if self is other:
            return True
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    return equal


def _repr(self: Any) -> str:
    values = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({values})"


def _get_state(self: Any) -> list[object]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[object]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


def _refuse_assignment(self: object, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
