"""Loads artifacts and calls them with numpy arrays. Requires only ctypes and numpy.

`load("model.so")` returns a model; `model(x, mask)` calls its entry. The other data of a call (dims, result shapes,
workspace size) are computed once for each combination of input types and cached: a later call costs a lookup.
"""

from __future__ import annotations

import array
import collections
import ctypes
import errno
import html
import inspect
import json
import os
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from .arguments import (
    ALIGNMENT,
    Argument,
    Array,
    DTypes,
    ResultPlan,
    Tensor,
    address_of,
    as_array,
    as_output,
    as_torch,
    check_out,
    dense,
    empty_aligned,
    fill_tensor,
    import_torch,
    order_named,
    order_out,
    refuse,
    take_out,
)
from .device_arrays import DeviceArray
from .library import (
    ArgumentError,
    ArtifactError,
    BusyError,
    Library,
    MissingFileError,
    NacreError,
    OutOfRangeError,
    open_library,
)
from .states import States, raise_status

__all__ = [
    "ArgumentError",
    "ArtifactError",
    "BusyError",
    "Entry",
    "MissingFileError",
    "Model",
    "NacreError",
    "OutOfRangeError",
    "Session",
    "load",
]

_MOST_PLANS = 256
_INPUTS = 7
"""The index of the word at which the input pointers begin in a frame: after the words of `nacre_call`."""
_FAILURES = {4: BusyError, 6: OutOfRangeError}
"""The exceptions of failed calls, by status, besides the general one."""
_LARGE = 4096
"""The least bytes of a result that is worth aligning."""


