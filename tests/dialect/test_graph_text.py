"""Printing and parsing: every graph comes back as it was, and no text of any kind ends in a traceback."""

import math
import random
import string

import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st
from nacre.dialect.diagnostics import DiagnosticError, Span
from nacre.dialect.dims import Symbol, floor_divide, maximum, minimum
from nacre.dialect.graph import Attribute, Constant, Function, Module, Node, Parameter, Region, Value
from nacre.dialect.parser import parse_module, parse_text
from nacre.dialect.printer import collect_constants, format_attribute, print_module
from nacre.dialect.types import ANY, BF16, F16, F32, F64, I64, TensorType
from nacre.dialect.verifier import verify
from property_tests import given, settings
from random_graphs import random_module

B, T = Symbol("B", 1, 64), Symbol("T", 0, multiple=8)
Z = Symbol("Z")
TRICKY = [Symbol(name) for name in ("nan", "inf", "f32", "none", "true", "min", "max", "dim", "loc", "constant")]
b, t = B.size, T.size


def module_with(attribute: Attribute) -> Module:
    """A module that nobody verifies, with one attribute."""
    node = Node("anything", (), (Value("r", TensorType(F32)),), (("a", attribute),))
    return Module("m", (B, T, Z, *TRICKY), (), (Function("f", (), (node,), node.outputs),))


ATTRIBUTES: list[Attribute] = [
    None,
    True,
    False,
    0,
    -7,
    1 << 63,
    1.0,
    0.1,
    -0.0,
    1e-5,
    5e-324,
    1.7976931348623157e308,
    math.inf,
    -math.inf,
    "",
    'a "quoted" \\ text\nof two lines, \t \x00 \u2028 \ud800 é',
    *ANY,
    b,
    -b,
    4 * b + t - 3,
    floor_divide(t, 8),
    floor_divide(b, 2) * t,
    floor_divide(b, 2) * floor_divide(b, 3),
    floor_divide(t, 8) * Z.size,
    -floor_divide(b, 2),
    maximum(b, t) * 3,
    minimum(b + 1, floor_divide(t, 5)),
    *(symbol.size for symbol in TRICKY),
    *(-symbol.size for symbol in TRICKY),
    (),
    (1,),
    (1, 2.0, None),
    ((1, (b, "x,)")), ((), ()), floor_divide(b, 2) * t),
    (Constant(np.arange(3)), Constant(np.array(True))),
]


@pytest.mark.parametrize("attribute", ATTRIBUTES, ids=repr)
def test_attribute_comes_back(attribute: Attribute) -> None:
    module = module_with(attribute)
    text = print_module(module)
    back = parse_module(text)
    assert back == module
    assert print_module(back) == text
    (found,) = (value for _, value in back.functions[0].body[0].attributes)
    assert type(found) is type(attribute)


def test_attributes_of_different_kinds_have_different_texts() -> None:
    values: list[Attribute] = [0, 0.0, -0.0, False, None, "0", (0,), "false", 1, 1.0, True, math.nan, "nan"]
    assert len({format_attribute(v) for v in values}) == len(values)


def test_nan_is_nan() -> None:
    text = print_module(module_with(math.nan))
    ((_, value),) = parse_module(text).functions[0].body[0].attributes
    assert isinstance(value, float) and math.isnan(value)
    assert print_module(parse_module(text)) == text


@given(st.sampled_from([F16, BF16, F32, F64]), st.lists(st.integers(0, (1 << 64) - 1), max_size=16))
@settings(max_examples=200)
def test_bits_of_float_constants_come_back(dtype, bits) -> None:
    unsigned = {2: np.uint16, 4: np.uint32, 8: np.uint64}[dtype.bytes]
    array = np.array([x % (1 << dtype.bits) for x in bits], unsigned).view(dtype.numpy)
    ((_, constant),) = parse_module(print_module(module_with(Constant(array)))).functions[0].body[0].attributes
    assert isinstance(constant, Constant)
    assert constant.data.tobytes() == array.tobytes()
    assert constant == Constant(array)


