"""Commands that show what compiling does: `dump` prints a stage, `opt` runs graph passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import fill

import click
from rich.console import Console

from ...passes.manager import Pass
from ...passes.pass_list import format_option, run_pipeline_text
from ...passes.registry import PASSES
from ..base.files import check_writable, write_whole
from ..dumps import Dumps
from ..dumps.constants import read_constants
from ..dumps.select import Selection
from ..graph_passes import GRAPH_PASSES
from ..readers.language.parse import decode
from ..stages import result_with_text
from ..tools.profile.machine_code import find_disassembler
from .build_options import MODEL, Chosen, build_options, check_stages, choose_stage, from_option, progress, read_passes
from .completion import PASS_LISTS, STAGES
from .differences import show_difference
from .dumping import FILTER_HELP, report_unmatched
from .model_options import PATH


@click.command("dump")
@MODEL
@build_options
@from_option
@click.option(
    "--stage",
    default="linalg",
    show_default=True,
    shell_complete=STAGES,
    help="A pass or stage; `list` prints all names.",
)
@click.option(
    "--between",
    nargs=2,
    metavar="STAGE STAGE",
    shell_complete=STAGES,
    help="Print the difference of two stages in the same language.",
)
@click.option("--filter", "patterns", multiple=True, metavar="GLOB", help=FILTER_HELP)
def dump_command(
    model: Path, chosen: Chosen, stage: str, between: tuple[str, str] | None, patterns: tuple[str, ...]
) -> None:
    """Print the output of a stage, or the difference of two stages.

    \b
      nacre dump model.nacre --stage list
      nacre dump model.nacre --stage fuse --filter 'encoder.0*'
      nacre dump model.nacre --stage assembly --target x86-64-v3
      nacre dump model.nacre --between graph fuse

    The graph stages are `graph` (before all passes) and the name of each pass; the stages of code generation follow.
    For GPUs, `ptx` is another name of `assembly`, and `sass` prints the machine code of the launches, if CUDA's ptxas
    and nvdisasm or cuobjdump are installed.
    The name of a pass that runs more than once denotes its last run; 02-canonicalize, as in the file names of `nacre
    compile --dump-dir`, denotes a single run. Differences are shown side by side if the terminal is wide enough.
    """
    options = chosen.options()
    stages = options.stages
    if stage == "list":
        click.echo("\n".join((*stages, *([SASS] if options.family.device else []))))
        return
    if stage == SASS and options.family.device and between is None:
        _dump_machine_code(model, chosen, patterns)
        return
    wanted = tuple(choose_stage(name, options) for name in between or (stage,))
    check_stages(wanted, stages, "--between" if between else "--stage")
    language = options.language(wanted[0])
    if any(options.language(name) != language for name in wanted):
        names = " and ".join(f"`{name}`" for name in wanted)
        raise click.BadParameter(f"{names} are in different languages", param_hint="--between")
    selection = Selection(patterns) if patterns else None
    texts = _stage_texts(model, chosen, wanted)
    if selection is not None:
        texts = [selection(language, text) for text in texts]
    report_unmatched(selection)
    if between is None:
        click.echo(texts[0].encode(), nl=False)
    else:
        show_difference(texts[0], texts[1], (wanted[0], wanted[1]), Console())


def _dump_machine_code(model: Path, chosen: Chosen, patterns: Sequence[str]) -> None:
    """Prints the machine code of the launches with matching names."""
    (architecture, *_) = (target.cpu for target in chosen.options().own_targets)
    selection = Selection(patterns) if patterns else None
    disassembler = find_disassembler()
    with TemporaryDirectory() as folder, progress(f"compiling {model}"):
        made = Path(folder) / "model.so"
        chosen.build(model, cubin=False).run(made)
        for names, text in disassembler.print(made, architecture):
            if selection is None or selection.keeps(names):
                click.echo(text, nl=False)
    report_unmatched(selection)


def _stage_texts(model: Path, chosen: Chosen, wanted: Sequence[str]) -> list[str]:
    dumps = Dumps(keep=wanted)
    with progress(f"compiling {model}"):
        build = chosen.build(model, dumps)
        options = build.options
        build.make(*(result_with_text(name, options.route, options.pipeline) for name in wanted))
    return [dumps.texts[name] for name in wanted]


SASS = "sass"
"""The machine code of a GPU, as its maker calls it: no build continues from this text."""


def _describe(name: str, kind: type[Pass]) -> str:
    options = [
        f"{f.name.replace('_', '-')}={'...' if f.default is MISSING else format_option(f.default)}"
        for f in fields(kind)  # type: ignore[arg-type]  # every pass is a dataclass
    ]
    head = name + (f"{{{','.join(options)}}}" if options else "")
    what = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
    return f"  {head}\n{fill(what, 76, initial_indent=' ' * 4, subsequent_indent=' ' * 4)}"


_EPILOG = "\b\nThe passes, with the defaults of their options:\n" + "\n".join(
    _describe(name, kind) for name, kind in PASSES.items()
)


@click.command("opt", epilog=_EPILOG)
@click.argument("graph", metavar="FILE.graph", type=click.Path(allow_dash=True))
@click.option(
    "--pass",
    "passes",
    multiple=True,
    callback=read_passes,
    shell_complete=PASS_LISTS,
    help="A pass, or several, separated by commas; repeatable.",
)
@click.option("-O", "level", type=click.IntRange(0, 3), help="Run the passes of this optimisation level first.")
@click.option(
    "--rewrite-limit", type=click.IntRange(0), help="Stop after this many rewrites, to find an incorrect one."
)
@click.option("-o", "--output", type=PATH, help="Output path.  [default: standard output]")
def opt_command(
    graph: str, passes: Sequence[str], level: int | None, rewrite_limit: int | None, output: Path | None
) -> None:
    """Run graph passes on the text of a graph. Without --pass and -O, the text is verified and reprinted.

    Large constants are read from constants.safetensors beside the file, if it exists; `nacre compile --dump-dir` writes
    this file.

    \b
      nacre compile model.nacre --emit graph -o model.graph
      nacre opt model.graph --pass cse --pass 'unroll-repeat{limit=8}'
      nacre dump model.nacre --stage graph | nacre opt - -O2
    """
    if output is not None:
        check_writable(output)
    name = "<stdin>" if graph == "-" else graph
    constants = {} if graph == "-" else read_constants(Path(graph).parent)
    with click.open_file(graph, "rb") as file:
        text = decode(file.read(), name)
    pipeline = ",".join([*([GRAPH_PASSES[level]] if level is not None else []), *passes])
    result = run_pipeline_text(text, pipeline, file=name, rewrite_limit=rewrite_limit, constants=constants)
    if output is None:
        click.echo(result.encode(), nl=False)
    else:
        write_whole(output, result)
