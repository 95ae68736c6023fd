"""Commands that compile, or show what compiling does: `compile`, `dump`, `opt`."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.table import Table

from ...passes.pipeline import run_pipeline_text
from ...passes.registry import PASSES
from ..api import read_model
from ..artifact.header import emit_header
from ..artifact.python_loader import emit_python, loader_path
from ..codegen.target import LEVELS, parse_target
from ..dumps import Dumps
from ..pipeline import GRAPH_PASSES, Build, Options

_Command = TypeVar("_Command", bound=Callable[..., Any])

MODEL = click.argument("model", metavar="MODEL.nacre", type=click.Path(dir_okay=False, path_type=Path))

_BUILD_OPTIONS = (
    click.option("-O", "level", type=click.IntRange(0, 3), default=2, show_default=True, help="Optimisation level."),
    click.option(
        "--target",
        default="native",
        show_default=True,
        help=f"The CPU to compile for: native, {', '.join(LEVELS)}, or an LLVM CPU name.",
    ),
    click.option(
        "--checkpoint",
        type=click.Path(path_type=Path),
        help="A checkpoint file or folder, in place of the one that the model names.",
    ),
    click.option("--passes", help="Graph passes in place of the level's, such as `unroll-repeat,cse{...}`."),
)


def build_options(command: _Command) -> _Command:
    """Adds what every command that compiles understands."""
    for option in reversed(_BUILD_OPTIONS):
        command = option(command)
    return command


def make_build(
    model: Path, level: int, target: str, checkpoint: Path | None, passes: str | None, dumps: Dumps, **options: Any
) -> Build:
    chosen = Options(target=parse_target(target), level=level, passes=passes, **options)
    return Build(read_model(model, checkpoint), chosen, dumps)


@contextmanager
def progress(what: str) -> Iterator[None]:
    """A spinner on standard error while something long runs, if that is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