class _Options(ctypes.Structure):
    _fields_ = (
        ("bytes", ctypes.c_uint32),
        ("threads", ctypes.c_uint32),
        ("weights", ctypes.c_char_p),
        ("huge_pages", ctypes.c_uint32),
        ("dim_count", ctypes.c_uint32),
        ("dims", ctypes.c_void_p),
        ("device", ctypes.c_char_p),
        ("no_graphs", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    )


class _Frame:
    """The memory of one call in progress: a `nacre_call`, its pointers, and a workspace."""

    __slots__ = ("address", "capacity", "outputs", "words", "workspace")

    def __init__(self, session: int, most_inputs: int, most_outputs: int) -> None:
        self.outputs = _INPUTS + most_inputs
        self.words = array.array("Q", bytes(8 * (_INPUTS + most_inputs + most_outputs)))
        self.address = self.words.buffer_info()[0]
        self.words[0] = session
        self.words[2] = self.address + 8 * _INPUTS
        self.words[3] = self.address + 8 * self.outputs
        self.capacity = 0
        self.workspace: Array | None = None

    def grow(self, size: int) -> None:
        # The old workspace is freed first, so that the two never exist together.
        self.workspace, self.capacity = None, 0
        try:
            workspace = np.empty(size + ALIGNMENT, np.uint8)
        except MemoryError:
            raise NacreError(f"the workspace of a call takes {size:,} bytes, which cannot be allocated") from None
        start = address_of(workspace)
        self.words[5] = start + -start % ALIGNMENT
        self.words[6] = self.capacity = size
        self.workspace = workspace


_Settings = tuple[str | None, int, bool, str | None, bool]
"""The file of the weights, the number of threads, whether huge pages are used, the device, and whether it has
graphs."""


class _Session:
    """A session of a library, and the frames that no call is using.

    A call takes a frame out and puts it back: appending to and popping from a list need no lock, and after a fork the
    child has whole frames. The number of frames is the largest number of simultaneous calls so far. With `dims`, the
    session has states; with `source`, those of another session. It is created at once, or `later`, at its first use.
    """

    def __init__(
        self,
        library: Library,
        settings: _Settings,
        dims: Mapping[str, int] | None = None,
        source: int = 0,
        *,
        later: bool = False,
    ) -> None:
        self.library, self.settings, self.dims = library, settings, dims
        self._source = source
        if not later:
            _ = self.handle
        entries = library.description["entries"]
        self.most_inputs = max(len(e["arguments"]) for e in entries)
        self.most_outputs = max(len(e["results"]) for e in entries)
        self.frames: list[_Frame] = []
        self.observer: object = None
        """The objects that `observe.py` has handed out, kept alive for calls that still report to them."""

    @cached_property
    def handle(self) -> int:
        """The session of the library."""
        library, dims, source = self.library, self.dims, self._source
        weights, threads, huge_pages, device, graphs = self.settings
        file = os.fsencode(weights) if weights is not None else None
        name = device.encode() if device is not None else None
        values = array.array("q", [*(dims or {}).values(), 0])
        addresses = (0, None) if dims is None else (len(dims), values.buffer_info()[0])
        options = _Options(ctypes.sizeof(_Options), threads, file, huge_pages, *addresses, name, not graphs)
        handle = ctypes.c_void_p()
        functions = library.functions
        given, made = ctypes.addressof(options), ctypes.addressof(handle)
        if source:
            raise_status(library, functions["session_fork"](source, given, made))
        elif functions["session_create"](given, made):
            raise (ArtifactError if dims is None else ArgumentError)(library.error())
        weakref.finalize(self, functions["session_destroy"], handle.value or 0).atexit = False
        return handle.value or 0

    @property
    def device(self) -> int:
        """The number of the GPU that computes, or -1: the CPU."""
        find = self.library.functions.get("session_device")
        return -1 if find is None else find(self.handle)

    def use_stream(self, stream: int | None) -> None:
        choose = self.library.functions.get("session_stream")
        if choose is None or choose(self.handle, stream):
            raise NacreError(self.library.error() if choose else "the artifact is older than streams")

    def new_frame(self) -> _Frame:
        return _Frame(self.handle, self.most_inputs, self.most_outputs)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The cached data of calls with inputs of certain types. `sizes` are their bytes, `mask` the strictest alignment of
    an input less one."""

    dims: array.array[int]
    dims_address: int
    sizes: tuple[int, ...]
    mask: int
    workspace: int
    results: tuple[ResultPlan, ...]


def _arguments(description: Sequence[Mapping[str, object]]) -> tuple[Argument, ...]:
    return tuple(Argument(**{**a, "shape": tuple(a["shape"])}) for a in description)  # type: ignore[arg-type]  # JSON


class Entry:
    """A callable of a model. Inputs are passed by position or by name; `out` takes arrays for the results."""

    def __init__(self, path: str, session: _Session, index: int, dtypes: DTypes) -> None:
        description = session.library.description["entries"][index]
        self.name: str = description["name"]
        self.doc: str = description["doc"]
        self.arguments = _arguments(description["arguments"])
        self.results = _arguments(description["results"])
        self.dims: tuple[str, ...] = tuple(d["name"] for d in description["dims"])
        self.states: tuple[str, ...] = ()
        """The names of the states that the entry uses."""
        if "states" in description:
            names = [s["name"] for s in session.library.description["session"]["states"]]
            self.states = tuple(names[number] for number in description["states"])
        self._path = path
        self._session = session
        self._index = index
        self._call = session.library.functions["call"]
        self._frames = session.frames
        self._dtypes = dtypes
        self._plans: dict[tuple[object, ...], _Plan] = {}
        names = [r.name for r in self.results]
        self._record = collections.namedtuple("Results", names, rename=True) if len(names) != 1 else None

    def __repr__(self) -> str:
        arguments = ", ".join(f"{a.name}: {a.type}" for a in self.arguments)
        results = ", ".join(f"{r.name}: {r.type}" for r in self.results)
        return f"{self.name}({arguments}) -> {results if len(self.results) == 1 else f'({results})'}"

    def _repr_html_(self) -> str:
        """The arguments and results as a table, for notebooks."""
        roles = (("argument", self.arguments), ("result", self.results))
        return _table(f"entry {self.name}", [f"{role} {x.name}: {x.type}" for role, tensors in roles for x in tensors])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the model of the entry, by its path and hash, and the name of the entry."""
        if self._session.dims is not None:
            raise TypeError("an entry of a session cannot be pickled: the session has states of its own")
        return _reload_entry, (*_pickled(self._path, self._session, self._dtypes), self.name)

    @property
    def __signature__(self) -> inspect.Signature:
        """The arguments by name, with their types as text."""
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [inspect.Parameter(a.name, kind, annotation=a.type) for a in self.arguments]
        out = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None)
        types = [r.type for r in self.results]
        returned = types[0] if len(types) == 1 else f"({', '.join(types)})"
        return inspect.Signature([*parameters, out], return_annotation=returned)

    # Only the artifact knows the type of a call's results, hence Any.
    def __call__(self, *inputs: object, out: object = None, **named: object) -> Any:
        """Runs the entry. Returns the result as an array, or several results as a named tuple of arrays. With `out`,
        an array or a sequence of arrays, the results are written to these arrays, and they are returned.

        Raises NacreError. It is also a ValueError if the number, the dtypes or the shapes of the inputs do not fit the
        entry, and an IndexError for an index out of range.
        """
        if named:
            inputs = order_named(self.name, self.arguments, inputs, named)
        arrays: Sequence[Array] = inputs  # type: ignore[assignment]  # the types of a cached key are those of arrays
        key: tuple[object, ...] = ()
        try:
            for x in arrays:
                key += (type(x), x.dtype, x.shape, x.strides)
            plan = self._plans.get(key)
        except (AttributeError, TypeError):
            plan = None
        if plan is None:
            arrays, plan = self._prepare(inputs)
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = self._session.new_frame()
        words = frame.words
        joined = 0
        for position, x in enumerate(arrays, _INPUTS):
            words[position] = address = address_of(x)
            joined |= address
        if joined & plan.mask:
            self._check_alignment(arrays)
        position = frame.outputs
        results: Sequence[Array]
        copies: Sequence[tuple[Array, Array]] = ()
        if out is None:
            results = made = []
            try:
                for shape, dtype, size in plan.results:
                    x = np.empty(shape, dtype) if size < _LARGE else empty_aligned(shape, dtype, size)
                    words[position] = address_of(x)
                    position += 1
                    made.append(x)
            except MemoryError:
                self._frames.append(frame)
                raise self._out_of_memory(plan, len(made)) from None
        else:
            taken = [(words[i], size) for i, size in enumerate(plan.sizes, _INPUTS)]
            results = take_out(out, plan.results, taken) or ()
            if not results:
                results, copies = self._check_out(out, plan, arrays)
            for x in results:
                words[position] = address_of(x)
                position += 1
        if plan.workspace > frame.capacity:
            frame.grow(plan.workspace)
        words[1] = self._index
        words[4] = plan.dims_address
        status = self._call(frame.address)
        self._frames.append(frame)
        if status:
            raise _FAILURES.get(status, NacreError)(self._session.library.error())
        for view, computed in copies:
            view[...] = computed
        if out is not None:
            results = order_out(self.name, self.results, out)  # type: ignore[assignment]  # tensors of other libraries
        elif self._dtypes.in_torch:
            results = [as_torch(result, x) for result, x in zip(self.results, results, strict=True)]
        return results[0] if self._record is None else self._record(*results)

    def _out_of_memory(self, plan: _Plan, number: int) -> NacreError:
        shape, dtype, size = plan.results[number]
        name = self.results[number].name
        return NacreError(f"result `{name}` takes {size:,} bytes, {dtype}{list(shape)}, which cannot be allocated")

    def _check_alignment(self, arrays: Sequence[Array]) -> None:
        for argument, x in zip(self.arguments, arrays, strict=True):
            if x.size and address_of(x) % x.itemsize:
                raise refuse("argument", argument, f"an array whose data is not aligned to {x.itemsize} bytes")

    def bind(self, *inputs: object) -> dict[str, int]:
        """Returns the values of the dims for a call with these inputs. Computes nothing."""
        _, plan = self._prepare(inputs)
        return dict(zip(self.dims, plan.dims, strict=False))

    def workspace_bytes(self, **dims: int) -> int:
        """Returns the bytes that a call with these dims needs besides its arrays and the weights."""
        if self.states and self._session.dims is not None:
            dims = {name: size for name, size in self._session.dims.items() if name in self.dims} | dims
        if set(dims) != set(self.dims):
            raise ArgumentError(f"entry `{self.name}` has the dims ({', '.join(self.dims)}), got ({', '.join(dims)})")
        values = array.array("q", [dims[name] for name in self.dims] or [0])
        library = self._session.library
        size = library.functions["workspace_bytes"](self._index, values.buffer_info()[0])
        if size < 0:
            raise ArgumentError(library.error())
        return size

    def _prepare(self, inputs: Sequence[object]) -> tuple[Sequence[Array], _Plan]:
        """Checks inputs of new types, and caches the results."""
        if len(inputs) != len(self.arguments):
            names = ", ".join(a.name for a in self.arguments)
            count = f"{len(self.arguments)} argument{'s' * (len(self.arguments) != 1)}"
            raise ArgumentError(f"entry `{self.name}` takes {count} ({names}), got {len(inputs)}")
        arrays = [dense(as_array(a, x, self._dtypes)) for a, x in zip(self.arguments, inputs, strict=True)]
        self._check_devices(self.arguments, arrays, "argument")
        key = tuple(part for x in arrays for part in (type(x), x.dtype, x.shape, x.strides))
        plan = self._plans.get(key)
        if plan is None:
            plan = self._make_plan(arrays)
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[key] = plan
        return arrays, plan

    def _check_devices(self, tensors: Sequence[Argument], arrays: Sequence[object], role: str) -> None:
        """Raises ArgumentError for a tensor on a GPU, if the session computes on the CPU."""
        for tensor, x in zip(tensors, arrays, strict=True):
            if isinstance(x, DeviceArray) and self._session.device < 0:
                raise refuse(role, tensor, "a tensor on a GPU, but the CPU computes: load the artifact with `device`")

    def _make_plan(self, arrays: Sequence[Array]) -> _Plan:
        library = self._session.library
        tensors = (Tensor * max(1, len(arrays)))()
        kept: list[array.array[int]] = []
        for argument, x, tensor in zip(self.arguments, arrays, tensors, strict=False):
            shape = array.array("q", x.shape)
            strides = array.array("q", [s // x.itemsize for s in x.strides])
            kept += shape, strides
            dense = x.flags.c_contiguous
            addresses = shape.buffer_info()[0], 0 if dense else strides.buffer_info()[0]
            fill_tensor(tensor, argument, x, self._dtypes, *addresses)
        dims = array.array("q", bytes(8 * max(1, len(self.dims))))
        address = dims.buffer_info()[0]
        given = self._index, ctypes.addressof(tensors), len(arrays), address
        if self.states:
            if self._session.dims is None:
                raise ArgumentError(f"entry `{self.name}` has states: call it on a session, see `model.session`")
            failed = library.functions["session_bind"](self._session.handle, *given)
        else:
            failed = library.functions["bind"](*given)
        if failed:
            raise ArgumentError(library.error())
        mask = max((x.itemsize for x in arrays), default=1) - 1
        results = tuple(self._plan_result(i, address) for i in range(len(self.results)))
        workspace = library.functions["workspace_bytes"](self._index, address)
        return _Plan(dims, address, tuple(x.nbytes for x in arrays), mask, workspace, results)

    def _plan_result(self, index: int, dims: int) -> ResultPlan:
        rank = len(self.results[index].shape)
        shape = array.array("q", bytes(8 * max(1, rank)))
        functions = self._session.library.functions
        functions["result_shape"](self._index, index, dims, shape.buffer_info()[0], rank)
        dtype = self._dtypes.of(self.results[index])
        size = dtype.itemsize
        for n in shape[:rank]:
            size *= n
        return tuple(shape[:rank]), dtype, size

    def _check_out(
        self, out: object, plan: _Plan, inputs: Sequence[Array]
    ) -> tuple[list[Array], list[tuple[Array, Array]]]:
        """Returns a dense array for each result, and the views into which such arrays are copied after the call."""
        ordered = order_out(self.name, self.results, out)
        given = [as_output(r, x, self._dtypes) for r, x in zip(self.results, ordered, strict=True)]
        self._check_devices(self.results, given, "result")
        others = {f"argument `{a.name}`": x for a, x in zip(self.arguments, inputs, strict=True)}
        made: list[Array] = []
        copies: list[tuple[Array, Array]] = []
        for result, x, expected in zip(self.results, given, plan.results, strict=True):
            checked = check_out(result, expected, x, others, self._dtypes)
            others[f"result `{result.name}`"] = checked
            if checked.flags.carray:
                made.append(checked)
            else:
                made.append(empty_aligned(*expected))
                copies.append((checked, made[-1]))
        return made, copies


def _device_name(session: _Session) -> str:
    return "cpu" if session.device < 0 else f"cuda:{session.device}"


class _Entries(dict[str, Entry]):
    """Entries by name; the error for another name lists them."""

    def __missing__(self, name: str) -> Entry:
        raise KeyError(f"there is no entry `{name}`; the entries are {', '.join(self)}")


class Model:
    """A loaded artifact. Calling it calls its only entry, or the one named `main`."""

    def __init__(self, path: str, session: _Session, dtypes: DTypes) -> None:
        library = session.library
        self._session = session
        self._dtypes = dtypes
        self.path = path
        self.name: str = library.description["name"]
        self._text = library.text
        entries = [Entry(path, session, i, dtypes) for i in range(len(library.description["entries"]))]
        self.entries: Mapping[str, Entry] = MappingProxyType(_Entries({e.name: e for e in entries}))
        self.main = self.entries.get("main", entries[0] if len(entries) == 1 else None)
        """The entry that a call of the model runs, or None: the one named `main`, or the only one."""

    def __repr__(self) -> str:
        return "\n".join([f"<nacre model {self.name}>", *(f"  {entry!r}" for entry in self.entries.values())])

    def __getattr__(self, name: str) -> Entry:
        """Returns the entry of this name, `model.step(x)`, unless the model has an attribute of the name."""
        entries: Mapping[str, Entry] = self.__dict__.get("entries", {})
        if name not in entries:
            raise AttributeError(f"model `{self.__dict__.get('name', '')}` has no attribute and no entry `{name}`")
        return entries[name]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.entries})

    def _repr_html_(self) -> str:
        """The entries as a table, for notebooks."""
        return _table(f"nacre model {self.name}", map(repr, self.entries.values()))

    @property
    def __signature__(self) -> inspect.Signature:
        """The one of the entry that a call of the model runs."""
        if self.main is None:
            return inspect.Signature()
        return self.main.__signature__

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the path of the artifact and its hash, not its content."""
        return _reload, _pickled(self.path, self._session, self._dtypes)

    def describe(self) -> dict[str, Any]:
        """Returns the artifact's description: entries, shapes, weights, target, hashes."""
        description: dict[str, Any] = json.loads(self._text)
        return description

    @property
    def device(self) -> str:
        """The device that computes: `cpu`, or `cuda:0` and the like."""
        return _device_name(self._session)

    def use_stream(self, stream: int | None) -> None:
        """Runs calls in a CUDA stream of the caller, given by its handle; None selects the stream of the model again.
        In a stream of the caller, a call whose tensors are all on the device returns before its results are complete.
        """
        self._session.use_stream(stream)

    def session(self, **dims: int) -> Session:
        """Returns a new session, whose states have their initial values. `dims` gives a size to each dim that occurs in
        a state; `describe()["session"]["dims"]` lists them."""
        library = self._session.library
        if "session" not in library.description:
            raise ArgumentError(f"model `{self.name}` has no states, and needs no session")
        sizes = self._session_sizes(dims)
        return Session(self.path, _Session(library, self._session.settings, sizes), self._dtypes)

    def session_bytes(self, **dims: int) -> int:
        """Returns the size in bytes of the states of a session with these dims; 0 for a model without states."""
        library = self._session.library
        if "session" not in library.description:
            return 0
        values = array.array("q", [*self._session_sizes(dims).values(), 0])
        size = library.functions["session_bytes"](values.buffer_info()[0], len(dims))
        if size < 0:
            raise ArgumentError(library.error())
        return size

    def _session_sizes(self, given: Mapping[str, int]) -> dict[str, int]:
        """Returns the dims that a session binds, in its order. They must be those given."""
        wanted = [d["name"] for d in self._session.library.description["session"]["dims"]]
        if set(given) != set(wanted):
            raise ArgumentError(f"a session has the dims ({', '.join(wanted)}), got ({', '.join(given)})")
        for name, size in given.items():
            if not isinstance(size, int | np.integer) or isinstance(size, bool) or abs(size) >> 63:
                raise ArgumentError(f"dim `{name}` is {size!r}, not a size")
        return {name: int(given[name]) for name in wanted}

    def __call__(self, *inputs: object, out: object = None, **named: object) -> Any:
        """Calls the only entry, or the one named `main`. Inputs are passed by position or by name, as arrays, as
        tensors of a library with DLPack, or as numbers for scalars. One result is returned as an array, several as a
        named tuple. `out` takes an array or a tensor for each result, a tuple, or a mapping by name, which is filled
        and returned."""
        if self.main is None:
            names = ", ".join(f"`{name}`" for name in self.entries)
            raise NacreError(f"model `{self.name}` has the entries {names}; call one: model.entries[name](...)")
        return self.main(*inputs, out=out, **named)


