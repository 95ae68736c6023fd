"""Passes ask operators for properties. A comparison with the name of an operator stands only in a pass that is about
this operator, or in a rule of its algebra; `NAMED` lists them with the reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PASSES = Path(__file__).parents[2] / "passes"
ALGEBRA = "a rule states the algebra of exactly these operators"
NAMED: dict[str, tuple[str, set[str]]] = {
    "autodiff/region_gradients.py": ("the gradient of `scan`", {"scan"}),
    "fold/fold_batch_norm.py": (ALGEBRA, {"add", "ops"}),
    "layout/channels_last_rules.py": ("a table with one rule for each operator", {"_BY_NAME"}),
    "layout/depth_last.py": ("lays out the constant matrix of `matmul`", {"matmul"}),
    "layout/einsum_order.py": ("turns the results of `einsum`", {"einsum"}),
    "layout/ordered_last.py": ("moves the axis of the three operators of order", {"_ORDERS"}),
    "layout/split_reductions.py": (
        "a table with one rule for each operator; a mean divides its sum",
        {"_COMBINING", "_POSITIONS", "mean"},
    ),
    "layout/split_scans.py": ("splits the running sums of `cumsum`", {"cumsum"}),
    "layout/split_sums.py": ("splits the sums of `matmul`", {"matmul"}),
    "layout/winograd.py": ("an algorithm for `conv2d`; pad(pad(x, a), b) == pad(x, a + b)", {"conv2d", "pad"}),
    "loops/batch_scanned.py": (
        "the loop is `scan`, and products are rows of one `matmul`; a table with one rule for each operator",
        {"CONTROL_FLOW", "scan", "matmul", "_BATCHED"},
    ),
    "loops/hoist_invariants.py": ("the table holds the properties of operators with regions", {"CONTROL_FLOW"}),
    "loops/sparse_products.py": ("`relu` has zeros, and these operators keep them", {"relu", "multiply", "_KEEPING"}),
    "loops/triangular_products.py": (
        "marks `matmul`; these operators make triangular matrices, and keep their zeros",
        {"matmul", "where", "softmax", "tril", "triangular_mask", "multiply", "divide", "_KEEPING"},
    ),
    "loops/turned_products.py": ("turns `matmul`", {"matmul"}),
    "loops/parallel_order.py": ("expands the three operators of order", {"sort", "argsort", "top_k"}),
    "quantization/expand_block_quantized.py": (
        "expands these operators, and writes `x @ dequantized.T` as `block_matmul`, also of blocks times scales",
        {
            *("dequantize", "dequantize_blocks", "join_blocks", "quantize_blocks", "matmul", "dynamic_slice"),
            *("multiply", "reshape"),
        },
    ),
    "quantization/pack_floats.py": ("packs the constant matrix of `matmul`", {"matmul"}),
    "quantization/qdq_propagation.py": ("moves `quantize`", {"quantize", "op"}),
    "quantization/quantize_activations.py": ("changes the dtype that `dequantize_blocks` gives", {"dequantize_blocks"}),
    "quantization/quantized_values.py": (
        "moves `dequantize`; two operators clamp; sums and products of dequantized values are finite",
        {"dequantize", "maximum", "minimum", "cast", "add", "subtract", "multiply"},
    ),
    "simplify/arithmetic_rules.py": (ALGEBRA, {"square"}),
    "simplify/butterflies.py": ("an algorithm for `fourier_axis`", {"fourier_axis"}),
    "simplify/inline_custom.py": ("inlines `custom`", {"custom"}),
    "simplify/mask_rules.py": (
        ALGEBRA,
        {"iota", "constant", "size_value", "cast", "add", "subtract", "tril", "full", "logical_and"},
    ),
    "simplify/rules.py": ("rules pass the operators of their algebra", {"operators"}),
    "simplify/unroll_repeat.py": ("unrolls `repeat`", {"repeat"}),
}


def compared_names(source: str) -> Iterator[str]:
    """Yields the operators, or the tables of operators, that the attribute `op` of a node is compared with."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        if any(isinstance(side, ast.Attribute) and side.attr == "op" for side in sides):
            for inner in (part for side in sides for part in ast.walk(side)):
                if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                    yield inner.value
            yield from (side.id for side in sides if isinstance(side, ast.Name))


def test_passes_ask_for_properties() -> None:
    found = {
        path.relative_to(PASSES).as_posix(): names
        for path in sorted(PASSES.rglob("*.py"))
        if (names := set(compared_names(path.read_text(encoding="utf-8"))))
    }
    assert found == {path: names for path, (_, names) in NAMED.items()}


def test_comparisons_are_found() -> None:
    source = 'if m.node.op == "relu" or node.op in ("tanh", "exp") or made.op not in TABLE: pass\nx = other == "y"'
    assert sorted(compared_names(source)) == ["TABLE", "exp", "relu", "tanh"]
