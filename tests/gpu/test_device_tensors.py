"""Tensors in the memory of a device: nothing is copied, and calls in the caller's stream do not wait."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import numpy.typing as npt
import pytest
from fake_driver import Machine
from nacre.compiler.api import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets
from nacre.runtime.library import ArgumentError

Array = npt.NDArray[Any]
MODEL = """language 1
dim N in 0..64
model add(x: f32[N, 4], y: f32[N, 4]) -> f32[N, 4] { return x + y }
model rows(x: f32[N, 256]) -> f32[N] { return sum(x, axis=1) }
model few(x: f32[2, N], w: f32[N, 24]) -> f32[2, 24] { return x @ w }
model product(x: f16[N, 40], w: f16[40, 24], b: f16[24]) -> f16[N, 24] { return relu(x @ w + b) }
model count(x: f32[N, 4]) -> total: f32[N, 4] {
  state sum: f32[N, 4]
  sum = sum + x
  return sum
}
"""
TYPES = {"f": 2, "i": 0, "u": 1}


class Tensor:
    """A tensor in the memory of the fake device, as another library offers it."""

    def __init__(self, machine: Machine, array: Array, offset: int = 0) -> None:
        self.machine, self.host = machine, np.ascontiguousarray(array)
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(array.nbytes + offset + 1))
        self.base, self.address = pointer.value, pointer.value + offset
        self.copy(to_device=True)

    def call(self, name: str, *arguments: object) -> None:
        library = self.machine.library
        assert library.cuCtxPushCurrent_v2(None) == 0
        assert getattr(library, name)(*arguments) == 0
        assert library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())) == 0

    def copy(self, *, to_device: bool) -> Array:
        device, host = ctypes.c_uint64(self.address), ctypes.c_void_p(self.host.ctypes.data)
        name = "cuMemcpyHtoDAsync_v2" if to_device else "cuMemcpyDtoHAsync_v2"
        arguments = (device, host) if to_device else (host, device)
        if self.host.nbytes:
            self.call(name, *arguments, ctypes.c_size_t(self.host.nbytes), None)
        return self.host

    def release(self) -> None:
        self.call("cuMemFree_v2", ctypes.c_uint64(self.base))


class Interface(Tensor):
    is_fixed = False
    strides: tuple[int, ...] | None = None

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return {
            "shape": self.host.shape,
            "typestr": self.host.dtype.str,
            "data": (self.address, self.is_fixed),
            "strides": self.strides,
            "version": 3,
        }


class Exchanged(Tensor):
    """Offers DLPack alone."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, stream: object = None) -> object:
        rank = self.host.ndim
        self.shape = (ctypes.c_int64 * rank)(*self.host.shape)
        words = np.zeros(8, np.int64)
        words[0], words[1] = self.address, 2
        words[2:3].view(np.int32)[0] = rank
        kind = TYPES[self.host.dtype.kind] | self.host.dtype.itemsize * 8 << 8 | 1 << 16
        words[2:3].view(np.int32)[1] = kind
        words[3] = ctypes.addressof(self.shape)
        self.words = words
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return make(words.ctypes.data, b"dltensor", None)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("device") / "model.so"
    Build(read_model(MODEL), Options(targets=parse_targets("native,cuda"))).run(path)
    return path


@pytest.fixture
def model(machine: Machine, artifact: Path) -> Iterator[nacre.Model]:
    yield nacre.load(artifact, device="cuda")
    assert not machine.error


def numbers(seed: int, rows: int = 5) -> Array:
    return np.random.default_rng(seed).normal(size=(rows, 4)).astype(np.float32)


@pytest.mark.parametrize("kind", [Interface, Exchanged])
@pytest.mark.parametrize("rows", [5, 1, 0])
def test_nothing_is_copied(machine: Machine, model: nacre.Model, kind: type[Tensor], rows: int) -> None:
    x, y, out = (kind(machine, numbers(seed, rows)) for seed in range(3))
    begin = len(machine.log)
    result = model.entries["add"](x, y, out=out)
    assert not [line for line in machine.log[begin:] if line.startswith("cuMemcpy")]
    assert result is out
    np.testing.assert_array_equal(out.copy(to_device=False), x.host + y.host)
    for tensor in (x, y, out):
        tensor.release()


