"""What the compiler's process and a code generation child tell each other, and how it is written down."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .routes import FIRST

KERNEL = "kernel.mlir"
ENTRIES = "entries.ll"
OBJECT = "code.o"
DUMPS = "dump"
RESULT = "result.json"
"""Names of files: the text of a kernel, that of entries, the object made of either, the folder of dumps, and what is
said of the object."""


def job_path(folder: Path) -> Path:
    return folder / "job.json"


@dataclass(frozen=True, slots=True)
class Job:
    """One object to be made of the text beside it. `keep` names the functions that the object exports, to everybody if
    `visible`, else to those that it is linked with. `scratch` arguments of a kernel may turn out to be unused.
    `strict` code rounds as the text says, but for the order of sums. With `debug` it has tables of lines. The text is
    that of the stage `start`, at which the kernel has been tiled by `schemes`, if it has been.
    """

    level: int
    cpu: str
    triple: str
    features: str
    keep: tuple[str, ...]
    route: str = ""
    scratch: int = 0
    visible: bool = False
    dump: bool = False
    strict: bool = False
    debug: bool = False
    start: str = FIRST
    schemes: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"

    @staticmethod
    def from_json(text: str) -> Job:
        return Job.from_fields(json.loads(text))

    @staticmethod
    def from_fields(fields: Mapping[str, Any]) -> Job:
        return Job(**{**fields, "keep": tuple(fields["keep"]), "schemes": tuple(fields["schemes"])})


@dataclass(frozen=True, slots=True)
class MadeFor:
    """The machine that code was made for, whatever the target called it, and the features that the code may use."""

    cpu: str = ""
    triple: str = ""
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """What a kernel became: which of its scratch arguments it uses, and the schemes of its loop nests in order, or the
    reason for which the tiler left it."""

    scratch: tuple[bool, ...] = ()
    schemes: tuple[str, ...] = ()
    reason: str = ""
    made_for: MadeFor = field(default_factory=MadeFor)

    @staticmethod
    def from_fields(fields: Mapping[str, Any]) -> Report:
        made_for = MadeFor(**{**fields["made_for"], "features": tuple(fields["made_for"]["features"])})
        lists = {name: tuple(fields[name]) for name in ("scratch", "schemes")}
        return Report(**{**fields, **lists, "made_for": made_for})

    @property
    def tiled(self) -> bool:
        return bool(self.schemes)

    @property
    def parts(self) -> int:
        """The functions that were made of the kernel: one for each loop nest."""
        return max(1, len(self.schemes))


@dataclass(frozen=True, slots=True)
class Result:
    """Seconds per stage; where it failed, the stage and what was said there."""

    times: Mapping[str, float] = field(default_factory=dict)
    stage: str = ""
    error: str = ""
    report: Report = field(default_factory=Report)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"
