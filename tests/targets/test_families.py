"""CPU families beside x86: kernels are tiled for them, and compute the same.

The code is generated on any machine. Running it takes a cross compiler and qemu, which the tests name where they skip.
"""

from __future__ import annotations

import re
import sys
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

UNTRANSLATED = {"riscv64": ("trunc", "cast")}
"""Operators whose code qemu 7.2 cannot translate: it aborts with an assertion of its own."""
MATMUL = "model m(x: f32[128, 384], w: f32[384, 1536]) -> f32[128, 1536] { return x @ w }"
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


def test_gemm_for_neon_keeps_24_accumulators_in_registers(tmp_path: Path) -> None:
    loop = inner_loop(assembly(MATMUL, "aarch64", tmp_path), "fmla")
    assert sum(bool(re.match(r"fmla\s+v\d+\.4s", line)) for line in loop) == 24, loop
    assert not any("sp" in re.findall(r"\w+", line) for line in loop), loop
    # 8 elements of the first operand, 3 vectors of the second, and the loop itself.
    assert len(loop) <= 24 + 8 + 3 + 4, loop


def test_gemm_for_rvv_keeps_its_accumulators_in_registers(tmp_path: Path) -> None:
    loop = inner_loop(assembly(MATMUL, "riscv64", tmp_path), "vfmacc")
    assert sum(line.startswith("vfmacc") for line in loop) == 21, loop
    assert not any("(sp)" in line for line in loop), loop


@pytest.fixture(params=OTHERS)
def emulator(request: pytest.FixtureRequest) -> Emulator | Engine:
    return find_emulator(request.param)


@pytest.mark.parametrize("group", GROUPS, ids=[f"{group[0].name}..{group[-1].name}" for group in GROUPS])
def test_operators_agree_with_their_references(emulator: Emulator | Engine, group: tuple, tmp_path: Path) -> None:  # type: ignore[type-arg]
    items = [
        item
        for operator in group
        for item in examples(operator)
        if item.dtype in typical(operator, item)
        and not operator.has("checking")
        and operator.name not in UNTRANSLATED.get(emulator.machine, ())
    ]
    functions = tuple(build_function(item.types, write_use(item), item.name) for item in items)
    module = Module("operators", functions=functions)
    source = SourceModel(module, "operators.graph", {f.name: None for f in functions})
    artifact = tmp_path / "operators.so"
    options = Options(targets=parse_targets(emulator.triple), passes="check-indices", cc=emulator.compiler)
    Build(source, options).run(artifact)
    expected = [item.reference() for item in items]
    calls = [(number, item.arrays, results) for number, (item, results) in enumerate(zip(items, expected, strict=True))]
    failures = []
    for item, results, answer in zip(items, expected, emulator.call(artifact, calls), strict=True):
        message = f"status {answer}" if isinstance(answer, int) else item.disagreement(answer, results)
        failures += [f"{item.operator.name} {item}: {message}"] if message else []
    assert not failures, f"{len(failures)} of {len(items)} differ:\n" + "\n".join(failures[:20])
