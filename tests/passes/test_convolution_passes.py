"""Passes over convolutions keep what networks compute, and leave the layout and the weights that they promise."""

from collections import Counter

import numpy as np
import pytest
from convolution_nets import DIM_VALUES, arguments, largest_error, load, random_net, run_net
from nacre.compiler.codegen.jit import build_functions
from nacre.compiler.graph_passes import GRAPH_PASSES, STRICT_PASSES
from nacre.dialect.graph import Function, Module, walk
from nacre.dialect.interpreter import Interpreter, load_parameter
from nacre.dialect.ops import OPERATORS
from nacre.dialect.ops.winograd import INPUT, OUTPUT, matrix_array
from nacre.dialect.parser import parse_module
from nacre.dialect.printer import collect_constants, print_module
from nacre.dialect.types import F32, F64
from nacre.dialect.verifier import verify
from nacre.passes.manager import Context, PassManager
from nacre.passes.pass_list import parse_pipeline

FOLDED = "canonicalize,fold-constants,fold-batch-norm,sub-pixel,channels-last,canonicalize,"
FOLDED += "fold-constants,dce,fold-parameters,canonicalize,cse,dce"
BLOCKS = "channels-last{channels=1,direct=0},winograd{channels=1,blocks=0}"
PIPELINES = [
    "fold-parameters",
    "sub-pixel",
    "sub-pixel{filling=1000,channels=1}",
    "fold-batch-norm",
    "channels-last",
    "channels-last{channels=1,direct=0}",
    BLOCKS,
    FOLDED,
]
SEEDS = 12


def net(seed: int) -> Module:
    return random_net(seed, rank=(2, 2, 2, 1, 3)[seed % 5], transposed=seed % 2 == 1)


def run_passes(module: Module, passes: str) -> PassManager:
    """Runs the passes; each of them leaves a valid graph whose text comes back."""

    def check_text(stage) -> None:
        back = parse_module(stage.text, constants=collect_constants(stage.module))
        assert print_module(back) == stage.text

    manager = PassManager(parse_pipeline(passes), watch=check_text)
    manager.run(module)
    return manager


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("passes", PIPELINES)
def test_networks_compute_the_same(passes: str, seed: int) -> None:
    module = net(seed)
    after = run_passes(module, passes).stages[-1].module
    # In float64 only the constants that were folded, in their own dtype, differ.
    assert largest_error(run_net(module, F64), run_net(after, F64)) < 2e-6


@pytest.mark.parametrize("seed", range(4))
def test_compiled_networks_compute_the_same(seed: int) -> None:
    module = net(100 + seed)
    after = run_passes(module, FOLDED + ",fuse").stages[-1].module
    compiled = build_functions(after, level=2, load=load)["main"]
    actual = [r for dims in DIM_VALUES for r in compiled(arguments(module, dims))]
    assert largest_error(run_net(module, F64), actual) < 1e-4


