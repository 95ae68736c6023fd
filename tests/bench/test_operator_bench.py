"""The table of operators is whole, and its uses compute what PyTorch does."""

from __future__ import annotations

from pathlib import Path

import pytest
from nacre.dialect.graph import Module
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import Array

pytest.importorskip("torch", reason="the uses are calls of PyTorch")
pytest.importorskip("onnxruntime", reason="the uses are calls of ONNX Runtime")

from beside_torch import Sweep, is_near, torch_contender
from measure import Contender, Plan
from operators import all_usual, compile_all, format_lines, make_arrays, measure_line, write_function
from workloads.operators import MISSING, USUAL

SLOW = {"conv1d", "conv2d", "conv3d", "conv_weight_gradient"} | {f"conv_transpose{rank}d" for rank in (1, 2, 3)}
SLOW_VARIANTS = {"svd, 128 columns", "svd, f64"}
"""The reference interpreter takes seconds for them at the sizes of the table."""


def test_every_operator_is_in_the_table_or_has_a_reason_not_to_be() -> None:
    assert sorted([*USUAL, *MISSING]) == sorted(OPERATORS)


@pytest.mark.parametrize(
    "name", [name for name, (operator, _) in all_usual().items() if operator not in SLOW and name not in SLOW_VARIANTS]
)
def test_use_computes_the_same_as_torch(name: str) -> None:
    operator, usual = all_usual()[name]
    arrays = make_arrays(usual)
    function = write_function(operator, usual, arrays)

    def no_parameters(parameter: object) -> Array:
        raise AssertionError(parameter)

    interpreter = Interpreter(Module("test", functions=(function,)), no_parameters)
    passed = [a for a, given in zip(arrays, usual.operands, strict=True) if not given.weight]
    results = interpreter.run(function, passed)
    expected = torch_contender(usual.torch, arrays).results()
    assert is_near(Contender("reference", lambda: results, list), expected, signed=usual.signed)


def test_a_line_is_measured(tmp_path: Path) -> None:
    entry = compile_all(["relu"], tmp_path)["relu"]
    line = measure_line("relu", USUAL["relu"], entry, Sweep(Plan(1, 0.001), cpu_time=True))
    assert set(line.measured.timings) == {"nacre", "torch", "onnxruntime"} and not line.measured.wrong
    *_, row = format_lines([line], "a note")
    assert row.startswith("| relu | f32[256, 1024] | ")
