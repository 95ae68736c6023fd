"""Options shared by commands that call a model: the model, the entry and the inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import click
import numpy as np
from click.core import ParameterSource

from ...dialect.dims import INFINITY, Symbol
from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import DTYPES, Array
from ...runtime.loader import Entry, Model, load
from ...runtime.observe import evaluate
from ..base.repeated import MissingDimsError, Restart, begin_session, find_session_dims
from ..build_warnings import precision_notes
from ..cache import cached_path, load_cached
from ..model.weight_notes import initial_value_notes
from ..options import option_flags
from ..pipeline import Build
from ..report import usual_size
from ..validate.inputs import ORDINARY, random_array
from .build_options import Chosen, build_options, check_dims, progress, read_dims
from .completion import ENTRIES
from .model_options import PATH
from .reporting import tell
from .tensors import read_inputs

MODEL_OR_ARTIFACT = click.argument("model", metavar="MODEL.nacre|MODEL.so", type=PATH)
INPUTS = click.option(
    "--input", "inputs", multiple=True, metavar="NAME=VALUE", help="A .npy file, FILE.npz:KEY, or JSON."
)
ENTRY = click.option(
    "--entry", metavar="NAME", shell_complete=ENTRIES, help="Entry to call, if there are several and none is `main`."
)
WEIGHTS = click.option("--weights", type=PATH, help="File of external weights, if not beside MODEL.so.")

AT = click.option(
    "--at", "dims", metavar="B=1,T=128", callback=read_dims, help="Dims of random inputs.  [default: 128 each]"
)
STATES = click.option(
    "--states", type=PATH, metavar="FILE", help="States before each call, as saved by a session.  [default: initial]"
)
THREADS = click.option(
    "--threads", type=click.IntRange(min=0), default=0, help="Threads per call.  [default: $NACRE_THREADS, else all]"
)

_FOR_TEXT = (
    *(f"set_{name}" for name in option_flags()),
    "checkpoint",
    "check_passes",
    "precision",
    "settings",
    "start",
)
"""The options that apply only to model files."""


def refuse_build_options(context: click.Context, artifact: Path) -> None:
    """Raises click.UsageError if an option of a build is given for an artifact."""
    for option in context.command.params:
        given = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if option.name in _FOR_TEXT and given:
            raise click.UsageError(f"{option.opts[0]} is for model files; {artifact} is already compiled")


def open_model(context: click.Context, model: Path, chosen: Chosen, weights: Path | None, threads: int = 0) -> Model:
    """Loads an artifact directly, or a model file through the cache."""
    return open_with_build(context, model, chosen, weights, threads)[0]


def open_with_build(
    context: click.Context, model: Path, chosen: Chosen, weights: Path | None, threads: int = 0
) -> tuple[Model, Build | None]:
    """As `open_model`, with the build of a model file."""
    if model.suffix == ".so":
        refuse_build_options(context, model)
        return load(model, weights=weights, threads=threads), None
    if weights is not None:
        raise click.UsageError("--weights is for artifacts; --checkpoint names the weights of a model file")
    with progress(f"compiling {model}"):
        build = chosen.build(model)
        loaded = load_cached(build, threads=threads)
    source_model = build.source_model
    for note in (*initial_value_notes(source_model), *precision_notes(source_model, build.options)):
        tell(f"note: {note}")
    return loaded, build


@dataclass(frozen=True, slots=True)
class Side:
    """One build of a comparison: its name, its path, and the loaded model."""

    name: str
    path: Path
    model: Model


def open_side(path: Path, chosen: Chosen) -> Side:
    """Loads an artifact directly, or compiles a model file first. Its budgets are not checked."""
    if path.suffix == ".so":
        return Side(str(path), path, load(path))
    build = chosen.build(path)
    build.source_model = replace(build.source_model, budgets=())
    with progress(f"compiling {path}"):
        name = f"{path} at -O{chosen.base.level}" + (f" in {chosen.precision}" if chosen.precision else "")
        return Side(name, cached_path(build), load_cached(build))


def choose_entry(model: Model, entry: str | None) -> Mapping[str, Any]:
    """Returns the artifact's description of the selected entry."""
    return pick_entry(model.describe()["entries"], entry)


def pick_entry(entries: Any, entry: str | None) -> Mapping[str, Any]:
    """Returns the selected one of described entries."""
    by_name: dict[str, Mapping[str, Any]] = {e["name"]: e for e in entries}
    if entry is None:
        entry = next(iter(by_name)) if len(by_name) == 1 else "main"
    if entry not in by_name:
        raise click.BadParameter(f"the model has the entries {', '.join(by_name)}", param_hint="--entry")
    return by_name[entry]


