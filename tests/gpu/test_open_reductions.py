"""Reductions whose length is that of a call: blocks share them, and the same bits come back from every call."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from pathlib import Path

import nacre
import numpy as np
import pytest
from assembler import check_assembly
from fake_driver import Machine, kernels_of, schedules_of
from nacre.compiler.api import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets
from nacre.compiler.validate.inputs import random_trial
from nacre.compiler.validate.judge import Judge
from nacre.dialect.graph import Function
from test_split_attention import with_fault

SOURCE = """language 1
dim R in 0..3
dim B in 0..4096
dim T in 0..1000000
model whole(x: f32[B, T]) -> f32[] { return sum(x) }
model squares(x: f32[B, T], y: f32[B, T]) -> f32[] { return mean((x - y) * (x - y)) }
model rows(x: f64[3, T]) -> f64[3] { return max(x, axis=1) }
model halves(x: f16[R, T]) -> f16[R, 1] { return mean(x, axis=1, keepdims=true) }
model brains(x: bf16[T]) -> bf16[] { return sum(x) }
model least(x: i32[T]) -> i32[] { return min(x) }
model longs(x: i64[R, T]) -> i64[R] { return sum(x, axis=1) }
model bytes(x: i8[T]) -> i8[] { return sum(x) }
model logic(x: bool[R, T]) -> bool[R] { return any(x, axis=1) }
model every(x: bool[T]) -> bool[] { return all(x) }
model factors(x: f32[T]) -> f32[] { return prod(x) }
model place(x: f32[B, T]) -> i64[] { return argmax(reshape(x, (B * T,)), axis=0) }
model lowest(x: f16[R, T]) -> i64[R] { return argmin(x, axis=1) }
model norm(x: f32[T]) -> f32[] { return sqrt(sum(x * x)) }
model spread(x: f16[T]) -> f16[] { return variance(x, axis=0) }
model shares(x: f32[R, T]) -> f32[R, T] { return softmax(x) }
model exponents(x: f32[R, T]) -> f32[R] { return logsumexp(x, axis=1) }
model columns(x: f32[T, 5]) -> f32[5] { return sum(x, axis=0) }
model deep(x: bf16[T, R, 3]) -> bf16[R, 3] { return max(x, axis=0) }
model middle(x: i32[R, T, 2]) -> i32[R, 2] { return sum(x, axis=1) }
model product(x: f32[4, T], w: f32[T, 40], b: f32[40]) -> f32[4, 40] { return relu(x @ w + b) }
model mixed(x: f16[4, T], w: f16[T, 40], b: f16[40]) -> f16[4, 40] { return relu(x @ w + b) }
model gradient(x: bf16[T, 72], y: bf16[T, 33]) -> bf16[72, 33] { return x.T @ y }
model integers(x: i8[R, 20, T], w: i8[T, 32]) -> i32[R, 20, 32] { return matmul(x, w, into=i32) }
model gram(x: f64[T, 6]) -> f64[6, 6] { return x.T @ x }
model bounded(x: f32[B]) -> f32[] { return sum(x) }
"""
UNSPLIT = ("bounded",)
"""A length of at most 4096, which is shorter than eight parts."""
JOINED = "joined parts of 256 threads"
SIZES = (0, 1, 7, 511, 2048, 8191, 8192, 9001, 30011)
SIZES_OF_PRODUCTS = {
    **dict.fromkeys(("product", "mixed", "integers", "gram"), (0, 1, 7, 511, 1792, 1793, 4099)),
    "gradient": (0, 1, 7, 511, 1792, 1793, 4099, 30011),
}
"""Parts of products have 256 elements or more; the last length of `gradient` has more parts than fit the memory."""
NAMES = [line.split("(")[0][6:] for line in SOURCE.splitlines() if line[:5] == "model"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Build, Path]:
    path = tmp_path_factory.mktemp("open") / "model.so"
    build = Build(read_model(SOURCE), Options(targets=parse_targets("cuda:sm_80")))
    build.run(path)
    return build, path


def test_reductions_are_split(built: tuple[Build, Path], assembled: Path) -> None:
    split = {name for name in NAMES if JOINED in schedules_of(built[0], name)}
    assert split == set(NAMES) - set(UNSPLIT)
    check_assembly(built[1], assembled, "sm_80", "sm_90")


def test_memory_of_totals_is_small(built: tuple[Build, Path]) -> None:
    """A total for each block that runs at once, or for each thread of them."""
    assert built[0].program is not None
    kernels = {kernel.symbol: kernel.kernel for kernel in built[0].program.lowered.kernels}

    def totals(name: str) -> list[object]:
        found = [kernels[symbol] for symbol in kernels_of(built[0], name)]
        return [type.shape[0] for kernel in found if kernel.parts for type in kernel.scratch[-kernel.parts :]]

    assert totals("whole") == totals("rows") == totals("halves") == [1056]
    assert totals("columns") == [5 * 15625] and totals("product") == [1056 * 256]
    assert totals("bounded") == []


@pytest.mark.parametrize(
    ("name", "dims", "expected"),
    [
        ("whole", {"B": 0, "T": 0}, [1]),
        ("whole", {"B": 1, "T": 7168}, [1]),
        ("whole", {"B": 1, "T": 7169}, [8, 1]),
        ("whole", {"B": 64, "T": 1024}, [64, 1]),
        ("whole", {"B": 333, "T": 4097}, [667, 1]),
        ("rows", {"T": 100_000}, [294, 1]),
        ("halves", {"R": 0, "T": 100_000}, []),
        ("halves", {"R": 2, "T": 2000}, [1]),
        ("halves", {"R": 2, "T": 4000}, [2]),
        ("halves", {"R": 2, "T": 9000}, [18, 1, 1]),  # the last one divides
        ("columns", {"T": 64}, [1]),
        ("columns", {"T": 512}, [1, 1]),
        ("columns", {"T": 100_000}, [31, 1]),
        ("product", {"T": 1792}, [2]),
        ("product", {"T": 10_000}, [80, 20]),
        ("mixed", {"T": 1792}, [1]),
        ("mixed", {"T": 1793}, [8, 20]),
        ("mixed", {"T": 20_000}, [79, 20]),
        ("integers", {"R": 3, "T": 5000}, [20, 240]),
    ],
)
def test_blocks(
    machine: Machine, built: tuple[Build, Path], name: str, dims: Mapping[str, int], expected: list[int]
) -> None:
    """Short reductions take one launch. The sizes alone decide, whatever the device."""
    trial = random_trial(_function(built[0], name), dims)
    for processors in (1, 132):
        machine.reset(processors=processors)
        entry = nacre.load(built[1], device="cuda").entries[name]
        begin = machine.launches
        entry(*trial.arguments)
        assert [machine.blocks_of(number) for number in range(begin, machine.launches)] == expected


def _function(build: Build, name: str) -> Function:
    (function,) = (function for function in build.source_model.module.functions if function.name == name)
    return function


def dims_of(name: str, length: int) -> Mapping[str, int]:
    """The sizes at which the reductions of a model have a length."""
    two = "[B, T]" in SOURCE.split(f"model {name}(")[1].splitlines()[0]
    return {"R": 3, "B": 7 if two and length % 7 == 0 else 1, "T": length // 7 if two and length % 7 == 0 else length}


@pytest.mark.parametrize("name", NAMES)
def test_numbers(machine: Machine, built: tuple[Build, Path], name: str) -> None:
    function = _function(built[0], name)
    entry = nacre.load(built[1], device="cuda").entries[name]
    for length in SIZES_OF_PRODUCTS.get(name, SIZES):
        for kind in ("ordinary", "special") if length in (4099, 9001) else ("ordinary",):
            trial = random_trial(function, dims_of(name, length), kind)
            judge = Judge(built[0].source_model.module, trial, {})
            first, again = (np.asarray(entry(*trial.arguments)) for _ in range(2))
            assert not machine.error
            assert first.tobytes() == again.tobytes()
            assert judge.difference([first]) is None, (length, kind)


FAULTS = (
    (0, r"(mov\.u32\s+%r\d+), %ctaid\.x;", r"\1, 0;"),
    (0, r"bar(rier)?\.sync[^;]*;", ""),
    (0, r"(st\.global\.b32\s+\[%rd\d+)\]", r"\1+4]"),
    (0, r"min\.u64(\s+%rd\d+, %rd\d+), %rd\d+;", r"mov.b64\1;"),
    (1, r"shfl\.sync\.bfly\.b32(\s+%r\d+)(?:\|%p\d+)?, (%r\d+), 16,[^;]*;", r"mov.b32\1, \2;"),
    (1, r"add\.rn\.f32(\s+%\w+, %\w+), %\w+;", r"mov.b32\1;"),
)


@pytest.mark.parametrize(("launch", "pattern", "replacement"), FAULTS)
def test_planted_fault_is_found(
    machine: Machine, built: tuple[Build, Path], launch: int, pattern: str, replacement: str
) -> None:
    """The faults of the first launch: all blocks take the same part, warps do not wait, totals are stored at other
    addresses, and parts have no end. The second launch loses half of the totals, or all but one."""
    # A device keeps its modules while a session exists, also in the traceback of an error.
    gc.collect()
    (symbol,) = kernels_of(built[0], "whole")
    changed = []

    def edit(text: str) -> str:
        if f".entry {symbol}" not in text:
            return text
        made = with_fault(text, launch, pattern, replacement)
        changed.append(made != text)
        return made

    machine.edit = edit
    x = np.random.default_rng(1).normal(size=(3, 11003)).astype(np.float32)
    try:
        result = float(np.asarray(nacre.load(built[1], device="cuda").entries["whole"](x)))
    except nacre.NacreError:
        assert machine.lacks_order or "outside" in machine.error, machine.error
        return
    finally:
        assert any(changed)
    assert not abs(result - np.sum(x.astype(np.float64))) <= 1e-5 * np.sum(np.abs(x))
