"""`nacre help` and `nacre completion`: every word has a page, in 80 columns; every diagnostic code is explained."""

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import nacre
import pytest
from cli_harness import Cli
from click.shell_completion import ShellComplete
from nacre.compiler.cli.main import all_commands, run
from nacre.compiler.cli.main import cli as cli_group
from nacre.compiler.model.policy import SHORT_FORMS
from nacre.compiler.readers.language import check_source
from nacre.compiler.readers.language.operators import BUILTINS
from nacre.compiler.targets.families import FAMILIES
from nacre.compiler.targets.variants import VARIANTS
from nacre.compiler.tools.help.sections import DOCS, LANGUAGE, OTHERS, find, known_words, names_of, read_sections
from nacre.compiler.tools.help.terminal import INDENT
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import COMPUTED, STORAGE
from nacre.passes.registry import PASSES

ROOT = Path(__file__).parents[2]
_CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
_REPORT = re.compile(r"report|stop|fail|wrong|Diagnostic|_?(\w+_)?error|_?warning|_failure|_refused|\w+Error")
"""The names of functions that take the code of a diagnostic."""
NAMED = names_of("diagnostics")
EXAMPLES = {
    code: example[0]
    for code, section in NAMED.items()
    if (example := re.findall(r"^```nacre\n(.*?)^```$", "\n".join(section.lines) + "\n", re.MULTILINE | re.DOTALL))
}


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["help", *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("code", EXAMPLES)
def test_the_example_of_a_diagnostic_gives_it(code: str) -> None:
    found = {d.code for d in check_source(EXAMPLES[code], "example.nacre", ROOT)}
    assert found == {code}


COMMANDS = {
    code: example[0]
    for code, section in NAMED.items()
    if (example := re.findall(r"^```sh\n(.*?)^```$", "\n".join(section.lines) + "\n", re.MULTILINE | re.DOTALL))
}
MODEL = re.findall(r"^```nacre\n(.*?)^```$", (DOCS / "diagnostics.md").read_text(), re.MULTILINE | re.DOTALL)[0]
"""The model file at the beginning of the page."""


def run_lines(lines: list[str]) -> None:
    """Runs the lines of a shell that prepare a command. Programs in Python run in this process: another would import
    NumPy or ONNX for longer than it runs."""
    shell: list[str] = []
    for line in lines:
        if program := PROGRAM.fullmatch(line):
            subprocess.run("\n".join(shell), shell=True, check=True)
            shell.clear()
            exec(program["code"] or Path(program["file"]).read_text(), {})
        else:
            shell.append(line)
    subprocess.run("\n".join(shell), shell=True, check=True)


PROGRAM = re.compile(r"python3 (-c '(?P<code>[^']*)'|(?P<file>\w+\.py))")
"""A line of a shell that runs Python and does nothing else."""


@pytest.mark.parametrize("code", COMMANDS)
def test_the_commands_of_a_diagnostic_give_it(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.nacre").write_text(MODEL)
    *first, last = COMMANDS[code].replace("\\\n", "").splitlines()
    run_lines(first)
    name, *arguments = shlex.split(last, comments=True)
    done = cli(*arguments)
    is_warning = "This is a warning" in " ".join(NAMED[code].lines)
    assert name == "nacre" and done.code == (0 if is_warning else 1)
    found = set(re.findall(r"^(?:error|warning)\[([\w-]+)\]", done.err, re.MULTILINE))
    assert code in found if code.startswith("too-many-") else found == {code}


PROGRAMS = {
    code: example[0]
    for code, section in NAMED.items()
    if (example := re.findall(r"^```python\n(.*?)^```$", "\n".join(section.lines) + "\n", re.MULTILINE | re.DOTALL))
}


@pytest.mark.parametrize("code", PROGRAMS)
def test_the_program_of_a_diagnostic_gives_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    for package in ("torch", "skops"):
        if f"import nacre, {package}" in PROGRAMS[code]:
            pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    Path("model.nacre").write_text(MODEL)
    *first, last = PROGRAMS[code].splitlines()
    names: dict[str, object] = {}
    exec("\n".join(first), names)
    with pytest.raises(nacre.DiagnosticError) as error:
        exec(last, names)
    assert {d.code for d in error.value.diagnostics} == {code}


REPORTS = {
    code: example[0]
    for code, section in NAMED.items()
    if (example := re.findall(r"^```text\n(.*?)^```$", "\n".join(section.lines) + "\n", re.MULTILINE | re.DOTALL))
}
"""Reports of errors that need a device, a missing package or a large model."""
FOLDERS = ("compiler", "passes", "dialect", "runtime")


FEWEST_LETTERS = 10
"""The fewest characters of a message without what is inserted: shorter ones would match too much."""


@cache
def sources() -> tuple[str, ...]:
    files = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return tuple(path.read_text(encoding="utf-8") for path in files)


def messages_beside(code: str) -> Iterator[re.Pattern[str]]:
    """Yields the texts in the files that name a code, with anything where a value is inserted. A reader puts the
    operator before its message."""
    for source in (source for source in sources() if f'"{code}"' in source):
        for node in ast.walk(ast.parse(source)):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            texts = [p.value if isinstance(p, ast.Constant) and isinstance(p.value, str) else None for p in parts]
            if sum(len(text) for text in texts if text) >= FEWEST_LETTERS:
                pattern = "".join(".*" if text is None else re.escape(text) for text in texts)
                yield re.compile(f"(`[^`]*` )?{pattern}")


@pytest.mark.parametrize("code", REPORTS)
def test_a_report_has_a_message_of_the_code(code: str) -> None:
    head, _, rest = REPORTS[code].strip().partition(": ")
    assert head in (f"error[{code}]", f"warning[{code}]")
    assert ("This is a warning" in " ".join(NAMED[code].lines)) == head.startswith("warning")
    # The message, or a note below it where other files state the message.
    lines = [line.strip().removeprefix("= ") for line in rest.splitlines()]
    assert any(pattern.fullmatch(line) for pattern in messages_beside(code) for line in lines)


ABSENT = {
    "no-onnx": ("onnx", "nacre.graph.read('m.onnx')"),
    "no-h5py": ("h5py", "nacre.graph.read('m.keras')"),
    "no-skops": ("skops", "nacre.graph.read('m.skops')"),
    "no-jax": ("jax", "nacre.from_jax(abs, 1.0)"),
    "missing-package": ("uvicorn", "from nacre.compiler.cli.main import run; run(['serve', 'm.nacre'])"),
}


@pytest.mark.parametrize("code", ABSENT)
def test_a_report_of_an_absent_package_is_exact(code: str, tmp_path: Path) -> None:
    package, call = ABSENT[code]
    for suffix in ("onnx", "keras", "skops", "nacre"):
        (tmp_path / f"m.{suffix}").write_text(MODEL)
    program = f"import sys; sys.modules[{package!r}] = None; import nacre; {call}"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert REPORTS[code].strip() in " ".join(done.stderr.split())


def test_every_code_has_an_example() -> None:
    shown = (EXAMPLES, COMMANDS, PROGRAMS, REPORTS)
    assert [code for code in NAMED if not any(code in kind for kind in shown)] == []


def codes_in(path: Path) -> Iterator[str]:
    """Yields the codes that a file gives to functions that report, as literals or as a choice of two."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        given = [k.value for k in node.keywords if k.arg == "code"]
        for each in [*given, *(node.args if _REPORT.fullmatch(name) else [])]:
            for value in (each.body, each.orelse) if isinstance(each, ast.IfExp) else (each,):
                text = getattr(value, "value", None)
                if isinstance(text, str) and _CODE.fullmatch(text):
                    yield text


def test_every_code_is_explained() -> None:
    found = {code for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") for code in codes_in(path)}
    assert {"shape-mismatch", "unclosed-string", "bad-range", "data-dependent", "bad-onnx", "random-numbers"} <= found
    missing = found - NAMED.keys()
    assert not missing


def test_every_operator_pass_and_construct_has_a_section() -> None:
    assert set(OPERATORS) <= names_of("operators").keys()
    assert set(PASSES) <= names_of("passes").keys()
    assert LANGUAGE.keys() <= {section.heading for section in read_sections("language")}
    for page, heading in OTHERS.values():
        assert heading in {section.heading for section in read_sections(page)}


TARGETS = ("native", "portable", *VARIANTS, *(family.triple for family in FAMILIES.values() if not family.device))


@pytest.mark.parametrize(
    "word", [*SHORT_FORMS, *map(str, (*COMPUTED, *STORAGE)), *TARGETS, "cuda", "cuda:sm_90a", "--set", "-O2", "@", "**"]
)
def test_every_precision_dtype_and_target_is_explained(capsys: pytest.CaptureFixture[str], word: str) -> None:
    assert shown(capsys, word)


@pytest.mark.parametrize("word", ["softmax", "shape-mismatch", "repeat", "cse", "native", "int8", "|>", "fmt"])
def test_a_word_is_explained(capsys: pytest.CaptureFixture[str], word: str) -> None:
    assert word in shown(capsys, word)


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("checkpoint", "Parameters  (language.md)"),
        ("streaming", "States  (language.md)"),
        ("onnx", "ONNX models  (onnx.md)"),
        ("jupyter", "Notebooks  (python.md)"),
        ("Session.save", "`Session.save(path)`  (python.md)"),
        ("torch.nn.functional.softmax", "`softmax(x, *, axis=-1)`  (operators.md)"),
        ("nn.LayerNorm", "`LayerNorm` of other libraries is `layer_norm` here."),
    ],
)
def test_words_of_users_lead_to_a_page(capsys: pytest.CaptureFixture[str], word: str, line: str) -> None:
    assert shown(capsys, word).splitlines()[0] == line


def test_a_generated_table_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "target")
    assert all(f"  `{variant}`   " in text for variant in VARIANTS) and "<!--" not in text


def test_every_page_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    for word in {*known_words(), *NAMED, *OPERATORS}:
        wide = [line for line in shown(capsys, word).splitlines() if len(line) > 80]
        assert wide == [], word


def test_examples_need_no_breaks() -> None:
    """An example that is typed or copied has short lines; a page breaks those of reports and graphs alone."""
    for word in known_words():
        for section in find(word):
            text = "\n".join(section.lines) + "\n"
            for language, example in re.findall(r"^```(nacre|sh|python)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
                assert max(map(len, example.splitlines())) <= 80 - INDENT, (word, language, example)


def test_without_a_word_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys)
    assert {*BUILTINS, *PASSES, *NAMED} <= set(text.split())
    assert max(map(len, text.splitlines())) <= 80
    listed = text.partition("Operators:")[2].partition("Passes:")[0].split()
    assert set(listed) == BUILTINS.keys()


def test_blocks_of_the_library_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    for file, page in (("losses", "Losses and layers"), ("layers", "Losses and layers"), ("optimizers", "Training")):
        text = (ROOT / "compiler" / "library" / f"{file}.nacre").read_text()
        for name in re.findall(r"^block (\w+)", text, re.MULTILINE):
            if file != "optimizers" or name.islower():
                assert page in shown(capsys, name)


def test_a_command_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--emit" in shown(capsys, "compile")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("sofmax", "`softmax`"),  # an operator
        ("Lineer", "`Linear`"),  # a class of other libraries
        ("linaer", "`linear`"),
        ("Droput", "`Dropout`"),  # a block of the library
        ("adamv", "`adam"),
        ("repaet", "`repeat`"),  # a construct
        ("shape-mismach", "`shape-mismatch`"),  # a code
        ("fold-constant", "`fold-constants`"),  # a pass
        ("compiel", "`compile`"),  # a command
    ],
)
def test_an_unknown_word_has_a_proposal(capsys: pytest.CaptureFixture[str], word: str, meant: str) -> None:
    assert run(["help", word]) == 1
    assert f"did you mean {meant}" in capsys.readouterr().err
    if meant.endswith("`"):
        assert run(["help", meant.strip("`")]) == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_completes_in_each_shell(capsys: pytest.CaptureFixture[str], shell: str) -> None:
    assert run(["completion", shell]) == 0
    assert "_NACRE_COMPLETE" in capsys.readouterr().out


def test_commands_are_completed() -> None:
    variables = {"COMP_WORDS": "nacre co", "COMP_CWORD": "1", "_NACRE_COMPLETE": "bash_complete"}
    command = [sys.executable, "-m", "nacre.compiler.cli.main"]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
    expected = sorted(name for name in all_commands() if name.startswith("co"))
    assert sorted(line.partition(",")[2] for line in done.stdout.splitlines()) == expected


MODELS = "\n".join(f"model {name}(x: f32[2]) -> f32[2] {{ return x }}" for name in ("first", "second")) + "\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("run MODEL.nacre --entry ", ["first", "second"]),
        ("run MODEL.nacre --entry s", ["second"]),
        ("run MODEL.so --entry ", ["first", "second"]),
        ("run none.nacre --entry ", []),
        ("train MODEL.nacre --validation f", ["first"]),
        ("compile MODEL.nacre --precision int4", ["int4", "int4a8"]),
        ("compile MODEL.nacre --precision pol", ["a file"]),
        ("compile MODEL.nacre --target native,cu", ["native,cuda"]),
        ("compile MODEL.nacre --passes cse,unroll", ["cse,unroll-repeat"]),
        ("opt x.graph --pass dc", ["dce"]),
        ("dump MODEL.nacre --stage lin", ["linalg"]),
        ("dump MODEL.nacre --between graph fus", ["fuse"]),
        ("compile MODEL.nacre --dump-after fus", ["fuse"]),
        ("graph MODEL.nacre --stage lin", []),
        ("compile MOD", ["a file"]),
        ("quantize MODEL.nacre --choices bf16,int8-", ["bf16,int8-static"]),
        ("reduce MODEL.nacre --fails num", ["numbers"]),
        ("compile MODEL.nacre --prec", ["--precision"]),
        ("help soft_", ["soft_shrink"]),
    ],
)
def test_values_are_completed(models: Path, line: str, expected: list[str]) -> None:
    *words, last = line.replace("MODEL", str(models.with_suffix(""))).split(" ")
    found = ShellComplete(cli_group, {}, "nacre", "_NACRE_COMPLETE").get_completions(words, last)
    assert [item.value if item.type == "plain" else f"a {item.type}" for item in found] == expected


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "m.nacre"
    path.write_text(MODELS)
    nacre.compile(path, path.with_suffix(".so"))
    return path


def test_the_pages_are_those_of_the_documentation() -> None:
    assert (DOCS / "diagnostics.md").is_file() and DOCS == ROOT / "compiler" / "docs"


@pytest.mark.parametrize(("word", "shown"), [("pixel_shuffle", "depth_to_space"), ("LayerNorm", "layer_norm")])
def test_names_of_other_libraries(cli: Cli, word: str, shown: str) -> None:
    done = cli("help", word)
    assert done.code == 0 and done.out.startswith(f"`{word}` of other libraries is `{shown}` here.\n")
    assert f"`{shown}(" in done.out


@pytest.mark.parametrize("word", ["quantile", "median", "cross"])
def test_words_without_an_operator_are_explained(cli: Cli, word: str) -> None:
    done = cli("help", word)
    assert done.code == 0 and done.out.startswith(f"There is no operator `{word}`: ")
    assert all(len(line) <= 80 for line in done.out.splitlines())