class Session(Model):
    """A model with its own states. It serves one call at a time: a concurrent call raises BusyError."""

    def __init__(self, path: str, session: _Session, dtypes: DTypes) -> None:
        super().__init__(path, session, dtypes)
        assert session.dims is not None
        self.dims: Mapping[str, int] = MappingProxyType(dict(session.dims))
        self.states = States(session, session.library, session.handle, self.dims, dtypes)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a session cannot be pickled: `save` writes its states, and `fork` copies it")

    def __deepcopy__(self, memo: object) -> Session:
        return self.fork()

    def reset(self, *names: str) -> None:
        """Sets the named states to their initial values, or all states if no name is given."""
        library = self._session.library
        numbers = {name: number for number, name in enumerate(self.states)}
        for name in names:
            if name not in numbers:
                raise ArgumentError(f"there is no state `{name}`; the states are {', '.join(numbers)}")
        for number in [numbers[name] for name in names] or [-1]:
            raise_status(library, library.functions["state_reset"](self._session.handle, number))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes all states to a safetensors file, one tensor for each state."""
        self.states.save(path)

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Reads the states from a file that `save` wrote for the same model and dims."""
        self.states.restore(path)

    def with_results(self, results: Literal["numpy", "torch"]) -> Session:
        """Returns this session, with the same states, whose calls return arrays of numpy or tensors of PyTorch."""
        return Session(self.path, self._session, _result_dtypes(results, self._dtypes.raw_floats))

    def fork(self) -> Session:
        """Returns a new session with the same dims and with copies of the states."""
        made = _Session(self._session.library, self._session.settings, self._session.dims, self._session.handle)
        return Session(self.path, made, self._dtypes)


