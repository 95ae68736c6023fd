"""Models of each objective and booster: sums with the bits of the library, and predictions within rounding.

`generate_objectives.py` stored what LightGBM, XGBoost and CatBoost predict, so that none of them is needed here.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from nacre.compiler.readers.table import read_file
from nacre.dialect.diagnostics import DiagnosticError
from readers.trees.test_native_models import FOLDER, close, interpret

STORED = np.load(FOLDER / "objectives.npz")
FILES = sorted(key for key in STORED.files if "/file" in key)


@pytest.mark.parametrize("key", FILES)
def test_an_objective(key: str, tmp_path: Path) -> None:
    name, _, file = key.partition("/")
    path = tmp_path / file
    path.write_bytes(STORED[key].tobytes())
    inputs = STORED[f"{name.partition('-')[0]}/inputs"]
    raw, prediction = STORED[f"{name}/raw"], STORED[f"{name}/prediction"]
    found = interpret(path, "raw", [inputs])
    assert found.dtype == raw.dtype
    np.testing.assert_array_equal(found, raw.reshape(found.shape))
    close(interpret(path, "main", [inputs]), prediction)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ((8 << 16) | 1, (99 << 16) | 1, "tree 0, node 0: it refers to a node beyond the 15 of the tree"),
        (0xFFFFFFFF, 24, ""),
        (23, 24, "tree 2, node 14: it refers to the value 24 of 24"),
    ],
)
def test_wrong_nodes_of_trees_of_any_shape(old: int, new: int, message: str, tmp_path: Path) -> None:
    """The last occurrence of a leaf and the first of a step are changed; an unused leaf may have any number."""
    data = STORED["catboost-depthwise/file.cbm"].tobytes()
    find = data.find if old > 1000 else data.rfind
    place = find(struct.pack("<I", old))
    assert place > 0
    path = tmp_path / "model.cbm"
    path.write_bytes(data[:place] + struct.pack("<I", new) + data[place + 4 :])
    if not message:
        read_file(path)
        return
    with pytest.raises(DiagnosticError) as caught:
        read_file(path)
    assert caught.value.diagnostics[0].message == message
