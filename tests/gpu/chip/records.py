"""The records of a part: lines of JSON that its process appends to a file, so that nothing is lost where it ends.

{"begin": "add_0_f32"}
{"case": "add_0_f32", "failure": null}
{"fact": {"torch": "2.13.0"}}
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Record = dict[str, Any]
NO_TIME = "no time is left"


class DeviceLostError(Exception):
    """The device fails all further calls of this process."""


def began(case: str) -> Record:
    return {"begin": case}


def ended(case: str, failure: str | None, row: Record | None = None) -> Record:
    """Ends a case; `row` are its figures."""
    return {"case": case, "failure": failure} | ({"row": row} if row is not None else {})


def fact(**facts: Any) -> Record:
    return {"fact": facts}


def out_of_time() -> Record:
    """Says that the cases after this record are not run."""
    return fact(skipped=NO_TIME)


def append_record(path: Path, record: Record) -> None:
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")


def read_records(path: Path) -> Iterator[Record]:
    """Yields the records of a file; its last line may be incomplete."""
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            yield json.loads(line)
        except ValueError:
            return


def open_case(path: Path) -> str | None:
    """Returns the case that has begun and not ended."""
    begun = None
    for record in read_records(path):
        begun = record.get("begin", None if "case" in record else begun)
    return begun


def count_begun(path: Path) -> int:
    return sum("begin" in record for record in read_records(path))


def summarize(path: Path) -> Record:
    """Returns the counts, the failures, the figures and the facts of a part."""
    made: Record = {"cases": 0, "failures": []}
    for record in read_records(path):
        made |= record.get("fact", {})
        if "case" not in record:
            continue
        made["cases"] += 1
        if record["failure"]:
            made["failures"].append(f"{record['case']}: {record['failure']}")
        if "row" in record:
            made.setdefault("rows", []).append({"name": record["case"], **record["row"]})
    return made
