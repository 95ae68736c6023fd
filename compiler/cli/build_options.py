"""Options shared by all commands that compile, and the build that they configure."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from ...dialect.diagnostics import DiagnosticError
from ...dialect.dims import Symbol
from ...dialect.lazy_dataclass import dataclass
from ...passes.registry import RENAMED as RENAMED_PASSES
from ..base.environment import CHECK_PASSES
from ..build_warnings import with_warnings
from ..checking import read_model
from ..codegen.objects import LOGGER
from ..codegen.workers.routes import DEVICE_NAMES
from ..codegen.workers.routes import RENAMED as RENAMED_STAGES
from ..dumps import Dumps
from ..dumps.dumps import known_names, plain_name
from ..model.policy import SHORT_FORMS
from ..model.source import SourceModel
from ..options import Flag, Options, Scope, check_passes_text, option_flags
from ..pipeline import Build
from ..quantization.choose import in_precision
from ..readers.dumped_stages import Resumed, options_after, read_stage
from ..readers.language.settings import Settings
from ..validate.checker import choose_observer
from .completion import PASS_LISTS, PRECISIONS, STAGES, TARGETS
from .model_options import PATH, SET, wrong
from .number_ranges import NumberRange
from .reporting import report

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Context = click.Context
_Parameter = click.Parameter

MODEL = click.argument("model", metavar="MODEL.nacre", type=PATH)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The options of a build on the command line, and the settings by which the model is read and checked."""

    base: Options
    checkpoint: Path | None
    check_passes: bool
    precision: str | None = None
    start: str | None = None
    settings: Settings = field(default_factory=dict)

    def options(self, **further: Any) -> Options:
        """Returns the build options. Raises click.BadParameter if the stage to start from does not exist."""
        options = replace(self.base, **further)
        if self.start is None:
            return options
        check_stages([self.start], options.stages, "--from")
        return options_after(options, self.start)

    def read(self, model: Path) -> SourceModel:
        """Returns the model in its precision. Raises DiagnosticError."""
        return in_precision(read_model(model, self.checkpoint, self.settings), self.precision)

    def build(self, model: Path, dumps: Dumps | None = None, **further: Any) -> Build:
        """Reads the model and reports its warnings. Raises DiagnosticError."""
        options = self.options(**further)
        if self.start is None:
            resumed = Resumed(self.read(model))
        else:
            if self.precision is not None:
                raise click.BadParameter("the dump of a stage already has a precision", param_hint="--precision")
            if self.settings:
                raise click.BadParameter("the dump of a stage has no hyper-parameters", param_hint="--set")
            resumed = read_stage(model, options.language(self.start), self.checkpoint)
        source_model = with_warnings(resumed.source_model, options.targets, check=self.check_passes)
        if source_model.warnings:
            report(source_model.warnings, source_model.sources)
        observer = choose_observer(source_model, options, check=self.check_passes)
        return Build(source_model, options, dumps or Dumps(), observer, resumed.kernels)


def _reading(read: Callable[[str], Any]) -> Callable[[_Context, _Parameter, Any], Any]:
    """Returns a callback that converts the text of an option to its value, or raises an error of the command line. An
    unknown target is an error of the input, as for `nacre.compile`: LLVM decides which targets there are."""

    def callback(context: _Context, parameter: _Parameter, value: Any) -> Any:
        try:
            return read(value) if isinstance(value, str) else value
        except DiagnosticError as error:
            if error.diagnostics[0].code == "unknown-target":
                raise
            raise wrong(error) from error

    return callback


def read_passes(context: _Context, parameter: _Parameter, value: Any) -> Any:
    """Accepts one or several pass lists that parse."""
    for text in (value,) if isinstance(value, str) else value or ():
        _reading(check_passes_text)(context, parameter, text)
    return value


def _click_type(flag: Flag, default: Any) -> click.ParamType[Any] | None:
    if flag.choices:
        return click.Choice(flag.choices)
    if flag.bounds is not None:
        low, high = flag.bounds
        if isinstance(default, float):
            return NumberRange(low, high, min_open=True)
        return click.IntRange(None if low is None else int(low), None if high is None else int(high))
    return None


def _click_option(name: str, flag: Flag, default: Any) -> Callable[[_Command], _Command]:
    """Returns the click option of a field of `Options`."""
    if isinstance(default, bool):
        return click.option(*flag.names, f"set_{name}", is_flag=True, help=flag.help)
    callback = None if flag.read is None else _reading(flag.read)
    return click.option(
        *flag.names,
        f"set_{name}",
        default=flag.says if flag.says is not None else default,
        show_default=default is not None,
        type=_click_type(flag, default),
        metavar=flag.metavar,
        envvar=flag.variable,
        callback=callback,
        shell_complete=_COMPLETED.get(name),
        help=flag.help,
    )


_COMPLETED = {"passes": PASS_LISTS, "targets": TARGETS}