def test_any_number_of_rewrites_is_valid() -> None:
    module = net(1)
    expected = run_net(module, F64)
    total = len(run_passes(module, FOLDED).context.rewrites)
    for limit in range(0, total, max(1, total // 8)):
        stopped = PassManager(parse_pipeline(FOLDED), rewrite_limit=limit)
        assert largest_error(expected, run_net(stopped.run(module), F64)) < 2e-6


@pytest.mark.parametrize("name", ["fold-parameters", "fold-batch-norm", "sub-pixel", "channels-last"])
def test_a_second_run_changes_nothing(name: str) -> None:
    for seed in range(SEEDS):
        (step,) = parse_pipeline(name)
        once = step.run(net(seed))
        context = Context()
        step.run(once, context)
        assert not context.rewrites, (seed, context.rewrites)


def test_the_random_networks_reach_most_rules() -> None:
    rules: Counter[str] = Counter()
    for seed in range(100):
        module = random_net(seed, rank=(2, 2, 2, 1, 3)[seed % 5]) if seed < 80 else net(seed)
        for name in ("fold-batch-norm", "sub-pixel", "channels-last"):
            context = Context()
            module = parse_pipeline(name)[0].run(module, context)
            rules.update(r.rule for r in context.rewrites)
    expected = {"conv1d", "conv2d", "conv3d", "batch_norm", "add", "multiply", "subtract", "concat", "max_pool2d"}
    expected |= {"avg_pool2d", "mean", "sum", "global_avg_pool", "flatten", "transpose", "slice", "pad", "resize"}
    expected |= {"phases"}
    assert expected <= rules.keys(), expected - rules.keys()


# --- what is left ---

RESIDUAL = """
module test
dim N in 0..4
{parameters}
func main(%x: f32[N, 3, 33, 35]) -> (f32[N, 5]) {{
{body}
}}
"""


def residual_network() -> Module:
    """A stem with pooling, two residual blocks (the second with stride and a depthwise part), and a classifier."""
    parameters: list[str] = []
    body: list[str] = []

    def parameter(shape: str) -> str:
        name = f"%w{len(parameters)}"
        parameters.append(f'param "{name[1:]}" : f32[{shape}]')
        body.append(f'  {name} = parameter() {{name = "{name[1:]}"}} : f32[{shape}]')
        return name

    def norm(x: str, type: str, channels: int) -> str:
        four = ", ".join(parameter(str(channels)) for _ in range(4))
        body.append(f"  {x}n = batch_norm({x}, {four}) {{eps = 2.0}} : {type}")
        body.append(f"  {x}r = relu({x}n) : {type}")
        return f"{x}r"

    def conv(name: str, x: str, type: str, weight: str, attributes: str) -> str:
        body.append(f"  %{name} = conv2d({x}, {parameter(weight)}) {{{attributes}}} : {type}")
        return norm(f"%{name}", type, int(type.split(", ")[1]))

    x = conv("stem", "%x", "f32[N, 8, 17, 18]", "8, 3, 3, 3", "stride = 2, padding = 1")
    body.append(f"  %p = max_pool2d({x}) {{kernel = 3, stride = 2, padding = 1}} : f32[N, 8, 9, 9]")
    x = conv("a", "%p", "f32[N, 8, 9, 9]", "8, 8, 3, 3", "padding = 1")
    x = conv("b", x, "f32[N, 8, 9, 9]", "8, 8, 3, 3", "padding = (1, 1)")
    body.append(f"  %s = add({x}, %p) : f32[N, 8, 9, 9]")
    x = conv("c", "%s", "f32[N, 12, 9, 9]", "12, 8, 1, 1", "stride = 1")
    x = conv("d", x, "f32[N, 12, 5, 5]", "12, 1, 3, 3", "stride = 2, padding = 1, groups = 12")
    y = conv("e", "%s", "f32[N, 12, 5, 5]", "12, 8, 1, 1", "stride = 2")
    body.append(f"  %t = add({x}, {y}) : f32[N, 12, 5, 5]")
    body.append("  %g = global_avg_pool(%t) : f32[N, 12, 1, 1]")
    body.append("  %f = flatten(%g) {start = 1} : f32[N, 12]")
    body.append(f"  %l = matmul(%f, {parameter('12, 5')}) : f32[N, 5]")
    body.append("  return %l")
    return parse_module(RESIDUAL.format(parameters="\n".join(parameters), body="\n".join(body)))


def operators(function: Function) -> Counter[str]:
    return Counter(node.op for node in walk(function.body))


def test_a_residual_network_has_no_transpose_and_no_norm_left() -> None:
    module = residual_network()
    after = run_passes(module, FOLDED).stages[-1].module
    left = operators(after.functions[0])
    assert left["transpose"] == left["batch_norm"] == left["multiply"] == left["rsqrt"] == 0, left
    # One shift behind each of six convolutions, and two residuals.
    assert left["add"] == 8 and left["conv2d"] == 6, left
    layouts = [node.attribute("layout") for node in after.functions[0].body if node.op == "conv2d"]
    assert layouts == ["channels_first_to_last", *["channels_last"] * 5]
    expected, actual = (
        build_and_run(module, passes, [np.random.default_rng(0).normal(size=(2, 3, 33, 35)).astype(np.float32)])
        for passes in ("dce", FOLDED)
    )
    assert np.max(np.abs(expected - actual)) < 1e-5 * np.max(np.abs(expected))


def build_and_run(module: Module, passes: str, inputs: list[np.ndarray]) -> np.ndarray:
    after = PassManager(parse_pipeline(passes)).run(module)
    return build_functions(after, level=0, load=load_positive)["main"](inputs)[0]


def load_positive(parameter):
    return np.abs(load(parameter))


def test_folded_data_are_rounded_once() -> None:
    text = """
    module test
    param "variance" : f32[1000]
    param "gain" : f32[1000]
    func main(%x: f32[1000]) -> (f32[1000]) {
      %v = parameter() {name = "variance"} : f32[1000]
      %g = parameter() {name = "gain"} : f32[1000]
      %e = constant() {value = constant<f32, 0.001>} : f32
      %1 = add(%v, %e) : f32[1000]
      %2 = rsqrt(%1) : f32[1000]
      %3 = multiply(%2, %g) : f32[1000]
      %4 = multiply(%x, %3) : f32[1000]
      return %4
    }
    """
    (folded,) = run_passes(parse_module(text), "fold-parameters,dce").stages[-1].module.parameters
    data = {
        name: np.random.default_rng(len(name)).uniform(0.1, 3, 1000).astype(np.float32) for name in ("variance", "gain")
    }

    def stored(parameter):
        return data[parameter.name]

    exact = data["gain"].astype(np.float64) / np.sqrt(
        data["variance"].astype(np.float64) + np.float64(np.float32(0.001))
    )
    assert np.array_equal(load_parameter(folded, stored), exact.astype(np.float32))
    assert load_parameter(folded, stored, precision=F64).dtype == np.float64
    rounded_often = data["gain"] * (1 / np.sqrt(data["variance"] + np.float32(0.001)))
    assert not np.array_equal(rounded_often, exact.astype(np.float32))


# --- products of blocks ---


def plain_convolution(height: object, width: object, channels: int = 4, padding: object = 1) -> Module:
    """A convolution 3x3 and what it is added to, with `padding` around it."""
    low, right = (padding, padding) if isinstance(padding, int) else (0, 0)
    sizes = f"{height} + {2 * low - 2}, {width} + {2 * right - 2}" if low != 1 else f"{height}, {width}"
    return parse_module(
        f"""
        module test
        dim N in 0..4
        dim H in 6..20 multiple 2
        param "p0" : f32[{channels}, 3, 3, 3]
        param "p1" : f32[{channels}]
        func main(%x: f32[N, 3, {height}, {width}]) -> (f32[N, {channels}, {sizes}]) {{
          %w = parameter() {{name = "p0"}} : f32[{channels}, 3, 3, 3]
          %b = parameter() {{name = "p1"}} : f32[{channels}]
          %1 = conv2d(%x, %w, %b) {{padding = {padding}}} : f32[N, {channels}, {sizes}]
          %2 = relu(%1) : f32[N, {channels}, {sizes}]
          return %2
        }}
        """
    )


@pytest.mark.parametrize(
    ("height", "width", "padding"), [("H", 9, 1), ("H", 6, 0), ("H", 3, 0), ("H", 4, 2), ("H", 1, 1)]
)
def test_products_of_blocks_are_the_convolution(height: object, width: object, padding: object) -> None:
    module = plain_convolution(height, width, padding=padding)
    after = run_passes(module, f"{BLOCKS},fold-parameters,cse,dce").stages[-1].module
    left = operators(after.functions[0])
    assert left["conv2d"] == 0 and left["winograd_input"] == left["winograd_output"] == left["matmul"] == 1, left
    assert left["winograd_weight"] == 0 and left["pad"] <= 1, left
    assert largest_error(run_net(module, F64), run_net(after, F64)) < 1e-12
    compiled = build_functions(after, level=2, load=load)["main"]
    actual = [r for dims in DIM_VALUES for r in compiled(arguments(module, dims))]
    assert largest_error(run_net(module, F64), actual) < 1e-5


def test_the_error_of_products_of_blocks_is_within_its_documented_bound() -> None:
    """Up to 1e-5 of the largest result, through a chain of layers with many channels."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 128, 12, 12)).astype(np.float32)
    weight = (rng.normal(size=(128, 128, 3, 3)) / np.sqrt(9 * 128 / 2)).astype(np.float32)
    exact, blocks = x.astype(np.float64), x.transpose(0, 2, 3, 1)
    conv, names = OPERATORS["conv2d"], ("winograd_input", "winograd_weight", "winograd_output")
    attributes = conv.complete({"padding": 1})
    split, prepare, join = (OPERATORS[name].reference for name in names)
    before, after = matrix_array(INPUT, F32), matrix_array(OUTPUT, F32)
    for _ in range(3):
        exact = np.maximum(conv.reference(exact, weight.astype(np.float64), **attributes), 0)
        parts = split(np.pad(blocks, ((0, 0), (1, 1), (1, 1), (0, 0))), before)
        products = parts.reshape(36, 9, 128) @ prepare(weight.transpose(2, 3, 1, 0))
        blocks = np.maximum(join(products.reshape(36, 1, 3, 3, 128), after), 0)
        assert blocks.dtype == np.float32
    assert largest_error([exact.transpose(0, 2, 3, 1)], [blocks]) < 1e-5


@pytest.mark.parametrize(
    "change",
    ["stride = 2", "dilation = 2", 'padding = "same", stride = (1, 2)'],
)
def test_other_convolutions_stay(change: str) -> None:
    text = print_module(plain_convolution(9, 9)).replace("padding = 1, stride = 1", change)
    text = text.replace("dilation = 1, groups = 1", "groups = 1") if "dilation" in change else text
    function = parse_module(text).functions[0]
    (conv,) = (n for n in function.body if n.op == "conv2d")
    types = OPERATORS["conv2d"].check([v.type for v in conv.inputs], dict(conv.attributes))
    module = parse_module(text.replace("f32[N, 4, 9, 9]", str(types[0])))
    verify(module)
    left = operators(run_passes(module, BLOCKS).stages[-1].module.functions[0])
    assert left["conv2d"] == 1 and left["winograd_input"] == 0


def test_strict_passes_keep_norms_and_direct_sums() -> None:
    module = plain_convolution(16, 16, channels=32)
    text = print_module(module).replace("f32[32, 3, 3, 3]", "f32[32, 32, 3, 3]").replace("f32[N, 3, ", "f32[N, 32, ")
    text = text.replace("relu(%1)", "batch_norm(%1, %b, %b) {axis = 1, eps = 2.0}").replace(
        "dim N in 0..4", "dim N in 1..4"
    )
    for passes, direct in ((GRAPH_PASSES, 0), (STRICT_PASSES, 1)):
        left = operators(run_passes(parse_module(text), passes[2]).stages[-1].module.functions[0])
        assert left["conv2d"] == left["batch_norm"] == direct and left["winograd_input"] == 1 - direct, left
        assert left["transpose"] == 2


def test_blocks_of_symbolic_images_are_filled_up() -> None:
    text = """
    module test
    dim H in 1..64
    dim W in 1..64
    param "p0" : f32[32, 32, 3, 3]
    func main(%x: f32[1, 32, H, W]) -> (f32[1, 32, H, W]) {
      %w = parameter() {name = "p0"} : f32[32, 32, 3, 3]
      %1 = conv2d(%x, %w) {padding = 1} : f32[1, 32, H, W]
      return %1
    }
    """
    module = parse_module(text)
    after = PassManager(parse_pipeline(GRAPH_PASSES[2])).run(module)
    left = operators(after.functions[0])
    assert left["conv2d"] == 0 and left["winograd_input"] == 1, left
    compiled = build_functions(after, level=2, load=lambda p: load_parameter(p, load))["main"]
    for height, width in ((1, 1), (2, 7), (5, 4), (13, 11)):
        given = arguments(module, {"H": height, "W": width})
        expected = Interpreter(module, load, precision=F64).run("main", given)
        # What the transforms are documented to cost.
        assert largest_error(expected, compiled(given)) < 1e-5, (height, width)