def test_the_driver_is_asked_about_the_tensors_of_a_call_alone(machine: Machine, model: nacre.Model) -> None:
    x, y, out = (Interface(machine, numbers(seed)) for seed in range(3))
    words = numbers(4), numbers(5)
    for arguments, result, asked in (((x, y), out, 6), ((words[0], y), out, 5), ((x, words[1]), None, 4)):
        begin = machine.log.count("cuPointerGetAttribute")
        model.entries["add"](*arguments, out=result)
        # Where it is, and for what it knows also on which device.
        assert machine.log.count("cuPointerGetAttribute") - begin == asked
    for tensor in (x, y, out):
        tensor.release()


def test_tensors_of_both_memories(machine: Machine, model: nacre.Model) -> None:
    """One argument of the host, results on the host, and a tensor at an odd multiple of its elements' size."""
    x, y = numbers(1), Interface(machine, numbers(2), offset=4)
    np.testing.assert_array_equal(model.entries["add"](x, y), x + y.host)
    out = Interface(machine, numbers(3))
    model.entries["add"](y, x, out=out)
    np.testing.assert_array_equal(out.copy(to_device=False), x + y.host)
    y.release()
    out.release()


def test_rows_that_are_not_aligned(machine: Machine, model: nacre.Model) -> None:
    """They are read by single elements, and have the same sums bit by bit."""
    x = np.random.default_rng(1).normal(size=(5, 256)).astype(np.float32)
    expected = np.asarray(model.entries["rows"](x))
    np.testing.assert_allclose(expected, x.astype(np.float64).sum(1), atol=2e-5)
    for offset in (4, 8):
        tensor = Interface(machine, x, offset=offset)
        assert np.asarray(model.entries["rows"](tensor)).tobytes() == expected.tobytes()
        tensor.release()


def test_matrix_that_is_not_aligned(machine: Machine, model: nacre.Model) -> None:
    rng = np.random.default_rng(2)
    x, w = (rng.normal(size=size).astype(np.float32) for size in ((2, 37), (37, 24)))
    expected = np.asarray(model.entries["few"](x, w))
    np.testing.assert_allclose(expected, x.astype(np.float64) @ w, atol=1e-5)
    tensor = Interface(machine, w, offset=4)
    assert np.asarray(model.entries["few"](x, tensor)).tobytes() == expected.tobytes()
    tensor.release()


def test_call_in_a_stream_of_the_caller(machine: Machine, model: nacre.Model) -> None:
    x, y, out = (Interface(machine, numbers(seed)) for seed in range(3))

    def waits() -> int:
        begin = machine.log.count("cuStreamSynchronize")
        model.entries["add"](x, y, out=out)
        return machine.log.count("cuStreamSynchronize") - begin

    model.entries["add"](x, y, out=out)
    assert waits() == 1
    model.use_stream(1)
    assert waits() == 0
    begin = machine.log.count("cuStreamSynchronize")
    np.testing.assert_array_equal(model.entries["add"](x, y), x.host + y.host)
    assert machine.log.count("cuStreamSynchronize") > begin
    model.use_stream(None)
    assert waits() == 1
    for tensor in (x, y, out):
        tensor.release()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"strides": (32, 8)},
            "argument `x`: expected f32.N, 4., got a tensor on a GPU that is not dense and row-major",
        ),
        ({"other": 1}, "`x` is in the memory of the device `cuda:1`, the session computes on `cuda:0`"),
    ],
)
def test_tensor_that_is_refused(machine: Machine, model: nacre.Model, change: dict[str, Any], message: str) -> None:
    x = Interface(machine, numbers(1))
    x.strides = change.get("strides")
    machine.library.fake_owner(change.get("other", 0))
    with pytest.raises(nacre.NacreError, match=message):
        model.entries["add"](x, numbers(2))
    machine.library.fake_owner(0)
    x.release()


