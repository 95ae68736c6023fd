"""Training steps in bf16: products round their operands, and the parameters, sums and updates stay in f32."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.checking import read_model
from nacre.compiler.quantization.choose import in_precision
from nacre.dialect.types import BF16

HEAD = """language 1
dim B in 0..64

block Linear<inputs, outputs>(x: f32[..., inputs]) -> f32[..., outputs] {
  param weight: f32[outputs, inputs] = random_normal((outputs, inputs), seed) / sqrt(inputs)
  return x @ weight.T
}
"""
TEXT = (
    HEAD
    + """
block Net(x: f32[B, 17]) -> f32[B, 3] {
  use hidden = Linear<17, 33>
  use answer = Linear<33, 3>
  return x |> hidden |> tanh |> answer
}

train step(x: f32[B, 17], y: f32[B, 3], lr: f32) -> loss: f32 {
  use net = Net
  loss = sum((net(x) - y) ** 2)
  minimize loss with sgd(lr=lr)
}

quantize step {
  weights "*" to bf16
  activations "*" to bf16
}
"""
)


def rounded(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32).astype(BF16.numpy).astype(np.float64)


@pytest.mark.parametrize("level", [0, 2])
def test_products_round_and_masters_do_not(level: int, tmp_path: Path) -> None:
    session = nacre.compile(TEXT, tmp_path / "step.so", opt_level=level).session()
    rng = np.random.default_rng(0)
    for count in (0, 1, 13):
        x, y = rng.standard_normal((count, 17)).astype(np.float32), rng.standard_normal((count, 3)).astype(np.float32)
        first, second = (session.states[f"net.{name}.weight"].astype(np.float64) for name in ("hidden", "answer"))
        loss = session.step(x, y, np.float32(1e-4))
        hidden = np.tanh(rounded(x) @ rounded(first).T)
        slope = 2 * (rounded(hidden) @ rounded(second).T - y)
        inner = rounded(slope) @ rounded(second) * (1 - hidden**2)
        expected = {
            "net.answer.weight": second - 1e-4 * rounded(slope).T @ rounded(hidden),
            "net.hidden.weight": first - 1e-4 * rounded(inner).T @ rounded(x),
        }
        np.testing.assert_allclose(loss, np.sum((slope / 2) ** 2), rtol=1e-5)
        for name, value in expected.items():
            found = session.states[name]
            # A sum near the middle of two bf16 values may round to the other one: 2^-8 of one term of a gradient. An
            # update of 1e-4 times that is below a rounding of the weight to bf16, so weights are kept in f32.
            np.testing.assert_allclose(found, value, rtol=0, atol=3e-6, err_msg=name)
            assert found.dtype == np.float32 and (not count or np.abs(found - rounded(found)).max() > 1e-4)


def test_convolutions_tables_and_kept_layers() -> None:
    text = (
        HEAD
        + """
train step(x: f32[B, 2, 5, 5], ids: i64[B]) -> loss: f32 {
  param kernel: f32[3, 2, 3, 3] = random_normal((3, 2, 3, 3), seed)
  param table: f32[7, 27] = random_normal((7, 27), seed)
  use answer = Linear<27, 4>
  y = conv2d(x, kernel) |> flatten(1)
  loss = mean(answer(tanh(y) * table[ids]) ** 2)
  minimize loss with adamw(lr=0.1)
}

quantize step {
  weights "*" to bf16
  activations "*" to bf16
  keep "answer.weight"
}
"""
    )
    module = in_precision(read_model(text)).module
    body = module.function("step").body
    nodes = {value.name: node for node in body for value in node.outputs}
    convolutions = [node for node in body if node.op in ("conv2d", "conv_weight_gradient")]
    assert [node.op for node in convolutions] == ["conv2d", "conv_weight_gradient"]
    for value in (value for node in convolutions for value in node.inputs[:2]):
        narrow = value if value.type.dtype is BF16 else nodes[value.name].inputs[0]
        assert narrow.type.dtype is BF16
    products = [node for node in body if node.op in ("matmul", "einsum")]
    assert len(products) == 3 and not any(v.type.dtype is BF16 for node in products for v in node.inputs)
    rows = next(node for node in body if node.op in ("gather", "embedding"))
    assert any(node.op == "cast" and node.inputs == rows.outputs for node in body)
    assert all(state.type.dtype.name == "f32" for state in module.states if state.initial)


def test_other_types_do_not_apply_to_trained_weights() -> None:
    warnings = in_precision(read_model(TEXT), "int8").warnings
    assert [w.message for w in warnings] == [
        "`i8` does not round 2 trained weights of `step` (net.hidden.weight, net.answer.weight)"
    ]
