"""The states of a session as arrays: reading, assigning, and files of them in the safetensors format.

Reading a state copies it, and so does assigning; `view` returns an array that shares its memory. A file holds every
state under its name, and the dims of the session as metadata; it is checked as a whole before any state is changed.
Requires only ctypes and numpy.
"""

from __future__ import annotations

import array
import json
import math
import os
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from .arguments import DTYPE_CODES, Argument, Array, DTypes, address_of, as_array, refuse
from .files import replacing
from .library import ArgumentError, BusyError, Library, NacreError

_STORED = {name: name.upper().replace("F8E", "F8_E") for name in DTYPE_CODES}
"""The names of dtypes in a safetensors file."""
_MOST_HEADER = 100_000_000
_BUSY = 4


def raise_status(library: Library, status: int) -> None:
    """Raises the exception of a failed access to states."""
    if status:
        raise (BusyError if status == _BUSY else NacreError)(library.error())


def read_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """Returns the texts in a safetensors file. Raises NacreError if it is damaged."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        try:
            assert size <= _MOST_HEADER
            found = json.loads(file.read(size)).get("__metadata__", {})
            return {str(key): str(value) for key, value in found.items()}
        except (AssertionError, AttributeError, RecursionError, ValueError):
            raise NacreError(f"`{os.fspath(path)}` is not a safetensors file") from None


class _Memory:
    """Memory of a session, which numpy imports as bytes. The array keeps this object alive, and so the owner."""

    def __init__(self, owner: object, address: int, size: int) -> None:
        self._owner = owner
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (size,), "data": (address, False)}


class States(MutableMapping[str, Array]):
    """The states of a session by name. `states[name]` is a copy of the array; assigning copies into the session."""

    def __init__(self, owner: object, library: Library, handle: int, dims: Mapping[str, int], dtypes: DTypes) -> None:
        # The owner of the handle must live as long as this object.
        self._owner = owner
        self._library, self._handle, self._dtypes, self._dims = library, handle, dtypes, dict(dims)
        described: Sequence[Mapping[str, Any]] = library.description["session"]["states"]
        self._types = {s["name"]: Argument(s["name"], s["type"], s["dtype"], tuple(s["shape"])) for s in described}
        self._numbers = {name: number for number, name in enumerate(self._types)}

    def __len__(self) -> int:
        return len(self._types)

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    def __repr__(self) -> str:
        return f"<states {', '.join(f'{t.name}: {t.type}' for t in self._types.values())}>"

    def argument(self, name: str) -> Argument:
        """Returns the name, dtype and symbolic shape of a state."""
        return self._types[name]

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a state in this session."""
        rank = len(self._types[name].shape)
        shape = array.array("q", bytes(8 * max(1, rank)))
        call = self._library.functions["state_shape"]
        call(self._handle, self._numbers[name], shape.buffer_info()[0], rank)
        return tuple(shape[:rank])

    def __getitem__(self, name: str) -> Array:
        if name not in self._types:
            raise KeyError(f"there is no state `{name}`; the states are {', '.join(self._types)}")
        result = np.empty(self.shape(name), self._dtypes.of(self._types[name]))
        self._access("state_read", name, result)
        return result

    def __setitem__(self, name: str, value: object) -> None:
        if name not in self._types:
            raise ArgumentError(f"there is no state `{name}`; the states are {', '.join(self._types)}")
        self._access("state_write", name, self._checked(name, value))

    def __delitem__(self, name: str) -> None:
        raise ArgumentError(f"the state `{name}` cannot be deleted; `reset` gives it its initial value")

    def view(self, name: str) -> Array:
        """Returns an array that shares the memory of a state, without a copy. Assigning to its elements changes the
        state; calls and `reset` change the array. It keeps the memory of the session alive. It takes no lock: do not
        use it while a call on the session runs in another thread. Raises NacreError if a GPU computes."""
        data = self._library.functions.get("state_data")
        if data is None:
            raise NacreError("the artifact is older than views of states: compile it again")
        dtype, shape = self._dtypes.of(self._types[name]), self.shape(name)
        address = array.array("Q", [0])
        raise_status(self._library, data(self._handle, self._numbers[name], address.buffer_info()[0]))
        size = math.prod(shape) * dtype.itemsize
        return np.asarray(_Memory(self._owner, address[0], size)).view(dtype).reshape(shape)

    def _checked(self, name: str, value: object) -> Array:
        """Returns the value as a dense array with the dtype and shape of the state."""
        type, shape = self._types[name], self.shape(name)
        if shape == () and isinstance(value, int | float):
            value = as_array(type, value, self._dtypes)
        elif isinstance(value, int | float):
            raise refuse("state", type, f"the number {value}")
        given = as_array(type, value, self._dtypes)
        if given.dtype != self._dtypes.of(type) or given.shape != shape:
            concrete = f"{type.dtype}[{', '.join(map(str, shape))}]" if shape else type.dtype
            raise refuse("state", type, self._dtypes.describe_array(given), concrete)
        return np.ascontiguousarray(given).reshape(shape)

    def _access(self, function: str, name: str, data: Array) -> None:
        call = self._library.functions[function]
        raise_status(self._library, call(self._handle, self._numbers[name], address_of(data), data.nbytes))

    # --- files ---

    def save(self, path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None) -> None:
        """Writes all states, and texts of the caller. The file appears when it is complete, with the permissions of the
        one that it replaces. Raises OSError."""
        arrays = {name: self[name] for name in self}
        header: dict[str, object] = {"__metadata__": {"nacre.dims": json.dumps(self._dims), **(metadata or {})}}
        end = 0
        for name, data in arrays.items():
            stored = _STORED[self._types[name].dtype]
            header[name] = {"dtype": stored, "shape": list(data.shape), "data_offsets": [end, end + data.nbytes]}
            end += data.nbytes
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with replacing(path) as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for data in arrays.values():
                file.write(data.tobytes())

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Reads all states from a file that `save` wrote for a session of the same dims."""
        shown = os.fspath(path)
        with open(path, "rb") as file:
            content = file.read()
        size = int.from_bytes(content[:8], "little")
        try:
            assert len(content) >= 8 and size <= min(_MOST_HEADER, len(content) - 8)
            header = json.loads(content[8 : 8 + size])
            header.pop("__metadata__", None)
            stored = {}
            for name, part in header.items():
                begin, end = map(int, part["data_offsets"])
                stored[name] = part["dtype"], tuple(part["shape"]), begin, end
        except (ArithmeticError, AssertionError, AttributeError, KeyError, RecursionError, TypeError, ValueError):
            raise NacreError(f"`{shown}` is not a safetensors file") from None
        if set(stored) != set(self):
            found, wanted = ", ".join(sorted(stored)) or "none", ", ".join(sorted(self))
            raise NacreError(f"`{shown}` holds the states {found}; the session has {wanted}")
        data = content[8 + size :]
        arrays: dict[str, Array] = {}
        for name, (dtype, shape, begin, end) in stored.items():
            target = np.empty(self.shape(name), self._dtypes.of(self._types[name]))
            wanted = f"{_STORED[self._types[name].dtype]}{list(target.shape)}"
            if f"{dtype}{list(shape)}" != wanted:
                raise NacreError(f"`{shown}` holds {dtype}{list(shape)} for the state `{name}`, expected {wanted}")
            if not 0 <= begin <= end <= len(data) or end - begin != target.nbytes:
                raise NacreError(f"`{shown}` is damaged: the data of `{name}` is not there")
            arrays[name] = np.frombuffer(data[begin:end], target.dtype).reshape(target.shape)
        for name, value in arrays.items():
            self._access("state_write", name, value)
