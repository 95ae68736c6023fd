"""Reproducers: every kind of fault of the compiler leaves a folder, and what stands there shows the fault again."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cli_harness import Cli, nacre_process, rerun_arguments

MODEL = """import "layers.nacre"

model main(x: f32[3, 24]) -> f32[3, 24] {
  use layer = Layer<24>
  return softmax(layer(x)) + sin(cast(iota(24), f32))
}
"""
LAYERS = "block Layer<n>(x: f32[3, n]) -> f32[3, n] {\n  return relu(x) - exp(x)\n}\n"

# What Python runs before anything else, in the compiler and in its children.
SITE = """import os
import signal
import sys
import time


def abort(*_, **__):
    os.write(2, b"LLVM ERROR: planted" + bytes([10]))
    os.abort()


def crash(*_, **__):
    os.kill(os.getpid(), signal.SIGSEGV)


def fail(*_, **__):
    raise AssertionError("planted")


def hang(*_, **__):
    time.sleep(60)


def invalid(self, module, context):
    context.allow("planted", module.functions[0].body[0])
    return module.map_functions(lambda f: type(f)(f.name, f.arguments, (), f.results, f.result_names))


"""


@dataclass(frozen=True)
class Mistake:
    """A statement that plants the error in a process, and the message of it. `in_worker`: the error is one of the
    processes that generate code, and of no other: importing what is replaced takes longer than most commands."""

    plant: str
    stage: str
    message: str
    options: tuple[str, ...] = ()
    code: int = 70
    exit: int = 70
    in_worker: bool = False

    def plant_here(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Plants the error in this process."""
        imported, attribute, mistake = re.fullmatch(r"(.*) as t; t\.(\w+) = (\w+)", self.plant).groups()  # type: ignore[union-attr]  # all statements have this form
        names: dict[str, Any] = {}
        exec(f"{SITE}{imported} as t", names)
        monkeypatch.setattr(names["t"], attribute, names[mistake])

    @property
    def site(self) -> str:
        return f"{SITE}if ('worker' in ' '.join(sys.orig_argv)) is {self.in_worker}:\n    {self.plant}\n"


FAULTS: Mapping[str, Mistake] = {
    "assert-in-a-pass": Mistake(
        "from nacre.passes.simplify.cse import Cse as t; t.rewrite = fail", "cse", "AssertionError: planted"
    ),
    "invalid-graph": Mistake(
        "from nacre.passes.simplify.cse import Cse as t; t.rewrite = invalid", "cse", "it produced an invalid graph"
    ),
    "assert-in-lowering": Mistake(
        "from nacre.compiler.lower import module as t; t.FunctionLowering = fail", "lower", "AssertionError: planted"
    ),
    "assert-in-planning": Mistake(
        "from nacre.compiler.host import plan as t; t.plan_memory = fail", "kernels", "AssertionError: planted"
    ),
    "assert-in-assembling": Mistake(
        "from nacre.compiler.artifact import assemble as t; t.write_weights_object = fail",
        "link",
        "AssertionError: planted",
    ),
    "error-of-a-kernel": Mistake(
        "from nacre.compiler.codegen.tiler import kernels as t; t.plan_stages = fail",
        "tiled",
        "AssertionError: planted",
        code=1,
        in_worker=True,
    ),
    "abort": Mistake(
        "from nacre.compiler.codegen.llvm.machine import Machine as t; t.optimize = abort",
        "optimize",
        "died of SIGABRT: LLVM ERROR: planted",
        code=-signal.SIGABRT,
        in_worker=True,
    ),
    "crash": Mistake(
        "from nacre.compiler.codegen.llvm.machine import Machine as t; t.emit_object = crash",
        "emit",
        "died of SIGSEGV",
        code=-signal.SIGSEGV,
        in_worker=True,
    ),
    "time-out": Mistake(
        "from nacre.compiler.codegen.llvm.machine import Machine as t; t.optimize = hang",
        "optimize",
        "took longer than 3 seconds, in the stage `optimize`",
        ("--timeout", "3"),
        124,
        exit=1,
        in_worker=True,
    ),
}


HERE = ("invalid-graph", "assert-in-lowering", "assert-in-planning", "assert-in-assembling")
"""Faults that are planted in the process of the tests: those of others, which take a second to start, have the same
code around them as in the fault of a pass, and differ in the stage alone."""


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Path]:
    """Where reproducers are made."""
    folder = tmp_path / "made"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def without_kernels(cache: Path, double_so: Path, tmp_path: Path) -> Path:
    """A cache that has the parser and the compiled runtime, and no kernel."""
    assert double_so.exists()
    objects = tmp_path / "cache" / "objects"
    objects.mkdir(parents=True)
    for kept in (cache / "objects").glob("*-*"):
        (objects / kept.name).symlink_to(kept)
    return objects.parent