@pytest.mark.parametrize("dtype", ANY, ids=str)
def test_extremes_of_every_dtype_come_back(dtype) -> None:
    if dtype.is_float:
        info = ml_dtypes.finfo(dtype.numpy)
        values = [info.max, info.min, info.tiny, info.smallest_subnormal, 0.0, -0.0, np.inf, -np.inf, np.nan, 0.1]
    elif dtype.is_integer:
        values = [np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max]
    else:
        values = [False, True]
    array = np.array(values, dtype.numpy)
    for shaped in (array, array.reshape(-1, 1, 2)[:0], array[0].reshape(())):
        constant = Constant(shaped)
        ((_, back),) = parse_module(print_module(module_with(constant))).functions[0].body[0].attributes
        assert isinstance(back, Constant) and back.data.tobytes() == shaped.tobytes() and back == constant


def test_small_constants_are_short() -> None:
    constant = Constant(np.array([0.1, 1e-5, 100.0, 1 / 3], np.float32))
    assert format_attribute(constant) == "constant<f32[4], [0.1, 1e-05, 100.0, 0.33333334]>"
    assert format_attribute(Constant(np.array(0.1, ml_dtypes.bfloat16))) == "constant<bf16, 0.1>"


def test_big_constants_are_a_hash_and_a_shape() -> None:
    constant = Constant(np.arange(17, dtype=np.float32))
    module = module_with(constant)
    text = print_module(module)
    assert f"constant<f32[17], #{constant.digest}>" in text
    without = parse_module(text)
    assert without == module and print_module(without) == text and collect_constants(without) == {}
    whole = parse_module(text, constants=collect_constants(module))
    ((_, value),) = whole.functions[0].body[0].attributes
    assert isinstance(value, Constant) and np.array_equal(value.data, constant.data)


def test_wrong_data_for_a_hash_is_an_error() -> None:
    module = module_with(Constant(np.arange(17, dtype=np.float32)))
    wrong = {digest: array.astype(np.int32) for digest, array in collect_constants(module).items()}
    with pytest.raises(DiagnosticError, match="is i32\\[17\\], not f32\\[17\\]"):
        parse_module(print_module(module), constants=wrong)


NAMES = ["x", "3", "a.b", "", "two words", 'q"uote', "%", "é", "a-b", "yield", "func", "loc(", "{}"]


@pytest.mark.parametrize("name", NAMES)
def test_names_come_back(name: str) -> None:
    span = Span(name, 1, 2, 3, 4)
    x = Value(name, TensorType(F32, (b, t)))
    index, inner, result = Value("i", TensorType(I64)), Value(name + "_", x.type), Value(name + "r", x.type)
    loop = Node("repeat", (x,), (result,), (("count", 2),), (Region((index, inner), (), (inner,)),), name, span)
    parameter = Parameter(name, TensorType(F32, (2,)), (3, 4), name, (1, 0), span)
    function = Function(name, (x,), (loop,), (result,), (name,), span)
    module = Module(name, (B, T), (parameter, Parameter("plain", TensorType(F32))), (function,))
    assert parse_module(print_module(module)) == module


def test_absent_parts_are_not_printed() -> None:
    module = Module("m", (), (), (Function("f", (), (Node("repeat", (), (), (("count", 1),)),), ()),))
    assert print_module(module) == "module m\n\nfunc f() -> () {\n  repeat() {count = 1} : ()\n  return\n}\n"
    assert parse_module(print_module(module)) == module


@pytest.mark.parametrize("seed", range(40))
def test_random_graph_comes_back(seed: int) -> None:
    module = random_module(seed, exact=False)
    verify(module)
    text = print_module(module)
    back = parse_module(text, constants=collect_constants(module))
    verify(back)
    assert print_module(back) == text
    assert back == module


def test_defaults_and_order_of_attributes_are_filled_in() -> None:
    text = """
        // A comment is a line of its own.
        module m
        func f(%x: f32[2]) -> (f32[2]) {
          %y = clip(%x) {low = 0.0} : f32[2]
          // So is this: 1 // 2
          %z = sum(%y,) {keepdims = true, axis = 0,} : f32[1]
          return %y
        }
    """
    body = parse_module(text).functions[0].body
    assert body[0].attributes == (("high", None), ("low", 0.0))
    assert body[1].attributes == (("axis", 0), ("keepdims", True))


