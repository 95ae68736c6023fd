"""Accesses to shared memory have few bank conflicts: those in `figures.json`, which `--update` writes anew."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import ml_dtypes
import nacre
import numpy as np
import pytest
import test_flash_attention
import test_gpu_schedules
import test_tf32
from committed import read_figures, write_figures
from compile_kernels import compile_ptx
from fake_driver import Banks, Machine, kernels_of
from handwritten import State
from nacre.compiler.api import read_model
from nacre.compiler.codegen.gpu.fragments import Tile
from nacre.compiler.codegen.objects import CodeGenerator
from nacre.compiler.codegen.workers.kernel_worker import compile_kernel
from nacre.compiler.codegen.workers.messages import Request
from nacre.compiler.codegen.workers.routes import ASSEMBLY
from nacre.compiler.codegen.workers.serve import Task
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.quantization.choose import in_precision
from nacre.compiler.targets.target import parse_targets

SECTION = "banks"
SCHEDULES = ("contraction", "convolution", "f16", "bf16", "few", "words", "one", "channels", "padded", "long shares")
OTHERS = """
model bytes(x: u8[B, 64], w: i8[64, 96]) -> i32[B, 96] { return einsum("mk,nk->mn", x, w.T, into=i32) }
model turn_f32(x: f32[B, 72]) -> f32[72, B] { return x.T }
model turn_f16(x: f16[B, 72]) -> f16[72, B] { return x.T }
"""
SIZE = 67
"""The size of every dim."""
DTYPES = {
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "bool": np.bool_,
    "u8": np.uint8,
    "i8": np.int8,
}


def source_text() -> str:
    """The models of other tests, whose kernels are compiled once for all of them."""
    models = [
        test_gpu_schedules.MODELS[name].replace("model m(", f"model {test_gpu_schedules.entry_of(name)}(")
        for name in SCHEDULES
    ]
    head, attention = re.split(r"\n(?=model )", test_flash_attention.SOURCE, maxsplit=1)
    return "\n".join([head, "dim B in 0..256", *models, attention, OTHERS])


@dataclass(frozen=True)
class Built:
    build: Build
    path: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Built]:
    """Models of several precisions, and one of TF32."""
    folder = tmp_path_factory.mktemp("banks")
    made = []
    for name, source in (
        ("models", read_model(source_text())),
        ("tf32", in_precision(read_model(test_tf32.SOURCE), "tf32")),
    ):
        build = Build(source, Options(targets=parse_targets("cuda:sm_80")))
        build.run(folder / f"{name}.so")
        made.append(Built(build, folder / f"{name}.so"))
    return made


def calls_of(model: nacre.Model) -> Mapping[str, Callable[[], object]]:
    """Returns a call of each entry that is counted."""
    rng = np.random.default_rng(1)
    calls = {}
    names = {test_gpu_schedules.entry_of(name) for name in SCHEDULES}
    for entry in model.describe()["entries"]:
        if entry["name"].startswith("m_") and entry["name"] not in names:
            continue
        arrays = [
            (rng.normal(size=[SIZE if isinstance(size, str) else size for size in given["shape"]]) * 3).astype(
                DTYPES[given["dtype"]]
            )
            for given in entry["arguments"]
        ]
        function = model.entries[entry["name"]]
        calls[entry["name"]] = lambda function=function, arrays=arrays: function(*arrays)
    return calls


def worse(now: Mapping[str, int], before: Mapping[str, int]) -> bool:
    """Returns whether there are more conflicts than before, and also more in each phase."""
    more = now["conflicts"] > before["conflicts"]
    return more and now["conflicts"] * before["phases"] > before["conflicts"] * now["phases"]


def test_no_kernel_has_more_conflicts_than_before(
    machine: Machine, built: list[Built], request: pytest.FixtureRequest
) -> None:
    made, worst = {}, {}
    for each in built:
        for name, call in calls_of(nacre.load(each.path, device="cuda")).items():
            counted = machine.count_banks(call)
            made[name] = {"phases": counted.phases, "conflicts": counted.conflicts}
            worst[name] = counted.worst
            assert not machine.error, name
    if request.config.getoption("--update"):
        write_figures(SECTION, made)
    known = read_figures(SECTION)
    assert made.keys() == known.keys()
    assert [(name, made[name], known[name], worst[name]) for name in made if worse(made[name], known[name])] == []
    assert all(figures["phases"] for figures in made.values())
    # Rows of a tile have a word more than elements.
    assert made["turn_f32"]["conflicts"] == made["turn_f16"]["conflicts"] == 0


@pytest.mark.parametrize("name", ["m_bf16", "grouped"])
def test_rows_without_padding_are_found(
    machine: Machine, built: list[Built], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The rows of a tile in neighbouring banks: their matrices are read in several steps."""
    build, path = built[0].build, built[0].path
    monkeypatch.setattr(Tile, "pitch", property(lambda self: self.fast * self.size))
    assert build.program is not None
    (target,) = build.options.targets
    changed = {}
    for kernel in build.program.lowered.kernels:
        if kernel.symbol in kernels_of(build, name):
            source = CodeGenerator(build.options.code())._source(kernel, target)
            task = Task(Request(replace(source.job, dump=(ASSEMBLY,)), source.files))
            compile_kernel(task)
            changed[kernel.symbol] = task.dumps["assembly.s"]

    def edit(text: str) -> str:
        return next((other for symbol, other in changed.items() if f".entry {symbol}" in text), text)

    machine.edit = edit
    counted = machine.count_banks(calls_of(nacre.load(path, device="cuda"))[name])
    assert not machine.error
    assert worse({"phases": counted.phases, "conflicts": counted.conflicts}, read_figures(SECTION)[name])


