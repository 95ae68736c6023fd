"""Queries LLVM's CPUs and features from the compiler's own process, through a child, since LLVM may end the process
that asks.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache

_MODULE = "nacre.compiler.targets.features"
_ENTRY = re.compile(r"  (\S+) +- ")
_FEATURES = "Available features"
_REFUSED = "LLVM ERROR: "


@lru_cache(maxsize=64)
def ask_features(cpu: str, features: str) -> frozenset[str]:
    """Returns the features of a CPU that the runtime can detect; none if LLVM has no such CPU, or no code for it.

    Raises RuntimeError if the process ends in any other way: no features would mean slow code, without a word.
    """
    done = _ask(cpu, features)
    if done.returncode and _REFUSED not in done.stderr:
        raise RuntimeError(f"the process that asks LLVM for the features of `{cpu}` ended with {done.returncode}")
    return frozenset() if done.returncode else frozenset(done.stdout.split())


@lru_cache(maxsize=8)
def ask_names(triple: str = "") -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the names of CPUs and of features for a triple, or for this machine."""
    cpus, _, features = _ask(triple).stderr.partition(_FEATURES)
    return tuple(_names(cpus)), tuple(_names(features))


def near_names(name: str, names: Iterable[str]) -> list[str]:
    """Returns the names that may have been meant, the likeliest first."""
    return get_close_matches(name, sorted(set(names)), n=3, cutoff=0.6)


def _names(listing: str) -> list[str]:
    return [found[1] for line in listing.splitlines() if (found := _ENTRY.match(line))]


def _ask(*arguments: str) -> subprocess.CompletedProcess[str]:
    # -P: modules in the user's current folder do not shadow ours.
    command = [sys.executable, "-P", "-m", _MODULE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)
