"""Networks of quantised numbers compute with codes what the numbers say, through the passes of level 2 and compiled.

Their scales are powers of two and their sums small, so that no float is rounded and every result is exact.
"""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from nacre.compiler.codegen.jit import build_functions
from nacre.compiler.graph_passes import GRAPH_PASSES, STRICT_PASSES
from nacre.dialect.graph import Module, Parameter, walk
from nacre.dialect.interpreter import Interpreter, load_parameter
from nacre.dialect.ops import OPERATORS
from nacre.dialect.parser import parse_module
from nacre.dialect.printer import print_module
from nacre.dialect.types import F32, I8, I32, Array
from nacre.passes.manager import PassManager
from nacre.passes.pass_list import parse_pipeline

PERCEPTRON = """
module test
dim B in 1..40
param "first" : f32[24, 40]
param "second" : f32[10, 24]
param "bias" : f32[24]
func main(%x: f32[B, 40]) -> (f32[B, 10]) {
  %half = constant() {value = constant<f32, 0.5>} : f32
  %coarse = constant() {value = constant<f32, 2.0>} : f32
  %z = constant() {value = constant<u8, 130>} : u8
  %first = parameter() {name = "first"} : f32[24, 40]
  %qf = quantize(%first, %half) {dtype = i8} : i8[24, 40]
  %df = dequantize(%qf, %half) {dtype = f32} : f32[24, 40]
  %tf = transpose(%df) {axes = (1, 0)} : f32[40, 24]
  %qx = quantize(%x, %half, %z) {dtype = u8} : u8[B, 40]
  %dx = dequantize(%qx, %half, %z) {dtype = f32} : f32[B, 40]
  %1 = matmul(%dx, %tf) : f32[B, 24]
  %bias = parameter() {name = "bias"} : f32[24]
  %2 = add(%1, %bias) : f32[B, 24]
  %3 = relu(%2) : f32[B, 24]
  %q3 = quantize(%3, %coarse) {dtype = u8} : u8[B, 24]
  %d3 = dequantize(%q3, %coarse) {dtype = f32} : f32[B, 24]
  %second = parameter() {name = "second"} : f32[10, 24]
  %row = constant() {value = constant<f32[10, 1], [0.5, 1.0, 2.0, 0.5, 1.0, 2.0, 0.5, 1.0, 2.0, 4.0]>} : f32[10, 1]
  %qs = quantize(%second, %row) {dtype = i8} : i8[10, 24]
  %ds = dequantize(%qs, %row) {dtype = f32} : f32[10, 24]
  %ts = transpose(%ds) {axes = (1, 0)} : f32[24, 10]
  %4 = matmul(%d3, %ts) : f32[B, 10]
  return %4
}
"""