def load(
    path: str | os.PathLike[str],
    *,
    weights: str | os.PathLike[str] | None = None,
    threads: int = 0,
    huge_pages: bool = False,
    raw_floats: bool = False,
    device: str | None = None,
    graphs: bool = True,
    results: Literal["numpy", "torch"] = "numpy",
) -> Model:
    """Loads an artifact.

    weights: path of external weights that are not beside the artifact.
    threads: maximum number of threads of a call; 0 for `$NACRE_THREADS`, else one thread per CPU. The results are
        bitwise identical for any number.
    huge_pages: copies the weights to huge pages (2 MiB), which is faster if a call reads more weights than the caches
        hold.
    device: `cpu`, a GPU such as `cuda:0`, or `auto`: a GPU that the artifact has code for, else the CPU. The default is
        `$NACRE_DEVICE`, else `auto`.
    graphs: on a GPU, launches repeated calls as CUDA graphs instead of kernel by kernel.
    raw_floats: represents bf16 and 8-bit floats by their bits, as uint16 and uint8, instead of by dtypes of the package
        `ml_dtypes`.
    results: `numpy`, or `torch` for results that are PyTorch tensors, in every dtype.

    Raises NacreError, for example if the file is not an artifact for this machine. It is also a FileNotFoundError if
    there is no file at `path`, and a ValueError for an invalid argument.
    """
    dtypes = _result_dtypes(results, raw_floats)
    if not os.path.exists(path):
        raise MissingFileError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
    if threads < 0:
        raise ArgumentError(f"threads must be at least 0, not {threads}")
    path = os.fspath(path)
    file = os.fspath(weights) if weights is not None else None
    library = open_library(path)
    if file is None and library.description["weights"]["placement"] == "external":
        file = f"{os.path.abspath(path)}.safetensors"
    return Model(path, _Session(library, (file, threads, huge_pages, device, graphs)), dtypes)