def test_nodes_have_spans_in_the_text() -> None:
    text = "module m\nfunc f(%x: f32) -> (f32) {\n  %y =\n    exp(%x) : f32 loc(model.nacre:7:8-9:10)\n  return %y\n}\n"
    parsed = parse_text(text, "a.graph")
    node = parsed.module.functions[0].body[0]
    assert parsed.locate(node) == Span("a.graph", 3, 3, 4, 44)
    assert node.span == Span("model.nacre", 7, 8, 9, 10)


# --- no text of any kind ends in a traceback ---

ALPHABET = string.ascii_letters + string.digits + '%@#"(){}[]<>,:=+-*/._ \n\\é²\u2028'
WORDS = ["f32", "nan", "inf", "loc(", "do", "yield", "->", "//", "constant<", "0x", "1e999", "9" * 50, "-" * 60, "min("]
WORDS += [
    "(" * 200,
    "dim",
    "module",
    "func",
    "%",
    "i64[",
    "#ab",
    "none",
    "\x00",
    "multiple 0",
    "in 5..2",
    "[-1]",
    "3 // 0",
]


def mutate(text: str, rng: random.Random) -> str:
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(text) + 1)
        until = min(len(text), at + rng.randint(0, 12))
        way = rng.randrange(4)
        if way == 0:
            text = text[:at] + rng.choice(ALPHABET) + text[at:]
        elif way == 1:
            text = text[:at] + text[until:]
        elif way == 2:
            text = text[:at] + rng.choice(WORDS) + text[until:]
        else:
            start = rng.randrange(len(text) + 1)
            text = text[:at] + text[start : start + rng.randint(1, 40)] + text[until:]
    return text


@pytest.mark.parametrize("seed", range(20))
def test_mutated_text_gives_a_graph_or_diagnostics(seed: int) -> None:
    rng = random.Random(seed)
    text = print_module(random_module(seed, steps=8))
    text += print_module(module_with(tuple(ATTRIBUTES[:-1]))).split("\n\n")[-1] if seed % 2 else ""
    graphs = 0
    for _ in range(100):
        changed = mutate(text, rng)
        try:
            parsed = parse_text(changed)
            graphs += 1
            verify(parsed.module, parsed.locate)
        except DiagnosticError as error:
            assert str(error)
            for diagnostic in error.diagnostics:
                span = diagnostic.span
                assert span is None or span.file != "<graph>" or 1 <= span.line <= changed.count("\n") + 1
            continue
        assert print_module(parse_module(print_module(parsed.module))) == print_module(parsed.module)
    assert graphs < 100


@pytest.mark.parametrize("end", range(0, 400, 7))
def test_cut_text_gives_diagnostics(end: int) -> None:
    text = print_module(random_module(3, steps=8))
    cut = text[: end * len(text) // 400]
    with pytest.raises(DiagnosticError):
        parse_module(cut + " ?")


HOSTILE_SIZES = [
    "9" * 5000,
    "-" * 5000 + "1",
    "(" * 5000,
    "min(" * 3000,
    "-(" * 2000 + "B",
    "B" + "*-B" * 2000,
    "B//" * 3000,
]


@pytest.mark.parametrize("size", HOSTILE_SIZES, ids=lambda size: size[:9])
def test_hostile_size_gives_diagnostics(size: str) -> None:
    for text in (f"f32[{size}]", f"f32) -> () {{ %1 = a() {{k = {size}}} : f32"):
        with pytest.raises(DiagnosticError) as caught:
            parse_module(f"module m\ndim B in 1..9\nfunc f(%x: {text}")
        assert len(str(caught.value)) < 20_000


def test_hostile_nesting_gives_diagnostics() -> None:
    loops = "repeat() {count = 1} : () do (%i: i64) {\n"
    for text in (loops * 3000, "a() {k = " + "(" * 3000, "a() {k = constant<f32[0" + ", 1" * 3000 + "], []>} : f32 "):
        with pytest.raises(DiagnosticError):
            parse_module("module m\nfunc f() -> () {\n" + text)
