"""Weights on huge pages: one copy for all sessions of a library, gone with the last of them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from c_models import build, zoo
from nacre.compiler.artifact.assemble import Placement
from nacre.compiler.artifact.spec import ArtifactSpec, place_weights
from nacre.dialect.types import F32, TensorType

SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
HAS_HUGE_PAGES = SETTING.exists()
MEGABYTES = 12

CODE = """
import gc, sys
import numpy as np
from nacre.runtime.loader import load
def advised():
    "Megabytes of memory for which huge pages were asked."
    total = size = 0
    for line in open("/proc/self/smaps"):
        if line.startswith("Size:"):
            size = int(line.split()[1])
        elif line.startswith("VmFlags:") and "hg" in line.split():
            total += size
    return total // 1024
before = advised()
def more():
    gc.collect()
    return advised() - before
plain = load(sys.argv[1])
shown = [more()]
first = load(sys.argv[1], huge_pages=True)
shown.append(more())
second = load(sys.argv[1], huge_pages=True)
shown.append(more())
ids = np.array([[0, 4, 2]])
values = [m.entries["embed"](ids) for m in (plain, first, second)]
assert all(np.array_equal(v, values[0]) for v in values) and values[0][0, 1, 2] == 14
assert all(m.entries["constant"]() == 7 for m in (plain, first, second))
del first
shown.append(more())
assert np.array_equal(second.entries["embed"](ids), values[0])
del second
shown.append(more())
assert np.array_equal(plain.entries["embed"](ids), values[0])
print(*shown)
"""


@pytest.fixture(scope="module")
def spec() -> ArtifactSpec:
    big = np.zeros((MEGABYTES - 1, 1 << 18), np.float32)  # so that a part of the last huge page is used
    weights = place_weights(
        [
            ("first", TensorType(F32), np.array(7, np.float32)),
            ("table", TensorType(F32, (5, 3)), np.arange(15, dtype=np.float32).reshape(5, 3)),
            ("big", TensorType(F32, big.shape), big),
        ]
    )
    return replace(zoo("big"), weights=weights)


@pytest.mark.skipif(not HAS_HUGE_PAGES, reason="the system has no huge pages on request")
@pytest.mark.parametrize(("placement", "copies"), [("embedded", "0 12 12 12 0"), ("external", "0 12 24 12 0")])
def test_copies(tmp_path: Path, spec: ArtifactSpec, placement: Placement, copies: str) -> None:
    path = build(spec, tmp_path / "big.so", placement)
    done = subprocess.run([sys.executable, "-c", CODE, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == copies
