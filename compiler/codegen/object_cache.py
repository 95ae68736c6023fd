"""Objects that were made before: the same text for the same target by the same code generator is the same object, in
whatever model it stands.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..store import Store
from .job import Job, Report
from .target import identify_host

_ROOT = Path(__file__).parents[2]
_SOURCES = ("compiler/codegen/**/*.py", "compiler/lower/*.py", "compiler/mlir.py", "dialect/*.py")


def generator_sources() -> list[Path]:
    """Everything of ours that runs where objects are made."""
    return sorted({path for pattern in _SOURCES for path in _ROOT.glob(pattern)})


@lru_cache(maxsize=1)
def _generator() -> str:
    """The code generator: its sources, and the versions of what it stands on."""
    digest = hashlib.sha256()
    for path in generator_sources():
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    for package in ("torch-mlir", "mlir", "llvmlite"):
        try:
            digest.update(f"{package} {version(package)}\n".encode())
        except PackageNotFoundError:
            continue
    return digest.hexdigest()


class ObjectCache:
    """Objects and what was reported of them, in a folder; without one, nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self._store = Store(folder)

    def key(self, identity: str, job: Job) -> str:
        """What an object is kept under: everything that its bytes follow from, and nothing else."""
        digest = hashlib.sha256()
        host = identify_host() if job.cpu == "native" else ""
        for part in (_generator(), host, replace(job, dump=False).to_json(), identity):
            digest.update(hashlib.sha256(part.encode()).digest())
        return digest.hexdigest()

    def get(self, key: str) -> tuple[bytes, Report] | None:
        data = self._store.get(key)
        if data is None:
            return None
        head, _, code = data.partition(b"\n")
        return code, Report.from_fields(json.loads(head))

    def put(self, key: str, code: bytes, report: Report) -> None:
        self._store.put(key, json.dumps(asdict(report), sort_keys=True).encode() + b"\n" + code)

    def prune(self) -> None:
        self._store.prune()
