"""Reads the output of `nacre profile --json` and joins it with the measured graph.

A kernel call is identified by the first value that it writes and by its number of operations; its time is attributed to
the node that computes this value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....dialect.diagnostics import Diagnostic, DiagnosticError

_LEAST_KNOWN = 0.5
"""If less than this share of the time belongs to nodes of the graph, the profile is of another graph."""


@dataclass(frozen=True, slots=True)
class Call:
    """The measured time of a kernel call, its operations, and the time of these at the machine's peak for the
    multiplied dtypes; older profiles lack the latter."""

    seconds: float
    flops: int
    ideal: float | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """A node by its number, with its operations at the sizes of the profile."""

    number: int
    flops: int


@dataclass(frozen=True, slots=True)
class Profile:
    """An entry's kernel calls, by the first value that each writes; the other fields as they are displayed."""

    file: str
    entry: str
    dims: Mapping[str, int]
    calls: Mapping[str, Call]
    flops_per_second: float
    bytes_per_second: float
    products_per_second: Mapping[str, float]
    shown: Mapping[str, Any]


def read_profile(path: Path) -> Profile:
    """Reads a file that `nacre profile --json` wrote. Raises DiagnosticError if it is not one."""
    try:
        return parse_profile(json.loads(path.read_bytes()), path)
    except OSError as error:
        raise _error(path, (error.strerror or str(error)).lower()) from None
    except ValueError:
        raise _error(path, "it is not the output of `nacre profile --json`") from None


def parse_profile(reported: Any, file: Path | str = "profile") -> Profile:
    """Converts JSON data to a profile. Raises DiagnosticError if the data are not a profile."""
    if isinstance(reported, Mapping) and reported.get("peak", ()) is None:
        help_text = "`nacre profile --peak GFLOP/S,GB/S` names the peak"
        raise _error(file, f"it lacks the peak of `{reported.get('processor')}`", help_text)
    try:
        return Profile(
            str(file),
            str(reported["entry"]),
            {str(name): int(size) for name, size in reported["dims"].items()},
            {str(c["values"][0]): _read_call(c) for c in reported["calls"]},
            float(reported["peak"]["flops_per_second"]),
            float(reported["peak"]["bytes_per_second"]),
            {str(name): float(rate) for name, rate in reported["peak"].get("products_per_second", {}).items()},
            {key: reported[key] for key in ("threads", "processor", "runs", "seconds")},
        )
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        raise _error(file, "it is not the output of `nacre profile --json`") from None


def _read_call(reported: Mapping[str, Any]) -> Call:
    ideal = reported.get("ideal_seconds")
    return Call(float(reported["seconds"]), int(reported["flops"]), None if ideal is None else float(ideal))


_HELP = "create one with `nacre profile MODEL --json > profile.json`"


def _error(path: Path | str, reason: str, help_text: str = _HELP) -> DiagnosticError:
    return DiagnosticError([Diagnostic("bad-profile", f"`{path}` cannot be used: {reason}", help=help_text)])


def join_profile(profile: Profile, nodes: Mapping[tuple[str, str], Measured]) -> dict[int, Call]:
    """Returns the calls by node number. `nodes` are those of the graph after all passes, by function and first result.

    Raises DiagnosticError if the graph is not the measured one.
    """
    found: dict[int, Call] = {}
    for name, call in profile.calls.items():
        node = nodes.get((profile.entry, name))
        if node is not None and node.flops == call.flops:
            found[node.number] = call
    # Copies of results have separate names that no node defines.
    if not found or sum(call.seconds for call in found.values()) < _LEAST_KNOWN * sum(
        call.seconds for call in profile.calls.values()
    ):
        raise _error(profile.file, f"it was measured for another graph than `{profile.entry}` after these passes")
    return found
