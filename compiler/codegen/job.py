"""What the compiler's process and a code generation child tell each other, and how it is written down."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..lower.parts import KernelPart
from .routes import FIRST, LLVM_STAGES

KERNEL = "kernel"
ENTRIES = "entries"
OBJECT = "code.o"
DUMPS = "dump"
RESULT = "result.json"
"""Names of files: the text of a kernel and that of entries, each with its language as suffix; the object made of
either, the folder of dumps, and what is said of the object."""


def job_path(folder: Path) -> Path:
    return folder / "job.json"


def text_name(kind: str, stage: str) -> str:
    """The file of a kernel's or the entries' text at a stage."""
    return f"{kind}.{LLVM_STAGES.get(stage, 'mlir')}"


@dataclass(frozen=True, slots=True)
class MadeFor:
    """The machine that code was made for, whatever the target called it, and the features that the code may use."""

    cpu: str = ""
    triple: str = ""
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """What a kernel became: its parts, and the schemes of its loop nests in order, or the reason for which the tiler
    left it. There are as many parts as loop nests, and one of a kernel that was left."""

    parts: tuple[KernelPart, ...] = ()
    schemes: tuple[str, ...] = ()
    reason: str = ""
    made_for: MadeFor = field(default_factory=MadeFor)

    @staticmethod
    def from_fields(fields: Mapping[str, Any]) -> Report:
        made_for = MadeFor(**{**fields["made_for"], "features": tuple(fields["made_for"]["features"])})
        parts = tuple(map(KernelPart.from_fields, fields["parts"]))
        return Report(parts, tuple(fields["schemes"]), fields["reason"], made_for)

    @property
    def tiled(self) -> bool:
        return bool(self.schemes)


@dataclass(frozen=True, slots=True)
class Job:
    """One object to be made of the text beside it. `keep` names the functions that the object exports, to everybody if
    `visible`, else to those that it is linked with. `strict` code rounds as the text says, but for the order of sums.
    With `debug` it has tables of lines. The text is that of the stage `start`, at which `known` has been found out.
    """

    level: int
    cpu: str
    triple: str
    features: str
    keep: tuple[str, ...]
    route: str = ""
    visible: bool = False
    dump: bool = False
    strict: bool = False
    debug: bool = False
    start: str = FIRST
    known: Report = field(default_factory=Report)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"

    @staticmethod
    def from_json(text: str) -> Job:
        return Job.from_fields(json.loads(text))

    @staticmethod
    def from_fields(fields: Mapping[str, Any]) -> Job:
        return Job(**{**fields, "keep": tuple(fields["keep"]), "known": Report.from_fields(fields["known"])})


@dataclass(frozen=True, slots=True)
class Result:
    """Seconds per stage; where it failed, the stage and what was said there."""

    times: Mapping[str, float] = field(default_factory=dict)
    stage: str = ""
    error: str = ""
    report: Report = field(default_factory=Report)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"
