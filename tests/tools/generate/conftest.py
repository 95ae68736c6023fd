"""One compiled language model for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import nacre
import pytest
from nacre.compiler.base.environment import CHECK_PASSES
from talker import PAGE, write_talker


@pytest.fixture(scope="session")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("talker")
    write_talker(folder / "talker.gguf")
    with pytest.MonkeyPatch.context() as patched:
        # The same graphs are checked in tests of the readers.
        patched.delenv(CHECK_PASSES, raising=False)
        nacre.compile(folder / "talker.gguf", folder / "talker.so", settings={"page": PAGE})
    return folder / "talker.so"
