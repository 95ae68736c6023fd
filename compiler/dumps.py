"""Dumps: one numbered text file for each stage and pass, so that a build can be read from source to assembly.

The numbers follow the order of the pipeline, so two builds of one model can be compared folder against folder. What is
written depends on the input alone: no times, no paths of the machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

Show = Callable[[str, str], None]
"""`show(stage, text)`: what happens to a stage that was asked for by name."""

_WRITTEN = re.compile(r"\d{2}-[\w.-]+\.(graph|mlir|ll|s)")


@dataclass
class Dumps:
    """Where the texts go: into `directory`, if there is one; those of the stages named in `after` to `show`; those of
    the stages named in `keep` into `texts`. A stage that runs several times is shown each time, and its last text kept.

    Files that an earlier build wrote into the directory go, lest two builds be read as one.
    """

    directory: Path | None = None
    after: Collection[str] = ()
    show: Show | None = None
    keep: Collection[str] = ()
    texts: dict[str, str] = field(default_factory=dict)
    _count: int = 0

    def __post_init__(self) -> None:
        if self.directory is not None:
            self.directory.mkdir(parents=True, exist_ok=True)
            for path in self.directory.iterdir():
                if _WRITTEN.fullmatch(path.name):
                    path.unlink()

    @property
    def active(self) -> bool:
        return self.directory is not None or bool(self.after) or bool(self.keep)

    def write(self, stage: str, suffix: str, text: str) -> None:
        """Takes the text of a stage; `suffix` names its language: `graph`, `mlir`, `ll` or `s`."""
        if self.directory is not None:
            (self.directory / f"{self._count:02d}-{stage}.{suffix}").write_text(text, encoding="utf-8")
        if self.show is not None and stage in self.after:
            self.show(stage, text)
        if stage in self.keep:
            self.texts[stage] = text
        self._count += 1
