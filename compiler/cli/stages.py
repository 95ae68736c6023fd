"""Commands that show what compiling does: `dump` prints a stage, `opt` runs graph passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from textwrap import fill

import click

from ...passes.manager import Pass
from ...passes.pipeline import run_pipeline_text
from ...passes.registry import PASSES
from ..dumps import Dumps
from ..files import check_writable, write_whole
from ..frontend.parse import decode
from ..pipeline import GRAPH_PASSES
from .options import MODEL, PATH, Chosen, build_options, progress, read_passes


@click.command("dump")
@MODEL
@build_options
@click.option("--stage", default="linalg", show_default=True, help="A pass or stage; `list` names them all.")
def dump_command(model: Path, chosen: Chosen, stage: str) -> None:
    """Print what the compiler made of a model after a pass or stage.

    \b
      nacre dump model.nacre --stage list
      nacre dump model.nacre --stage fuse
      nacre dump model.nacre --stage assembly --target x86-64-v3

    The graph stages are `graph` (before any pass) and the name of each pass; then come those of code generation. Where
    a pass runs more than once, the graph after its last run is shown.
    """
    stages = chosen.options().stages
    if stage == "list":
        click.echo("\n".join(stages))
        return
    if stage not in stages:
        known = ", ".join(dict.fromkeys(stages))
        raise click.BadParameter(f"there is no stage `{stage}`; there are {known}", param_hint="--stage")
    dumps = Dumps(keep={stage})
    with progress(f"compiling {model}"):
        build = chosen.build(model, dumps)
        module = build.optimize()
        if stage not in dumps.texts:
            build.generate_entries(build.generate(build.lower(module)))
    click.echo(dumps.texts[stage].encode(), nl=False)


def _describe(name: str, kind: type[Pass]) -> str:
    options = [
        f"{f.name.replace('_', '-')}={'...' if f.default is MISSING else str(f.default).lower()}"
        for f in fields(kind)  # type: ignore[arg-type]  # every pass is a dataclass
    ]
    head = name + (f"{{{','.join(options)}}}" if options else "")
    what = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
    return f"  {head}\n{fill(what, 90, initial_indent=' ' * 6, subsequent_indent=' ' * 6)}"


_EPILOG = "\b\nThe passes, with the defaults of their options:\n" + "\n".join(
    _describe(name, kind) for name, kind in PASSES.items()
)


@click.command("opt", epilog=_EPILOG)
@click.argument("graph", metavar="FILE.graph", type=click.Path(allow_dash=True))
@click.option(
    "--pass", "passes", multiple=True, callback=read_passes, help="A pass, or several with commas; repeatable."
)
@click.option("-O", "level", type=click.IntRange(0, 3), help="The passes of an optimisation level, before the others.")
@click.option("--rewrite-limit", type=click.IntRange(0), help="Stop after this many rewrites, to find a wrong one.")
@click.option("-o", "--output", type=PATH, help="Default: standard output.")
def opt_command(
    graph: str, passes: Sequence[str], level: int | None, rewrite_limit: int | None, output: Path | None
) -> None:
    """Run graph passes, text to text. Without any, the text is checked and brought into its usual form.

    \b
      nacre compile model.nacre --emit graph -o model.graph
      nacre opt model.graph --pass cse --pass 'unroll-repeat{limit=8}'
      nacre dump model.nacre --stage graph | nacre opt - -O2
    """
    if output is not None:
        check_writable(output)
    name = "<stdin>" if graph == "-" else graph
    with click.open_file(graph, "rb") as file:
        text = decode(file.read(), name)
    pipeline = ",".join([*([GRAPH_PASSES[level]] if level is not None else []), *passes])
    result = run_pipeline_text(text, pipeline, file=name, rewrite_limit=rewrite_limit)
    if output is None:
        click.echo(result.encode(), nl=False)
    else:
        write_whole(output, result)
