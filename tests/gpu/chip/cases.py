"""The packed artifacts and their cases, and a run of all cases of one artifact.

`index.json` lists the artifacts; `NAME.so` is one, and `NAME.npz` has the inputs and the expected results of its cases:

    {"name": "operators-03", "stage": "operators", "cases": [
      {"name": "add_0_f32", "entry": "add_0_f32", "inputs": [null, null], "results": ["f32"], "error": ""}]}

An input that is not null is drawn from its seed.
"""

from __future__ import annotations

import json
import shutil
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import nacre
import numpy as np

from .compare import Array, Expected, same_bits
from .drawn import Drawn
from .driver import is_lost
from .records import DeviceLostError, Record, began, ended, out_of_time

DATA = "data.tar.xz"
"""The archive of the artifacts and their arrays."""
CALLS = 3
"""The calls of a case: the first one runs its kernels one by one, the second one may record them as graphs, and the
third one launches the graphs."""
FIELDS = ("exact", "allowed", "classes", "zeros")
"""The arrays of an expected result."""


@dataclass(frozen=True)
class Case:
    """A call of an entry, with the dtypes of its results, or the text of the error that is expected. An input that is
    None is in the file of the artifact's arrays."""

    name: str
    entry: str
    inputs: tuple[Drawn | None, ...]
    results: tuple[str, ...]
    error: str = ""


@dataclass(frozen=True)
class Packed:
    """An artifact and its cases."""

    name: str
    stage: str
    cases: tuple[Case, ...]
    target: str


def pack_data(folder: Path, archive: Path) -> None:
    """Writes the files of a folder to an archive. Level 1 of the compressor takes a tenth of the time of the default
    level, and sees 1 MiB at a time: code of the same operators, and weights that repeat a run of numbers."""
    with tarfile.open(archive, "w:xz", preset=1) as file:
        for path in sorted(folder.iterdir()):
            file.add(path, path.name)


def unpack_data(archive: Path, folder: Path) -> None:
    """Writes the files of an archive to an existing folder."""
    with tarfile.open(archive, "r:xz") as file:
        for member in file:
            content = file.extractfile(member)
            assert content is not None, member.name
            with (folder / member.name).open("wb") as target:
                shutil.copyfileobj(content, target)


def write_index(folder: Path, packed: Sequence[Packed], **others: Any) -> None:
    content = {"artifacts": [asdict(each) for each in packed], **others}
    (folder / "index.json").write_text(json.dumps(content, indent=1) + "\n")


def read_index(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "index.json").read_text())
    return content


def _read_case(content: Mapping[str, Any]) -> Case:
    inputs = tuple(None if each is None else Drawn.read(each) for each in content["inputs"])
    return Case(**{**content, "inputs": inputs, "results": tuple(content["results"])})


def packed_of(index: Mapping[str, Any]) -> list[Packed]:
    return [
        Packed(
            each["name"],
            each["stage"],
            tuple(map(_read_case, each["cases"])),
            each["target"],
        )
        for each in index["artifacts"]
    ]


def arrays_of(folder: Path, packed: Packed, first: int = 0) -> Iterator[tuple[Case, list[Array], list[Expected]]]:
    """Yields the cases from the `first` one on, with their inputs and expected results."""
    with np.load(folder / f"{packed.name}.npz") as file:
        keys = frozenset(file.files)
        for case in packed.cases[first:]:
            inputs = [
                file[f"{case.name}.{number}"] if drawn is None else drawn.array()
                for number, drawn in enumerate(case.inputs)
            ]
            names = [f"{case.name}.r{number}" for number in range(len(case.results))]
            wanted = (f"{name}.{field}" for name in names for field in FIELDS)
            known = {key: file[key] for key in wanted if key in keys}
            yield (
                case,
                inputs,
                [Expected.read(dtype, name, known) for dtype, name in zip(case.results, names, strict=True)],
            )


def load(folder: Path, name: str, device: str = "cuda:0") -> nacre.Model:
    return nacre.load(folder / f"{name}.so", device=device, raw_floats=True)


def call(model: nacre.Model, entry: str, inputs: Sequence[Array]) -> list[Array]:
    results = model.entries[entry](*inputs)
    return [np.asarray(result) for result in (results if isinstance(results, tuple) else (results,))]


def check_artifact(folder: Path, packed: Packed, device: str, first: int, deadline: float) -> Iterator[Record]:
    """Runs each case as often as `CALLS` says. After the deadline, no case begins."""
    model = load(folder, packed.name, device)
    for case, inputs, expected in arrays_of(folder, packed, first):
        if time.monotonic() > deadline:
            yield out_of_time()
            return
        yield began(case.name)
        message = _check(model, case, inputs, expected)
        yield ended(case.name, message)
        if message and is_lost(device):
            raise DeviceLostError


def _check(model: nacre.Model, case: Case, inputs: Sequence[Array], expected: Sequence[Expected]) -> str | None:
    """Returns a description of the first difference. An exception other than the expected error is a difference too."""
    try:
        results = call(model, case.entry, inputs)
        if case.error:
            return f"no error, expected `{case.error}`"
        for number, (actual, wanted) in enumerate(zip(results, expected, strict=True)):
            if message := wanted.difference(actual):
                return f"result {number}: {message}"
        for number in range(1, CALLS):
            if not all(map(same_bits, results, call(model, case.entry, inputs))):
                return f"call {number} after the first has other results"
    except Exception as error:
        if case.error and isinstance(error, nacre.NacreError) and case.error in str(error):
            return None
        return f"{type(error).__name__}: {error}"
    return None
