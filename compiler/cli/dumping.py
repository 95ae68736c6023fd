"""Options for dumps of compiler stages, and the presentation of dumps on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from ...dialect.lazy_dataclass import dataclass
from ..dumps import Dumps
from ..dumps.dumps import When
from ..dumps.kernel_texts import COMMENTS
from ..dumps.select import Selection
from ..options import Options
from .build_options import check_stages, choose_stage
from .completion import STAGES
from .differences import colour_difference
from .model_options import PATH
from .reporting import tell

_Command = TypeVar("_Command", bound=Callable[..., Any])

FILTER_HELP = "Show only functions, kernels, nodes or blocks with a matching name, such as `encoder.0*`; repeatable."


@dataclass(frozen=True, slots=True)
class ChosenDumps:
    """The dump options as given on the command line."""

    directory: Path | None
    before: tuple[str, ...]
    after: tuple[str, ...]
    changed: bool
    patterns: tuple[str, ...]

    def dumps(self, options: Options, keep: Collection[str]) -> Dumps:
        """Returns the dump settings. Raises click.BadParameter for a stage that the build does not have."""
        before, after = (tuple(choose_stage(n, options) for n in names) for names in (self.before, self.after))
        check_stages(before, options.stages, "--dump-before")
        check_stages(after, options.stages, "--dump-after")
        selection = Selection(self.patterns) if self.patterns else None
        return Dumps(self.directory, before, after, self.changed, _show, selection, keep)


def report_unmatched(selection: Selection | None) -> None:
    """Prints a message if no name matched a pattern, since such a pattern is probably misspelled."""
    if selection is not None and not selection.found:
        patterns = ", ".join(f"`{pattern}`" for pattern in selection.patterns)
        tell(f"no function, kernel, node or block matches {patterns}")


def _show(when: When, stage: str, language: str, text: str) -> None:
    """Prints a dump to standard error, which keeps standard output for results."""
    shown = colour_difference(text) if when == "changed" else text
    click.echo(f"{COMMENTS[language]} ----- {when} {'by ' * (when == 'changed')}{stage} -----\n{shown}", err=True)


_OPTIONS = (
    click.option(
        "--dump-dir",
        metavar="FOLDER",
        type=PATH,
        help="Write the output of every stage to numbered files in this folder.",
    ),
    click.option(
        "--dump-before",
        multiple=True,
        metavar="STAGE",
        shell_complete=STAGES,
        help="Print the input of a stage; repeatable.",
    ),
    click.option(
        "--dump-after",
        multiple=True,
        metavar="STAGE",
        shell_complete=STAGES,
        help="Print the output of a stage; repeatable.",
    ),
    click.option("--dump-changed", is_flag=True, help="Print the changes of each graph pass as a diff."),
    click.option("--dump-filter", multiple=True, metavar="GLOB", help=FILTER_HELP),
)


def dump_options(command: _Command) -> Callable[..., Any]:
    """Adds the dump options to a command, as its argument `dumped`."""

    @wraps(command)
    def with_options(
        dump_dir: Path | None,
        dump_before: tuple[str, ...],
        dump_after: tuple[str, ...],
        dump_changed: bool,
        dump_filter: tuple[str, ...],
        **further: Any,
    ) -> object:
        dumped = ChosenDumps(dump_dir, dump_before, dump_after, dump_changed, dump_filter)
        return command(dumped=dumped, **further)

    for option in reversed(_OPTIONS):
        option(with_options)
    return with_options
