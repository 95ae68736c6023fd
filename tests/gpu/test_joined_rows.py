"""Operations that run one after another on each row, where the length of a row is that of a call: one launch computes
rows that are short or many, and a launch for each operation computes the others."""

from __future__ import annotations

import re
from pathlib import Path

import nacre
import numpy as np
import pytest
from assembler import ptx_of
from fake_driver import Machine, kernels_of, schedules_of
from nacre.compiler.api import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.chips import CHIPS
from nacre.compiler.targets.target import parse_targets
from nacre.compiler.tools.profile.device_code import read_artifact

SOURCE = """language 1
dim B in 0..256
dim T in 0..65536
model shares(x: f32[B, T]) -> f32[B, T] { return softmax(x) }
model norm(x: f32[B, T], w: f32[T], b: f32[T]) -> f32[B, T] { return layer_norm(x, w, b) }
model root(x: f16[B, T], w: f16[T]) -> f16[B, T] { return rms_norm(x, w) }
"""
SEPARATE = {"shares": 6, "norm": 8, "root": 4}
"""The launches of calls in which rows are long and few: two for each reduction, whose blocks share rows. None of them
stores the length of a row as a float."""
JOINED = "rows per warp or block of 256 threads, 6 blocks"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Build, Path]:
    path = tmp_path_factory.mktemp("joined") / "model.so"
    build = Build(read_model(SOURCE), Options(targets=parse_targets("cuda:sm_80")))
    build.run(path)
    return build, path


def reference(name: str, x: np.ndarray, *others: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    if name == "shares":
        powers = np.exp(x - x.max(-1, keepdims=True, initial=-np.inf))
        return np.asarray(powers / powers.sum(-1, keepdims=True))
    if name == "norm":
        centred = x - x.mean(-1, keepdims=True)
        return np.asarray(centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * others[0] + others[1])
    return np.asarray(x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * others[0])


def test_schedules(built: tuple[Build, Path]) -> None:
    """The joined launch reads and writes by vectors, and no launch has registers in memory."""
    codes = read_artifact(built[1], CHIPS["a100"].architecture)
    assert not any(code.registers and code.registers.spilled for code in codes)
    for name, count in SEPARATE.items():
        joined, *separate = schedules_of(built[0], name)
        assert joined == JOINED and len(separate) == count
        (kernel,) = kernels_of(built[0], name)
        (code,) = (code for code in codes if code.name.startswith(kernel) and "_part" not in code.name)
        assert max(code.reads)[0] == 16 and max(code.writes)[0] == (8 if name == "root" else 16)


def test_no_barrier_follows_the_last_operation(built: tuple[Build, Path]) -> None:
    """A thread that waits at the end keeps its block from ending."""
    texts = ptx_of(built[1])
    assert sum(len(re.findall(r"bar(?:rier)?\.sync", text)) for text in texts) >= len(SEPARATE)
    ends = re.compile(r"bar(?:rier)?\.sync[^;]*;\s*(?:\$\w+:\s*)?ret;")
    assert not any(ends.search(text) for text in texts)


@pytest.mark.parametrize("name", SEPARATE)
def test_numbers(machine: Machine, built: tuple[Build, Path], name: str) -> None:
    model, rng = nacre.load(built[1], device="cuda").entries[name], np.random.default_rng(1)
    dtype = np.float16 if name == "root" else np.float32
    for rows, length in ((9, 68), (3, 45), (2, 1), (0, 5), (3, 0), (3, 2048), (2, 2501), (2, 8196), (132, 8193)):
        if rows == 132 and name != "root":
            continue  # many long rows take seconds, and the sizes alone choose, by the same function for all models
        shapes = [(rows, length), (length,), (length,)][: {"shares": 1, "norm": 3, "root": 2}[name]]
        arrays = [rng.normal(size=shape).astype(dtype) for shape in shapes]
        before = machine.launches
        y = np.asarray(model(*arrays))
        assert not machine.error
        assert machine.launches - before == (SEPARATE[name] if (rows, length) == (2, 8196) else rows > 0)
        if y.size:
            expected = reference(name, *arrays)
            assert np.max(np.abs(y - expected)) <= (1e-3 if name == "root" else 2e-6) * max(1, np.abs(expected).max())


@pytest.mark.parametrize(("length", "pattern"), [(2052, r"bar(rier)?\.sync[^;]*;"), (66, r"(and\.b64 .*), 3;")])
def test_planted_fault_is_found(machine: Machine, built: tuple[Build, Path], length: int, pattern: str) -> None:
    """Without barriers, and with vectors in rows that are no multiple of them."""
    machine.plant(pattern, r"\1, 0;" if "and" in pattern else "", kernels_of(built[0], "shares"))
    x = np.random.default_rng(2).normal(size=(3, length)).astype(np.float32)
    try:
        y = np.asarray(nacre.load(built[1], device="cuda").entries["shares"](x))
    except nacre.NacreError:
        assert machine.lacks_order or "aligned" in machine.error, machine.error
        return
    assert np.max(np.abs(y - reference("shares", x))) > 1e-6
