"""`nacre compile`."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from importlib.util import find_spec
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from ..base.files import path_beside
from ..build_warnings import plain_notes, precision_notes, rounding_notes, untiled_in_build, warn_of_untiled
from ..codegen.workers.routes import MODULES
from ..model.weight_notes import weight_notes
from ..outputs import EMIT_KINDS, LIBRARY, kept_texts, output_paths, write_outputs
from ..packed_weights import packed_notes
from ..pipeline import Build
from ..report import format_report, report_data
from ..targets.ptxas import describe_device_code
from ..targets.target import Target
from ..weight_sizes import folded_data, format_folded
from .build_options import MODEL, Chosen, check_dims, compile_options, from_option, progress, read_dims
from .dumping import ChosenDumps, dump_options, report_unmatched
from .model_options import PATH
from .reporting import report, tell


def _print_times(build: Build) -> None:
    table = Table("stage", "seconds")
    for stage, seconds in build.times.items():
        table.add_row(stage, f"{seconds:.3f}")
    Console(stderr=True).print(table)


def _default_library(model: Path) -> Path:
    """Returns the path of the library beside the model. Python imports `name.so` in place of the module `name`."""
    library = path_beside(model, ".so")
    name = library.stem
    beside = library.with_suffix(".py").exists() or (library.with_suffix("") / "__init__.py").exists()
    spec = find_spec(name) if name.isidentifier() else None
    if beside or (spec is not None and Path(spec.origin or "").absolute() != library.absolute()):
        return library.with_name(f"{name}_model.so")
    return library


def _check_paths(model: Path, paths: dict[str, Path]) -> None:
    """Checks that no output overwrites the model or another output."""
    for kind, path in paths.items():
        if path.resolve() == model.resolve():
            raise click.BadParameter(f"`{path}` is the model itself", param_hint="--output")
        if list(paths.values()).count(path) > 1:
            raise click.BadParameter(
                f"{kind} and another kind would both be written to `{path}`", param_hint="--output"
            )


def _check_texts(kinds: Collection[str], targets: Sequence[Target]) -> None:
    """Refuses kinds of output that would be empty, and tells if they are without the code for GPUs."""
    modules = [name for name, kind in EMIT_KINDS.items() if name in kinds and kind.text in MODULES]
    devices = [target.name for target in targets if target.is_device]
    if not modules or not devices:
        return
    message = f"`--emit {modules[0]}` writes code for CPUs only; for `{devices[0]}`, use `nacre dump --stage assembly`"
    if len(devices) == len(targets):
        raise click.BadParameter(message, param_hint="--emit")
    tell(f"note: {message}")


@click.command("compile")
@MODEL
@click.option("-o", "--output", type=PATH, help="Output path.  [default: MODEL.so; MODEL_model.so for a Python module]")
@compile_options
@from_option
@click.option("--emit", "kinds", multiple=True, type=click.Choice(list(EMIT_KINDS)), help="Kind of output; repeatable.")
@dump_options
@click.option("--time", "show_times", is_flag=True, help="Print the time of each stage.")
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Print each kernel with its cost and the reasons why neighbouring nodes were not fused.",
)
@click.option("--at", "dims", metavar="B=1,T=128", callback=read_dims, help="Dims for the costs of -v and --json.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON report to standard output.")
def compile_command(
    model: Path,
    output: Path | None,
    chosen: Chosen,
    kinds: tuple[str, ...],
    dumped: ChosenDumps,
    show_times: bool,
    verbose: bool,
    dims: dict[str, int],
    as_json: bool,
) -> None:
    """Compile a model file into a shared library.

    \b
      nacre compile model.nacre -o model.so
      nacre compile model.nacre --checkpoint bert/ --weights external
      nacre compile model.nacre --emit so --emit header --emit python
      nacre compile model.nacre --dump-dir stages/ --dump-after cse
      nacre compile model.nacre --dump-changed --dump-filter 'encoder.0*'
      nacre compile 26-linalg.mlir --from linalg --checkpoint bert/ -o model.so
      nacre compile model.nacre -v --at B=1,T=128

    --emit writes other kinds of output: the graph after all passes, MLIR (linalg), LLVM IR, assembly, the object file,
    a C header, or a single-file Python loader. A single output is written to OUTPUT. Several are written beside it,
    each with its own suffix. If one fails, none is written.
    """
    wanted = set(kinds) or {LIBRARY}
    library = output or _default_library(model)
    paths = output_paths(wanted, library)
    if output is not None and len(wanted) == 1:
        paths = dict.fromkeys(wanted, output)
    _check_paths(model, paths)
    _check_texts(wanted, chosen.options().targets)
    with progress(f"compiling {model}"):
        dumps = dumped.dumps(chosen.options(), kept_texts(paths))
        build = chosen.build(model, dumps)
        check_dims(build.source_model.module.dims, dims)
        write_outputs(build, paths, library.name)
    report_unmatched(dumps.selection)
    for note in (*weight_notes(build.source_model), *precision_notes(build.source_model, build.options)):
        tell(f"note: {note}")
    packed = () if build.optimized is None else packed_notes(build.optimized)
    for note in (*build.recomputed, *build.unpacked, *packed, *plain_notes(build, dims), *rounding_notes(build)):
        tell(f"note: {note}")
    untiled = warn_of_untiled(untiled_in_build(build))
    if untiled:
        report(untiled, {})
    if show_times:
        _print_times(build)
    if verbose:
        for each in (build, *build.further):
            tell(format_report(each.report(dims)))
        for line in format_folded(build.grown):
            tell(line)
    if as_json:
        written = [{"form": f, "path": str(p), "bytes": p.stat().st_size} for f, p in paths.items()]
        kernels = report_data(build.report(dims))
        warnings = [{"code": w.code, "message": w.message, "help": w.help} for w in build.source_model.warnings]
        summary = {
            "model": str(model),
            "written": written,
            "size": None if build.sizes is None else build.sizes.data(),
            "constants": folded_data(build.grown),
            "warnings": warnings,
            "seconds": build.times,
            "functions": kernels,
        }
        click.echo(json.dumps(summary, indent=2))
    else:
        for path in paths.values():
            click.echo(f"wrote {path} ({path.stat().st_size:,} bytes)", err=True)
        for target in build.options.targets if LIBRARY in paths else ():
            if target.is_device:
                tell(f"{target.name}: {describe_device_code(build.options.assembler(target))}")
        if LIBRARY in paths and build.sizes is not None and build.sizes.is_reported:
            tell(str(build.sizes))