HEAD = ".version 7.0\n.target sm_80\n.address_size 64\n.shared .align 16 .b8 tile[8192];\n"


def count(machine: Machine, folder: Path, body: str, distance: int, width: int) -> Banks:
    """Counts a kernel of one warp, whose lanes store to addresses at a distance; `body` follows the store."""
    registers = ", ".join(["%r1"] * (width // 4))
    stored = f".v{width // 4}.b32 	[%r2], {{{registers}}}" if width > 4 else ".b32 	[%r2], %r1"
    text = f"""{HEAD}
.visible .entry stores(
	.param .u64 .ptr .align 1 stores_param_0
)
.maxntid 32
{{
	.reg .b32 	%r<9>;

	mov.u32 	%r1, %tid.x;
	mul.lo.s32 	%r2, %r1, {distance};
	st.shared{stored};
	{body}
	ret;
}}
"""
    driver, program = machine.library, compile_ptx(text, folder)
    driver.create_banks.restype, driver.read_banks.restype = ctypes.c_void_p, Banks
    banks = ctypes.c_void_p(driver.create_banks())
    state = State(None, 0, b"", 1, banks)
    driver.run_program(str(program).encode(), b"stores", ctypes.byref(state), 1, 32, None)
    counted = driver.read_banks(banks)
    driver.free_banks(banks)
    assert isinstance(counted, Banks) and state.error == b""
    return counted


@pytest.mark.parametrize(
    ("width", "distance", "phases", "conflicts"),
    [
        (4, 4, 1, 0),
        (4, 8, 1, 1),
        (4, 128, 1, 31),
        (4, 132, 1, 0),
        (4, 0, 1, 0),
        (8, 8, 2, 0),
        (8, 16, 2, 2),
        (8, 136, 2, 0),
        (16, 16, 4, 0),
        (16, 128, 4, 28),
        (16, 144, 4, 0),
        (16, 80, 4, 0),
        (16, 64, 4, 12),
    ],
)
def test_conflicts_are_counted(
    machine: Machine, machine_folder: Path, width: int, distance: int, phases: int, conflicts: int
) -> None:
    """Accesses of 8 and 16 bytes have phases of half and a quarter of a warp."""
    counted = count(machine, machine_folder, "", distance, width)
    assert (counted.phases, counted.conflicts) == (phases, conflicts)


@pytest.mark.parametrize(("distance", "conflicts"), [(16, 0), (64, 12), (128, 28), (144, 0)])
def test_conflicts_of_matrices_are_counted(
    machine: Machine, machine_folder: Path, distance: int, conflicts: int
) -> None:
    """Each of four matrices has a phase of 8 rows, and the store before it has four phases."""
    load = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 	{%r3, %r4, %r5, %r6}, [%r2];"
    alone = count(machine, machine_folder, "", distance, 16)
    counted = count(machine, machine_folder, load, distance, 16)
    assert (counted.phases - alone.phases, counted.conflicts - alone.conflicts) == (4, conflicts)
    assert alone.conflicts == conflicts


def test_what_is_worse() -> None:
    before = {"phases": 100, "conflicts": 10}
    assert not worse(before, before) and not worse({"phases": 200, "conflicts": 20}, before)
    assert worse({"phases": 100, "conflicts": 11}, before) and not worse({"phases": 50, "conflicts": 10}, before)
