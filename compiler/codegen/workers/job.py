"""The messages between the compiler's process and a code generation child, and their serialisation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any

from ....dialect.lazy_dataclass import dataclass
from ...lower.parts import SEQUENCE, KernelPart
from ...targets.target import MadeFor
from .routes import FIRST, LLVM_STAGES

KERNEL = "kernel"
ENTRIES = "entries"
NO_DEVICE_CODE = "NoDeviceCodeError"
"""The prefix of the error about a kernel that a device cannot compute: the name of its exception."""
WRITTEN = "written.mlir"
"""The file with a kernel of a device as it was written, beside its text of a later stage, which lacks the functions of
the host."""
INNER_FILE = "inner-"
"""The prefix of the files with kernels that are linked into the entries' module."""
OBJECT = "code.o"
DUMPS = "dump"
RESULT = "result.json"
"""Names of files: the text of a kernel and that of entries, each with its language as suffix; the object made of
either, the folder of dumps, and the report on the object."""


def job_path(folder: Path) -> Path:
    return folder / "job.json"


def to_json(message: object, **layout: Any) -> str:
    """Returns the JSON of dataclasses and of data that contain some. `dataclasses.asdict` would copy all data, which
    takes a tenth of the time of compiling a small kernel."""
    return json.dumps(message, default=_fields, **layout)


def _fields(record: Any) -> dict[str, Any]:
    return {each.name: getattr(record, each.name) for each in fields(record)}


def text_name(kind: str, stage: str) -> str:
    """Returns the file name of a kernel's or the entries' text at a stage."""
    return f"{kind}.{LLVM_STAGES.get(stage, 'mlir')}"


@dataclass(frozen=True, slots=True)
class Report:
    """The report on a kernel: its parts, and the schedules of its loop nests in order, or the reason why the tiler left
    it unchanged; on a device, the schedules of its launches, and the reason if one of them is a single thread. There
    are as many parts as loop nests, and one part for an unchanged kernel. `steps` are the steps of its loops: at their
    multiples, a loop runs one more iteration, or leaves no remainder; on a device, there is one more tile. An unchanged
    kernel has also the numbers that it compares with. `code` is the kernel in LLVM IR, if the job asks for it and the
    kernel is vector code."""

    parts: tuple[KernelPart, ...] = ()
    schedules: tuple[str, ...] = ()
    reason: str = ""
    made_for: MadeFor = field(default_factory=MadeFor)
    steps: tuple[int, ...] = ()
    code: str = ""

    @staticmethod
    def from_fields(fields: Mapping[str, Any]) -> Report:
        made_for = MadeFor(**{**fields["made_for"], "features": tuple(fields["made_for"]["features"])})
        parts = tuple(map(KernelPart.from_fields, fields["parts"]))
        steps, code = tuple(fields["steps"]), fields["code"]
        return Report(parts, tuple(fields["schedules"]), fields["reason"], made_for, steps, code)

    @property
    def tiled(self) -> bool:
        return bool(self.schedules) and SEQUENCE not in self.schedules


@dataclass(frozen=True, slots=True)
class Job:
    """One object to be made of the accompanying text. `keep` names the functions that the object exports: to everybody
    if `visible`, else to the objects that it is linked with. `strict` code rounds as the text specifies, except for the
    order of sums. With `debug` it has line tables. The text is that of the stage `start`; `known` is the report at that
    stage. With `inner`, the report holds the kernel in LLVM IR, for loops that are one function. A kernel with an
    `alarm` sets it for an index out of range. The texts of the stages `dump` are reported. For a device, the last
    `scratch` tensors of a kernel are its own, and products may be `tf32`. The last ones of these tensors are memory for
    the totals of parts of reductions, in the numbers `parts`. The assembler at the path `ptxas`, of a version, makes
    its machine code; the path does not affect the object."""

    level: int
    cpu: str
    triple: str
    features: str
    keep: tuple[str, ...]
    route: str = ""
    visible: bool = False
    dump: tuple[str, ...] = ()
    strict: bool = False
    debug: bool = False
    start: str = FIRST
    known: Report = field(default_factory=Report)
    scratch: int = 0
    parts: tuple[int, ...] = ()
    tf32: bool = False
    ptxas: str = ""
    ptxas_version: str = ""
    inner: bool = False
    alarm: bool = False

    def to_json(self) -> str:
        return to_json(self, indent=1, sort_keys=True) + "\n"

    @staticmethod
    def from_json(text: str) -> Job:
        return Job.from_fields(json.loads(text))

    @staticmethod
    def from_fields(fields: Mapping[str, Any]) -> Job:
        lists = {name: tuple(fields[name]) for name in ("keep", "dump", "parts")}
        return Job(**{**fields, **lists, "known": Report.from_fields(fields["known"])})


@dataclass(frozen=True, slots=True)
class Result:
    """The seconds per stage; for a failed job, the stage and its error message."""

    times: Mapping[str, float] = field(default_factory=dict)
    stage: str = ""
    error: str = ""
    report: Report = field(default_factory=Report)

    def to_json(self) -> str:
        return to_json(self, indent=1, sort_keys=True) + "\n"
