"""What every command that compiles understands, and the build that follows from it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from ...dialect.diagnostics import DiagnosticError
from ...dialect.dims import Symbol
from ...passes.pipeline import parse_pipeline
from ..api import read_model
from ..build_warnings import with_warnings
from ..checking.checker import VARIABLE, choose_observer
from ..codegen.target import LEVELS, PORTABLE, Target, parse_targets
from ..dumps import Dumps
from ..dumps.dumps import known_names
from ..frontend import Elaborated
from ..pipeline import Build, Options
from ..precision.choose import in_precision
from ..precision.policy import SHORT_FORMS
from ..resume import Resumed, options_after, read_stage
from ..sizes import SizeBound, parse_bound
from .faults import tell

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Context = click.Context
_Parameter = click.Parameter

PATH = click.Path(path_type=Path)
MODEL = click.argument("model", metavar="MODEL.nacre", type=PATH)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The options of a build as they stand on the command line."""

    level: int
    targets: tuple[Target, ...]
    checkpoint: Path | None
    passes: str | None
    strict: bool
    cache: bool
    check_passes: bool
    debug: bool
    rewrite_limit: int | None
    precision: str | None = None
    size: SizeBound | None = None
    start: str | None = None

    def options(self, **further: Any) -> Options:
        """Raises click.BadParameter where there is no such stage to start from."""
        options = Options(
            targets=self.targets,
            level=self.level,
            passes=self.passes,
            strict=self.strict,
            cache=self.cache,
            debug=self.debug,
            rewrite_limit=self.rewrite_limit,
            size=self.size,
            **further,
        )
        if self.start is None:
            return options
        check_stages([self.start], options.stages, "--from")
        return options_after(options, self.start)

    def read(self, model: Path) -> Elaborated:
        """The model in its precision. Raises DiagnosticError."""
        return in_precision(read_model(model, self.checkpoint), self.precision)

    def build(self, model: Path, dumps: Dumps | None = None, **further: Any) -> Build:
        """Reads the model and tells its warnings. Raises DiagnosticError."""
        options = self.options(**further)
        if self.start is None:
            resumed = Resumed(self.read(model))
        else:
            if self.precision is not None:
                raise click.BadParameter("the text of a stage has its precision already", param_hint="--precision")
            resumed = read_stage(model, options.language(self.start), self.checkpoint)
        elaborated = with_warnings(resumed.elaborated, options.targets)
        if elaborated.warnings:
            tell(elaborated.warnings, elaborated.sources)
        observer = choose_observer(elaborated, options, check=self.check_passes)
        return Build(elaborated, options, dumps or Dumps(), observer, resumed.kernels)


def _wrong(error: DiagnosticError) -> click.BadParameter:
    """A fault of an option is one of the command line, not of the input."""
    fault = error.diagnostics[0]
    return click.BadParameter(f"{fault.message}; {fault.help}" if fault.help else fault.message)


def read_passes(context: _Context, parameter: _Parameter, value: Any) -> Any:
    """Lets a list of passes through that can be read."""
    try:
        for text in (value,) if isinstance(value, str) else value or ():
            parse_pipeline(text)
    except DiagnosticError as error:
        raise _wrong(error) from error
    return value


def _read_target(context: _Context, parameter: _Parameter, value: str) -> tuple[Target, ...]:
    try:
        return parse_targets(value)
    except DiagnosticError as error:
        raise _wrong(error) from error


def _read_size(context: _Context, parameter: _Parameter, value: str | None) -> SizeBound | None:
    try:
        return None if value is None else parse_bound(value)
    except DiagnosticError as error:
        raise _wrong(error) from error