CONVOLUTIONS = """
module test
dim N in 1..3
param "first" : f32[16, 3, 3, 3]
param "each" : f32[16, 1, 3, 3]
param "last" : f32[8, 16, 1, 1]
param "bias" : f32[16]
func main(%x: f32[N, 3, 9, 7]) -> (f32[N, 8, 5, 4]) {
  %half = constant() {value = constant<f32, 0.5>} : f32
  %coarse = constant() {value = constant<f32, 4.0>} : f32
  %z = constant() {value = constant<u8, 120>} : u8
  %first = parameter() {name = "first"} : f32[16, 3, 3, 3]
  %qf = quantize(%first, %half) {dtype = i8} : i8[16, 3, 3, 3]
  %df = dequantize(%qf, %half) {dtype = f32} : f32[16, 3, 3, 3]
  %qx = quantize(%x, %half, %z) {dtype = u8} : u8[N, 3, 9, 7]
  %dx = dequantize(%qx, %half, %z) {dtype = f32} : f32[N, 3, 9, 7]
  %bias = parameter() {name = "bias"} : f32[16]
  %1 = conv2d(%dx, %df, %bias) {padding = "same"} : f32[N, 16, 9, 7]
  %2 = relu(%1) : f32[N, 16, 9, 7]
  %q2 = quantize(%2, %coarse) {dtype = u8} : u8[N, 16, 9, 7]
  %d2 = dequantize(%q2, %coarse) {dtype = f32} : f32[N, 16, 9, 7]
  %each = parameter() {name = "each"} : f32[16, 1, 3, 3]
  %qe = quantize(%each, %half) {dtype = i8} : i8[16, 1, 3, 3]
  %de = dequantize(%qe, %half) {dtype = f32} : f32[16, 1, 3, 3]
  %3 = conv2d(%d2, %de) {groups = 16, padding = 1, stride = 2} : f32[N, 16, 5, 4]
  %q3 = quantize(%3, %coarse, %z) {dtype = u8} : u8[N, 16, 5, 4]
  %d3 = dequantize(%q3, %coarse, %z) {dtype = f32} : f32[N, 16, 5, 4]
  %last = parameter() {name = "last"} : f32[8, 16, 1, 1]
  %ql = quantize(%last, %half) {dtype = i8} : i8[8, 16, 1, 1]
  %dl = dequantize(%ql, %half) {dtype = f32} : f32[8, 16, 1, 1]
  %4 = conv2d(%d3, %dl) : f32[N, 8, 5, 4]
  return %4
}
"""
RESIDUAL = """
module test
dim N in 1..3
param "stem" : f32[8, 3, 3, 3]
param "inner" : f32[8, 4, 3, 3]
param "fit" : f32[8, 8, 1, 1]
param "up" : f32[16, 2, 2, 3]
param "bias" : f32[8]
func main(%x: f32[N, 3, 13, 11]) -> (f32[N, 4, 14, 16]) {
  %half = constant() {value = constant<f32, 0.5>} : f32
  %coarse = constant() {value = constant<f32, 4.0>} : f32
  %z = constant() {value = constant<u8, 120>} : u8
  %stem = parameter() {name = "stem"} : f32[8, 3, 3, 3]
  %qs = quantize(%stem, %half) {dtype = i8} : i8[8, 3, 3, 3]
  %ds = dequantize(%qs, %half) {dtype = f32} : f32[8, 3, 3, 3]
  %qx = quantize(%x, %half, %z) {dtype = u8} : u8[N, 3, 13, 11]
  %dx = dequantize(%qx, %half, %z) {dtype = f32} : f32[N, 3, 13, 11]
  %bias = parameter() {name = "bias"} : f32[8]
  %1 = conv2d(%dx, %ds, %bias) {padding = 1} : f32[N, 8, 13, 11]
  %2 = relu(%1) : f32[N, 8, 13, 11]
  %3 = max_pool2d(%2) {kernel = 3, stride = 2, padding = 1} : f32[N, 8, 7, 6]
  %q3 = quantize(%3, %coarse) {dtype = u8} : u8[N, 8, 7, 6]
  %d3 = dequantize(%q3, %coarse) {dtype = f32} : f32[N, 8, 7, 6]
  %inner = parameter() {name = "inner"} : f32[8, 4, 3, 3]
  %qi = quantize(%inner, %half) {dtype = i8} : i8[8, 4, 3, 3]
  %di = dequantize(%qi, %half) {dtype = f32} : f32[8, 4, 3, 3]
  %4 = conv2d(%d3, %di) {padding = 1, groups = 2} : f32[N, 8, 7, 6]
  %fit = parameter() {name = "fit"} : f32[8, 8, 1, 1]
  %qf = quantize(%fit, %half) {dtype = i8} : i8[8, 8, 1, 1]
  %df = dequantize(%qf, %half) {dtype = f32} : f32[8, 8, 1, 1]
  %5 = conv2d(%d3, %df) : f32[N, 8, 7, 6]
  %q5 = quantize(%5, %coarse, %z) {dtype = u8} : u8[N, 8, 7, 6]
  %d5 = dequantize(%q5, %coarse, %z) {dtype = f32} : f32[N, 8, 7, 6]
  %6 = add(%4, %d5) : f32[N, 8, 7, 6]
  %7 = clip(%6) {low = -8.0, high = 400.0} : f32[N, 8, 7, 6]
  %q7 = quantize(%7, %coarse, %z) {dtype = u8} : u8[N, 8, 7, 6]
  %d7 = dequantize(%q7, %coarse, %z) {dtype = f32} : f32[N, 8, 7, 6]
  %8 = concat(%d5, %d7) {axis = 1} : f32[N, 16, 7, 6]
  %up = parameter() {name = "up"} : f32[16, 2, 2, 3]
  %qu = quantize(%up, %half) {dtype = i8} : i8[16, 2, 2, 3]
  %du = dequantize(%qu, %half) {dtype = f32} : f32[16, 2, 2, 3]
  %9 = conv_transpose2d(%8, %du) {stride = (2, 3), groups = 2, padding = (0, 1)} : f32[N, 4, 14, 16]
  return %9
}
"""
NETWORKS = {"perceptron": PERCEPTRON, "convolutions": CONVOLUTIONS, "residual": RESIDUAL}


def load(parameter: Parameter) -> Array:
    rng = np.random.default_rng(zlib.crc32(parameter.name.encode()))
    return np.round(rng.normal(0, 3, parameter.type.concrete({})) * 4).astype(np.float32) / 4


def folded(parameter: Parameter) -> Array:
    return load_parameter(parameter, load)


def inputs(module: Module, size: int) -> Array:
    (x,) = module.functions[0].arguments
    shape = x.type.concrete({s.name: size for s in x.type.symbols()})
    return np.random.default_rng(size).normal(0, 20, shape).astype(np.float32)


