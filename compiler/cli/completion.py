"""Completion of the values of options in a shell: entries of the model on the command line, stages, passes, precisions
and targets. The shell itself completes paths. An error proposes nothing, since the command will report it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from ...dialect.diagnostics import DiagnosticError
from ...passes.registry import PASSES
from ...runtime.library import NacreError, open_library
from ..model.policy import SHORT_FORMS
from ..options import Options
from ..readers.language import syntax
from ..readers.language.parse import parse
from ..stages import GRAPH
from ..targets.families import FAMILIES
from ..targets.variants import PORTABLE, VARIANTS

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem[str]]]
_Find = Callable[[click.Context], Iterable[str]]


def proposals(find: _Find, *, listed: bool = False, paths: bool = False) -> Complete:
    """Returns a function that proposes words. `listed`: the value is a list with commas, and its last word is
    completed; `paths`: it may be a path instead."""

    def complete(context: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem[str]]:
        before, comma, last = typed.rpartition(",") if listed else ("", "", typed)
        found = [CompletionItem(before + comma + word) for word in find(context) if word.startswith(last)]
        return found or ([CompletionItem(typed, type="file")] if paths else [])

    return complete


def _entries(context: click.Context) -> list[str]:
    for given in (context.params.get("model"), *context.args):
        path = Path(given or "")
        try:
            if path.suffix == ".so":
                return [entry["name"] for entry in open_library(str(path)).description["entries"]]
            if path.suffix == ".nacre":
                items = parse(path.read_text(encoding="utf-8"), str(path)).items
                return [item.name.name for item in items if isinstance(item, syntax.Model)]
        except (OSError, UnicodeError, DiagnosticError, NacreError):
            pass
    return []


def _stages(context: click.Context) -> list[str]:
    return list(dict.fromkeys(name for level in range(4) for name in Options(level).stages))


def _graphs(context: click.Context) -> list[str]:
    levels = map(Options, range(4))
    return list(dict.fromkeys(n for options in levels for n in options.stages if options.language(n) == GRAPH))


_TRIPLES = [family.triple for family in FAMILIES.values() if not family.device]
_TARGETS = ("native", PORTABLE, *VARIANTS, *_TRIPLES, "cuda")

ENTRIES = proposals(_entries)
STAGES = proposals(_stages)
GRAPHS = proposals(_graphs)
PASS_LISTS = proposals(lambda _: PASSES, listed=True)
PRECISIONS = proposals(lambda _: SHORT_FORMS, paths=True)
TARGETS = proposals(lambda _: _TARGETS, listed=True)
