"""`nacre import`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import numpy as np
from safetensors.numpy import save

from ...dialect.printer import collect_elided, print_module
from ...passes.manager import PassManager
from ...passes.simplify.dce import Dce
from ..base.files import check_writable, replacing, write_whole
from ..dumps.constants import write_constants
from ..model.parameters import open_parameters
from ..model.source import SourceModel
from ..readers.language.model_writer import write_model
from ..readers.table import read_file
from .model_options import PATH
from .options import progress


@click.command("import")
@click.argument("file", metavar="FILE", type=PATH)
@click.option("-o", "--output", type=PATH, help="A .nacre or .graph file.  [default: FILE.nacre]")
def import_command(file: Path, output: Path | None) -> None:
    """Write an ONNX or PyTorch model as model text.

    \b
      nacre import net.onnx -o net.nacre
      nacre import net.onnx -o net.graph
      nacre import net.pt2 -o net.nacre

    The parameters become a file of the same name with the suffix .safetensors. The text can be read, changed and
    compiled. `nacre compile net.onnx` needs no text.
    """
    path = output or file.with_suffix(".nacre")
    if path.suffix not in (".nacre", ".graph"):
        raise click.BadParameter(f"`{path}` has neither the suffix .nacre nor .graph", param_hint="--output")
    stored = path.with_suffix(".safetensors")
    if path.resolve() == file.resolve():
        raise click.BadParameter(f"`{path}` is the model itself", param_hint="--output")
    check_writable(path)
    with progress(f"reading {file}"):
        source = _without_dead_code(read_file(file))
    if any(isinstance(each, Path) and each.resolve() == stored.resolve() for each in source.weights.values()):
        raise click.BadParameter(f"`{stored}` is the checkpoint of the model itself", param_hint="--output")
    if path.suffix == ".nacre":
        named = {function.name: stored.name for function in source.module.functions} if source.module.parameters else {}
        write_whole(path, write_model(source.module, named))
    else:
        write_whole(path, print_module(source.module))
        constants = collect_elided(source.module)
        if constants:
            write_constants(path.parent, constants)
    if source.module.parameters:
        _write_parameters(source, stored)
        click.echo(f"wrote {path} and {stored}", err=True)
    else:
        click.echo(f"wrote {path}", err=True)


def _without_dead_code(source: SourceModel) -> SourceModel:
    """Drops nodes and parameters that no result depends on. Exporters leave such nodes, and shape arithmetic does."""
    return replace(source, module=PassManager([Dce()]).run(source.module))


def _write_parameters(source: SourceModel, path: Path) -> None:
    reader = open_parameters(source)
    arrays = {p.key: np.ascontiguousarray(reader(p)).reshape(p.type.concrete({})) for p in source.module.parameters}
    with replacing(path) as file:
        file.write(save(arrays))