def run_passes(module: Module, passes: str) -> Module:
    return PassManager(parse_pipeline(passes)).run(module)


@pytest.mark.parametrize("name", NETWORKS)
def test_results_are_those_of_the_numbers_exactly(name: str) -> None:
    module = parse_module(NETWORKS[name])
    after = run_passes(module, GRAPH_PASSES[2])
    nodes = [node for node in walk(after.functions[0].body) if OPERATORS[node.op].has("contraction")]
    assert nodes and all(node.attribute("into") is I32 for node in nodes)
    # What is added to sums of codes is a number.
    assert sum(node.op == "dequantize" for node in walk(after.functions[0].body)) == (name == "residual")
    views = ("parameter", "transpose", "reshape")
    stored = [node.output.type for node in after.functions[0].body if node.op not in views]
    assert sum(t.dtype is F32 and t.rank == 4 for t in stored) <= 1, "only the result lies in memory as numbers"
    assert all(p.type.bytes < 600 or p.type.dtype.bits == 8 for p in after.parameters if p.formula is not None)
    compiled = build_functions(after, level=2, load=load)["main"]
    for size in (1, 3):
        x = inputs(module, size)
        (expected,) = Interpreter(module, load).run("main", [x])
        assert len(np.unique(expected)) > 5
        for (actual,) in (Interpreter(after, folded).run("main", [x]), compiled([x])):
            np.testing.assert_array_equal(actual, expected)


def test_strict_passes_multiply_codes_too() -> None:
    after = run_passes(parse_module(PERCEPTRON), STRICT_PASSES[2])
    assert all(n.attribute("into") is I32 for n in walk(after.functions[0].body) if n.op == "matmul")


def test_products_of_quantized_values_round_no_factors() -> None:
    """Sums of products of integers are exact, also where the product in f32 may be rounded."""
    permitted = PERCEPTRON.replace(" : f32[B, 24]\n  %bias", " {factors = i16} : f32[B, 24]\n  %bias")
    assert "{factors = i16}" in permitted
    products = [
        n for n in walk(run_passes(parse_module(permitted), GRAPH_PASSES[2]).functions[0].body) if n.op == "matmul"
    ]
    assert len(products) == 2
    assert all(n.attribute("into") is I32 and n.attribute("factors") is None for n in products)


def test_strict_passes_store_weights_as_quantized_values() -> None:
    after = run_passes(parse_module(CONVOLUTIONS), STRICT_PASSES[2])
    kernels = [p for p in after.parameters if p.type.rank == 4]
    assert len(kernels) == 3 and {p.type.dtype for p in kernels} == {I8}


def test_stepwise_formulas_are_rounded_as_in_a_call() -> None:
    text = """
module test
param "w" : f32[64]
func main() -> (f32[64]) {
  %w = parameter() {name = "w"} : f32[64]
  %c = constant() {value = constant<f32, 0.1>} : f32
  %1 = multiply(%w, %c) : f32[64]
  %2 = multiply(%1, %c) : f32[64]
  return %2
}
"""
    module = parse_module(text)
    weights = np.arange(1, 65, dtype=np.float32)
    (expected,) = Interpreter(module, lambda p: weights).run("main", [])
    for passes, equal in (("fold-parameters{stepwise=true},dce", True), ("fold-parameters,dce", False)):
        after = parse_module(print_module(run_passes(module, passes)))
        (made,) = (p for p in after.parameters if p.formula is not None)
        assert np.array_equal(load_parameter(made, lambda p: weights), expected) == equal


def test_codes_of_weights_are_those_that_a_call_computes() -> None:
    """In float64 the scale of a chain of roundings, and with it a code, would be another."""
    text = """
module test
param "w" : f32[64, 64]
func main() -> (i8[64, 64]) {
  %w = parameter() {name = "w"} : f32[64, 64]
  %c = constant() {value = constant<f32, 0.1>} : f32
  %1 = multiply(%w, %c) : f32[64, 64]
  %2 = multiply(%1, %c) : f32[64, 64]
  %s = constant() {value = constant<f32, 0.01>} : f32
  %3 = quantize(%2, %s) {dtype = i8} : i8[64, 64]
  return %3
}
"""
    module = parse_module(text)

    def halves(parameter: Parameter) -> Array:
        return (np.arange(4096, dtype=np.float32).reshape(64, 64) % 200 - 100) + np.float32(0.5)

    after = run_passes(module, "fold-parameters,dce")
    (expected,) = Interpreter(module, halves).run("main", [])
    (made,) = (p for p in after.parameters if p.formula is not None)
    np.testing.assert_array_equal(load_parameter(made, halves), expected)
