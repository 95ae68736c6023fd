"""The pipe protocol between the compiler's process and a code generation child: framed fields, texts and bytes.

Files would work too, but opening a few for every kernel takes longer than compiling a small one.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from ....dialect.lazy_dataclass import dataclass
from .job import Job, Report, Result, to_json

_HEAD = struct.Struct("<QQ")
STAGE = "stage: "
"""The prefix of the line by which a child reports its current stage among its messages."""
IDLE_SECONDS = 60.0
"""Seconds without a job after which a child ends, to release its memory."""

Read = Callable[[int], bytes]
"""A function that reads a number of bytes, or fewer at the end of the stream."""


def _pack(fields: Mapping[str, Any], data: bytes = b"") -> bytes:
    text = to_json(fields).encode()
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
    """A job, and its texts by the names that they would have as files."""

    job: Job
    files: Mapping[str, str]

    def pack(self) -> bytes:
        return _pack({"job": self.job, "files": dict(self.files)})

    @staticmethod
    def unpack(read: Read) -> Request | None:
        """Reads the next request; returns None at the end of the stream."""
        message = _unpack(read)
        if message is None:
            return None
        fields, _ = message
        return Request(Job.from_fields(fields["job"]), fields["files"])


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a job: the object, if the result has no error, and the texts of the intermediate stages."""

    result: Result
    code: bytes = b""
    dumps: Mapping[str, str] = field(default_factory=dict)

    def pack(self) -> bytes:
        return _pack({"result": self.result, "dumps": dict(self.dumps)}, self.code)

    @staticmethod
    def unpack(read: Read) -> Answer | None:
        """Reads an answer; returns None where the other side ended before the answer was complete."""
        message = _unpack(read)
        if message is None:
            return None
        fields, code = message
        result = fields["result"]
        return Answer(Result(**{**result, "report": Report.from_fields(result["report"])}), code, fields["dumps"])
