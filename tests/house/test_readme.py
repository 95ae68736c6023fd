"""README.md and the pages of compiler/docs are correct: models compile, commands, names, links and pictures exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.cli.main import all_commands
from nacre.compiler.readers.language import check_source
from nacre.compiler.readers.language.format import format_source
from nacre.dialect.diagnostics import render_all
from safetensors.numpy import save_file

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = ROOT / "compiler" / "docs"
PAGES = (ROOT / "README.md", ROOT / "runtime" / "ABI.md", *sorted(DOCS.rglob("*.md")))


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
    named = re.findall(r"^\| `nacre (\w+)", (DOCS / "command_line.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(named) == sorted(all_commands())


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "python.md"], ids=lambda page: page.name)
def test_python_names_exist(page: Path) -> None:
    names = set(re.findall(r"\bnacre\.(\w+)\b(?=\(|`)", page.read_text(encoding="utf-8")))
    assert {"compile", "load", "check", "DiagnosticError", "NacreError"} <= names
    assert all(hasattr(nacre, name) for name in names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text) + re.findall(r'<img [^>]*src="([^"]+)"', text)
    assert targets or page.name != "README.md"
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing


def test_readme_leads_to_every_page() -> None:
    assert all(f"(compiler/docs/{page.name})" in README for page in DOCS.glob("*.md"))


def test_shown_diagnostic_is_the_one_of_check(tmp_path: Path) -> None:
    """The README changes one size of its model, and shows the error."""
    (model,) = blocks("nacre")
    (shown,) = re.findall(r"^```\n(error\[.*?)\n```$", README, re.MULTILINE | re.DOTALL)
    source = model.replace("Linear<32, 10>", "Linear<64, 10>")
    diagnostics = check_source(source, "digits.nacre", tmp_path)
    assert render_all(diagnostics, {"digits.nacre": source}) == shown


def test_ci_runs_the_first_two_commands() -> None:
    first, second, *_ = blocks("sh")
    assert first.startswith("python3 -m venv .venv && ") and first.endswith("python samples/digits/classify.py\n")
    assert second == "pip install -e '.[test]' && pytest\n"
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_workflow_runs_the_supported_versions_of_python() -> None:
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    tested = re.findall(r'"(3\.\d+)"', workflow)
    (first, last) = re.findall(r"Python (3\.\d+) to (3\.\d+)", README)[0]
    required = re.findall(r'requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert tested[0] == first == required[0]
    assert tested[-1] == last
    assert "run: .ci/run" in workflow
