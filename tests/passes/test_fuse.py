"""Which groups `fuse` forms, what it says of those that it does not form, and that compiled groups compute the same.

The groups themselves stand in `files/passes/fuse-*`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from nacre.compiler.checking import read_model
from nacre.compiler.model.parameters import open_parameters
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.dialect.graph import Function, walk
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.ops import OPERATORS
from nacre.dialect.parser import parse_module
from nacre.passes.fusion.fuse import KINDS, Fuse
from nacre.passes.fusion.fuse_flow import Flow, Group
from nacre.passes.fusion.fuse_maps import permutation, summed_axes
from nacre.passes.manager import Context, PassManager
from nacre.passes.pass_list import parse_pipeline
from nacre.passes.rewrite import count_uses
from nacre.runtime.loader import load
from random_graphs import random_module
from safetensors.numpy import save_file

MODELS = Path(__file__).parents[1] / "models"
BEFORE = "canonicalize,unroll-repeat,fold-constants,fold-parameters,canonicalize,cse,dce"


def groups(path: Path, function: str, passes: str = "fuse") -> list[str]:
    """The operators of each kernel of a function, in order; views and what only copies are used of left out."""
    module = PassManager(parse_pipeline(f"{BEFORE},{passes},dce")).run(read_model(path).module)
    return describe(module.function(function))


def describe(function: Function) -> list[str]:
    kernels = []
    for node in function.body:
        operator = OPERATORS[node.op]
        if node.op == "fusion":
            kernels.append(" ".join(n.op for n in node.regions[0].body if n.op != "constant"))
        elif not (operator.has("structure") or operator.has("view")):
            kernels.append(node.op)
    return kernels


# --- whole models ---


def test_a_decoder_is_seven_kernels_a_layer_besides_its_keys() -> None:
    kernels = groups(MODELS / "gpt2.nacre", "logits")
    first = "embedding slice add layer_norm"
    projection = "matmul add reshape transpose"
    attention = "triangular_mask slice squeeze slice squeeze matmul divide where softmax matmul transpose"
    # The keys are cut out and turned, so that each of their columns lies in one piece.
    keys = ["slice", "transpose"]
    inner = ["matmul add add", "layer_norm", "matmul add gelu", "matmul add add", "layer_norm"]
    assert kernels == [first, *[projection, *keys, attention, *inner] * 3, "matmul"]


def test_heads_that_share_keys_are_repeated_inside_of_the_attention() -> None:
    kernels = groups(MODELS / "llama.nacre", "main")
    assert kernels.count("transpose repeat_interleave repeat_interleave attention transpose") == 2
    assert kernels.count("matmul silu multiply") == 2 and kernels.count("matmul add") == 4


def test_convolutions_take_norms_activations_and_residuals() -> None:
    kernels = groups(MODELS / "vision.nacre", "classify")
    assert kernels[:4] == [
        "cast divide transpose",
        "conv2d batch_norm relu",
        "conv2d batch_norm relu",
        "conv2d batch_norm add relu",
    ]


def test_a_recurrent_cell_is_two_products_and_one_group() -> None:
    kernels = groups(MODELS / "recurrent.nacre", "lstm")
    cell = "split sigmoid multiply sigmoid tanh multiply add sigmoid tanh multiply"
    assert sum(cell in k for k in kernels) == 24
    assert kernels.count("matmul add add add") == 24


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "channels"])  # a decoder has no such layers
def test_a_kind_alone_forms_only_its_groups(kind: str) -> None:
    kernels = groups(MODELS / "gpt2.nacre", "logits", f"fuse{{kinds={kind}}}")
    fused = {k for k in kernels if " " in k}
    message = {
        "attention": "softmax matmul" in " ".join(fused),
        "contraction": "matmul add gelu" in fused,
        "rows": "embedding slice add layer_norm" in fused,
        "elements": "triangular_mask divide where" in fused,
    }
    assert [name for name, formed in message.items() if formed] == [kind]


# --- remarks ---

REMARKS = """module m

dim B in 1..8

param "w" : f32[4, 4]

