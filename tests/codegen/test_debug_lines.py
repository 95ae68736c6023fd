"""With `-g`, the code of an artifact leads back to the lines of the model, and is the code that it is without."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.codegen.objects import CodeOptions, generate_objects
from nacre.compiler.lower.module import lower_module
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.readers.language import load_module
from nacre.compiler.targets.vector_unit import PanelSizes
from nacre.dialect.graph import walk
from saving import save_npz

# Two places with the same kernel, and two kernels at the same place.
MODEL = """language 1

dim B in 1..64

block Dense(x: f32[B, 8]) -> f32[B, 8] {
  param weight: f32[8, 8]
  param bias: f32[8]
  y = x @ weight.T
  z = y + bias
  return relu(z)
}

model main(x: f32[B, 8]) -> f32[B, 8] {
  weights "weights.npz"
  use first = Dense
  use second = Dense
  a = exp(x)
  b = softmax(first(a))
  c = exp(second(b))
  d = softmax(c)
  return d + sum(d, 1, keepdims=true)
}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    random = np.random.default_rng(1)
    shapes = {f"{block}.{name}": shape for block in ("first", "second") for name, shape in SHAPES.items()}
    save_npz(folder / "weights.npz", {n: random.normal(size=s).astype("float32") for n, s in shapes.items()})
    (folder / "lines.nacre").write_text(MODEL)
    return folder / "lines.nacre"


SHAPES = {"weight": (8, 8), "bias": (8,)}


def output_of(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def table_of_lines(library: Path) -> Mapping[str, set[int]]:
    """The lines that the code of every function comes from, by the function's symbol; 0, which is none, left out."""
    symbols = []
    for line in output_of("nm", "--defined-only", "--numeric-sort", str(library)).splitlines():
        address, kind, name = line.split()
        if kind in "tT":
            symbols.append((int(address, 16), name))
    table = defaultdict(set)
    rows = output_of("objdump", "--dwarf=decodedline", str(library)).splitlines()
    for row in rows:
        found = re.match(r"(\S+)\s+(\d+)\s+0x([0-9a-f]+)", row)
        if found and int(found[2]):
            assert found[1] == "lines.nacre", row
            owner = [name for start, name in symbols if start <= int(found[3], 16)][-1]
            table[owner].add(int(found[2]))
    return table


@pytest.mark.parametrize("level", [0, 2])
def test_the_code_of_a_kernel_leads_to_the_lines_of_its_nodes(level: int, model: Path, tmp_path: Path) -> None:
    build = Build(load_module(model), Options(level=level, debug=True))
    build.run(tmp_path / "lines.so")
    table = table_of_lines(tmp_path / "lines.so")
    (report,) = build.report()
    assert report.kernels
    reached: set[int] = set()
    for kernel in report.kernels:
        meant = {operation.span.line for operation in kernel.operations if operation.span}
        lines = set().union(
            *(lines for name, lines in table.items() if re.match(rf"{re.escape(kernel.name)}(_part\d)?$", name))
        )
        assert lines and lines <= meant, kernel
        reached |= lines
    # Every operation of the model has code of its own: none of these is a mere move.
    assert reached == {
        line for line, text in enumerate(MODEL.splitlines(), 1) if re.search(r"[@+]|relu|exp|softmax", text)
    }


def test_kernel_names_contain_the_function_and_the_operator(model: Path, tmp_path: Path) -> None:
    nacre.compile(model, tmp_path / "lines.so", debug=True)
    symbols = [line.split()[-1] for line in output_of("nm", str(tmp_path / "lines.so")).splitlines()]
    assert {"main.exp_1", "main.matmul_add_relu_1", "main.softmax_1"} <= set(symbols)


def test_without_it_there_are_no_lines(model: Path, tmp_path: Path) -> None:
    nacre.compile(model, tmp_path / "lines.so")
    assert ".debug" not in output_of("readelf", "-SW", str(tmp_path / "lines.so"))


def test_a_build_is_the_same_bytes_wherever_the_model_lies(model: Path, tmp_path: Path) -> None:
    for name in ("here", "there"):
        shutil.copytree(model.parent, tmp_path / name)
        nacre.compile(tmp_path / name / model.name, tmp_path / f"{name}.so", debug=True)
    assert (tmp_path / "here.so").read_bytes() == (tmp_path / "there.so").read_bytes()
    assert str(tmp_path).encode() not in (tmp_path / "here.so").read_bytes()


def machine_code(code: bytes, folder: Path) -> list[str]:
    """The instructions of an object, without the names in them."""
    (folder / "code.o").write_bytes(code)
    listing = output_of("objdump", "--disassemble", "--no-addresses", str(folder / "code.o"))
    return [re.sub(r"<.*?>", "", line) for line in listing.splitlines() if line.startswith("\t")]


@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_code_is_the_same_as_without(level: int, model: Path, tmp_path: Path) -> None:
    build = Build(load_module(model), Options(level=level))
    module = build.optimize()
    made = {}
    for debug in (False, True):
        lowered = lower_module(module, pack=PanelSizes() if level >= 2 else None, debug=debug)
        program, _ = generate_objects(lowered, CodeOptions(level=level, debug=debug))
        (kernels,) = program.kernels.values()
        made[debug] = [machine_code(kernels[call.symbol].code, tmp_path) for call in lowered.functions[0].calls]
    assert made[False] == made[True] and all(made[True])


def test_kernels_of_different_lines_are_shared_only_without_it(model: Path) -> None:
    module = Build(load_module(model), Options(level=0)).optimize()
    nodes = [node for function in module.functions for node in walk(function.body)]
    places = {node.span for node in nodes if node.op == "exp"}
    assert len(places) == 2
    plain, debug = (lower_module(module, debug=debug).kernels for debug in (False, True))
    assert sum(kernel.symbol.startswith("exp") for kernel in plain) == 1
    assert sum("exp" in kernel.symbol for kernel in debug) == 2


@pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed")
def test_a_debugger_stops_at_a_line_of_the_model(model: Path, tmp_path: Path) -> None:
    nacre.compile(model, tmp_path / "lines.so", debug=True)
    call = f"import nacre, numpy; nacre.load({str(tmp_path / 'lines.so')!r}, threads=1)(numpy.ones((3, 8), 'f'))"
    (tmp_path / "call.py").write_text(call)
    line, softmax = (1 + MODEL.splitlines().index(text) for text in ("  return relu(z)", "  b = softmax(first(a))"))
    commands = ["set breakpoint pending on", f"directory {model.parent}", f"break lines.nacre:{line}"]
    commands += [f"run {tmp_path / 'call.py'}", "delete", "break main.softmax_1", "continue", "backtrace"]
    arguments = [part for command in commands for part in ("-ex", command)]
    # Its exit status tells nothing: the program is ended where it stands.
    # The line is that of a group's result: it begins where the entry calls the kernel.
    said = subprocess.run(["gdb", "-nx", "-batch", *arguments, sys.executable], capture_output=True, text=True).stdout
    assert re.search(
        rf"Breakpoint 1.*, nacre_entry_main \(\) at lines\.nacre:{line}\n{line}\t  return relu\(z\)", said
    ), said
    assert re.search(rf"Breakpoint 2, main\.softmax_1 \(\) at lines\.nacre:{softmax}\n", said), said
    # The frames below are found, though none of them has a frame pointer.
    assert re.search(r"#1 .* in nacre_launch_\d_\d \(\)(.|\n)*in ffi_call", said), said
