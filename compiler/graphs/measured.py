"""What `nacre profile --json` measured, by the names of nodes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from .figures import Machine
from .flow import Flow, key

_LEAST_KNOWN = 0.5
"""If less than this share of the time is that of nodes of the graph, another graph was measured."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds by the names of nodes, at sizes of the dims, and the machine's peaks."""

    dims: Mapping[str, int]
    machine: Machine
    seconds: Mapping[str, float]


def read_measured(profile: Mapping[str, Any] | str | os.PathLike[str], flow: Flow) -> Measured:
    """A profile, as a path or as it is read from JSON, joined with the function that it measured. A kernel is known by
    the first value that it writes.

    Raises DiagnosticError where it is no profile, or one of another graph.
    """
    file = "the profile" if isinstance(profile, Mapping) else f"`{profile}`"
    try:
        told = profile if isinstance(profile, Mapping) else json.loads(Path(profile).read_bytes())
        calls = [(str(call["values"][0]), float(call["seconds"])) for call in told["calls"]]
        peak = told["peak"]
        machine = Machine(float(peak["flops_per_second"]), float(peak["bytes_per_second"]))
        entry, dims = told["entry"], {str(name): int(size) for name, size in told["dims"].items()}
    except OSError as error:
        raise _fault(file, (error.strerror or str(error)).lower()) from None
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        raise _fault(file, "it is not what `nacre profile --json` writes") from None
    seconds: dict[str, float] = {}
    for name, lasted in calls:
        if name in flow.makers:
            node = key(flow.makers[name])
            seconds[node] = seconds.get(node, 0.0) + lasted
    total = sum(lasted for _, lasted in calls)
    if entry != flow.function.name or not seconds or sum(seconds.values()) < _LEAST_KNOWN * total:
        raise _fault(file, f"it measured another graph than this one of `{flow.function.name}`")
    return Measured(dims, machine, seconds)


def _fault(file: str, reason: str) -> DiagnosticError:
    help_text = "`nacre profile MODEL --json > profile.json` writes one, of the graph that `level=2` reads"
    return DiagnosticError([Diagnostic("bad-profile", f"{file} cannot be used: {reason}", help=help_text)])
