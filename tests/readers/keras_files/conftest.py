"""Fixtures of the tests of Keras files: files are read in forks."""

from __future__ import annotations

import pytest
from forked_readers import ForkedReaders
from nacre.compiler.readers.keras import keras_file


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads files in forks, for tests that read many. The others read them as users do, in new processes."""
    pytest.importorskip("h5py")
    monkeypatch.setattr(keras_file, "subprocess", ForkedReaders())
