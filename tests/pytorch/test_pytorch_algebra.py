"""Special functions and linear algebra of PyTorch, beside eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import nacre
import pytest
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.interpreter import Interpreter, load_parameter

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from nacre.compiler.readers.torch.writing.arrays import to_array, to_tensor  # noqa: E402  # after the check

Tensor = Any


class Called(torch.nn.Module):
    """A function as a module."""

    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = call

    def forward(self, *operands: Tensor) -> Any:
        return self.call(*operands)


def interpret(call: Callable[..., Any], *operands: Tensor) -> list[Tensor]:
    """Returns the results of the model that is read of the function."""
    module = nacre.from_torch(Called(call), operands).module
    return [to_tensor(made) for made in Interpreter(module, load_parameter).run("Called", [*map(to_array, operands)])]


def assert_same(call: Callable[..., Any], *operands: Tensor, tolerance: float) -> None:
    expected = call(*operands)
    expected = expected if isinstance(expected, (tuple, list)) else (expected,)
    made = interpret(call, *operands)
    assert len(made) == len(expected)
    for found, wanted in zip(made, expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)


def special(x: Tensor, u: Tensor) -> Sequence[Tensor]:
    return torch.lgamma(x), torch.digamma(x), torch.erfinv(u)


EXTREME = [0.0, -0.0, 1.0, 2.0, -1.0, -3.0, torch.inf, -torch.inf, torch.nan, 1e-300, 1e300]


def test_special_functions_are_within_their_bounds() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.cat([torch.linspace(-9.7, 40.3, 301), torch.logspace(-8, 8, 60), torch.tensor(EXTREME)]).double()
    near = 1 - torch.logspace(-15, 0, 40, dtype=torch.float64)
    u = torch.cat([torch.rand(200, generator=generator).double() * 2 - 1, near, -near, torch.tensor([0.0, -0.0, 1.5])])
    # PyTorch's digamma has an error of 1e-8 near poles; these points keep their distance.
    assert_same(special, x, u, tolerance=1e-14)
    assert_same(special, x.float(), u.float().clamp(-1, 1), tolerance=1e-6)


def algebra(a: Tensor, b: Tensor, v: Tensor) -> Sequence[Tensor]:
    definite = a @ a.mT + 4 * torch.eye(3, dtype=a.dtype)
    factor = torch.linalg.cholesky(definite)
    upper = torch.linalg.cholesky(definite, upper=True)
    return (
        *(torch.linalg.inv(a), *torch.linalg.inv_ex(a), torch.linalg.det(a), *torch.linalg.slogdet(a)),
        *(torch.linalg.solve(a, b), torch.linalg.solve(a, v), torch.linalg.solve(a, b.mT, left=False)),
        *(factor, upper, *torch.linalg.cholesky_ex(definite)),
        *(torch.cholesky_solve(b, factor), torch.cholesky_solve(b, upper, upper=True)),
        torch.linalg.solve_triangular(factor, b, upper=False),
        torch.linalg.solve_triangular(upper, b.mT, upper=True, left=False, unitriangular=True),
        torch.linalg.svdvals(b),
        torch.linalg.multi_dot([a[0], b[0], b[0].mT]),
    )


def test_linear_algebra_agrees_with_eager() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b, v = (torch.randn(n, generator=generator, dtype=torch.float64) for n in ((2, 3, 3), (2, 3, 2), (2, 3)))
    assert_same(algebra, a + 3 * torch.eye(3, dtype=torch.float64), b, v, tolerance=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_solutions_have_residuals_as_small_as_those_of_eager(dtype: Any) -> None:
    """For condition numbers up to a tenth of the inverse of the rounding error."""
    generator = torch.Generator().manual_seed(0)
    u, v = (torch.linalg.qr(torch.randn(20, 20, generator=generator, dtype=torch.float64))[0] for _ in range(2))
    largest = 6 if dtype == torch.float32 else 12
    values = torch.stack([torch.logspace(0, -digits, 20, dtype=torch.float64) for digits in (1, largest / 2, largest)])
    a = (u * values[:, None] @ v).to(dtype)
    # A random right side would have a solution as large as the inverse, beside which the error of the inverse is small.
    b = (a.double() @ torch.randn(3, 20, 2, generator=generator, dtype=torch.float64)).to(dtype)

    def solved(a: Tensor, b: Tensor) -> Sequence[Tensor]:
        return torch.linalg.solve(a, b), torch.linalg.solve(a.mT, b.mT, left=False).mT

    def residual(x: Tensor) -> Tensor:
        """The norm of a @ x - b by those of a and x, in units of rounding errors."""
        wide, norm = x.double(), torch.linalg.matrix_norm
        units = norm(a.double() @ wide - b.double()) / norm(a.double(), 2) / norm(wide) / torch.finfo(dtype).eps
        return units.max()

    for found, eager in zip(interpret(solved, a, b), solved(a, b), strict=True):
        assert residual(found) <= 4 * max(residual(eager), 0.5)
    assert residual(torch.linalg.inv(a) @ b) > 100


def test_the_logarithm_of_a_determinant_is_finite_where_that_overflows_or_underflows() -> None:
    x = torch.randn(30, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    matrices = torch.stack([x * 1e12, x * 1e-12, torch.diag(torch.arange(30.0, dtype=torch.float64)), -1e300 * x])
    assert_same(lambda a: tuple(torch.linalg.slogdet(a)), matrices, tolerance=1e-14)


def test_the_sign_of_a_determinant_that_is_no_number_is_0() -> None:
    nan, infinity = float("nan"), float("inf")
    matrices = torch.tensor(
        [[[nan, 1.0], [1.0, 2.0]], [[1.0, 2.0], [3.0, nan]], [[infinity, 1.0], [1.0, 2.0]], [[0.0, 1.0], [1.0, 0.0]]]
    )
    assert_same(lambda a: tuple(torch.linalg.slogdet(a)), matrices, tolerance=1e-6)


def test_a_singular_matrix_is_reported_by_its_number_alone() -> None:
    def statuses(a: Tensor) -> Sequence[Tensor]:
        inverse, wrong = torch.linalg.inv_ex(a)
        return inverse, wrong, torch.linalg.cholesky_ex(a).info, torch.linalg.inv(a)

    singular = torch.tensor([[[1.0, 2.0], [2.0, 4.0]], [[2.0, 0.0], [0.0, 1.0]]])
    eager = Called(lambda a: torch.linalg.inv_ex(a).info)
    assert (eager(singular) != 0).tolist() == [True, False]
    found, wrong, indefinite, checked = interpret(statuses, singular)
    assert (wrong != 0).tolist() == [True, False]
    assert indefinite[1] == 0 and torch.equal(found.isfinite().all(-1).all(-1), wrong == 0)
    assert torch.equal(found.isfinite(), checked.isfinite())


def test_a_result_that_is_not_computed_is_refused() -> None:
    a, b = torch.eye(2), torch.ones(2, 1)
    with pytest.raises(DiagnosticError, match=r"result 1 of `_linalg_solve_ex.default`, .* cannot be read"):
        interpret(lambda a, b: torch.ops.aten._linalg_solve_ex(a, b)[1] + 1, a, b)
