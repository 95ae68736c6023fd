"""Folders with damaged JSON files are read, or refused by a diagnostic: `python tests/readers/damaged_files.py
huggingface` reads more of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from nacre.compiler.readers.huggingface.config_json import Configuration
from nacre.compiler.readers.huggingface.encoders import ENCODERS
from nacre.compiler.weights import open_arrays
from nacre.dialect.diagnostics import DiagnosticError
from readers.damaged_files import KINDS, read_batch


def test_damaged_folders_are_diagnostics() -> None:
    codes, errors, _, megabytes = read_batch("huggingface", KINDS["huggingface"].whole(), 0, 6)
    assert not errors, errors[0]
    assert codes["bad-folder"] and codes["read"], codes
    assert megabytes < 1024


@pytest.mark.parametrize("most", [8, (1 << 16) + 1, (1 << 31) - 1])
def test_distances_have_bounds(most: int) -> None:
    sizes = {"relative_attention_max_distance": most, "num_layers": 1, "num_heads": 4, "vocab_size": 8}
    sizes |= dict.fromkeys(("d_kv", "d_model", "d_ff"), 8)
    config = Configuration(Path("config.json"), sizes, open_arrays({"shared.weight": np.zeros(1)}))
    with pytest.raises(DiagnosticError, match=f"has 32 buckets for distances up to {most}, which is not supported"):
        ENCODERS["t5"](config)
