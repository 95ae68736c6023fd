"""What `nacre profile --json` measured, read back and joined with the graph that was measured.

A call of a kernel is known by the first value that it writes, and by how many operations it does; the node that makes
this value is where its time stands.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...dialect.diagnostics import Diagnostic, DiagnosticError

_LEAST_KNOWN = 0.5
"""If less than this share of the time is that of nodes of the graph, another graph was measured."""


@dataclass(frozen=True, slots=True)
class Call:
    """How long the call of a kernel took, how many operations it is, and how long these take at the machine's peak for
    the dtypes that are multiplied; an older profile does not say that."""

    seconds: float
    flops: int
    ideal: float | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """A node by its number, and how many operations it is at the sizes of the profile."""

    number: int
    flops: int


@dataclass(frozen=True, slots=True)
class Profile:
    """An entry's calls of kernels, by the first value that each writes; the rest as it is shown."""

    file: str
    entry: str
    dims: Mapping[str, int]
    calls: Mapping[str, Call]
    flops_per_second: float
    bytes_per_second: float
    products_per_second: Mapping[str, float]
    shown: Mapping[str, Any]


def read_profile(path: Path) -> Profile:
    """A file that `nacre profile --json` wrote. Raises DiagnosticError where it is none."""
    try:
        return parse_profile(json.loads(path.read_bytes()), path)
    except OSError as error:
        raise _fault(path, (error.strerror or str(error)).lower()) from None
    except ValueError:
        raise _fault(path, "it is not what `nacre profile --json` writes") from None


def parse_profile(told: Any, file: Path | str = "profile") -> Profile:
    """A profile as it is read from JSON. Raises DiagnosticError where it is none."""
    try:
        return Profile(
            str(file),
            str(told["entry"]),
            {str(name): int(size) for name, size in told["dims"].items()},
            {str(c["values"][0]): _read_call(c) for c in told["calls"]},
            float(told["peak"]["flops_per_second"]),
            float(told["peak"]["bytes_per_second"]),
            {str(name): float(rate) for name, rate in told["peak"].get("products_per_second", {}).items()},
            {key: told[key] for key in ("threads", "processor", "runs", "seconds")},
        )
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        raise _fault(file, "it is not what `nacre profile --json` writes") from None


def _read_call(told: Mapping[str, Any]) -> Call:
    ideal = told.get("ideal_seconds")
    return Call(float(told["seconds"]), int(told["flops"]), None if ideal is None else float(ideal))


def _fault(path: Path | str, reason: str) -> DiagnosticError:
    help_text = "`nacre profile MODEL --json > profile.json` writes one"
    return DiagnosticError([Diagnostic("bad-profile", f"`{path}` cannot be used: {reason}", help=help_text)])


def join_profile(profile: Profile, nodes: Mapping[tuple[str, str], Measured]) -> dict[int, Call]:
    """The calls by the number of a node. `nodes` are those of the graph after all passes, by function and first result.

    Raises DiagnosticError where the graph is not the one that was measured.
    """
    found: dict[int, Call] = {}
    for name, call in profile.calls.items():
        node = nodes.get((profile.entry, name))
        if node is not None and node.flops == call.flops:
            found[node.number] = call
    # Copies of results have names of their own, and no node.
    if not found or sum(call.seconds for call in found.values()) < _LEAST_KNOWN * sum(
        call.seconds for call in profile.calls.values()
    ):
        raise _fault(profile.file, f"it measured another graph than `{profile.entry}` after these passes")
    return found