func main(%x: f32[B, 4], %y: f64[B, 4]) -> (f32[B, 4], f32[B, 4], f32[4, 4], f64[B, 4]) {
  %w = parameter() {name = "w"} : f32[4, 4]
  %1 = exp(%x) : f32[B, 4]
  %2 = matmul(%1, %w) : f32[B, 4]
  %3 = softmax(%2) {axis = 1} : f32[B, 4]
  %4 = softmax(%3) {axis = 0} : f32[B, 4]
  %5 = cumsum(%4) {axis = 0, exclusive = false, reverse = false} : f32[B, 4]
  %6 = tanh(%5) : f32[B, 4]
  %7 = max(%x) {axis = 0, keepdims = false} : f32[4]
  %8 = sin(%7) : f32[4]
  %9 = add(%6, %8) : f32[B, 4]
  %10 = matmul(%x, %w) : f32[B, 4]
  %11 = cos(%10) : f32[B, 4]
  %12 = concat(%w, %11) {axis = 0} : f32[B + 4, 4]
  %13 = slice(%12) {starts = (0, none), steps = (1, 1), stops = (4, none)} : f32[4, 4]
  %14 = cast(%11) {dtype = f64} : f64[B, 4]
  %15 = softmax(%14) {axis = 1} : f64[B, 4]
  %16 = multiply(%15, %y) : f64[B, 4]
  return %9, %10, %13, %16
}
"""


def test_every_stored_value_has_its_reason() -> None:
    context = Context()
    Fuse().run(parse_module(REMARKS), context)
    assert {(r.source, r.reader): r.text for r in context.remarks} == {
        ("1", "2"): "precedes a contraction",
        ("2", "3"): "would place a reduction after a contraction",
        ("3", "4"): "reduces another axis",
        ("4", "5"): "sequential",
        ("5", "6"): "sequential",
        ("7", "8"): "reduces another axis",
        ("8", "9"): "would be recomputed for every element it is broadcast to",
        ("10", "11"): "its result is used elsewhere too",
        ("11", "12"): "moves elements in an unsupported way",
        ("12", "13"): "moves elements in an unsupported way",
        ("14", "15"): "another element type",
    }
    assert {(r.pass_name, r.function) for r in context.remarks} == {("fuse", "main")}


READ_TWICE = """module m

func main(%x: f32[4, 4], %y: f32[16], %i: i64[4]) -> (f32[16], f32[16], f32[4, 4]) {
  %1 = matmul(%x, %x) : f32[4, 4]
  %2 = reshape(%1) {shape = (16)} : f32[16]
  %3 = cumsum(%y) {axis = 0, exclusive = false, reverse = false} : f32[16]
  %4 = add(%2, %3) : f32[16]
  %5 = exp(%2) : f32[16]
  %6 = one_hot(%i) {depth = 4, dtype = f32} : f32[4, 4]
  %7 = sin(%6) : f32[4, 4]
  return %4, %5, %7
}
"""


def test_an_operand_from_outside_keeps_its_own_reason() -> None:
    """`%4` and `%5` both read the contraction; the other operand of `%4` is not used twice."""
    context = Context()
    Fuse().run(parse_module(READ_TWICE), context)
    assert {(r.source, r.reader): r.text for r in context.remarks} == {
        ("1", "4"): "its result is used elsewhere too",
        ("1", "5"): "its result is used elsewhere too",
        ("3", "4"): "sequential",
        ("6", "7"): "no kind of group supports this operator",
    }


@pytest.mark.parametrize("seed", range(20))
def test_remarks_name_values_of_the_graph_that_was_given(seed: int) -> None:
    module = random_module(6000 + seed, exact=False)
    context = Context()
    Fuse().run(module, context)
    names = {v.name for node in walk(module.functions[0].body) for v in node.outputs}
    assert context.remarks and {n for r in context.remarks for n in (r.source, r.reader)} <= names


# --- the parts ---


def flow_of(body: str, *results: str) -> Flow:
    types = ", ".join(["f32[4]"] * len(results))
    function = parse_module(
        f"module m\n\nfunc main(%x: f32[4]) -> ({types}) {{\n{body}  return {', '.join(results)}\n}}\n"
    ).functions[0]
    return Flow(function.body, count_uses(function.body, function.results))


CHAIN = "".join(f"  %{i} = exp(%{i - 1 if i else 'x'}) : f32[4]\n" for i in range(6))


def test_a_group_must_not_enclose_others() -> None:
    flow = flow_of(CHAIN, "%5")
    assert not flow.leads_back({1, 2, 3}) and flow.leads_back({1, 3}) and flow.leads_back({0, 5})


def test_a_group_may_not_depend_on_itself_through_another() -> None:
    """0 -> 3 and 1 -> 2: each pair is a group for itself, but not both."""
    body = """  %0 = exp(%x) : f32[4]
  %1 = sin(%x) : f32[4]
  %2 = cos(%0) : f32[4]
  %3 = tan(%1) : f32[4]
