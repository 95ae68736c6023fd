"""Dumps: one numbered text file for each stage and pass, so that a build can be read from source to assembly.

The numbers are those of the stages in the pipeline, so two builds of one model can be compared folder by folder. The
text depends on the input alone: it contains no times and no paths of the machine.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Literal

from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import Array
from .constants import CONSTANTS, write_constants
from .kernel_texts import COMMENTS, Part, format_parts
from .select import Selection

When = Literal["before", "after", "changed"]
Show = Callable[[When, str, str, str], None]
"""`show(when, stage, language, text)`: shows the text of a stage that was requested by name. The text `before` a stage
is that of the previous one; `changed` texts are unified diffs."""

_WRITTEN = re.compile(rf"\d{{2,}}-[\w.-]+\.(?:{'|'.join(COMMENTS)})|{re.escape(CONSTANTS)}")

_NUMBER = re.compile(r"^\d+-")


def numbered(number: int, stage: str) -> str:
    """Returns the unique name of a stage within the build, as in the name of its file."""
    return f"{number:02d}-{stage}"


def plain_name(name: str) -> str:
    """Returns the name of a stage without its number."""
    return _NUMBER.sub("", name)


def known_names(stages: Sequence[str]) -> tuple[str, ...]:
    """Returns every valid name of a stage: its own, and that with its number if a pass runs repeatedly."""
    return (*dict.fromkeys(stages), *(numbered(number, stage) for number, stage in enumerate(stages)))


@dataclass
class Dumps:
    """The destinations of the texts: `directory`, if it is not None, takes all of them; `show` takes the texts of the
    stages in `before` and `after`, and the diffs of changed graphs if `changed`; `texts` takes those of the stages in
    `keep`, by name. If several stages have the name, each is shown, and the last is kept. `selection` restricts the
    parts that are shown.

    Files of an earlier build in the directory are removed, so that it never mixes two builds.
    """

    directory: Path | None = None
    before: Collection[str] = ()
    after: Collection[str] = ()
    changed: bool = False
    show: Show | None = None
    selection: Selection | None = None
    keep: Collection[str] = ()
    texts: dict[str, str] = field(default_factory=dict)
    _stages: Sequence[str] = ()
    _number: int = 0
    _graph: str = ""
    _constants: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.directory is not None:
            self.directory.mkdir(parents=True, exist_ok=True)
            for path in self.directory.iterdir():
                if _WRITTEN.fullmatch(path.name):
                    path.unlink()

    def begin(self, stages: Sequence[str]) -> None:
        """Sets the stages of the build, in order: each has its own number, also if a stage writes no text."""
        self._stages, self._number = tuple(stages), 0

    @property
    def active(self) -> bool:
        return self.directory is not None or self.changed or bool({*self.before, *self.after, *self.keep})

    def wanted(self, stages: Sequence[str], whole: Collection[str]) -> tuple[str, ...]:
        """Returns the stages whose texts are requested: all of them for a directory, for the input of one of them, and
        for the text of one that is made of the others, which are those in `whole`."""
        before, names = ({*map(plain_name, given)} for given in (self.before, (*self.after, *self.keep)))
        if self.directory is not None or not before.isdisjoint(stages) or not names.isdisjoint(whole):
            return tuple(stages)
        return tuple(stage for stage in stages if stage in names)

    def keeps(self, stages: Collection[str]) -> bool:
        """Returns whether the text of one of the stages is kept for the caller."""
        return not set(self.keep).isdisjoint(stages)

    def write_graph(self, stage: str, text: str, constants: Mapping[str, Array]) -> None:
        """Takes a graph; `constants` are the data that its text does not hold."""
        if self.changed and self._number:
            before, after = self._select("graph", self._graph), self._select("graph", text)
            self._show("changed", stage, "graph", _difference(before, after))
        if self.directory is not None and not constants.keys() <= self._constants.keys():
            self._constants |= constants
            write_constants(self.directory, self._constants)
        self._graph = text
        self._write(stage, "graph", text)

    def write_parts(self, stage: str, language: str, parts: Sequence[Part]) -> None:
        """Takes the output of a stage of code generation: `language` is `mlir`, `ll` or `s`."""
        self._write(stage, language, format_parts(language, self._graph, parts))

    def write_module(self, name: str, language: str, parts: Sequence[Part]) -> None:
        """Takes a text that is not a stage and is only kept: one part per target, each a separate module."""
        if name in self.keep:
            self.texts[name] = format_parts(language, "", parts)

    def _write(self, stage: str, language: str, text: str) -> None:
        number = self._number
        while number < len(self._stages) and self._stages[number] != stage:
            number += 1
        self._number = number + 1
        names = {stage, numbered(number, stage)}
        if self.directory is not None:
            (self.directory / f"{numbered(number, stage)}.{language}").write_text(text, encoding="utf-8")
        self.texts |= {name: text for name in names.intersection(self.keep)}
        if not names.isdisjoint(self.after):
            self._show("after", stage, language, self._select(language, text))
        for following in self._stages[number + 1 : number + 2]:
            # Shown before the stage runs, because it may not finish.
            if not {following, numbered(number + 1, following)}.isdisjoint(self.before):
                self._show("before", following, language, self._select(language, text))

    def _select(self, language: str, text: str) -> str:
        return text if self.selection is None else self.selection(language, text)

    def _show(self, when: When, stage: str, language: str, text: str) -> None:
        if self.show is not None and text:
            self.show(when, stage, language, text)


def _difference(before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)
    return "".join(f"{line}\n" for line in list(lines)[2:])
