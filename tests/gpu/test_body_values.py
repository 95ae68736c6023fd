"""Bodies of structured ops on memory, as expressions."""

from __future__ import annotations

from typing import Any

import pytest
from nacre.compiler.base.mlir import ir
from nacre.compiler.codegen.gpu.body_values import CONVERSION, number_of, read_body, signs_of_product
from nacre.compiler.codegen.structured.body_nodes import position_of, predicate_of, products_of
from nacre.compiler.codegen.structured.operations import captured_by, operands_of

SUM = "%p = arith.mulf %a, %b : f32\n %y = arith.addf %t, %p : f32\n linalg.yield %y : f32"


def read(body: str, inputs: str = "f32, f32", result: str = "f32") -> Any:
    """Returns a module and its op, with inputs `%a` and `%b`, the sum before `%t`, and a captured `%c`."""
    first, second = inputs.split(", ")
    types = [f"memref<4x{first}>", f"memref<4x{second}>", f"memref<{result}>"]
    module = ir.Module.parse(f"""func.func @f(%x: {types[0]}, %w: {types[1]}, %s: {types[2]}, %c: i64) {{
      %low = arith.constant -1.0 : f32
      linalg.generic {{
        indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>],
        iterator_types = ["reduction"]
      }} ins(%x, %w : {types[0]}, {types[1]}) outs(%s : {types[2]}) {{
      ^bb0(%a: {first}, %b: {second}, %t: {result}):
        {body}
      }}
      return
    }}""")
    return module, module.body.operations[0].regions[0].blocks[0].operations[1].operation


@pytest.mark.parametrize(
    ("body", "inputs", "signs", "converting"),
    [
        (SUM, "f32, f32", (False, False), (False, False)),
        (SUM.replace("%a, %b", "%a, %a"), "f32, f32", None, None),
        ("%d = arith.extf %a : f16 to f32\n" + SUM.replace("%a, ", "%d, "), "f16, f32", (False, False), (False, False)),
        ("%d = arith.sitofp %a : i8 to f32\n" + SUM.replace("%a, ", "%d, "), "i8, f32", None, (False, False)),
        (
            SUM.replace("%y = arith.addf %t, %p", "%q = math.exp %p : f32\n %y = arith.addf %t, %q"),
            "f32, f32",
            None,
            None,
        ),
    ],
)
def test_products(body: str, inputs: str, signs: object, converting: object) -> None:
    with ir.Context():
        _module, op = read(body, inputs)
        found = read_body(op).combination(0)
        assert found is not None and found[0] == "arith.addf"
        assert signs_of_product(found[1]) == signs and signs_of_product(found[1], CONVERSION) == converting
        assert len(products_of(found[1])) == ("exp" not in body)


@pytest.mark.parametrize(
    "body",
    [
        SUM.replace("%a, %b", "%a, %t"),
        SUM.replace("%t, %p", "%t, %t"),
        "memref.store %t, %s[] : memref<f32>\n" + SUM,
        """%z = arith.cmpf olt, %a, %b : f32
        %q = scf.if %z -> (f32) { scf.yield %t : f32 } else { scf.yield %a : f32 }
        %y = arith.addf %t, %q : f32
        linalg.yield %y : f32""",
    ],
)
def test_a_sum_that_is_read_elsewhere_is_not_combined(body: str) -> None:
    with ir.Context():
        _module, op = read(body)
        assert read_body(op).combination(0) is None


def test_masks() -> None:
    body = """%i = linalg.index 0 : index
    %k = arith.index_cast %i : index to i64
    %n = arith.cmpi slt, %k, %c : i64
    %m = arith.select %n, %a, %low : f32
    linalg.yield %m : f32"""
    with ir.Context():
        _module, op = read(body)
        (value,) = read_body(op).values
        condition, kept, low = value.operands
        assert value.kind == "arith.select" and kept.kind == "read" and number_of(low) == -1.0
        left, length = condition.operands
        assert predicate_of(condition) == 2 and position_of(left) == 0 and position_of(length) is None
        block = op.regions[0].blocks[0]
        assert length.kind == "captured" and captured_by(block)[length.number] == length.value
        assert len(operands_of(op)[0]) == 2
