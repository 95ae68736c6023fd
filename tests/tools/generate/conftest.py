"""One compiled language model for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import nacre
import pytest
from talker import write_talker


@pytest.fixture(scope="session")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("talker")
    write_talker(folder / "talker.gguf")
    nacre.compile(folder / "talker.gguf", folder / "talker.so")
    return folder / "talker.so"
