"""How the compiler's process and a code generation child talk through a pipe: fields, texts and bytes, framed.

Files would do, but opening a few for every kernel takes longer than compiling a small one.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .job import Job, Report, Result

_HEAD = struct.Struct("<QQ")
STAGE = "stage: "
"""What a line begins with by which a child tells among its messages which stage it has come to."""

Read = Callable[[int], bytes]
"""Reads so many bytes, or fewer where there are no more."""


def _pack(fields: Mapping[str, Any], data: bytes = b"") -> bytes:
    text = json.dumps(fields).encode()
    return _HEAD.pack(len(text), len(data)) + text + data


def _unpack(read: Read) -> tuple[dict[str, Any], bytes] | None:
    head = read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    text_size, data_size = _HEAD.unpack(head)
    text, data = read(text_size), read(data_size)
    if len(data) < data_size or len(text) < text_size:
        return None
    fields: dict[str, Any] = json.loads(text)
    return fields, data


@dataclass(frozen=True, slots=True)
class Request:
    """A job, and the texts that it is about by the names that they would have as files."""

    job: Job
    files: Mapping[str, str]

    def pack(self) -> bytes:
        return _pack({"job": asdict(self.job), "files": dict(self.files)})

    @staticmethod
    def unpack(read: Read) -> Request | None:
        """None where nothing more comes."""
        message = _unpack(read)
        if message is None:
            return None
        fields, _ = message
        return Request(Job.from_fields(fields["job"]), fields["files"])


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a job: the object, if there is no error in the result, and the texts on the way to it."""

    result: Result
    code: bytes = b""
    dumps: Mapping[str, str] = field(default_factory=dict)

    def pack(self) -> bytes:
        return _pack({"result": asdict(self.result), "dumps": dict(self.dumps)}, self.code)

    @staticmethod
    def unpack(read: Read) -> Answer | None:
        """None where the other side ended before it had said all."""
        message = _unpack(read)
        if message is None:
            return None
        fields, code = message
        result = fields["result"]
        return Answer(Result(**{**result, "report": Report.from_fields(result["report"])}), code, fields["dumps"])
