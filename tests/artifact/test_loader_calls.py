"""Calls of artifacts from Python: what is taken, what comes back, many at once."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import nacre
import numpy as np
import numpy.typing as npt
import pytest
from at_once import at_once, is_soon
from c_models import TABLE, build, zoo
from nacre.runtime import arguments
from nacre.runtime.arguments import Array, address_of
from nacre.runtime.loader import ArgumentError, Entry, Model, NacreError, load

Floats = npt.NDArray[np.float32]


def ramp(*shape: int) -> Floats:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize("shape", [(1, 0), (1, 1), (3, 5), (64, 512)])
def test_dims_are_bound_by_each_call(model: Model, shape: tuple[int, int]) -> None:
    x = ramp(*shape)
    result = model.entries["add"](x, x)
    assert result.dtype == np.float32 and result.shape == shape
    assert np.array_equal(result, x + x)


def test_only_odd_addresses_are_looked_at_again(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of whole elements cost no check of each argument."""
    seen: list[int] = []
    check = Entry._check_alignment

    def look(self: Entry, arrays: list[Array]) -> None:
        seen.append(len(arrays))
        check(self, arrays)

    monkeypatch.setattr(Entry, "_check_alignment", look)
    room, add = np.zeros(1 << 8, np.uint8), model.entries["add"]
    start = -room.ctypes.data % 16
    for offset in (0, 4, 8, 12):
        add(room[start + offset :][:24].view(np.float32).reshape(2, 3), ramp(2, 3))
    assert seen == []
    for offset in (2, 1, 7):
        with pytest.raises(ArgumentError, match="not aligned"):
            add(room[start + offset :][:24].view(np.float32).reshape(2, 3), ramp(2, 3))
    assert seen == [2, 2, 2]


def test_weights_are_read(model: Model) -> None:
    ids = np.array([[4, 0, 2]])
    assert np.array_equal(model.entries["embed"](ids), TABLE[ids])
    assert model.entries["constant"]() == 7


def test_several_results_are_a_named_tuple(model: Model) -> None:
    head, tail = result = model.entries["split"](ramp(7))
    assert np.array_equal(head, [0, 1, 2]) and np.array_equal(tail, [3, 4, 5, 6])
    assert result.head is head and result.tail is tail


def test_a_dim_that_is_a_factor_of_an_axis(model: Model) -> None:
    assert model.entries["flat"](ramp(6), ramp(2)).shape == (2, 3)


def test_constraints_that_hold(model: Model) -> None:
    assert model.entries["pair"](ramp(6), ramp(3)) == 6003


def test_arguments_by_name(model: Model) -> None:
    add, x, y = model.entries["add"], ramp(1, 2), ramp(1, 2) * 10
    assert np.array_equal(add(x, y=y), x + y)
    assert np.array_equal(add(y=y, x=x), x + y)


@pytest.mark.parametrize(("x", "n", "positive"), [(2, 3, True), (2.0, 3, True), (np.float32(2), np.int64(3), np.True_)])
def test_numbers_are_scalars(model: Model, x: object, n: object, positive: object) -> None:
    result = model.entries["scalar"](x, n, positive)
    assert result == 8 and result.shape == ()
    assert model.entries["scalar"](0.1, 1, False) == -np.float32(0.1)


