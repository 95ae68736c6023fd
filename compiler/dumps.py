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


@dataclass
class Dumps:
    """Where the texts go: into `directory`, if there is one, and those named in `after` to `show` as well."""

    directory: Path | None = None
    after: Collection[str] = ()
    show: Show | None = None
    seen: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.directory is not None:
            self.directory.mkdir(parents=True, exist_ok=True)

    @property
    def active(self) -> bool:
        return self.directory is not None or bool(self.after)

    def write(self, stage: str, suffix: str, text: str) -> None:
        """Takes the text of a stage; `suffix` names its language, such as `graph`, `mlir`, `ll`, `s`."""
        if self.directory is not None:
            name = f"{len(self.seen):02d}-{re.sub(r'[^A-Za-z0-9._-]', '-', stage)}.{suffix}"
            (self.directory / name).write_text(text)
        if self.show is not None and stage in self.after:
            self.show(stage, text)
        self.seen.append(stage)

    def missed(self) -> list[str]:
        """The stages that were asked for by name and never came."""
        return [name for name in self.after if name not in self.seen]