_MODEL_OPTIONS = (
    click.option("--checkpoint", type=PATH, help="Checkpoint file or folder; overrides the one named in the model."),
    click.option(
        "--check-passes",
        is_flag=True,
        help="Verify the result of the passes, each kernel and the complete artifact on random inputs, and stop at the "
        f"first error; also enabled by ${CHECK_PASSES}.",
    ),
    click.option(
        "--precision",
        metavar="NAME|FILE.nacre",
        shell_complete=PRECISIONS,
        help=f"Overrides the policies of the model: {', '.join(SHORT_FORMS)}, or a file with `quantize` blocks.",
    ),
    SET,
)


def build_options(command: _Command, *scopes: Scope) -> Callable[..., Any]:
    """Adds the build options to a command, as its argument `chosen`; with the scope `compile`, all of them."""
    flags = {name: each for name, each in option_flags().items() if each[0].scope in ("build", *scopes)}

    @wraps(command)
    def with_options(
        checkpoint: Path | None, check_passes: bool, precision: str | None, settings: Settings, **further: Any
    ) -> object:
        values: dict[str, Any] = {}
        for name, (_, default) in flags.items():
            value = further.pop(f"set_{name}")
            if isinstance(default, bool):
                values[name] = default != value
            else:
                values[name] = default if value in (None, "") else value
        base = Options(**values)
        return command(chosen=Chosen(base, checkpoint, check_passes, precision, settings=settings), **further)

    options = [_click_option(name, *each) for name, each in flags.items()]
    for option in reversed((*options[:2], _MODEL_OPTIONS[0], *options[2:], *_MODEL_OPTIONS[1:])):
        option(with_options)
    return with_options


def compile_options(command: _Command) -> Callable[..., Any]:
    """Adds every option of a build to `nacre compile`, as its argument `chosen`."""
    return build_options(command, "compile")


def read_dims(context: _Context, parameter: _Parameter, value: str | None) -> dict[str, int]:
    """Parses sizes of dims such as `B=1,T=128`."""
    sizes: dict[str, int] = {}
    for part in filter(None, (value or "").replace(" ", "").split(",")):
        name, _, size = part.partition("=")
        if not (name.isidentifier() and size.isdecimal()):
            raise click.BadParameter(f"`{part}` is not a dim and its size, as in `T=128`")
        sizes[name] = int(size)
    return sizes


def check_dims(symbols: Iterable[Symbol], dims: Mapping[str, int]) -> None:
    """Raises click.BadParameter for sizes that the dims of the model do not admit."""
    known = {symbol.name: symbol for symbol in symbols}
    for name, size in dims.items():
        symbol = known.get(name)
        if symbol is None:
            raise click.BadParameter(
                f"there is no dim `{name}`; there are {', '.join(known) or 'none'}", param_hint="--at"
            )
        if not symbol.low <= size <= symbol.high or size % symbol.multiple:
            raise click.BadParameter(f"`{name}` cannot be {size}: it is declared as {symbol}", param_hint="--at")


def from_option(command: _Command) -> Callable[..., Any]:
    """Adds the option --from to a command with build options; the command's argument is then the dump of a stage."""

    @wraps(command)
    def with_option(chosen: Chosen, start: str | None, **further: Any) -> object:
        return command(chosen=replace(chosen, start=start and choose_stage(start, chosen.base)), **further)

    return click.option(
        "--from",
        "start",
        metavar="STAGE",
        shell_complete=STAGES,
        help="Continue from a dump written by --dump-dir: `graph`, a pass, or a code generation stage.",
    )(with_option)


def choose_stage(name: str, options: Options) -> str:
    """Returns the name of a stage for one that the command line gives: on GPUs, `ptx` is `assembly`."""
    return DEVICE_NAMES.get(name, name) if options.family.device else name


def check_stages(names: Collection[str], stages: Sequence[str], option: str) -> None:
    """Raises click.BadParameter for the name of a stage that a build does not have."""
    for name in names:
        if name not in known_names(stages):
            now = {**RENAMED_PASSES, **RENAMED_STAGES}.get(plain_name(name))
            known = f"there are {', '.join(dict.fromkeys(stages))}" if now is None else f"its name is `{now}`"
            raise click.BadParameter(f"there is no stage `{name}`; {known}", param_hint=option)


@contextmanager
def progress_line() -> Iterator[Callable[[str], None]]:
    """Yields a function that shows progress on standard error: on one line of a terminal, else as lines of text, the
    first one after a while. No thread redraws the line, because processes are forked meanwhile."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        yield lambda text: live.update(Text(text), refresh=True)


SECONDS = 10.0
"""The time between two lines of progress if the output is not a terminal."""


def _lines() -> Callable[[str], None]:
    last = time.monotonic()

    def show(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= SECONDS:
            click.echo(text, err=True)
            last = time.monotonic()

    return show


class _Messages(logging.Handler):
    """Passes the messages of a build on."""

    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__()
        self.show = show

    def emit(self, record: logging.LogRecord) -> None:
        self.show(record.getMessage())


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Shows a spinner on standard error during a long operation, if that is a terminal, else the messages of builds, as
    `progress_line` does."""
    if not sys.stderr.isatty():
        log, shown = logging.getLogger(LOGGER), _Messages(_lines())
        level = log.level
        log.addHandler(shown)
        log.setLevel(logging.INFO)
        try:
            yield
        finally:
            log.removeHandler(shown)
            log.setLevel(level)
        return
    with Console(stderr=True).status(what):
        yield
