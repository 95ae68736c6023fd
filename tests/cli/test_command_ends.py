"""How commands end when something ends them: faults of the compiler, signals, readers that leave, terminals."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_harness import Cli, command_line, leftovers, nacre_process, on_terminal
from nacre.compiler import size_bounds
from nacre.compiler.cli import build_options, check_sources
from nacre.compiler.lower.module import Lowered, lower_module


def test_a_fault_of_the_compiler(cli: Cli, double: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("planted\n" * 100)

    monkeypatch.setattr(check_sources, "find_errors", fail)
    done = cli("check", double, "--json")
    assert done.code == 70
    assert done.out == ""
    assert len(done.err.splitlines()) <= 3
    assert "RuntimeError: planted" in done.err
    folder = Path(done.err.split()[-1])
    assert {p.name for p in folder.iterdir()} == {"double.nacre", "rerun.sh", "traceback.txt", "versions.txt"}
    assert "in fail" in (folder / "traceback.txt").read_text()
    assert (folder / "double.nacre").read_text() == double.read_text()
    rerun = subprocess.run(["sh", folder / "rerun.sh"], capture_output=True, text=True)
    assert (rerun.returncode, rerun.stdout) == (0, "[]\n")  # in that process nothing is planted


def test_a_fault_of_code_generation(cli: Cli, double: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(module: size_bounds.Module, **options: Any) -> Lowered:
        lowered = lower_module(module, **options)
        kernel = lowered.kernels[0]
        text = kernel.kernel.text.replace("arith.addf", "arith.nonsense")
        assert text != kernel.kernel.text
        return replace(lowered, kernels=(replace(kernel, kernel=replace(kernel.kernel, text=text)),))

    monkeypatch.setattr(size_bounds, "lower_module", broken)
    output = double.with_suffix(".so")
    output.write_text("the one before")
    done = cli("compile", double, "--emit", "so", "--emit", "graph", "--dump-dir", tmp_path / "dumps")
    assert done.code == 70
    assert len(done.err.splitlines()) <= 3
    assert "nacre: the compiler failed at stage linalg in `add_" in done.err
    assert re.search(r"^the kernel computes 0 = add\(x, x\) at double.nacre:4:\d+$", done.err, re.MULTILINE), done.err
    assert output.read_text() == "the one before"
    assert sorted(p.name for p in double.parent.iterdir()) == ["double.nacre", "double.so", "dumps"]
    # The stages before the fault are what one wants to see then.
    assert (tmp_path / "dumps" / "00-graph.graph").exists()
    folder = Path(done.err.split()[-1])
    (folder / "result.json").unlink(missing_ok=True)
    rerun = subprocess.run(["sh", folder / "rerun.sh"], capture_output=True, text=True)
    assert rerun.returncode == 1
    assert "nonsense" in json.loads((folder / "result.json").read_text())["error"]
    assert (folder / "model" / "double.nacre").read_text() == double.read_text()
    assert (folder / "options.txt").read_text() == "nacre compile double.nacre -O2 --target native --timeout 600\n"


def test_a_reproducer_that_cannot_be_kept(
    cli: Cli, double: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkdtemp", full)
    monkeypatch.setattr(check_sources, "find_errors", None)
    done = cli("check", double)
    assert done.code == 70
    assert "cannot be written: No space left on device" in done.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals(double: Path, tmp_path: Path, number: signal.Signals, code: int) -> None:
    """Sent while the linker runs, to the whole group, as a terminal does: nothing stays, what was there is kept."""
    started = tmp_path / "started"
    linker = tmp_path / "slow-cc"
    linker.write_text(f"#!/bin/sh\ntouch {started}\nexec sleep 60\n")
    linker.chmod(0o755)
    output = double.with_suffix(".so")
    output.write_text("the one before")
    process = subprocess.Popen(
        command_line("compile", double, "--cc", linker, "-O0"),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell lets what it starts in the background ignore SIGINT, `nohup` SIGHUP, and that is inherited.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    while not started.exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert err.strip() == ("interrupted" if number is signal.SIGINT else "")
    assert output.read_text() == "the one before"
    assert leftovers(double.parent) == []


def test_a_reader_that_leaves(double_so: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command_line("inspect", double_so), stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_progress_is_for_terminals(double: Path) -> None:
    command = ["compile", str(double), "--emit", "graph"]
    # A line of the terminal has room for the path of the file.
    done = on_terminal(*command, environment={"COLUMNS": "240"})
    assert done.code == 0
    assert f"compiling {double.name}" in done.out.replace(f"{double.parent}/", "")
    assert re.search(r"wrote .*double\.graph", done.out.replace("\r\n", ""))
    piped = nacre_process(*command, env={**os.environ, "FORCE_COLOR": "1"})
    assert piped.code == 0
    assert piped.err.startswith("wrote ") and "\x1b[" not in piped.err and "compiling" not in piped.err


def test_progress_is_lines_elsewhere(cli: Cli, double: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_options, "SECONDS", 0.0)
    lines = cli("compile", double, "--no-cache").err.splitlines()
    assert lines[0] == "compiling `double`: parameters" and "1 of 1 kernels are compiled" in lines
    assert lines[-1].startswith("wrote ")
    assert not logging.getLogger("nacre").handlers and not logging.getLogger("nacre").level
    with build_options.progress_line() as show:
        show("half")
    monkeypatch.setattr(build_options, "SECONDS", 60.0)
    assert "compiling" not in cli("compile", double, "--no-cache").err


def test_diagnostics_have_colours_on_terminals_alone(tmp_path: Path) -> None:
    path = tmp_path / "m.nacre"
    path.write_text("model m(x: f32[2]) -> f32[2] { return y }\n")
    assert "\x1b[31m" in on_terminal("check", path).out
    assert "\x1b[" not in nacre_process("check", path).err
    assert "\x1b[" not in on_terminal("check", path, environment={"NO_COLOR": "1"}).out


def test_streams_that_are_not_unicode(tmp_path: Path) -> None:
    """Texts for people show what they can, texts for programs are always UTF-8."""
    path = tmp_path / "m.nacre"
    path.write_text("model m(x: f32[2]) -> f32[2] { return x } # 数\n", encoding="utf-8")
    latin = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = nacre_process("fmt", "-", input=path.read_text(encoding="utf-8"), env=latin)
    assert (done.code, done.out[-4:]) == (0, "# 数\n")
    done = nacre_process("fmt", "--diff", path, env=latin)
    assert done.code == 1 and "# \\u6570\n" in done.out


def test_main_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nacre.compiler.cli.main", "--version"], capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout.startswith("nacre")
