"""The object cache: the same text for the same target by the same code generator is the same object, in every model.

The texts of the stages that a dump shows are cached with the object that they led to. They contain all of its source,
so the key of a dump covers the whole source, and the requested stages.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from ...base.packages import identify_packages
from ...base.store import Store
from ...targets.target import identify_host
from .job import Job, Report, to_json

_ROOT = Path(__file__).parents[3]
_SOURCES = (
    *(f"compiler/{files}" for files in ("codegen/**/*.py", "host/*.py", "lower/*.py", "targets/*.py")),
    *(f"compiler/{file}" for file in ("base/environment.py", "base/mlir.py", "graph_passes.py")),
    "dialect/*.py",
)


def generator_sources() -> list[Path]:
    """Returns our source files that run during code generation."""
    return sorted({path for pattern in _SOURCES for path in _ROOT.glob(pattern)})


@lru_cache(maxsize=1)
def _generator() -> str:
    """Returns a key of the code generator: its sources, and the versions of its dependencies."""
    digest = hashlib.sha256()
    for path in generator_sources():
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    digest.update("\n".join(identify_packages()).encode())
    return digest.hexdigest()


class ObjectCache:
    """The cached objects and their reports, in a folder; without a folder, nothing is stored."""

    def __init__(self, folder: Path | None) -> None:
        self._store = Store(folder)

    def key(self, identity: str, job: Job) -> str:
        """Returns the key of an object: everything that determines its bytes and its dumps, and nothing else."""
        digest = hashlib.sha256()
        host = identify_host() if job.cpu == "native" else ""
        for part in (_generator(), host, to_json(replace(job, ptxas=""), sort_keys=True), identity):
            digest.update(hashlib.sha256(part.encode()).digest())
        return digest.hexdigest()

    def get(self, key: str) -> tuple[bytes, Report, Mapping[str, str]] | None:
        """Returns an object, its report, and its dumps by file name."""
        data = self._store.get(key)
        if data is None:
            return None
        head, _, rest = data.partition(b"\n")
        fields = json.loads(head)
        size = fields["dumps"]
        dumps = json.loads(zlib.decompress(rest[:size])) if size else {}
        return rest[size:], Report.from_fields(fields["report"]), dumps

    def put(self, key: str, code: bytes, report: Report, dumps: Mapping[str, str]) -> None:
        # The fastest compression makes the texts a tenth as large.
        texts = zlib.compress(to_json(dict(dumps), sort_keys=True).encode(), 1) if dumps else b""
        head = to_json({"report": report, "dumps": len(texts)}, sort_keys=True).encode()
        self._store.put(key, head + b"\n" + texts + code)

    def prune(self) -> None:
        self._store.prune()
