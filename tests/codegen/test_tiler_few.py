"""Results with a few neighbours in memory, copies of a few columns, and maps of short elements, on watched memory and
with work items in any order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from differential.directed import LEVELS, assert_right, case
from differential.maker import Graph
from differential.native import Level
from nacre.compiler.codegen.objects import CodeOptions, generate_objects
from nacre.compiler.lower.module import lower_module
from nacre.compiler.targets.target import Target

LENGTHS = [{"L": n} for n in (0, 1, 2, 7, 8, 9, 15, 16, 17, 33, 64, 65, 131)]
SHORT = [{"L": n} for n in (0, 1, 31, 32, 33, 64, 127, 128, 129, 500)]


def pixels(block: int, mode: str = "channels_first") -> Any:
    return lambda b, x: b.depth_to_space(x, block=block, mode=mode)


def beside(b: Any, *values: Any) -> Any:
    """The elements of values side by side."""
    return b.stack(*values, axis=-1)


def turned(count: int) -> Any:
    return lambda b, x: b.relu(b.transpose(x, axes=(0, 2, 1)))


def bands(b: Any, x: Any, y: Any) -> Sequence[Any]:
    return [b.concat(x, y, x, y, axis=1), b.concat(x, x, y, axis=0), b.pad(x, widths=((0, 0), (1, 2)), mode="edge")]


def truth(b: Any, x: Any, y: Any) -> Sequence[Any]:
    return [
        b.logical_and(x, y),
        b.logical_or(b.logical_not(x), y),
        b.logical_xor(x, b.slice(y, starts=(0,), stops=(1,))),
    ]


def graphs() -> list[Graph]:
    return [
        case("pixels_2", pixels(2), "f32[1, 8, 3, L]", sizes=LENGTHS),
        case("pixels_3", pixels(3), "f32[2, 9, 2, L]", sizes=LENGTHS),
        case("pixels_4", pixels(4, "blocks_first"), "f32[1, 16, 2, L]", sizes=LENGTHS),
        case("pixels_5", pixels(5), "f32[1, 25, 2, L]", sizes=LENGTHS),
        case("pixels_f64", pixels(2), "f64[1, 4, 3, L]", sizes=LENGTHS),
        case("pixels_f16", pixels(2), "f16[1, 4, 3, L]", sizes=LENGTHS),
        case("pixels_bool", pixels(3), "bool[1, 9, 3, L]", sizes=LENGTHS),
        case("turned_2", turned(2), "f32[3, 2, L]", sizes=LENGTHS),
        case("turned_4", turned(4), "f32[3, 4, L]", sizes=LENGTHS),
        case("repeated", lambda b, x: b.repeat_interleave(x, repeats=3, axis=-1), "f32[3, L]", sizes=LENGTHS),
        case("sum_of_turned", lambda b, x, y: b.add(b.transpose(x, axes=(1, 0)), y), "f32[2, L]", "f32[L, 2]",
             sizes=LENGTHS),
        case("stacked", beside, "f32[3, L]", "f32[3, L]", sizes=LENGTHS),
        case("bands", bands, "f32[3, L + 1]", "f32[3, L + 1]", sizes=LENGTHS),
        case("bands_few", bands, "f32[L + 1, 3]", "f32[L + 1, 3]", sizes=LENGTHS),
        case("truth", truth, "bool[L + 1]", "bool[L + 1]", sizes=SHORT),
        case("truth_rows", lambda b, x, y: b.logical_and(x, y), "bool[5, L]", "bool[L]", sizes=SHORT),
        case("copied_i8", lambda b, x, y: b.bitwise_xor(x, y), "i8[3, L]", "i8[3, 1]", sizes=SHORT),
        case("copied_i16", lambda b, x, y: b.concat(b.bitwise_or(x, y), y, axis=1), "i16[3, L]", "i16[3, L]",
             sizes=SHORT),
        case("chosen_bf16", lambda b, c, x, y: b.where(c, x, y), "bool[3, L]", "bf16[3, L]", "bf16[3, L]",
             sizes=SHORT),
        case("turned_i8", lambda b, x: b.transpose(x, axes=(1, 0)), "i8[L, 40]", sizes=SHORT),
    ]  # fmt: skip


@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_results_are_right(level: Level) -> None:
    assert_right(graphs(), level)


def mirrored(b: Any, x: Any) -> Any:
    return b.pad(x, widths=((0, 0), (3, 3)), mode="reflect")


@pytest.mark.parametrize(
    ("graph", "needed", "absent"),
    [
        (case("pixels", pixels(2), "f32[1, 8, 3, 64]"), "vector.shuffle", "vector.gather"),
        (case("mirrored", mirrored, "f32[64, 40]"), "memref.store", "vector.maskedstore"),
        (case("truth", lambda b, x: b.logical_not(x), "bool[64, 64]"), "vector<32xi8>", "vector<8xi8>"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_code_is_of_whole_vectors(graph: Graph, needed: str, absent: str, tmp_path: Path) -> None:
    generate_objects(lower_module(graph.module), CodeOptions((Target(cpu="x86-64-v3"),)), tmp_path)
    (tiled,) = tmp_path.glob("*-tiled.mlir")
    assert needed in tiled.read_text() and absent not in tiled.read_text()


def test_elements_that_a_concatenation_overwrites_are_not_filled(tmp_path: Path) -> None:
    graph = case("joined", lambda b, x: b.concat(x, x, x, axis=1), "f32[4, L]")
    generate_objects(lower_module(graph.module), CodeOptions((Target(cpu="x86-64-v3"),)), tmp_path)
    (tiled,) = tmp_path.glob("*-tiled.mlir")
    # One function for the copies of each operand, and one for their number.
    assert tiled.read_text().count("func.func") == 2 * 3
