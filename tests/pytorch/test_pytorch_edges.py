"""Edges of operators, in comparison with eager PyTorch: rows without keys, infinities beside windows, the least
integers, and numbers that are computed from sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, nan
from typing import Any

import nacre
import numpy as np
import pytest
from nacre.dialect.interpreter import Interpreter, load_parameter

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from nacre.compiler.readers.torch.writing.arrays import to_array, to_tensor  # noqa: E402  # after the check
from torch.nn import functional as F  # noqa: E402, N812  # after the check; the name that PyTorch's users know


@dataclass(frozen=True)
class Case:
    """A function and its arguments. `dynamic` are the axes with a symbolic size. The program is traced with one element
    more than the arguments of the call have."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    dynamic: tuple[int, ...] = ()


def _normal(*shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def _attention(mask: Any, dtype: Any = torch.float32) -> Case:
    mask = mask if mask.dtype == torch.bool else mask.to(dtype)
    q, k, v = _normal(2, 3, 5, 4), _normal(2, 3, 6, 4), _normal(2, 3, 6, 7)
    return Case(F.scaled_dot_product_attention, (*(each.to(dtype) for each in (q, k, v)), mask))


ALLOWED = _normal(5, 6) > 0
ALLOWED[1::2] = False
ADDED = torch.where(ALLOWED, _normal(5, 6), -inf)
LINE = torch.tensor([[inf, 1.0, 2.0, 3.0, nan, 5.0, -inf]])
LEAST = torch.tensor([-(2**31), -(2**31), 2**31 - 1, -7, 7, -6, -(2**31)], dtype=torch.int32)
DIVISORS = torch.tensor([7, -9, -4, 2, -2, 3, 1], dtype=torch.int32)
X = _normal(6, 3)


def _constant_mask(x: Any, q: Any) -> Any:
    return F.scaled_dot_product_attention(q, q, q, attn_mask=torch.tensor([[True, False], [False, False]])) + x


CASES: dict[str, Case] = {
    "a mask that excludes queries": _attention(ALLOWED),
    "a mask of each head": _attention(ALLOWED.repeat(2, 3, 1, 1)),
    "a mask of bf16 products": _attention(ALLOWED, torch.bfloat16),
    "a mask of numbers": _attention(ADDED),
    "a mask of numbers of f16": _attention(ADDED, torch.float16),
    "a mask with NaN": _attention(torch.where(ADDED > 1, nan, ADDED)),
    "a constant mask": Case(_constant_mask, (torch.ones(3), _normal(1, 2, 3))),
    "averages beside infinities": Case(lambda x: [F.adaptive_avg_pool1d(x, n) for n in (2, 3, 5, 9)], (LINE,)),
    "long averages beside infinities": Case(lambda x: F.adaptive_avg_pool1d(F.pad(x, (0, 43)), 3), (LINE,)),
    "averages of both axes": Case(lambda x: F.adaptive_avg_pool2d(x, (4, 3)), (LINE[:, :, None] + LINE[:, None],)),
    "averages of f16": Case(lambda x: F.adaptive_avg_pool1d(x, 3), (LINE.half(),)),
    "remainders of the least integers": Case(torch.fmod, (LEAST, DIVISORS)),
    "quotients of the least integers": Case(lambda x, y: torch.div(x, y, rounding_mode="trunc"), (LEAST, DIVISORS)),
    "remainders of i8": Case(
        torch.fmod, (torch.tensor([-128, 127, -128], dtype=torch.int8), DIVISORS[:3].to(torch.int8))
    ),
    **{
        f"the least divisor of rms_norm of {dtype}": Case(
            lambda x: (F.rms_norm(x, (3,)), F.rms_norm(x[None], (6, 3))), (_normal(6, 3).to(dtype) / 256,)
        )
        for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64)
    },
    "a factor": Case(lambda x: x * (1.0 / x.shape[0]) + x * (x.shape[0] * 2.5), (X,), (0,)),
    "a power": Case(lambda x: x * x.shape[0] ** -0.5 + x.shape[0] ** 0.5, (X,), (0,)),
    "a factor of the second summand": Case(lambda x: torch.add(x, x, alpha=1 / x.shape[0]), (X,), (0,)),
    "factors of a product": Case(
        lambda x: torch.addmm(x, x, x.new_ones(3, 3), alpha=1 / x.shape[0], beta=x.shape[0] / 2), (X,), (0,)
    ),
    "bounds": Case(lambda x: x.clamp(min=-1.0 / x.shape[0], max=x.shape[0] / 7), (X,), (0,)),
    "an element": Case(lambda x: x.masked_fill(x > 0, -(x.shape[0] / 2)), (X,), (0,)),
    "a result": Case(lambda x: (x, torch.full((2,), x.shape[0] / 4)), (X,), (0,)),
    "an element as a number": Case(
        lambda x: x * x.sum().item() + torch.add(x, x, alpha=x[1, 2].item() / 2), (X,), (0,)
    ),
    "elements of constant masks": Case(
        lambda x: (
            x[:, torch.tensor([True, False, True])] * 2,
            x[torch.tensor([[True, False, True]] + [[False, True, False]] * 5)].sum(),
            x[torch.tensor([False] * 6)],
            torch.tensor([0, 3, 4]).nonzero()[:, 0].float() @ x[:2],
        ),
        (X,),
    ),
    "interpolation at both ends": Case(
        lambda x, y: [torch.lerp(x, y, weight) for weight in (0.0, 0.25, -0.7, 1.0, torch.arange(4) / 2)],
        (torch.tensor([1e30, 1.0, inf, 3.0]), torch.tensor([1.0, inf, 2.0, 7.0])),
    ),
    "windows along an axis": Case(lambda x: (x.unfold(0, 2, 1), x.unfold(1, 2, 3)), (X,), (0,)),
    "windows of a scalar": Case(lambda x: (x.unfold(0, 1, 1), x.unfold(0, 0, 1)), (torch.tensor(3.0),)),
    "windows of windows": Case(lambda x: x.unfold(0, 3, 2).unfold(1, 2, 1), (X,)),
    "shifts": Case(lambda x: (x << 3, x >> 2, x << x % 5, 1 << x % 5, x >> (x * 0 + 4)), (LEAST,)),
}


