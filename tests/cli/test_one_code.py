"""One cause has one code in all commands: a table of causes and of the commands that can meet them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from cli_harness import Cli
from nacre.compiler.cli.main import all_commands, run
from safetensors.numpy import save_file

MODEL = """model main(x: f32[4, 2]) -> y: f32[4, 2] {
  weights "good.safetensors"
  param scale: f32[2]
  return x * scale
}
"""

TEXT = {
    "accuracy": ("--data", "samples.npz", "--reference", "model.nacre"),
    "bench": (),
    "bisect": (),
    "chat": (),
    "check": (),
    "compile": ("-o", "out.so"),
    "diff": ("model.nacre",),
    "dump": ("--stage", "fuse"),
    "fmt": (),
    "generate": ("hello",),
    "graph": ("-o", "out.dot"),
    "import": ("-o", "out.nacre"),
    "opt": ("--pass", "cse"),
    "profile": (),
    "quantize": ("--data", "samples.npz", "--budget", "snr >= 20"),
    "reduce": ("-o", "small.nacre", "--fails", "false"),
    "run": ("--input", "x=x.npy"),
    "serve": (),
    "test": (),
    "train": ("--data", "samples.npz"),
}
"""The commands that take a model file, and their further arguments."""

LIBRARY = ("accuracy", "bench", "chat", "diff", "generate", "graph", "inspect", "profile", "run", "serve")
"""The commands that take an artifact."""

WEIGHED = ("bench", "bisect", "check", "compile", "diff", "profile", "quantize", "reduce", "run", "test", "train")
"""The commands that read the checkpoint of a model."""

BUILDING = TEXT.keys() - {"check", "fmt", "import", "opt"}
"""The commands with options of a build."""

LANGUAGE = sorted(TEXT.keys() - {"opt"})  # `opt` takes graph text
READERS = sorted(TEXT.keys() - {"opt", "fmt"})  # a folder may be a model of Hugging Face, but not for these

CAUSES = {
    "no file": ("missing-file", TEXT, "none.nacre"),
    "no file in no folder": ("missing-file", TEXT, "none/none.nacre"),
    "no artifact": ("missing-file", LIBRARY, "none.so"),
    "a folder without a model": ("bad-folder", READERS, "folder.nacre"),
    "a folder for a file": ("file-error", ("fmt", "opt"), "folder.nacre"),
    "a folder for an artifact": ("file-error", LIBRARY, "folder.so"),
    "not text": ("not-utf8", TEXT, "bytes.nacre"),
    "not an artifact": ("bad-artifact", LIBRARY, "text.so"),
    "not a model": ("syntax", LANGUAGE, "syntax.nacre"),
    "an empty file": ("no-model", sorted(set(LANGUAGE) - {"fmt", "check"}), "empty.nacre"),
    "no checkpoint": ("missing-file", WEIGHED, "model.nacre --checkpoint none.safetensors"),
    "a checkpoint of another shape": ("tensor-shape", WEIGHED, "model.nacre --checkpoint shape.safetensors"),
    "a checkpoint of another dtype": ("tensor-dtype", WEIGHED, "model.nacre --checkpoint dtype.safetensors"),
    "a checkpoint of other tensors": ("missing-tensor", WEIGHED, "model.nacre --checkpoint names.safetensors"),
    "a broken checkpoint": ("checkpoint-broken", WEIGHED, "model.nacre --checkpoint broken.safetensors"),
    "a checkpoint of no known form": ("checkpoint-unknown", WEIGHED, "model.nacre --checkpoint model.nacre"),
    "an unknown hyper-parameter": ("bad-setting", sorted(set(READERS) - {"import"}), "model.nacre --set n=4"),
    "an unknown precision": (
        "unknown-precision",
        sorted(set(READERS) - {"check", "import", "quantize"}),
        "model.nacre --precision f3",
    ),
    "an unknown target": ("unknown-target", sorted(BUILDING), "model.nacre --target vax"),
    "a target that is no name": ("unknown-target", sorted(BUILDING), "model.nacre --target ?!"),
    "an unknown CPU feature": ("unknown-target", sorted(BUILDING), "model.nacre --target x86-64-v3+wings"),
    "no input": ("missing-file", ("run", "diff"), "model.nacre --input x=none.npy"),
    "an input of another shape": ("bad-call", ("run", "diff"), "model.nacre --input x=shape.npy"),
    "an input of another dtype": ("bad-call", ("run", "diff"), "model.nacre --input x=dtype.npy"),
    "an input that is no array": ("checkpoint-broken", ("run", "diff"), "model.nacre --input x=broken.npy"),
    "no samples": ("missing-file", ("accuracy", "quantize"), "model.nacre --data none.npz"),
}
"""For each cause the code, the commands, and the model with the arguments that replace those of `TEXT`."""

INVALID = {
    "a level": ("-O", "9"),
    "a pass": ("--passes", "none"),
    "a size": ("--size", "many"),
    "an option": ("--none",),
    "an entry": ("--entry", "none"),
}
"""Options that no command accepts: the exit code is 2."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("causes")
    (folder / "model.nacre").write_text(MODEL)
    (folder / "syntax.nacre").write_text("model main(x: f32[2]) -> f32[2] { return x + }")
    (folder / "empty.nacre").write_text("")
    (folder / "bytes.nacre").write_bytes(b"\xff\xfe")
    (folder / "text.so").write_text("no library")
    for name in ("folder.nacre", "folder.so"):
        (folder / name).mkdir()
    for name, tensors in {
        "good": {"scale": np.ones(2, np.float32)},
        "shape": {"scale": np.ones(3, np.float32)},
        "dtype": {"scale": np.ones(2, np.int32)},
        "names": {"other": np.ones(2, np.float32)},
    }.items():
        save_file(tensors, folder / f"{name}.safetensors")
    for name in ("broken.safetensors", "broken.npy"):
        (folder / name).write_bytes(b"broken")
    x = np.ones((4, 2), np.float32)
    for name, array in {"x": x, "shape": x[:3], "dtype": x.astype(np.float64)}.items():
        np.save(folder / f"{name}.npy", array)
    np.savez(folder / "samples.npz", x=x[None])
    return folder