def _result_dtypes(results: str, raw_floats: bool) -> DTypes:
    """Raises ArgumentError for another kind of results, and for PyTorch that is not installed."""
    if results not in ("numpy", "torch"):
        raise ArgumentError(f"results are `numpy` or `torch`, not `{results}`")
    if results == "torch":
        import_torch()
    return DTypes(raw_floats, results == "torch")


def load_later(path: str | os.PathLike[str], threads: int = 0) -> Model:
    """Loads an artifact with embedded weights whose session is created at the first call: one for a GPU that is not at
    hand can be described, and only a call fails."""
    session = _Session(open_library(os.fspath(path)), (None, threads, False, None, True), later=True)
    return Model(os.fspath(path), session, DTypes(False, False))


def _pickled(path: str, session: _Session, dtypes: DTypes) -> tuple[str, str, _Settings, tuple[bool, bool]]:
    """Returns the arguments with which `_reload` loads the model again."""
    weights, *others = session.settings
    file = None if weights is None else os.path.abspath(weights)
    settings: Any = (file, *others)
    return os.path.abspath(path), session.library.description["hash"], settings, (dtypes.raw_floats, dtypes.in_torch)


def _reload_entry(path: str, digest: str, settings: _Settings, dtypes: tuple[bool, bool], name: str) -> Entry:
    return _reload(path, digest, settings, dtypes).entries[name]


def _table(title: str, rows: Iterable[str]) -> str:
    lines = "".join(f"<tr><td>{html.escape(row)}</td></tr>" for row in rows)
    return f"<table><tr><th>{html.escape(title)}</th></tr>{lines}</table>"


def _reload(path: str, digest: str, settings: _Settings, dtypes: tuple[bool, bool]) -> Model:
    """Loads the artifact of a pickled model. Raises ArtifactError if the file has changed since."""
    weights, threads, huge_pages, device, graphs = settings
    raw_floats, in_torch = dtypes
    model = load(
        path,
        weights=weights,
        threads=threads,
        huge_pages=huge_pages,
        raw_floats=raw_floats,
        device=device,
        graphs=graphs,
        results="torch" if in_torch else "numpy",
    )
    if model.describe()["hash"] != digest:
        raise ArtifactError(f"`{path}` is not the artifact that was pickled: its hash differs")
    return model
