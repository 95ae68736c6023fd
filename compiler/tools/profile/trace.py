"""Recorded calls in the format of Chrome's tracing, which Perfetto and about:tracing display.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU: complete events, in microseconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.observe import RECORD, Call, Recording

_MOST_RUNS = 50
"""Maximum number of runs in a trace: the last ones."""
_PROCESS = 1
_CALLS = 0
"""The row of the calls and their kernels; threads have the rows from 1 on."""


def trace_events(recording: Recording, entries: tuple[str, ...]) -> dict[str, Any]:
    """Returns the trace as JSON data: a row with the calls and their kernels, then one for each thread of the CPU."""
    records = recording.records
    records = records[np.isin(records["run"], np.unique(records["run"])[-_MOST_RUNS:])]
    start = int(records["begin"].min()) if len(records) else 0
    rows = {int(thread): row for row, thread in enumerate(_in_order(records), start=1)}
    events = [_name("process_name", _CALLS, "nacre"), _name("thread_name", _CALLS, "calls")]
    events += [_name("thread_name", row, f"thread {row}") for row in rows.values()]
    reported: set[tuple[int, int]] = set()
    for r in records.tolist():
        run, entry, number, begin, end, thread, share_begin, share_end, busy = r
        if number < 0:
            events.append(_event(entries[entry], "call", _CALLS, begin - start, end - start, {"run": run}))
            continue
        call = recording.calls[entry][number]
        if (run, number) not in reported:
            reported.add((run, number))
            events.append(_event(_title(call), call.kind, _CALLS, begin - start, end - start, _arguments(call, run)))
        if thread == 0:
            continue
        busy_only = {"busy_us": busy / 1000, "run": run}
        events.append(_event(_title(call), call.kind, rows[thread], share_begin - start, share_end - start, busy_only))
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _in_order(records: np.ndarray[Any, np.dtype[Any]]) -> list[int]:
    """Returns the threads in the order in which they first computed."""
    assert records.dtype == RECORD, records.dtype
    return list(dict.fromkeys(int(t) for t in records["thread"] if t))


def _title(call: Call) -> str:
    return ", ".join(dict.fromkeys(o.op for o in call.operations)) or call.kind


def _arguments(call: Call, run: int) -> dict[str, Any]:
    return {
        "kernel": call.kernel,
        "lines": list(dict.fromkeys(o.line for o in call.operations)),
        "scopes": list(dict.fromkeys(o.scope for o in call.operations if o.scope)),
        "values": [f"{v.name}: {v.type.type}" for v in call.values],
        "run": run,
    }


def _event(name: str, category: str, row: int, begin: int, end: int, arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "cat": category,
        "ph": "X",
        "ts": begin / 1000,
        "dur": (end - begin) / 1000,
        "pid": _PROCESS,
        "tid": row,
        "args": arguments,
    }


def _name(kind: str, row: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": _PROCESS, "tid": row, "args": {"name": name}}