def arguments(command: str, text: str) -> list[str]:
    model, *further = text.split()
    usual = [] if "--data" in further or "--input" in further else list(TEXT.get(command, ()))
    if command == "diff" and not usual:
        usual = ["model.nacre"]
    if command == "quantize" and not usual:
        usual = ["--budget", "snr >= 20"]
    return [command, model, *usual, *further]


@pytest.mark.parametrize("cause", CAUSES)
def test_a_cause_has_one_code(cli: Cli, place: Path, monkeypatch: pytest.MonkeyPatch, cause: str) -> None:
    monkeypatch.chdir(place)
    code, commands, text = CAUSES[cause]
    found = {}
    for command in commands:
        done = cli(*arguments(command, text))
        found[command] = (done.code, *sorted(set(re.findall(r"error\[([\w-]+)\]", done.err)))) + (
            () if done.code == 1 else (done.err,)
        )
    assert found == {command: (1, code) for command in commands}


@pytest.mark.parametrize("what", INVALID)
def test_an_invalid_option_is_one_of_the_command_line(
    cli: Cli, place: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.chdir(place)
    known = {name: {option for p in each.params for option in p.opts} for name, each in all_commands().items()}
    commands = [name for name in TEXT if INVALID[what][0] in known[name] or what == "an option"]
    codes = {name: cli(*arguments(name, "model.nacre"), *INVALID[what]).code for name in commands}
    assert commands and codes == dict.fromkeys(commands, 2)


def test_every_command_with_a_model_is_in_the_table() -> None:
    def takes(name: str) -> bool:
        return any(
            p.param_type_name == "argument" and p.name in ("model", "artifact") for p in all_commands()[name].params
        )

    assert run(["--version"]) == 0
    assert {name for name in all_commands() if takes(name)} <= TEXT.keys() | set(LIBRARY)