_BUILD_OPTIONS = (
    click.option("-O", "level", type=click.IntRange(0, 3), default=2, show_default=True, help="Optimisation level."),
    click.option(
        "--target",
        default="native",
        show_default=True,
        callback=_read_target,
        help=f"What to compile for: native; {', '.join(LEVELS)}, or several of these with commas; {PORTABLE}, which is "
        "the levels from x86-64-v3 on; an LLVM CPU name such as znver4; one of them with +feature or -feature behind "
        "it; or a triple such as aarch64-linux-gnu.",
    ),
    click.option(
        "--checkpoint", type=PATH, help="A checkpoint file or folder, in place of the one that the model names."
    ),
    click.option(
        "--passes",
        metavar="LIST",
        callback=read_passes,
        help="Graph passes in place of the level's, such as `unroll-repeat,cse`; `nacre opt --help` lists them.",
    ),
    click.option(
        "--strict",
        is_flag=True,
        help="Leave out what changes how results are rounded by more than another order of sums: scales that go into "
        "weights, and convolutions by Winograd's transforms.",
    ),
    click.option(
        "--check-passes",
        is_flag=True,
        help="Run what every pass, kernel and the whole computes on drawn inputs, and stop at the first that is wrong; "
        f"so does ${VARIABLE}.",
    ),
    click.option(
        "-g",
        "debug",
        is_flag=True,
        help="Tables of the model's lines for debuggers, and names of kernels to be read; the code stays as it is.",
    ),
    click.option(
        "--rewrite-limit",
        type=click.IntRange(0),
        help="Let the passes make so many changes and no more, to find a wrong one; `nacre bisect` does so by itself.",
    ),
    click.option(
        "--precision",
        metavar="NAME|FILE.nacre",
        help=f"In place of the policies in the model: {', '.join(SHORT_FORMS)}, or a file with `quantize` blocks.",
    ),
    click.option(
        "--size",
        metavar="1.2x|500MiB",
        callback=_read_size,
        help="The most that weights may take, as such or beside the parameters of the model: the transforms that save "
        "least for their bytes are computed in each call, or not used.",
    ),
    click.option("--no-cache", is_flag=True, help="Compile everything anew; so does $NACRE_NO_CACHE."),
)


def build_options(command: _Command) -> Callable[..., Any]:
    """Gives a command the options of a build, as its argument `chosen`."""

    @wraps(command)
    def with_options(
        level: int,
        target: tuple[Target, ...],
        checkpoint: Path | None,
        passes: str | None,
        strict: bool,
        check_passes: bool,
        no_cache: bool,
        debug: bool,
        rewrite_limit: int | None,
        precision: str | None,
        size: SizeBound | None,
        **further: Any,
    ) -> object:
        cache = not no_cache
        chosen = Chosen(
            level, target, checkpoint, passes, strict, cache, check_passes, debug, rewrite_limit, precision, size
        )
        return command(chosen=chosen, **further)

    for option in reversed(_BUILD_OPTIONS):
        option(with_options)
    return with_options


def read_dims(context: _Context, parameter: _Parameter, value: str | None) -> dict[str, int]:
    """Sizes of dims as `B=1,T=128`."""
    sizes: dict[str, int] = {}
    for part in filter(None, (value or "").replace(" ", "").split(",")):
        name, _, size = part.partition("=")
        if not (name.isidentifier() and size.isdecimal()):
            raise click.BadParameter(f"`{part}` is not a dim and its size, as in `T=128`")
        sizes[name] = int(size)
    return sizes


def check_dims(symbols: Iterable[Symbol], dims: Mapping[str, int]) -> None:
    """Refuses sizes that the dims of the model cannot have."""
    known = {symbol.name: symbol for symbol in symbols}
    for name, size in dims.items():
        symbol = known.get(name)
        if symbol is None:
            raise click.BadParameter(
                f"there is no dim `{name}`; there are {', '.join(known) or 'none'}", param_hint="--at"
            )
        if not symbol.low <= size <= symbol.high or size % symbol.multiple:
            raise click.BadParameter(f"`{name}` cannot be {size}: it is {symbol}", param_hint="--at")


def from_option(command: _Command) -> Callable[..., Any]:
    """Gives a command with the options of a build one more, which has its argument be the text of a stage."""

    @wraps(command)
    def with_option(chosen: Chosen, start: str | None, **further: Any) -> object:
        return command(chosen=replace(chosen, start=start), **further)

    return click.option(
        "--from",
        "start",
        metavar="STAGE",
        help="Go on from the text of a stage, as --dump-dir writes it: `graph`, a pass, or one of code generation.",
    )(with_option)


def check_stages(names: Collection[str], stages: Sequence[str], option: str) -> None:
    """Raises click.BadParameter for the name of a stage that a build does not have."""
    for name in names:
        if name not in known_names(stages):
            known = ", ".join(dict.fromkeys(stages))
            raise click.BadParameter(f"there is no stage `{name}`; there are {known}", param_hint=option)


@contextmanager
def told_progress() -> Iterator[Callable[[str], None]]:
    """What tells how far something has come, on one line of standard error, if that is a terminal. No thread draws it:
    processes are forked meanwhile."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        yield lambda text: live.update(Text(text), refresh=True)


@contextmanager
def progress(what: str) -> Iterator[None]:
    """A spinner on standard error while something long runs, if that is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(what):
        yield
