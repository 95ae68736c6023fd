"""The hashes of categories: those that CatBoost writes into the files of models, for text of every length."""

from __future__ import annotations

import json
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.readers.trees.categories import Columns, Projection, Statistic, Table
from nacre.compiler.readers.trees.city_hash import city_hash
from nacre.dialect.graph import Constant, Function, Module, Value
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import F32, I32, TensorType

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


@pytest.mark.parametrize("keys", ["abc", "abba", "abcab", "cabbac"])
def test_statistics_of_one_table_go_back_to_their_columns(keys: str) -> None:
    """A row of a table has all statistics of it, and the columns of the model have another order. No hash is known, so
    that each statistic is its prior."""
    priors = [float(n + 1) for n in range(len(keys))]
    projection = Projection((0,), (), ())
    statistics = [Statistic(projection, "Borders", key, 0, p, 1, 0, 1) for key, p in zip(keys, priors, strict=True)]
    tables = {key: Table(np.zeros(0, np.int64), np.zeros((0, 2)), 0) for key in keys}
    b = Builder(OPERATORS)
    x, categories = Value("x", TensorType(F32, (2, 3))), Value("c", TensorType(I32, (2, 1)))

    def table(name: str, numbers: object) -> Value:
        return b.apply("constant", (), {"value": Constant(np.asarray(numbers))})[0]

    result = Columns(3, 1, (), statistics, tables).write(b, x, categories, table)
    function = Function("f", (x, categories), tuple(b.nodes), (result,))
    given = np.arange(-6, 0, dtype=np.float32).reshape(2, 3)
    (found,) = Interpreter(Module("m", functions=(function,)), lambda _: given).run(
        function, [given, np.zeros((2, 1), np.int32)]
    )
    np.testing.assert_array_equal(found, [[*row, *priors] for row in given])
