"""File tests: a small text under `tests/files/<kind>/`, and beside it what must become of it, in `<name>.expect`.

A kind is one entry of `KINDS`: the suffix of its inputs, and the function from an input to the text that is expected.
`pytest tests/test_files.py --update` rewrites the expectations; the diff is then read by a person.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from nacre.compiler.readers import language as frontend
from nacre.compiler.readers.language.format import format_source
from nacre.compiler.readers.language.model_writer import write_model
from nacre.compiler.readers.language.parse import decode, parse_bytes
from nacre.dialect.diagnostics import DiagnosticError, render_all
from nacre.dialect.parser import parse_text
from nacre.dialect.verifier import verify
from nacre.passes.pass_list import run_pipeline_text

FILES = Path(__file__).parent / "files"
NO_FAULT = "no diagnostics\n"


def syntax_errors(path: Path) -> str:
    try:
        parse_bytes(path.read_bytes(), path.name)
    except DiagnosticError as error:
        return f"{error}\n"
    return NO_FAULT


def formatted(path: Path) -> str:
    return format_source(decode(path.read_bytes(), path.name), path.name)


def check_errors(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    faults = frontend.check_source(text, path.name, path.parent)
    return render_all(faults, {path.name: text}) + "\n" if faults else NO_FAULT


def graph_errors(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    try:
        parsed = parse_text(text, path.name)
        verify(parsed.module, parsed.locate)
    except DiagnosticError as error:
        return render_all(error.diagnostics, {path.name: text}) + "\n"
    return NO_FAULT


def passes_output(path: Path) -> str:
    """The graph after the passes that the first line lists: `// RUN: dce,cse`."""
    text = path.read_text(encoding="utf-8")
    first, run = text.splitlines()[0], "// RUN: "
    assert first.startswith(run), f"the first line of {path.name} lists no passes"
    passes = first.removeprefix(run)
    try:
        return run_pipeline_text(text, passes, file=path.name)
    except DiagnosticError as error:
        return f"{error}\n"


def model_text(path: Path) -> str:
    """What the graph is in the language, which has to read it back."""
    module = parse_text(path.read_text(encoding="utf-8"), path.name).module
    verify(module)
    try:
        text = write_model(module)
    except DiagnosticError as error:
        return f"{error}\n"
    warnings = frontend.load_module(text, text=True).warnings
    return text + "".join(f"# {warning.message}\n" for warning in warnings)


KINDS: dict[str, tuple[str, Callable[[Path], str]]] = {
    "syntax": (".nacre", syntax_errors),
    "format": (".nacre", formatted),
    "check": (".nacre", check_errors),
    "graph": (".graph", graph_errors),
    "passes": (".graph", passes_output),
    "write": (".graph", model_text),
}
CASES = [path for kind, (suffix, _) in KINDS.items() for path in sorted((FILES / kind).glob(f"*{suffix}"))]


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_file(path: Path, request: pytest.FixtureRequest) -> None:
    _, run = KINDS[path.parent.name]
    actual = run(path)
    expectation = path.with_suffix(".expect")
    if request.config.getoption("--update"):
        expectation.write_text(actual, encoding="utf-8")
        return
    assert expectation.exists(), f"no expectation yet: run pytest {Path(__file__).name} --update and read {expectation}"
    assert actual == expectation.read_text(encoding="utf-8")


def test_every_expectation_has_its_input() -> None:
    inputs = {path.with_suffix(".expect") for path in CASES}
    assert {path for path in FILES.rglob("*.expect")} == inputs