def test_floats_that_numpy_has_none_of(model: Model, zoo_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.array([1.5, -2], ml_dtypes.bfloat16)
    result = model.entries["half"](x)
    assert result.dtype == ml_dtypes.bfloat16 and np.array_equal(result, x)
    raw = load(zoo_file, raw_floats=True).entries["half"](x.view(np.uint16))
    assert raw.dtype == np.uint16 and np.array_equal(raw, x.view(np.uint16))
    for name, dtype in (("finite", ml_dtypes.float8_e4m3fn), ("upper", ml_dtypes.float8_e5m2)):
        x = np.array([1.5, -2, np.nan], dtype)
        result = model.entries[name](x)
        assert result.dtype == dtype and np.array_equal(result.view(np.uint8), x.view(np.uint8))
        raw = load(zoo_file, raw_floats=True).entries[name](x.view(np.uint8))
        assert raw.dtype == np.uint8 and np.array_equal(raw, x.view(np.uint8))
        with pytest.raises(NacreError, match=r"argument `x`: expected f8e\dm\d\[S\], got f8e"):
            model.entries[name](x.astype(ml_dtypes.float8_e5m2 if name == "finite" else ml_dtypes.float8_e4m3fn))
    x = np.array([1.5, -2], ml_dtypes.bfloat16)
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(NacreError, match=r"`x` is f8e4m3\[S\]: float8_e4m3fn arrays need the package ml_dtypes"):
        load(zoo_file).entries["finite"](x)
    with pytest.raises(NacreError, match=r"`x` is bf16\[S\]: bfloat16 arrays need the package ml_dtypes"):
        load(zoo_file).entries["half"](x)


def test_out_takes_the_results(model: Model) -> None:
    x, out = ramp(2, 3), np.empty((2, 3), np.float32)
    assert model.entries["add"](x, x, out=out) is out
    assert np.array_equal(out, x + x)
    head, tail = np.empty(1, np.float32), np.empty(2, np.float32)
    for given in ((head, tail), [head, tail], {"tail": tail, "head": head}):
        head[:], tail[:] = -1, -1
        result = model.entries["split"](ramp(3), out=given)
        assert result.head is head and result.tail is tail
        assert [*head, *tail] == [0, 1, 2]


class Shared:
    """What another framework hands over: no array, but __dlpack__."""

    def __init__(self, array: Floats) -> None:
        self.array = array

    def __dlpack__(self, **options: object) -> object:
        return self.array.__dlpack__(**options)  # type: ignore[arg-type]  # numpy checks them

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_dlpack_is_taken_without_a_copy(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    x = ramp(2, 3)
    seen: list[int] = []

    def watch(array: Array) -> int:
        seen.append(address_of(array))
        return seen[-1]

    monkeypatch.setattr("nacre.runtime.loader.address_of", watch)
    assert np.array_equal(model.entries["add"](Shared(x), x), x + x)
    assert seen[:2] == [x.ctypes.data, x.ctypes.data]


def test_arrays_of_other_origins(model: Model, tmp_path: Path) -> None:
    x = ramp(1, 4)
    add = model.entries["add"]
    np.save(tmp_path / "x.npy", x)
    frozen = x.copy()
    frozen.flags.writeable = False
    transposed_row = ramp(4, 1).T  # one row, so its strides do not matter
    for y in (np.load(tmp_path / "x.npy", mmap_mode="r"), frozen, ramp(3, 4)[:1], transposed_row, x[:, :]):
        assert np.array_equal(add(x, y), x + y)


def test_large_results_are_aligned(model: Model) -> None:
    x = ramp(64, 512)
    assert model.entries["add"](x, x).ctypes.data % 64 == 0


def test_the_address_of_an_array_is_where_its_data_is() -> None:
    for array in (ramp(0), ramp(3), ramp(3, 4)[1:, 2:], np.array(1.0), np.zeros(2, ml_dtypes.bfloat16)):
        assert arguments.address_of(array) == arguments._ask_address(array) == array.ctypes.data


def test_the_slower_way_to_an_address_works_too(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nacre.runtime.loader.address_of", arguments._ask_address)
    assert np.array_equal(model.entries["add"](ramp(1, 2), ramp(1, 2)), ramp(1, 2) * 2)


def test_workspace_bytes(model: Model) -> None:
    add = model.entries["add"]
    assert add.workspace_bytes(B=2, T=3) == 24
    assert model.entries["scalar"].workspace_bytes() == 0
    with pytest.raises(ArgumentError, match=r"entry `add` has the dims \(B, T\), got \(B\)"):
        add.workspace_bytes(B=2)
    with pytest.raises(ArgumentError, match=r"dim `B` is 65, outside 1\.\.64"):
        add.workspace_bytes(B=65, T=1)


def test_a_model_with_one_entry_is_called_itself(tmp_path: Path) -> None:
    one = load(build(zoo("one", zoo().entries[:1]), tmp_path / "one.so"))
    assert np.array_equal(one(ramp(1, 2), y=ramp(1, 2)), ramp(1, 2) * 2)
    out = np.empty((1, 2), np.float32)
    assert one(ramp(1, 2), ramp(1, 2), out=out) is out
    assert repr(one) == "<nacre model one>\n  add(x: f32[B, T], y: f32[B, T]) -> sum: f32[B, T]"
    assert one.entries["add"].doc == "The sum of two arrays."


def test_a_model_with_several_entries_asks_for_one(model: Model) -> None:
    with pytest.raises(NacreError, match=r"model `zoo` has the entries `add`, `embed`, .*; call one"):
        model(ramp(1, 2))


def test_many_threads_call_one_entry(model: Model) -> None:
    add = model.entries["add"]

    def work(index: int) -> None:
        for i in range(100):
            x = np.full((1 + (index + i) % 8, 1 + i), index, np.float32)
            assert np.array_equal(add(x, x), x + x)

    at_once(8, work)


def test_each_thread_has_its_own_error(model: Model) -> None:
    add = model.entries["add"]

    def work(index: int) -> None:
        x = ramp(1, 513 + index)
        for _ in range(100):
            with pytest.raises(ArgumentError, match=f"dim `T` is {513 + index}, outside"):
                add(x, x)

    at_once(8, work)


def test_calls_run_at_the_same_time(model: Model) -> None:
    """Each call ends when all of them run."""
    wait, xs, ys = model.entries["wait"], np.zeros((4, 1), np.float32), np.zeros((4, 1), np.float32)

    def work(index: int) -> None:
        if index < 4:
            wait(xs[index], out=(ys[index],))
            return
        try:
            assert is_soon(lambda: bool((ys == -1).all())), ys
        finally:
            xs[:] = np.arange(1, 5)[:, None]

    at_once(5, work)
    assert ys[:, 0].tolist() == [1, 2, 3, 4]


def test_a_forked_process_calls_too(model: Model) -> None:
    x = ramp(2, 3)
    expected = model.entries["add"](x, x)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(model.entries["add"](x, x), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_plans_do_not_pile_up(model: Model) -> None:
    add = model.entries["add"]
    for t in range(400):
        add(ramp(1, t), ramp(1, t))
    assert len(add._plans) <= 256


def test_an_entry_outlives_its_model(zoo_file: Path) -> None:
    entry: Entry = load(zoo_file).entries["constant"]
    gc.collect()
    assert entry() == 7


LARGE = """language 1
dim N in 1..16777216
model square(x: f32[N]) -> y: f32[N, N] { return x[:, None] * x[None] }
model total(x: f32[N]) -> f32[N] { return sum(cumsum(x[:, None] * x[None], axis=1), axis=0) }
"""


def test_what_cannot_be_allocated_is_an_error_and_later_calls_run(tmp_path: Path) -> None:
    large = nacre.compile(LARGE, tmp_path / "large.so", opt_level=0)
    x = np.zeros(1 << 23, np.float32)
    for _ in range(2):
        with pytest.raises(NacreError, match=r"result `y` takes 281,474,976,710,656 bytes, float32"):
            large.entries["square"](x)
        with pytest.raises(NacreError, match=r"the workspace of a call takes [0-9,]{19,} bytes"):
            large.entries["total"](x)
    np.testing.assert_array_equal(large.entries["square"](np.full(3, 2, np.float32)), np.full((3, 3), 4))
    np.testing.assert_array_equal(large.entries["total"](np.full(2, 2, np.float32)), [8, 16])


def test_importing_the_loader_imports_little() -> None:
    code = (
        "import sys, numpy; before = set(sys.modules); import nacre, nacre.runtime.loader;"
        "print(*sorted(m for m in set(sys.modules) - before if '.' not in m or m.startswith('nacre')))"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    runtime = ("arguments", "device_arrays", "files", "library", "loader", "states")
    ours = ["nacre", "nacre.runtime", *(f"nacre.runtime.{name}" for name in runtime)]
    assert [m for m in shown if m.startswith("nacre")] == ours
    assert not {"ml_dtypes", "lark", "rich", "click", "llvmlite", "torch_mlir", "safetensors"} & set(shown)