def open_session(
    model: Model,
    entry: Mapping[str, Any],
    inputs: Sequence[Array],
    dims: Mapping[str, int],
    states: Path | None = None,
) -> Model:
    """Returns a new session for a call with these inputs, or the model itself for an entry without states. `states` is
    a file with the states before the call."""
    if "states" not in entry and states is not None:
        raise click.UsageError(f"--states is for entries with states; `{entry['name']}` has none")
    return begin_session(model, session_dims(model, entry, inputs, dims), states)[0]


def session_dims(
    model: Model, entry: Mapping[str, Any], inputs: Sequence[Array], dims: Mapping[str, int]
) -> dict[str, int] | None:
    """Returns the dims of a session for calls with these inputs, None for an entry without states."""
    try:
        return find_session_dims(model, entry["name"], inputs, dims)
    except MissingDimsError as error:
        text = ",".join(f"{name}=..." for name in error.names)
        message = f"the model has states: give the dims of its session that no input has, --at {text}"
        raise click.UsageError(message) from None


def inputs_for(entry: Mapping[str, Any], given: Sequence[str], dims: Mapping[str, int]) -> list[Array]:
    """Returns the given inputs; if there are none, random inputs at the given sizes of the dims, or at usual sizes."""
    if given and dims and "states" not in entry:
        raise click.UsageError("--at is for random inputs; the given inputs determine the dims")
    if given or not entry["arguments"]:
        return read_inputs(given, entry["arguments"])
    symbols = [read_dim(d) for d in entry["dims"]]
    known = {symbol.name for symbol in symbols}
    # A session may have dims that this entry does not use.
    check_dims(symbols, {name: size for name, size in dims.items() if name in known or "states" not in entry})
    sizes = {s.name: dims.get(s.name, usual_size(s)) for s in symbols}
    rng = np.random.default_rng(0)
    return [_make_up(rng, a, [evaluate(size, sizes) for size in a["shape"]]) for a in entry["arguments"]]


def read_dim(described: Mapping[str, Any]) -> Symbol:
    high = INFINITY if described["high"] is None else described["high"]
    return Symbol(described["name"], described["low"], high, described["multiple"])


def _make_up(rng: np.random.Generator, argument: Mapping[str, Any], shape: Sequence[int]) -> Array:
    dtype = DTYPES[argument["dtype"]]
    if dtype.is_integer:
        # Row indices of a table; most tables have at least two rows.
        return rng.integers(0, 2, shape).astype(dtype.numpy)
    return random_array(rng, dtype, shape, ORDINARY)


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A loaded model or a session of it, an entry and its inputs. `restart` gives the states their values before a
    call."""

    model: Model
    entry: Entry
    inputs: Sequence[Array]
    restart: Restart


@dataclass(frozen=True, slots=True)
class ChosenCall:
    """The options of a measured call as given on the command line."""

    path: Path
    given: Sequence[str]
    dims: Mapping[str, int]
    entry: str | None
    weights: Path | None
    chosen: Chosen
    threads: int
    states: Path | None

    def open(self, context: click.Context) -> OpenCall:
        """Loads the model and calls it once: invalid inputs are reported before the measurement."""
        model = open_model(context, self.path, self.chosen, self.weights, self.threads)
        described = choose_entry(model, self.entry)
        arrays = inputs_for(described, self.given, self.dims)
        if "states" not in described and self.states is not None:
            raise click.UsageError(f"--states is for entries with states; `{described['name']}` has none")
        dims = session_dims(model, described, arrays, self._sizes(model, described))
        session, restart = begin_session(model, dims, self.states)
        entry = session.entries[described["name"]]
        entry(*arrays)
        return OpenCall(session, entry, arrays, restart)

    def _sizes(self, model: Model, entry: Mapping[str, Any]) -> Mapping[str, int]:
        """Returns the given sizes of dims. Beside random inputs, other dims of a session have usual sizes."""
        if self.given or "states" not in entry:
            return self.dims
        symbols = map(read_dim, model.describe()["session"]["dims"])
        return {symbol.name: usual_size(symbol) for symbol in symbols} | dict(self.dims)


_CALL_OPTIONS = (MODEL_OR_ARTIFACT, INPUTS, AT, STATES, ENTRY, WEIGHTS, build_options, THREADS)


def call_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of a measured call to a command, as its argument `call`."""

    @wraps(command)
    def with_options(
        model: Path,
        inputs: Sequence[str],
        dims: Mapping[str, int],
        entry: str | None,
        weights: Path | None,
        chosen: Chosen,
        threads: int,
        states: Path | None,
        **further: Any,
    ) -> object:
        return command(call=ChosenCall(model, inputs, dims, entry, weights, chosen, threads, states), **further)

    made: Callable[..., Any] = with_options
    for option in reversed(_CALL_OPTIONS):
        made = option(made)
    return made