def write_whole(path: Path, text: str) -> None:
    """Writes beside the path and renames."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        out.write(text)
    os.chmod(temporary, 0o644)
    os.replace(temporary, path)


def print_times(build: Build) -> None:
    table = Table("stage", "seconds")
    for stage, seconds in build.times.items():
        table.add_row(stage, f"{seconds:.3f}")
    Console(stderr=True).print(table)


_STAGE_OF_FORM = {"graph": None, "mlir": "linalg", "llvm": "llvm-ir", "asm": "assembly"}
"""What `--emit` calls the text of which stage; the graph is that after the last pass."""
_SUFFIXES = {"graph": ".graph", "mlir": ".mlir", "llvm": ".ll", "asm": ".s", "obj": ".o", "header": ".h"}
_FORMS = ("so", *_SUFFIXES, "python")


def _show(stage: str, text: str) -> None:
    click.echo(f"// ----- after {stage} -----\n{text}", err=True)


@click.command("compile")
@MODEL
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Default: MODEL.so.")
@build_options
@click.option(
    "--weights",
    type=click.Choice(["embedded", "external"]),
    default="embedded",
    show_default=True,
    help="Weights inside the library, or in OUTPUT.safetensors beside it.",
)
@click.option(
    "--emit", "forms", multiple=True, type=click.Choice(_FORMS), help="What to write beside or instead; repeatable."
)
@click.option("--cc", envvar="CC", help="The C compiler that links.")
@click.option("--dump-dir", type=click.Path(file_okay=False, path_type=Path), help="A folder for every stage's text.")
@click.option("--dump-after", multiple=True, metavar="STAGE", help="Print the text after a pass or stage; repeatable.")
@click.option("--time", "show_times", is_flag=True, help="A table of what took how long.")
@click.option("--json", "as_json", is_flag=True, help="A JSON report on standard output.")
@click.option("--timeout", type=float, default=600.0, show_default=True, help="Seconds that code generation may take.")
def compile_command(
    model: Path,
    output: Path | None,
    level: int,
    target: str,
    checkpoint: Path | None,
    passes: str | None,
    weights: str,
    forms: tuple[str, ...],
    cc: str | None,
    dump_dir: Path | None,
    dump_after: tuple[str, ...],
    show_times: bool,
    as_json: bool,
    timeout: float,
) -> None:
    """Compile a model file into a shared library.

    --emit writes other forms than the library: the graph after the passes, MLIR (linalg), LLVM IR, assembly, the object
    file, a C header, or a single-file Python loader. With forms but without `so`, no library is made.
    """
    output = output or model.with_suffix(".so")
    wanted = set(forms) or {"so"}
    texts: dict[str, str] = {}
    stages = {s for f in wanted if (s := _STAGE_OF_FORM.get(f)) is not None}

    def keep(stage: str, text: str) -> None:
        texts[stage] = text
        if stage in dump_after:
            _show(stage, text)

    dumps = Dumps(dump_dir, {*stages, *dump_after}, keep)
    with progress(f"compiling {model}"):
        build = make_build(
            model, level, target, checkpoint, passes, dumps, weights=weights, cc=cc or None, timeout=timeout
        )
        written = _write_forms(build, wanted, output, texts)
    for stage in (s for s in dump_after if s not in dumps.seen):
        known = ", ".join(dict.fromkeys(dumps.seen))
        raise click.BadParameter(f"no stage `{stage}`; there were {known}", param_hint="--dump-after")
    if show_times:
        print_times(build)
    if as_json:
        report = {"written": [str(p) for p in written], "times": build.times, "model": str(model)}
        click.echo(json.dumps(report, indent=2))
    else:
        for path in written:
            click.echo(f"wrote {path} ({path.stat().st_size:,} bytes)", err=True)


def _write_forms(build: Build, wanted: set[str], output: Path, texts: dict[str, str]) -> list[Path]:
    written: list[Path] = []

    def write(form: str, text: str) -> None:
        path = output.with_suffix(_SUFFIXES[form])
        write_whole(path, text)
        written.append(path)

    reader = build.read_parameters()
    module = build.optimize()
    if "graph" in wanted:
        write("graph", build.graph_text(module))
    if wanted == {"graph"}:
        return written
    lowered = build.lower(module)
    build.check_budgets(module, lowered)
    if wanted & {"so", "obj", "mlir", "llvm", "asm"}:
        code = build.generate(lowered)
        for form, stage in _STAGE_OF_FORM.items():
            if form in wanted and stage is not None:
                write(form, texts[stage])
        if "obj" in wanted:
            path = output.with_suffix(".o")
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            with os.fdopen(handle, "wb") as out:
                out.write(code)
            os.replace(temporary, path)
            written.append(path)
        if "so" in wanted:
            build.assemble(lowered, reader, code, output)
            written.append(output)
    spec = build.specify(lowered, reader)
    if "header" in wanted:
        write("header", emit_header(spec))
    if "python" in wanted:
        path = loader_path(output)
        write_whole(path, emit_python(spec, output.name))
        written.append(path)
    return written


@click.command("dump")
@MODEL
@build_options
@click.option("--stage", default="linalg", show_default=True, help="A pass or stage; `list` names them all.")
def dump_command(model: Path, level: int, target: str, checkpoint: Path | None, passes: str | None, stage: str) -> None:
    """Print what the compiler made of a model after a pass or stage.

    The graph stages are `graph` (before any pass) and the name of each pass; then come linalg, bufferized, loops,
    llvm-dialect, llvm-ir, optimized and assembly.
    """
    texts: list[str] = []
    dumps = Dumps(None, {stage}, lambda _, text: texts.append(text))
    build = make_build(model, level, target, checkpoint, passes, dumps)
    module = build.optimize()
    if stage == "list" or not texts:
        build.generate(build.lower(module))
    if stage == "list":
        click.echo("\n".join(dumps.seen))
    elif texts:
        # A pass may run more than once: the last one is what the next stage sees.
        click.echo(texts[-1], nl=False)
    else:
        raise click.BadParameter(f"no stage `{stage}`; there were {', '.join(dumps.seen)}", param_hint="--stage")


def _list_passes() -> str:
    return "\b\n" + "\n".join(
        f"  {name:22}{(kind.__doc__ or '').strip().splitlines()[0]}" for name, kind in PASSES.items()
    )


@click.command("opt", epilog=f"The passes:\n\n{_list_passes()}")
@click.argument("graph", metavar="FILE.graph", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--pass", "passes", multiple=True, help="A pass, or several with commas and options; repeatable.")
@click.option("-O", "level", type=click.IntRange(0, 3), help="The passes of an optimisation level.")
@click.option("--rewrite-limit", type=click.IntRange(0), help="Stop after this many rewrites.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Default: standard output.")
def opt_command(
    graph: str, passes: Sequence[str], level: int | None, rewrite_limit: int | None, output: Path | None
) -> None:
    """Run graph passes, text to text."""
    text = sys.stdin.read() if graph == "-" else Path(graph).read_text(encoding="utf-8")
    pipeline = ",".join([*([GRAPH_PASSES[level]] if level is not None else []), *passes])
    result = run_pipeline_text(text, pipeline, file=graph, rewrite_limit=rewrite_limit)
    if output is None:
        click.echo(result, nl=False)
    else:
        write_whole(output, result)
