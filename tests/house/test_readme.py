"""What README.md says is so: its model compiles, its commands and links exist, and .ci/run finds its two commands."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import nacre
import numpy as np
from nacre.compiler.cli.main import cli
from nacre.compiler.frontend.format import format_source
from safetensors.numpy import save_file

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_model_compiles_and_is_formatted(tmp_path: Path) -> None:
    (text,) = blocks("nacre")
    assert format_source(text, "readme.nacre") == text
    shapes = {"hidden.weight": (32, 64), "hidden.bias": (32,), "answer.weight": (10, 32), "answer.bias": (10,)}
    save_file({name: np.ones(shape, np.float32) for name, shape in shapes.items()}, tmp_path / "digits.safetensors")
    (tmp_path / "readme.nacre").write_text(text)
    model = nacre.compile(tmp_path / "readme.nacre", tmp_path / "readme.so")
    # All weights are one, so all answers are alike.
    np.testing.assert_allclose(model(np.ones((3, 8, 8), np.float32)), np.full((3, 10), 0.1), rtol=1e-6)


def test_command_table_is_the_command_line() -> None:
    named = re.findall(r"^\| `nacre (\w+)", README, re.MULTILINE)
    assert sorted(named) == sorted(cli.commands)


def test_python_names_exist() -> None:
    names = set(re.findall(r"\bnacre\.(\w+)\b(?=\(|`)", README))
    assert {"compile", "load", "check", "DiagnosticError", "NacreError"} <= names
    assert all(hasattr(nacre, name) for name in names)


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)]+)\)", README)
    assert targets and all((ROOT / target).exists() for target in targets)


def test_ci_runs_the_first_two_commands() -> None:
    first, second, *_ = blocks("sh")
    assert first.startswith("python3 -m venv .venv && ") and first.endswith("python samples/digits/classify.py\n")
    assert second == "pip install -e '.[test]' && pytest\n"
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    subprocess.run(["bash", "-n", str(script)], check=True)