@pytest.mark.parametrize("kind", [Interface, Exchanged])
def test_tensor_of_another_dtype_is_refused(machine: Machine, model: nacre.Model, kind: type[Tensor]) -> None:
    for dtype, name in ((np.float64, "f64"), (np.int32, "i32"), (np.float16, "f16")):
        x = kind(machine, numbers(1).astype(dtype))
        with pytest.raises(ArgumentError, match=rf"argument `x`: expected f32\[N, 4\], got {name}\[5, 4\]"):
            model.entries["add"](x, numbers(2))
        x.release()


def test_result_that_is_not_aligned_to_pairs(machine: Machine, model: nacre.Model) -> None:
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=shape).astype(np.float16) for shape in ((37, 40), (40, 24), (24,))]
    expected = np.asarray(model.entries["product"](*arrays))
    assert np.count_nonzero(expected) > expected.size / 4
    for offset in (0, 2, 4):
        out = Interface(machine, np.full((37, 24), -1, np.float16), offset=offset)
        model.entries["product"](*arrays, out=out)
        assert out.copy(to_device=False).tobytes() == expected.tobytes(), offset
        out.release()


def test_result_that_must_not_be_written(machine: Machine, model: nacre.Model) -> None:
    x = Interface(machine, numbers(1))
    x.is_fixed = True
    with pytest.raises(ArgumentError, match="not writeable"):
        model.entries["add"](numbers(1), numbers(2), out=x)
    x.release()


def test_cpu_takes_no_tensor_of_a_device(machine: Machine, artifact: Path) -> None:
    model = nacre.load(artifact, device="cpu")
    assert model.device == "cpu"
    x = Interface(machine, numbers(1))
    with pytest.raises(ArgumentError, match="a tensor on a GPU, but the CPU computes"):
        model.entries["add"](x, x)
    with pytest.raises(nacre.NacreError, match="the CPU, which has no streams"):
        model.use_stream(1)
    x.release()


def test_states_stay_on_the_device(machine: Machine, model: nacre.Model) -> None:
    assert model.device == "cuda:0"
    session = model.session(N=5)
    x, out = Interface(machine, numbers(1)), Interface(machine, numbers(2))
    count = session.entries["count"]
    count(x, out=out)
    begin = len(machine.log)
    count(x, out=out)
    # The state is copied to the result, within the device.
    assert [line for line in machine.log[begin:] if line.startswith("cuMemcpy")] == ["cuMemcpyDtoDAsync"]
    np.testing.assert_array_equal(out.copy(to_device=False), 2 * x.host)
    np.testing.assert_array_equal(session.states["sum"], 2 * x.host)
    with pytest.raises(nacre.NacreError, match="state `sum` is in the memory of GPU 0: it can only be copied"):
        session.states.view("sum")
    session.states["sum"] = 10 * x.host
    other = session.fork()
    begin = len(machine.log)
    count(x, out=out)
    # A write moves the state to the device with the next call. A fork reads it, and leaves that copy alone.
    assert [line for line in machine.log[begin:] if line.startswith("cuMemcpyHtoD")] == ["cuMemcpyHtoDAsync"]
    np.testing.assert_array_equal(out.copy(to_device=False), 10 * x.host + x.host)
    begin = len(machine.log)
    session.fork()
    count(x, out=out)
    assert [line for line in machine.log[begin:] if line.startswith("cuMemcpyHtoD")] == []
    np.testing.assert_array_equal(other.entries["count"](x), 10 * x.host + x.host)
    session.reset()
    np.testing.assert_array_equal(count(x), x.host)
    np.testing.assert_array_equal(other.states["sum"], 10 * x.host + x.host)
    x.release()
    out.release()
