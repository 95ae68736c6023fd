"""The hashes of categories: those that CatBoost writes into the files of models, for text of every length."""

from __future__ import annotations

import json
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.readers.trees.city_hash import city_hash

FILE = Path(__file__).parent / "data" / "cat_statistics_in_json.json"


def test_hashes_of_a_file() -> None:
    known = json.loads(FILE.read_text())["features_info"]["cat_features_hash"]
    texts = [entry["value"] for entry in known]
    assert len(texts) > 40 and "é" in texts
    wanted = np.asarray([entry["hash"] for entry in known], np.uint32).view(np.int32)
    np.testing.assert_array_equal(nacre.category_hashes(texts), wanted)


@pytest.mark.parametrize(
    ("size", "wanted"),
    [
        (1, 0xD003ACFA),
        (2, 0xF3CC3F3E),
        (3, 0x3237003B),
        (4, 0xFA529BDD),
        (7, 0xE329BA81),
        (8, 0xB0276A1A),
        (9, 0x7C93F631),
        (16, 0xB7C68251),
        (17, 0x795AC6F5),
        (31, 0x9EAF4A8F),
        (32, 0xB2005C0D),
        (33, 0x59BDB7DF),
        (48, 0x91406FAB),
        (63, 0xD6D5C8F7),
        (64, 0x24985EEE),
        (65, 0x5DC3D32B),
        (100, 0x80E85BBC),
        (127, 0x436E92AB),
        (128, 0xC8A8531F),
        (129, 0x541D16FF),
        (200, 0x7D354465),
    ],
)
def test_hashes_of_each_length(size: int, wanted: int) -> None:
    text = bytes(97 + i * i % 26 for i in range(size))
    assert city_hash(text) & 0xFFFFFFFF == wanted


def test_integers_are_text() -> None:
    np.testing.assert_array_equal(nacre.category_hashes([[12, -3]]), nacre.category_hashes([["12", "-3"]]))
    assert nacre.category_hashes(np.zeros((0, 3), "U1")).shape == (0, 3)


def test_floats_are_refused() -> None:
    with pytest.raises(TypeError, match="not float64"):
        nacre.category_hashes([1.0])
