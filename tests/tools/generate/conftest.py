"""One compiled language model for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import nacre
import pytest
from nacre.compiler.base.environment import CHECK_PASSES
from talker import PAGE, write_talker

if TYPE_CHECKING:
    from running_server import Running  # its packages may be absent


@pytest.fixture(scope="session")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("talker")
    write_talker(folder / "talker.gguf")
    with pytest.MonkeyPatch.context() as patched:
        # The same graphs are checked in tests of the readers.
        patched.delenv(CHECK_PASSES, raising=False)
        nacre.compile(folder / "talker.gguf", folder / "talker.so", settings={"page": PAGE})
    return folder / "talker.so"


@pytest.fixture(scope="module", params=["turns", "batches"])
def running(talker: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    """A server with each of the engines; modules that use it skip where its packages are not installed."""
    from running_server import Running  # noqa: PLC0415  # its packages may be absent

    started = Running(talker, request.param)
    yield started
    started.stop()
