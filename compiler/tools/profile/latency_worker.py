"""The process in which an artifact is called: `python -m nacre.compiler.tools.profile.latency_worker FOLDER`.

It imports the loader and nothing of the compiler, as a serving process would, so that its memory is representative. The
folder contains `job.json` and `inputs.npz`, and receives `result.json` and `times.npy`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

from ....runtime.loader import NacreError, load
from ...base.repeated import begin_session

_MOST = 1 << 20
"""Maximum number of calls whose times are kept."""


def _resident(kind: str) -> int:
    """Returns the resident bytes of the process: `VmRSS` now, `VmHWM` at most. The maximum that getrusage reports for a
    new process includes that of its parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (size,) = (line.split()[1] for line in lines if line.startswith(f"{kind}:"))
    return int(size) * 1024


def main(folder: Path) -> None:
    job = json.loads((folder / "job.json").read_text())
    with np.load(folder / "inputs.npz") as file:
        inputs = [file[str(i)] for i in range(len(file.files))]
    before = _resident("VmRSS")
    started = time.perf_counter()
    model = load(job["path"], weights=job["weights"], threads=job["threads"], raw_floats=True)
    model, restart = begin_session(model, job["session"], None if job["states"] is None else Path(job["states"]))
    loaded = time.perf_counter()
    entry = model.entries[job["entry"]]
    entry(*inputs)
    called = time.perf_counter()
    while time.perf_counter() - called < job["warm_up"]:
        restart()
        entry(*inputs)
    times: list[float] = []
    after = begin = time.perf_counter()
    while len(times) < _MOST and (not times or after - begin < job["seconds"]):
        restart()
        now = time.perf_counter()
        entry(*inputs)
        after = time.perf_counter()
        times.append(after - now)
    most = _resident("VmHWM")
    np.save(folder / "times.npy", np.array(times))
    result = {"load": loaded - started, "first": called - loaded, "resident": max(0, most - before), "peak": most}
    (folder / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except NacreError as error:
        sys.exit(str(error))