@pytest.mark.parametrize("name", FAULTS)
def test_an_error_has_a_short_message_and_a_reproducer(
    name: str, tmp_path: Path, made: Path, without_kernels: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = FAULTS[name]
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(fault.site)
    variables = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "TMPDIR": str(made)}
    variables["NACRE_CACHE"] = str(without_kernels)
    source = tmp_path / "source"
    source.mkdir()
    (source / "main.nacre").write_text(MODEL)
    (source / "layers.nacre").write_text(LAYERS)
    with monkeypatch.context() as planted:
        if name in HERE:
            planted.setattr(tempfile, "tempdir", str(made))
            fault.plant_here(planted)
            done = cli("compile", source / "main.nacre")
        else:
            done = nacre_process("compile", source / "main.nacre", *fault.options, env=variables)
        assert done.code == fault.exit, done.err
        first, *_, last = lines = [line for line in done.err.splitlines() if not line.endswith("are compiled")]
        # A time-out is a diagnostic of the kernel, with its origin and a help.
        assert len(lines) <= (3 if fault.exit == 70 else 4) and fault.message in first, done.err
        failed = f"nacre: the compiler failed at stage {fault.stage}"
        assert first.startswith(failed if fault.exit == 70 else "error[timeout]: code generation")
        assert not (source / "main.so").exists()

        (folder,) = made.glob("nacre-error-*")
        assert last == f"reproduce with `sh rerun.sh` in {folder}"
        # It needs nothing of what was there.
        shutil.rmtree(source)
        assert (folder / "model" / "main.nacre").read_text() == MODEL
        assert (folder / "model" / "layers.nacre").read_text() == LAYERS
        assert "-O2" in (folder / "options.txt").read_text()
        assert "llvmlite" in (folder / "versions.txt").read_text()
        texts = [p for p in folder.iterdir() if p.suffix in (".graph", ".mlir", ".ll")]
        assert len(texts) == 1 and ("main" in (text := texts[0].read_text()) or "func" in text)
        if name in HERE:
            planted.chdir(folder)
            done = cli(*rerun_arguments(folder))
            code, said = done.code, done.err
        else:
            command = ["sh", folder / "rerun.sh"]
            again = subprocess.run(command, env=variables, capture_output=True, text=True, cwd=tmp_path)
            code, said = again.returncode, again.stderr
        assert code == fault.code, said
        if fault.code == 70:
            assert fault.message in " ".join(said.split())
    # Without the fault, the same command ends well: in this process, which has none.
    if not fault.in_worker:
        monkeypatch.chdir(folder)
        done = cli(*rerun_arguments(folder))
        assert done.code == 0, done.err
    elif name != "time-out":
        sound = subprocess.run(["sh", folder / "rerun.sh"], capture_output=True, text=True)
        assert sound.returncode == 0, sound.stderr


def test_files_that_a_model_names_are_kept_with_it(
    tmp_path: Path, made: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the fault is in reading the model, nothing but its files can show it."""
    site, source = tmp_path / "site", tmp_path / "source"
    for folder in (site, source / "blocks"):
        folder.mkdir(parents=True)
    (source / "main.nacre").write_text(MODEL.replace("layers.nacre", "blocks/layers.nacre"))
    (source / "blocks" / "layers.nacre").write_text(LAYERS)
    (site / "sitecustomize.py").write_text(
        f"{SITE}from nacre.compiler.readers.language import elaborate as t; t.check_unused_blocks = fail\n"
    )
    variables = {**os.environ, "PYTHONPATH": str(site), "TMPDIR": str(made)}
    done = nacre_process("check", "main.nacre", cwd=source, env=variables)
    assert done.code == 70 and "AssertionError: planted" in done.err
    (folder,) = made.glob("nacre-error-*")
    shutil.rmtree(source)
    again = subprocess.run(["sh", folder / "rerun.sh"], env=variables, capture_output=True, text=True)
    assert again.returncode == 70 and "AssertionError: planted" in again.stderr
    monkeypatch.chdir(folder)
    sound = cli(*rerun_arguments(folder))
    assert sound.code == 0 and "no errors" in sound.err, sound.err
