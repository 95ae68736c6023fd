"""What a careless user types: wrong files, wrong words, wrong places. Every command says what is wrong, and where."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from cli_harness import DOUBLE, Cli

COMMANDS: dict[str, tuple[str, ...]] = {
    "check": (),
    "fmt": ("--check",),
    "compile": ("-o", "out.so"),
    "run": ("--input", "x=x.npy"),
    "test": (),
    "dump": (),
    "opt": ("--pass", "cse"),
    "diff": ("--input", "x=x.npy"),
    "accuracy": ("--data", "s.npz", "--reference", "m.nacre"),
    "quantize": ("--data", "s.npz", "--budget", "error <= 0.1", "-o", "policy.nacre"),
    "graph": ("-o", "out.html"),
    "bench": (),
    "profile": (),
    "inspect": (),
    "bisect": ("-o", "small.nacre"),
    "reduce": ("--fails", "crash", "-o", "small.nacre"),
}
LIBRARIES = ("run", "bench", "profile", "inspect", "diff", "accuracy", "graph")
"""The commands that take an artifact."""


@pytest.fixture
def folder(tmp_path: Path, double_so: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.nacre").write_text(DOUBLE)
    (tmp_path / "m.so").write_bytes(double_so.read_bytes())
    (tmp_path / "empty.nacre").write_bytes(b"")
    (tmp_path / "empty.so").write_bytes(b"")
    (tmp_path / "blocks.nacre").write_text("block A(x: f32[2]) -> f32[2] { return x }\n")
    (tmp_path / "folder").mkdir()
    np.save(tmp_path / "x.npy", np.ones((3, 2), np.float32))
    np.savez(tmp_path / "s.npz", x=np.ones((4, 2), np.float32))
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_model(cli: Cli, folder: Path, command: str) -> None:
    before = sorted(folder.iterdir())
    for name, message in (
        ("missing.nacre", "no such file or directory"),
        ("folder", "is a directory"),
        ("blocks.nacre/m.nacre", "not a directory"),
        ("empty.so", "no model" if command not in LIBRARIES else "it is not a shared library"),
        ("missing.so", "no such file or directory"),
    ):
        done = cli(command, name, *COMMANDS[command])
        if name == "empty.so" and command in ("check", "fmt", "opt"):
            continue
        assert done.code == 1 and message in done.err.lower() and name in done.err, (name, done)
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in LIBRARIES])
def test_a_library_instead_of_a_model(cli: Cli, folder: Path, command: str) -> None:
    done = cli(command, "m.so", *COMMANDS[command])
    assert done.code == 1 and "`m.so` is a shared library, not a model file" in done.err


@pytest.mark.parametrize("command", ["run", "diff", "bench", "profile", "bisect", "reduce"])
def test_inputs_that_are_missing(cli: Cli, folder: Path, command: str) -> None:
    further = COMMANDS[command] if command in ("bisect", "reduce") else ()
    for name in ("missing.npy", "missing.npz:x", "missing.safetensors"):
        done = cli(command, "m.nacre", "--input", f"x={name}", *further)
        assert done.code == 1 and f"error[missing-file]: there is no file `{name.partition(':')[0]}`" in done.err


def test_samples_and_references_that_are_missing(cli: Cli, folder: Path) -> None:
    message = "error[missing-file]: there is no file `missing.npz`"
    assert message in cli("accuracy", "m.nacre", "--data", "missing.npz").err
    done = cli("quantize", "m.nacre", "--budget", "error <= 0.1", "--data", "missing.npz")
    assert done.code == 1 and "error[missing-file]: `missing.npz` cannot be read" in done.err
    assert message in cli("diff", "m.nacre", "missing.npz", "--input", "x=x.npy").err
    assert message in cli("bisect", "m.nacre", "--reference", "missing.npz", "--input", "x=x.npy").err


def test_builds_without_a_common_entry(cli: Cli, folder: Path) -> None:
    nacre.compile(DOUBLE.replace("model double", "model triple"), folder / "other.so")
    done = cli("diff", "m.so", "other.so", "--input", "x=x.npy")
    assert done.code == 1
    assert "`m.so` has the entry `double`, `other.so` does not: it has triple" in done.err


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("crahs", "cannot run `crahs`: there is no such command (exit code 127)\n = help: did you mean `crash`?"),
        ("./x.npy {}", "cannot run `./x.npy {}`: it is not executable (exit code 126)"),
    ],
)
def test_a_command_that_cannot_be_run(cli: Cli, folder: Path, command: str, message: str) -> None:
    done = cli("reduce", "m.nacre", "--fails", command, "-o", "small.nacre")
    assert done.code == 1 and message in done.err and not (folder / "small.nacre").exists()


@pytest.mark.parametrize("command", ["bisect", "reduce"])
def test_the_model_is_not_overwritten(cli: Cli, folder: Path, command: str) -> None:
    further = ("--fails", "true", "--exits", "zero") if command == "reduce" else ()
    done = cli(command, "m.nacre", *further, "-o", "folder/../m.nacre")
    assert done.code == 1 and "it is the model itself" in done.err
    assert (folder / "m.nacre").read_text() == DOUBLE


def test_a_time_limit_that_expires(cli: Cli, folder: Path) -> None:
    done = cli("compile", "m.nacre", "-o", "z.so", "--no-cache", "--timeout", "0.001")
    assert done.code == 1
    assert "error[timeout]: code generation of kernel `" in done.err and "took longer than 0.001 seconds" in done.err
    assert "increase the limit with --timeout" in done.err and not (folder / "z.so").exists()


@pytest.mark.parametrize("number", ["nan", "inf", "1e300"])
@pytest.mark.parametrize(
    "command",
    [
        "compile m.nacre -o z.so --timeout",
        "bisect m.nacre --timeout",
        "reduce m.nacre --fails crash -o small.nacre --timeout",
        "bench m.so --seconds",
        "bench m.so --warm-up",
        "profile m.so --seconds",
        "generate m.gguf text --temperature",
        "generate m.gguf text --min-p",
    ],
)
def test_a_number_that_is_none(cli: Cli, folder: Path, command: str, number: str) -> None:
    """NaN is not below any bound, and a wait that is too long is an error of the operating system."""
    done = cli(*command.split(), number)
    assert done.code == 2 and f"Invalid value for '{command.split()[-1]}'" in done.err, done


@pytest.mark.parametrize("number", ["nan", "inf"])
def test_a_tolerance_that_is_no_number(cli: Cli, folder: Path, number: str) -> None:
    done = cli("diff", "m.nacre", "--tolerance", number)
    assert done.code == 2 and "is not a finite number" in done.err, done


@pytest.mark.parametrize("command", ["run", "inspect", "check", "compile", "test", "fmt", "bench", "graph", "import"])
def test_a_missing_file_has_one_code(cli: Cli, tmp_path: Path, command: str) -> None:
    path = tmp_path / ("none.so" if command in ("run", "inspect", "bench") else "none.nacre")
    done = cli(command, path, *(["-o", tmp_path / "x.nacre"] if command == "import" else []))
    assert done.code == 1
    assert done.err == f"error[missing-file]: `{path}` cannot be read: no such file or directory\n"


def test_an_import_replaces_neither_the_model_nor_its_checkpoint(cli: Cli, scaled: Path) -> None:
    checkpoint = scaled.with_name("scale.safetensors")
    before = scaled.read_bytes(), checkpoint.read_bytes()
    assert "is the model itself" in cli("import", scaled).err
    done = cli("import", scaled, "-o", scaled.with_name("scale.nacre"))
    assert done.code == 2 and "is the checkpoint of the model itself" in done.err
    assert (scaled.read_bytes(), checkpoint.read_bytes()) == before


@pytest.mark.parametrize("name", ["", ".", "/"])
@pytest.mark.parametrize("command", ["compile", "graph", "import", "bisect"])
def test_a_folder_without_a_name_is_no_model(cli: Cli, folder: Path, command: str, name: str) -> None:
    """The default of an output has the name of the model."""
    found = cli(command, name)
    assert found.code == 1, found
    assert "no place beside `/`" in found.err if name == "/" else "without a `config.json`" in found.err


def test_an_output_that_is_a_folder_is_refused(cli: Cli, folder: Path) -> None:
    found = cli("reduce", "m.nacre", "--fails", "crash", "-o", ".")
    assert found.code == 1 and "cannot write `.`" in found.err, found