"""
    flow = flow_of(body, "%2", "%3")
    assert not flow.leads_back({0, 3})
    flow.take(Group("elements", (0, 3)))
    assert flow.leads_back({1, 2})
    assert not flow.leads_back({2})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("matmul(%a, %b) : f32[3, 2, 5]", ((2,), (1,))),
        ('einsum(%a, %b) {equation = "bij,bjk->bik"} : f32[3, 2, 5]', ((2,), (1,))),
        ('einsum(%a, %b) {equation = "bij,bkl->bkl"} : f32[3, 4, 5]', ((1, 2), ())),
    ],
)
def test_axes_that_a_contraction_sums_over(text: str, expected: tuple[tuple[int, ...], ...]) -> None:
    type = text.rpartition(": ")[2]
    module = parse_module(
        f"module m\n\nfunc main(%a: f32[3, 2, 4], %b: f32[3, 4, 5]) -> ({type}) {{\n  %r = {text}\n  return %r\n}}\n"
    )
    (node,) = module.functions[0].body
    assert (summed_axes(node, 0), summed_axes(node, 1)) == expected


def test_operators_of_two_operands_only_permute_none() -> None:
    text = "module m\n\nfunc main(%a: f32[3], %i: i64[3]) -> (f32[3]) {\n"
    text += '  %r = gather(%a, %i) {axis = 0, mode = "clamp"} : f32[3]\n'
    (node,) = parse_module(text + "  return %r\n}\n").functions[0].body
    assert permutation(node) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("transpose(%a) {axes = (2, 0, 1)} : f32[4, 3, 2]", (1, 2, 0)),
        ("matrix_transpose(%a) : f32[3, 4, 2]", (0, 2, 1)),
        ("broadcast_to(%a) {shape = (1, 3, 2, 4)} : f32[1, 3, 2, 4]", None),
        ("reshape(%a) {shape = (3, 4, 2)} : f32[3, 4, 2]", None),
        ("slice(%a) {starts = (0,), steps = (1,), stops = (2,)} : f32[2, 2, 4]", None),
    ],
)
def test_order_of_axes_of_a_movement(text: str, expected: tuple[int, ...] | None) -> None:
    type = text.rpartition(": ")[2]
    module = parse_module(f"module m\n\nfunc main(%a: f32[3, 2, 4]) -> ({type}) {{\n  %r = {text}\n  return %r\n}}\n")
    (node,) = module.functions[0].body
    assert permutation(node) == expected


# --- compiled ---

COMPILED = """
dim B in 0..3
dim T in 1..40

block Linear<n, m>(x: f32[..., n]) -> f32[..., m] {
  param weight: f32[n, m]
  param bias: f32[m]
  return x @ weight + bias
}

model layer(x: f32[B, T, 12], mask: f32[B, 1, 1, T]) -> y: f32[B, T, 12], best: f32[B, T] {
  weights "weights.safetensors"
  use qkv = Linear<12, 24>
  use output = Linear<12, 12>
  use up = Linear<12, 20>
  use down = Linear<20, 12>
  q, k, v = split(qkv(x), (12, 6, 6), axis=-1)
  q = rearrange(q, "b t (h d) -> b h t d", h=4)
  k = rearrange(k, "b t (h d) -> b h t d", h=2) |> repeat_interleave(2, axis=1)
  v = rearrange(v, "b t (h d) -> b h t d", h=2) |> repeat_interleave(2, axis=1)
  score = where(triangular_mask(T, T), q @ k.mT / sqrt(3.0), -1e9) + mask
  x = x + output(softmax(score) @ v |> rearrange("b h t d -> b t (h d)"))
  centred = x - mean(x, axis=-1, keepdims=true)
  y = centred * rsqrt(mean(square(centred), axis=-1, keepdims=true) + 1e-5)
  y = down(up(y) * sigmoid(up(y))) + x
  z = layer_norm(y + 1.0)
  return z * tanh(y), max(z, axis=-1)
}

model picture(image: f32[B, 6, 6, 3]) -> f32[B, 6, 6, 8] {
  weights "weights.safetensors"
  param kernel: f32[8, 3, 3, 3]
  param scale: f32[8]
  y = conv2d(rearrange(image, "n h w c -> n c h w"), kernel, padding=1)
  y = relu(batch_norm(y, scale, square(scale) + 0.5) + y)
  return rearrange(y, "n c h w -> n h w c")
}
"""


@pytest.mark.parametrize("kinds", ["attention|contraction|rows|elements", "attention", "contraction|elements"])
def test_compiled_groups_agree_with_the_interpreter(kinds: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    shapes: Mapping[str, tuple[int, ...]] = {
        "qkv": (12, 24),
        "output": (12, 12),
        "up": (12, 20),
        "down": (20, 12),
    }
    weights = {f"{n}.weight": rng.normal(size=s).astype(np.float32) / 4 for n, s in shapes.items()}
    weights |= {f"{n}.bias": rng.normal(size=s[1]).astype(np.float32) for n, s in shapes.items()}
    weights |= {"kernel": rng.normal(size=(8, 3, 3, 3)).astype(np.float32) / 5}
    weights |= {"scale": rng.normal(size=8).astype(np.float32)}
    save_file(weights, tmp_path / "weights.safetensors")
    (tmp_path / "m.nacre").write_text(COMPILED)
    source_model = read_model(tmp_path / "m.nacre")
    build = Build(source_model, Options(passes=f"{BEFORE},fuse{{kinds={kinds}}}"))
    build.run(tmp_path / "m.so")
    model = load(tmp_path / "m.so")
    interpreter = Interpreter(source_model.module, open_parameters(source_model))
    for batch, time in ((1, 1), (2, 7), (3, 40), (0, 5)):
        x = rng.normal(size=(batch, time, 12)).astype(np.float32)
        mask = np.where(rng.random((batch, 1, 1, time)) < 0.3, np.float32(-1e9), np.float32(0))
        for actual, expected in zip(model.entries["layer"](x, mask), interpreter.run("layer", [x, mask]), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-5)
        image = rng.normal(size=(batch, 6, 6, 3)).astype(np.float32)
        (expected,) = interpreter.run("picture", [image])
        np.testing.assert_allclose(model.entries["picture"](image), expected, rtol=0, atol=2e-5)
