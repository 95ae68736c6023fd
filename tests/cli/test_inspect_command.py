"""`nacre inspect`: tables, also where they are piped; JSON with `--json` alone."""

from __future__ import annotations

import json
from pathlib import Path

import nacre
import pytest
from cli_harness import Cli, nacre_process, on_terminal
from nacre.compiler.artifact.needs import read_needs
from nacre.compiler.readers.table import READERS


def test_piped(cli: Cli, double_so: Path) -> None:
    done = cli("inspect", double_so)
    assert done.code == 0 and "entry double" in done.out and "f32[N, 2]" in done.out
    described = cli("inspect", double_so, "--json")
    assert described.json == nacre.load(double_so).describe() | {"needs": read_needs(double_so)}


def test_json_with_colours_forced_is_still_json(double_so: Path) -> None:
    done = nacre_process("inspect", double_so, "--json", env={"FORCE_COLOR": "1", "PATH": ""})
    assert json.loads(done.out)["name"] == "model"


def test_on_a_terminal(digits_so: Path) -> None:
    done = on_terminal("inspect", digits_so)
    assert done.code == 0
    for part in ("digits", "entry classify", "image", "f32[B, 8, 8]", "dim B in 1..256", "10 weights", "embedded"):
        assert part in done.out, part
    assert "workspace: " in done.out and '{"' not in done.out


def test_types_are_not_taken_for_markup(tmp_path: Path) -> None:
    path = tmp_path / "small.so"
    text = "dim b in 1..8 multiple 2\nmodel m(red: f32[b]) -> f32[b] { return red }\n"
    nacre.compile(text, path, opt_level=0)
    done = on_terminal("inspect", path)
    assert done.out.count("f32[b]") == 2
    assert "dim b in 2..8 multiple 2" in done.out or "dim b in 1..8 multiple 2" in done.out
    assert "no weights" in done.out


def test_json_on_a_terminal(double_so: Path) -> None:
    assert json.loads(on_terminal("inspect", double_so, "--json").out)["format"] == "nacre"


@pytest.mark.parametrize("suffix", sorted(READERS))
def test_a_model_file_is_told_how_to_become_an_artifact(cli: Cli, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"model{suffix}"
    path.write_bytes(b"GGUF" + bytes(60))
    done = cli("inspect", path)
    assert done.code == 1 and "is not an artifact" in done.err
    assert "`nacre compile` makes an artifact of a model file" in done.err


def test_a_file_that_is_no_model_is_not_advised_to_be_compiled(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    path.write_bytes(bytes(64))
    done = cli("inspect", path)
    assert done.code == 1 and "is not an artifact" in done.err and "nacre compile" not in done.err
