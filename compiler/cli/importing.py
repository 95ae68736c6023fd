"""`nacre import`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import numpy as np
from safetensors.numpy import save

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ...dialect.graph import Constant, Function, Node, Parameter
from ...dialect.ops.support.trees import OPERANDS_BEFORE
from ...dialect.printer import collect_elided, print_module
from ...dialect.types import Array
from ...passes.manager import PassManager
from ...passes.simplify.dce import Dce
from ..base.files import check_writable, path_beside, replacing, write_whole
from ..dumps.constants import write_constants
from ..model.parameters import open_parameters
from ..model.source import SourceModel
from ..readers.language.model_writer import write_model
from ..readers.table import read_file
from ..readers.trees.graph import plain_ensembles
from ..weights import open_arrays
from ..weights.header_checks import elements
from .build_options import progress
from .model_options import PATH

_LONGEST_CONSTANT = 1024
"""Elements of a constant that remains in the text although it is a result, such as a tokenizer."""
_MOST_NODES, _LONGEST_TABLE = 512, 8192
"""The nodes of a tree ensemble whose tables are part of the text, and the elements of such a table."""


@click.command("import")
@click.argument("file", metavar="FILE", type=PATH)
@click.option(
    "-o",
    "--output",
    type=PATH,
    help="A .nacre or .graph file.  [default: FILE.nacre, beside FILE]",
)
def import_command(file: Path, output: Path | None) -> None:
    """Write a model of another format as model text, with its parameters beside it.

    \b
      nacre import net.onnx -o net.nacre
      nacre import net.onnx -o net.graph
      nacre import net.pt2 -o net.nacre
      nacre import FOLDER -o net.nacre

    FOLDER is a Hugging Face folder with a `config.json`.

    Without --output, the text is written beside FILE: `net.onnx` becomes `net.nacre`, and FOLDER becomes FOLDER.nacre.
    The parameters become a file of the same name with the suffix .safetensors. The command prints the paths that it
    wrote. The text can be read, changed and compiled. `nacre compile net.onnx` needs no text.

    An ensemble of at most 512 nodes is written as one operator, with its tables in the text and a comment for each
    tree.
    """
    path = output or path_beside(file, ".nacre")
    if path.suffix not in (".nacre", ".graph"):
        raise click.BadParameter(f"`{path}` has neither the suffix .nacre nor .graph", param_hint="--output")
    stored = path.with_suffix(".safetensors")
    if path.resolve() == file.resolve():
        raise click.BadParameter(f"`{path}` is the model itself", param_hint="--output")
    check_writable(path)
    with progress(f"reading {file}"):
        with plain_ensembles(_MOST_NODES):
            source = _without_dead_code(read_file(file))
        source = _with_stored_constants(_with_literal_tables(source))
    if any(parameter.type.dtype.is_blocked for parameter in source.module.parameters):
        message = f"`{file}` has parameters in blocks, which a file of safetensors cannot hold"
        help_text = "`nacre compile` reads the file itself"
        raise DiagnosticError([Diagnostic("not-expressible", message, help=help_text)])
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


def _with_literal_tables(source: SourceModel) -> SourceModel:
    """Makes constants of the parameters that are tables of small ensembles."""
    reader = open_parameters(source)
    parameters = source.module.parameter_index

    def written(function: Function) -> Function:
        made = {node.output.name: node for node in function.body if node.op == "parameter"}
        tables = dict[str, Node]()
        for node in function.body:
            operands = node.inputs[OPERANDS_BEFORE[node.op] :] if node.op in OPERANDS_BEFORE else ()
            if all(v.name in made and np.prod(v.type.concrete({})) <= _LONGEST_TABLE for v in operands):
                tables |= {value.name: made[value.name] for value in operands}
        constants = {}
        for name, node in tables.items():
            parameter = parameters[str(node.attribute("name"))]
            array = np.asarray(reader(parameter)).reshape(parameter.type.concrete({}))
            constants[name] = replace(node, op="constant", attributes=(("value", Constant(array)),))
        body = tuple(constants.get(node.outputs[0].name, node) if node.outputs else node for node in function.body)
        return replace(function, body=body)

    return replace(source, module=PassManager([Dce()]).run(source.module.map_functions(written)))


def _with_stored_constants(source: SourceModel) -> SourceModel:
    """Makes a parameter of each result that is a constant too long for the text, such as the tokenizer of a model."""
    arrays: dict[str, Array] = {}
    parameters: list[Parameter] = []

    def stored(function: Function) -> Function:
        constants = [node for node in function.body if node.op == "constant" and node.output in function.results]
        for node in constants:
            data = node.attribute("value")
            assert isinstance(data, Constant), node
            if data.array is not None and data.array.size > _LONGEST_CONSTANT:
                name = f"{function.name}.{node.output.name}"
                arrays[name] = data.array
                parameters.append(Parameter(name, node.output.type, span=node.span))
                changed = replace(node, op="parameter", attributes=(("name", name),))
                function = replace(function, body=tuple(changed if n is node else n for n in function.body))
        return function

    module = source.module.map_functions(stored)
    module = replace(module, parameters=(*module.parameters, *parameters))
    added = {name.split(".")[0]: open_arrays(arrays) for name in arrays}
    return replace(source, module=module, weights={**source.weights, **added})


def _write_parameters(source: SourceModel, path: Path) -> None:
    reader = open_parameters(source)
    arrays: dict[str, Array] = {}
    for parameter in source.module.parameters:
        for element in elements(parameter):
            array = np.asarray(reader(element)).reshape(element.type.concrete({}))
            # The text says that the stored tensor is transposed.
            order = element.transpose or range(array.ndim)
            arrays[element.key] = np.ascontiguousarray(np.transpose(array, np.argsort(order)))
    with replacing(path) as file:
        file.write(save(arrays))
