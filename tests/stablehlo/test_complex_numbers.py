"""Complex numbers: operations on their parts, Fourier transforms, and errors."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from nacre.compiler.readers.table import read_file
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.interpreter import Interpreter

C = "complex<f32>"


def run(tmp_path: Path, text: str, *arguments: np.ndarray) -> list[np.ndarray]:
    path = tmp_path / "net.mlir"
    path.write_text(text)
    source = read_file(path)
    (function,) = source.module.functions
    weights = source.weights[function.name]
    return list(Interpreter(source.module, lambda p: weights.read(p.key)).run(function, arguments))


def in_parts(body: str, shape: str) -> str:
    """Returns a function of %z and %w, given in parts, that returns the parts of the complex tensor %r."""
    given, made = f"tensor<2x3xf32>, tensor<2x3x{C}>", f"tensor<{shape}x{C}>"
    return f"""func.func public @main(%a: tensor<2x3xf32>, %b: tensor<2x3xf32>, %c: tensor<2x3xf32>, %d: tensor<2x3xf32>) -> (tensor<{shape}xf32>, tensor<{shape}xf32>) {{
      %z = stablehlo.complex %a, %b : {given.split(", ")[1]}
      %w = stablehlo.complex %c, %d : {given.split(", ")[1]}
      {body}
      %x = stablehlo.real %r : ({made}) -> tensor<{shape}xf32>
      %y = stablehlo.imag %r : ({made}) -> tensor<{shape}xf32>
      return %x, %y : tensor<{shape}xf32>, tensor<{shape}xf32>
    }}"""  # noqa: E501  # lines of MLIR


Z = f"tensor<2x3x{C}>"
Expected = Callable[[Any, Any], Any]
CASES: dict[str, tuple[str, str, Expected]] = {
    "add": (f"%r = stablehlo.add %z, %w : {Z}", "2x3", lambda z, w: z + w),
    "subtract": (f"%r = stablehlo.subtract %z, %w : {Z}", "2x3", lambda z, w: z - w),
    "negate": (f"%r = stablehlo.negate %z : {Z}", "2x3", lambda z, w: -z),
    "multiply": (f"%r = stablehlo.multiply %z, %w : {Z}", "2x3", lambda z, w: z * w),
    "divide": (f"%r = stablehlo.divide %z, %w : {Z}", "2x3", lambda z, w: z / w),
    "exponential": (f"%r = stablehlo.exponential %z : {Z}", "2x3", lambda z, w: np.exp(z)),
    "log": (f"%r = stablehlo.log %z : {Z}", "2x3", lambda z, w: np.log(z)),
    "transpose": (f"%r = stablehlo.transpose %z, dims = [1, 0] : ({Z}) -> tensor<3x2x{C}>", "3x2", lambda z, w: z.T),
    "concatenate": (
        f"%r = stablehlo.concatenate %z, %w, dim = 0 : ({Z}, {Z}) -> tensor<4x3x{C}>",
        "4x3",
        lambda z, w: np.concatenate([z, w]),
    ),
    "product": (
        f"%r = stablehlo.dot_general %z, %w, contracting_dims = [1] x [1] : ({Z}, {Z}) -> tensor<2x2x{C}>",
        "2x2",
        lambda z, w: z @ w.T,
    ),
    "sum": (
        f"""%v = stablehlo.constant dense<(0.0, 0.0)> : tensor<{C}>
      %r = stablehlo.reduce(%z init: %v) applies stablehlo.add across dimensions = [0] : ({Z}, tensor<{C}>) -> tensor<3x{C}>""",  # noqa: E501  # a line of MLIR
        "3",
        lambda z, w: z.sum(0),
    ),
    "padding": (
        f"""%v = stablehlo.constant dense<(7.0, -8.0)> : tensor<{C}>
      %r = stablehlo.pad %z, %v, low = [1, 0], high = [0, 0], interior = [0, 0] : ({Z}, tensor<{C}>) -> tensor<3x3x{C}>""",  # noqa: E501  # a line of MLIR
        "3x3",
        lambda z, w: np.concatenate([np.full((1, 3), 7 - 8j), z]),
    ),
    "constant": (
        f"""%k = stablehlo.constant dense<[[(1.0, 2.0), (3.0, -4.0), (0x7F800000, 0.5)]]> : tensor<1x3x{C}>
      %r = stablehlo.broadcast_in_dim %k, dims = [0, 1] : (tensor<1x3x{C}>) -> {Z}""",
        "2x3",
        lambda z, w: np.broadcast_to(np.array([1 + 2j, 3 - 4j, complex(np.inf, 0.5)]), (2, 3)),
    ),
    "choice": (
        f"""%k = stablehlo.compare EQ, %z, %w : ({Z}, {Z}) -> tensor<2x3xi1>
      %r = stablehlo.select %k, %z, %w : tensor<2x3xi1>, {Z}""",
        "2x3",
        lambda z, w: w,
    ),
    "conversion": (f"%r = stablehlo.convert %a : (tensor<2x3xf32>) -> {Z}", "2x3", lambda z, w: z.real + 0j),
    "loop": (
        f"""%zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %three = stablehlo.constant dense<3> : tensor<i32>
      %l:2 = stablehlo.while(%i = %zero, %r = %z) : tensor<i32>, {Z}
      cond {{ %k = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
             stablehlo.return %k : tensor<i1> }}
      do {{ %n = stablehlo.add %i, %one : tensor<i32>
           %p = stablehlo.multiply %r, %w : {Z}
           stablehlo.return %n, %p : tensor<i32>, {Z} }}
      %q = stablehlo.compare GT, %one, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %first = stablehlo.slice %a [0:1, 0:1] : (tensor<2x3xf32>) -> tensor<1x1xf32>
      %s = stablehlo.reshape %first : (tensor<1x1xf32>) -> tensor<f32>
      %low = stablehlo.constant dense<-1.0e9> : tensor<f32>
      %is = stablehlo.compare GT, %s, %low : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %r = "stablehlo.if"(%is) ({{ stablehlo.return %l#1 : {Z} }}, {{ stablehlo.return %z : {Z} }}) : (tensor<i1>) -> {Z}""",  # noqa: E501  # a line of MLIR
        "2x3",
        lambda z, w: z * w**3,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_operation_agrees(name: str, tmp_path: Path) -> None:
    body, shape, expected = CASES[name]
    a, b, c, d = np.random.default_rng(0).standard_normal((4, 2, 3)).astype(np.float32)
    real, imaginary = run(tmp_path, in_parts(body, shape), a, b, c, d)
    with np.errstate(all="ignore"):
        wanted = np.asarray(expected(a.astype(np.float64) + 1j * b, c.astype(np.float64) + 1j * d))
    np.testing.assert_allclose(real, wanted.real, rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(imaginary, wanted.imag, rtol=2e-6, atol=1e-6)


def test_magnitudes_at_the_ends_of_the_range(tmp_path: Path) -> None:
    text = f"""func.func public @main(%a: tensor<6xf32>, %b: tensor<6xf32>) -> (tensor<6xf32>, tensor<6xf32>) {{
      %z = stablehlo.complex %a, %b : tensor<6x{C}>
      %m = stablehlo.abs %z : (tensor<6x{C}>) -> tensor<6xf32>
      %q = stablehlo.divide %z, %z : tensor<6x{C}>
      %r = stablehlo.real %q : (tensor<6x{C}>) -> tensor<6xf32>
      return %m, %r : tensor<6xf32>, tensor<6xf32>
    }}"""
    a = np.array([3e38, 1e-38, 0, -np.inf, 3, -1e30], np.float32)
    b = np.array([1e38, 1e-38, -2, 1, -4, 1e30], np.float32)
    found, quotient = run(tmp_path, text, a, b)
    np.testing.assert_allclose(found, np.hypot(a.astype(np.float64), b), rtol=3e-7)
    np.testing.assert_allclose(quotient[[0, 1, 2, 4, 5]], 1, rtol=3e-7)


def test_fourier_transforms(tmp_path: Path) -> None:
    z, half = f"tensor<2x6x{C}>", f"tensor<2x4x{C}>"
    text = f"""func.func public @main(%a: tensor<2x6xf32>, %b: tensor<2x6xf32>) -> (tensor<2x6xf32>, tensor<2x6xf32>, tensor<2x6xf32>, tensor<2x4xf32>, tensor<2x6xf32>) {{
      %z = stablehlo.complex %a, %b : {z}
      %f = stablehlo.fft %z, type = FFT, length = [2, 6] : ({z}) -> {z}
      %fr = stablehlo.real %f : ({z}) -> tensor<2x6xf32>
      %fi = stablehlo.imag %f : ({z}) -> tensor<2x6xf32>
      %i = stablehlo.fft %z, type = IFFT, length = [6] : ({z}) -> {z}
      %ii = stablehlo.imag %i : ({z}) -> tensor<2x6xf32>
      %h = stablehlo.fft %a, type = RFFT, length = [6] : (tensor<2x6xf32>) -> {half}
      %hi = stablehlo.imag %h : ({half}) -> tensor<2x4xf32>
      %g = stablehlo.fft %h, type = IRFFT, length = [6] : ({half}) -> tensor<2x6xf32>
      return %fr, %fi, %ii, %hi, %g : tensor<2x6xf32>, tensor<2x6xf32>, tensor<2x6xf32>, tensor<2x4xf32>, tensor<2x6xf32>
    }}"""  # noqa: E501  # lines of MLIR
    a, b = np.random.default_rng(0).standard_normal((2, 2, 6)).astype(np.float32)
    whole = np.fft.fft2(a + 1j * b)
    expected = [whole.real, whole.imag, np.fft.ifft(a + 1j * b).imag, np.fft.rfft(a).imag, a]
    for found, wanted in zip(run(tmp_path, text, a, b), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=3e-6)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (f"%r = stablehlo.tanh %z : {Z}", "`tanh` takes complex numbers"),
        (f"%r = stablehlo.add %z, %z : {Z}", r"the entry returns complex numbers(.|\n)*results of `real` and `imag`"),
    ],
)
def test_operations_without_a_converter_are_errors(body: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "net.mlir").write_text(f"""func.func public @main(%a: tensor<2x3xf32>) -> {Z} {{
      %z = stablehlo.complex %a, %a : {Z}
      {body}
      return %r : {Z}
    }}""")
    with pytest.raises(DiagnosticError, match=message):
        read_file(tmp_path / "net.mlir")


def test_a_filter_of_jax_compiles(tmp_path: Path) -> None:
    """A product of spectra, and magnitudes, with a symbolic batch."""
    jnp = pytest.importorskip("jax", reason="JAX is not installed").numpy

    def filtered(x: Any) -> Any:
        spectrum = jnp.fft.rfft(x)
        return jnp.fft.irfft(spectrum * jnp.exp(-1j * jnp.arange(9.0)), n=16), jnp.abs(spectrum)

    jax_numpy = import_module("jax.numpy")
    source = nacre.from_jax(filtered, jax_numpy.zeros((2, 16)), shapes=["b, 16"])
    model = nacre.compile(source, tmp_path / "model.so")
    x = np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)
    for found, wanted in zip(model(x), filtered(x), strict=True):
        np.testing.assert_allclose(found, np.asarray(wanted), rtol=0, atol=1e-5)
