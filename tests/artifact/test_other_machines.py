"""Artifacts for machines with another instruction set than this one: made with a cross compiler, run in an emulator."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import nacre
import numpy as np
import pytest
from c_models import STRICT
from nacre.compiler.artifact.link import RUNTIME_FOLDER

HERE = Path(__file__).parent
TRIPLE = "aarch64-linux-gnu"
CC = f"{TRIPLE}-gcc"
QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
LIBRARIES = Path("/usr", TRIPLE)

MODEL = "model scaled(x: f32[4]) -> f32[4] { return softmax(x) * 2 }"
X = np.array([-1, 0.5, 2, 3], np.float32)

pytestmark = [
    pytest.mark.skipif(shutil.which(CC) is None, reason=f"needs {CC}"),
    pytest.mark.skipif(platform.machine() == "aarch64", reason="this is that machine"),
]


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("other") / "model.so"
    with pytest.raises(nacre.NacreError, match="is for aarch64, this machine is"):
        nacre.compile(MODEL, path, target=TRIPLE)
    return path


def test_the_description_names_the_machine(artifact: Path) -> None:
    text = artifact.read_bytes()
    assert b'"target":{"triple":"aarch64-linux-gnu","levels":[{"name":"aarch64-linux-gnu","cpu":"generic"' in text


@pytest.mark.skipif(
    QEMU is None or not LIBRARIES.exists(), reason=f"needs qemu-aarch64, and its libraries in {LIBRARIES}"
)
def test_it_runs_there(artifact: Path) -> None:
    assert QEMU
    program = artifact.with_name("level")
    subprocess.run([CC, *STRICT, f"-I{RUNTIME_FOLDER}", str(HERE / "level.c"), "-o", str(program), "-ldl"], check=True)
    done = subprocess.run([QEMU, "-L", LIBRARIES, program, artifact], capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout, done.stderr)
    expected = 2 * np.exp(X) / np.exp(X).sum()
    np.testing.assert_allclose([float(x) for x in done.stdout.split()], expected, atol=2e-6)
