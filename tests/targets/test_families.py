"""CPU families beside x86: kernels are tiled for them, and compute the same.

The code is generated on any machine. Running it takes a cross compiler and qemu, which the tests name where they skip.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from emulation import Emulator
from emulators import OTHERS, find_emulator
from nacre.compiler.dumps import Dumps
from nacre.compiler.model.source import SourceModel
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.readers.language import load_module
from nacre.compiler.targets.families import FAMILIES
from nacre.compiler.targets.target import parse_targets
from nacre.dialect.graph import Module

sys.path.append(str(Path(__file__).parents[1] / "operators"))
from operator_harness import TESTED, build_function, examples, write_use
from test_compiled import typical
from web_assembly import Engine

UNTRANSLATED = {"riscv64": ("trunc", "cast", "quantize", "requantize", "roi_align")}
"""Operators whose code qemu 7 cannot translate: it aborts with an assertion of its own (`ctx->insn_start != NULL`) at a
conversion with another rounding mode, depending on the place of the code in its page."""
MATMUL = "model m(x: f32[128, 384], w: f32[384, 1536]) -> f32[128, 1536] { return x @ w }"
MULTIPLY = {"aarch64": "fmla", "riscv64": "vfmacc"}
"""The multiply-add of vectors of each machine."""
GROUP = 16
GROUPS = [TESTED[i : i + GROUP] for i in range(0, len(TESTED), GROUP)]

with_machine = pytest.mark.parametrize("machine", OTHERS)


def assembly(text: str, machine: str, folder: Path) -> str:
    build = Build(load_module(text, text=True), Options(targets=parse_targets(FAMILIES[machine].triple)), Dumps(folder))
    program = build.generate(build.lower(build.optimize()))
    assert not program.untiled, program.untiled
    build.generate_entries(program)
    (path,) = folder.glob("*-assembly.s")
    return path.read_text()


def inner_loop(text: str, multiply: str) -> list[str]:
    """The instructions of the innermost loop with the most multiplications: from a label to the branch back to it."""
    lines = [line.strip() for line in text.splitlines()]
    best: list[str] = []
    for number, line in enumerate(lines):
        if not (label := re.fullmatch(r"(\.L\w+):.*", line)):
            continue
        body = lines[number + 1 :]
        end = next((i for i, each in enumerate(body) if each.endswith(label[1])), None)
        if end is not None and not any(each.endswith(":") for each in body[:end]):
            best = max(best, body[: end + 1], key=lambda loop: sum(each.startswith(multiply) for each in loop))
    return best


@cache
def gemm_loop(machine: str) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        return inner_loop(assembly(MATMUL, machine, Path(folder)), MULTIPLY[machine])


def test_gemm_for_neon_keeps_24_accumulators_in_registers() -> None:
    loop = gemm_loop("aarch64")
    assert sum(bool(re.match(r"fmla\s+v\d+\.4s", line)) for line in loop) == 24, loop
    assert not any("sp" in re.findall(r"\w+", line) for line in loop), loop
    # 8 elements of the first operand, 3 vectors of the second, and the loop itself.
    assert len(loop) <= 24 + 8 + 3 + 4, loop


def test_gemm_for_rvv_keeps_its_accumulators_in_registers() -> None:
    loop = gemm_loop("riscv64")
    assert sum(line.startswith("vfmacc") for line in loop) == 21, loop
    assert not any("(sp)" in line for line in loop), loop


@dataclass(frozen=True)
class Core:
    """The most instructions of each kind that a core starts in a cycle."""

    all: int
    vector: int
    loads: int

    def cycles(self, loop: Sequence[str], multiply: str) -> float:
        """The fewest cycles of one turn of a loop. A load to all lanes takes a vector instruction too, and a load of a
        pair counts as two loads."""
        loads = sum(1 + line.startswith("ldp") for line in loop if re.match(r"ld|vle|flw", line))
        vector = sum(bool(re.match(rf"{multiply}|ld1r", line)) for line in loop)
        return max(len(loop) / self.all, vector / self.vector, loads / self.loads)


CORES = {
    "aarch64": {"4 wide": Core(4, 2, 2), "8 wide": Core(8, 2, 3), "3 wide": Core(3, 1, 1)},
    "riscv64": {"2 wide": Core(2, 1, 1), "3 wide": Core(3, 1, 1)},
}
"""Cores that are common: widths as in Neoverse N1, Cortex-X1 and Cortex-A57; and dual issue with one vector pipe."""


@pytest.mark.parametrize(("machine", "core"), [(machine, core) for machine, cores in CORES.items() for core in cores])
def test_gemm_reaches_nine_tenths_of_the_multiplications_that_a_core_can_start(machine: str, core: str) -> None:
    loop, multiply, widths = gemm_loop(machine), MULTIPLY[machine], CORES[machine][core]
    peak = sum(line.startswith(multiply) for line in loop) / widths.vector
    assert peak >= 0.9 * widths.cycles(loop, multiply), (peak, widths.cycles(loop, multiply))


def simulated_cycles(loop: Sequence[str], cpu: str) -> int:
    command = ["llvm-mca", "-mtriple=aarch64", f"-mcpu={cpu}", "-iterations=200", "-"]
    run = subprocess.run(command, input="\n".join(loop), capture_output=True, text=True, check=True)
    (cycles,) = re.findall(r"Total Cycles:\s+(\d+)", run.stdout)
    return int(cycles)


@pytest.mark.skipif(shutil.which("llvm-mca") is None, reason="needs llvm-mca")
@pytest.mark.parametrize("cpu", ["cortex-a57", "exynos-m5", "tsv110", "a64fx", "ampere1"])
def test_gemm_reaches_nine_tenths_of_the_peak_in_simulation(cpu: str) -> None:
    """The peak is the same loop with its multiplications alone, whose operands are always there."""
    loop = gemm_loop("aarch64")
    peak = simulated_cycles([line for line in loop if line.startswith("fmla")], cpu)
    assert peak >= 0.9 * simulated_cycles(loop, cpu)


@pytest.fixture(params=OTHERS)
def emulator(request: pytest.FixtureRequest) -> Emulator | Engine:
    return find_emulator(request.param)


@pytest.mark.parametrize("group", GROUPS, ids=[f"{group[0].name}..{group[-1].name}" for group in GROUPS])
def test_operators_agree_with_their_references(emulator: Emulator | Engine, group: tuple, tmp_path: Path) -> None:  # type: ignore[type-arg]
    is_old = isinstance(emulator, Emulator) and emulator.version < 8
    untranslated = UNTRANSLATED.get(emulator.machine, ()) if is_old else ()
    items = [
        item
        for operator in group
        for item in examples(operator)
        if item.dtype in typical(operator, item) and not operator.has("checking") and operator.name not in untranslated
    ]
    functions = tuple(build_function(item.types, write_use(item), item.name) for item in items)
    module = Module("operators", functions=functions)
    source = SourceModel(module, "operators.graph", {f.name: None for f in functions})
    artifact = tmp_path / "operators.so"
    options = Options(
        targets=parse_targets(emulator.triple), passes="decompose{having=composite},check-indices", cc=emulator.compiler
    )
    Build(source, options).run(artifact)
    expected = [item.expected for item in items]
    calls = [(number, item.arrays, results) for number, (item, results) in enumerate(zip(items, expected, strict=True))]
    failures = []
    for item, results, answer in zip(items, expected, emulator.call(artifact, calls), strict=True):
        message = f"status {answer}" if isinstance(answer, int) else item.disagreement(answer, results)
        failures += [f"{item.operator.name} {item}: {message}"] if message else []
    assert not failures, f"{len(failures)} of {len(items)} differ:\n" + "\n".join(failures[:20])
