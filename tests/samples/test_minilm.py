"""all-MiniLM-L6-v2 in Nacre, on its real weights: one artifact for every batch and length.

Needs NACRE_TEST_DATA, a folder with `minilm/reference_embeddings.npz`; the weights are downloaded at the first run and
kept in the user's cache.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import numpy.typing as npt
import pytest

FOLDER = Path(__file__).parents[2] / "samples" / "minilm"
DATA = os.environ.get("NACRE_TEST_DATA")
Array = npt.NDArray[Any]

needs_data = pytest.mark.skipif(not DATA, reason="NACRE_TEST_DATA, the folder of reference embeddings, is not set")
"""One group, so that the tests of one worker share the artifact."""


def load_sample() -> Any:
    spec = importlib.util.spec_from_file_location("minilm_embed", FOLDER / "embed.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sample = load_sample()