class Program(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: Any) -> Any:
        return self.function(*given)


def _listed(results: Any) -> Sequence[Any]:
    return results if isinstance(results, (list, tuple)) else [results]


@pytest.mark.parametrize("name", CASES)
def test_edges_agree_with_eager(name: str) -> None:
    case = CASES[name]
    sizes = {axis: torch.export.Dim(f"d{axis}", min=3, max=64) for axis in case.dynamic}
    examples = tuple(torch.cat([each, each[-1:]]) if case.dynamic else each for each in case.arguments)
    source = nacre.from_torch(
        Program(case.function), examples, dynamic_shapes=(tuple(sizes for _ in examples),) if sizes else None
    )
    weights = source.weights["Program"]
    load = load_parameter if weights is None else lambda p: weights.read(p.key)
    results = Interpreter(source.module, load).run("Program", list(map(to_array, case.arguments)))
    expected = _listed(case.function(*case.arguments))
    assert len(results) == len(expected)
    for made, wanted in zip(map(to_tensor, results), expected, strict=True):
        assert made.dtype == wanted.dtype
        bound = torch.finfo(wanted.dtype).eps * 8 if wanted.is_floating_point() else 0.0
        torch.testing.assert_close(made, wanted, rtol=bound, atol=bound, equal_nan=True)


def test_a_number_among_the_results_is_f64() -> None:
    size = torch.export.Dim("T", min=2, max=64)
    source = nacre.from_torch(Program(lambda x: (x, x.shape[0] / 4)), (X,), dynamic_shapes=(({0: size},),))
    _, quarter = Interpreter(source.module, load_parameter).run("Program", [X[:5].numpy()])
    assert quarter.dtype == "float64"
    assert quarter == 1.25


@pytest.mark.parametrize("scale", [None, 0.01])
def test_products_of_f16_do_not_overflow_before_they_are_scaled(scale: float | None) -> None:
    """Compiled: the interpreter has no f16 between the operator's parts."""
    q = torch.tensor([100.0, -70.0, 80.0, 14.0]).half().diag().repeat(1, 9)
    v = _normal(4, 5).half()
    program = Program(lambda q, v: F.scaled_dot_product_attention(q, q, v, is_causal=True, scale=scale))
    found = nacre.compile(nacre.from_torch(program, (q, v)))(q.numpy(), v.numpy())
    torch.testing.assert_close(torch.from_numpy(found), program(q, v), rtol=0, atol=4e-3)


class Weighted(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x: Any, pair: Sequence[Any], y: Any = None) -> Any:
        return x + 2 * pair[0] + 3 * pair[1] + 4 * y + 5 * self.weight


def test_the_same_tensor_is_an_example_of_several_arguments() -> None:
    x, module = torch.zeros(3), Weighted()
    for example in (x, module.weight):
        source = nacre.from_torch(module, (example, [example, x]), {"y": example})
        weights = source.weights["Weighted"]
        assert weights is not None
        arguments = [np.full(3, 10.0**power, np.float32) for power in range(4)]
        (found,) = Interpreter(source.module, lambda p, w=weights: w.read(p.key)).run("Weighted", arguments)
        np.testing.assert_array_equal(found, np.full(3, 4326.0))
