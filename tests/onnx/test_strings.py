"""Operators on strings: strings are bytes with zeros after them, and every result is that of Python's own strings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import nacre
import numpy as np
import onnx
import pytest
from nacre.compiler.readers.onnx.expressions.parser import ExpressionError, compile_expression
from nacre.compiler.readers.onnx.onnx_model import read_proto
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.interpreter import IndexRangeError, Interpreter
from nacre.runtime.library import ArgumentError
from onnx import TensorProto, helper

PATTERN = r"[^ab]\w*|.*-.?"
LETTERS = ["", "a", "b", "A", "Z", "z", "-", ".", " ", "\t", "é", "中", "😀", "ab", "word_1"]
TYPES = {"O": TensorProto.STRING, "l": TensorProto.INT64, "f": TensorProto.FLOAT, "?": TensorProto.BOOL}


def random_strings(rng: np.random.Generator, shape: Sequence[int], letters: Sequence[str] = LETTERS) -> Any:
    found = np.empty(shape, object)
    for place in np.ndindex(*shape):
        found[place] = "".join(rng.choice(letters, rng.integers(0, 6)))
    return found


def shape_of(array: Any) -> list[Any]:
    """Returns the shape of an argument; the first size is a dim if it is greater than 1."""
    return ["B", *array.shape[1:]] if array.shape[:1] > (1,) else list(array.shape)


def model_of(op: str, arrays: Sequence[Any], outputs: Sequence[int], domain: str = "", **attributes: Any) -> Any:
    """Returns a model of one node whose operands are arguments; one of integers behind strings is a constant."""
    names = [f"x{number}" for number in range(len(arrays))]
    constants = {n for n, x in zip(names[1:], arrays[1:], strict=True) if x.dtype == np.int64}
    inputs = [
        helper.make_tensor_value_info(
            name, TYPES[array.dtype.char], ["B", *array.shape[1:]] if array.shape[:1] > (1,) else array.shape
        )
        for name, array in zip(names, arrays, strict=True)
        if name not in constants
    ]
    results = [helper.make_tensor_value_info(f"y{number}", kind, None) for number, kind in enumerate(outputs)]
    node = helper.make_node(op, names, [each.name for each in results], domain=domain, **attributes)
    stored = [onnx.numpy_helper.from_array(x, n) for n, x in zip(names, arrays, strict=True) if n in constants]
    graph = helper.make_graph([node], "one", inputs, results, stored)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 4 if domain else 2)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def call(model: Any, arrays: Sequence[Any]) -> dict[str, Any]:
    """Returns the named results of the interpreter."""
    source = read_proto(model, "net", "net.onnx", None)
    given = arguments_of(model, arrays)
    weights = source.weights["net"]
    found = Interpreter(source.module, lambda p: weights.read(p.key)).run("net", given)  # type: ignore[union-attr]
    return dict(zip(source.module.functions[0].result_names, found, strict=True))


def arguments_of(model: Any, arrays: Sequence[Any]) -> list[Any]:
    stored = {initializer.name for initializer in model.graph.initializer}
    given = [x for n, x in enumerate(arrays) if f"x{n}" not in stored]
    return [nacre.encode_strings(x) if x.dtype == object else x for x in given]


def split(text: str, delimiter: str, most: int | None) -> list[str]:
    return text.split(delimiter or None, -1 if most is None else most)


SPLITS = [("", None), ("", 0), ("", 2), ("-", None), ("-", 1), ("é", None), ("ab", None), ("ab", 1)]


@pytest.mark.parametrize(("delimiter", "most"), SPLITS)
@pytest.mark.parametrize("count", [0, 1, 7])
def test_splitting(delimiter: str, most: int | None, count: int) -> None:
    x = random_strings(np.random.default_rng(count), (count, 2))
    attributes: dict[str, Any] = {"delimiter": delimiter} | ({} if most is None else {"maxsplit": most})
    model = model_of("StringSplit", [x], [TensorProto.STRING, TensorProto.INT64], **attributes)
    check_pieces(call(model, [x]), x, delimiter, most)


def check_pieces(found: Mapping[str, Any], x: Any, delimiter: str, most: int | None) -> None:
    made, size = nacre.decode_strings(found["y0"]), int(found["y0_size"])
    expected = {place: split(x[place], delimiter, most) for place in np.ndindex(*x.shape)}
    assert size == max(map(len, expected.values()), default=0)
    for place, pieces in expected.items():
        assert found["y1"][place] == len(pieces)
        assert made[place][: len(pieces)].tolist() == pieces, (x[place], pieces)
        assert not any(made[place][len(pieces) :])


@pytest.mark.parametrize("shapes", [((3,), (3,)), ((7, 1), (1, 5)), ((1,), (4,)), ((), ())])
def test_concatenation(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    rng = np.random.default_rng(1)
    x, y = (random_strings(rng, shape) for shape in shapes)
    model = model_of("StringConcat", [x, y], [TensorProto.STRING])
    for value, shape in zip(model.graph.input, shapes, strict=True):
        value.type.CopyFrom(helper.make_tensor_type_proto(TensorProto.STRING, shape))
    assert np.array_equal(nacre.decode_strings(call(model, [x, y])["y0"]), x + y)


@pytest.mark.parametrize("action", ["NONE", "LOWER", "UPPER"])
@pytest.mark.parametrize("sensitive", [0, 1])
@pytest.mark.parametrize("stop", [(), ("ab", "A", "zz"), ("", "a", "b", "A", "Z", "z")])
def test_normalization(action: str, sensitive: int, stop: Sequence[str]) -> None:
    x = random_strings(np.random.default_rng(3), (9,), ["a", "b", "A", "Z", "z", ""])
    attributes = {"case_change_action": action, "is_case_sensitive": sensitive, "stopwords": list(stop)}
    model = model_of("StringNormalizer", [x], [TensorProto.STRING], **{k: v for k, v in attributes.items() if v != []})
    compared: Callable[[str], str] = str if sensitive else str.lower
    kept = [text for text in x if compared(text) not in {compared(word) for word in stop}] or [""]
    expected = [{"NONE": str, "LOWER": str.lower, "UPPER": str.upper}[action](text) for text in kept]
    found = call(model, [x])
    made = nacre.decode_strings(found["y0"]).tolist()
    assert made[: int(found.get("y0_size", len(made)))] == expected


def test_the_case_of_other_letters_is_refused_in_the_call() -> None:
    x = np.array(["äh"], object)
    model = model_of("StringNormalizer", [x], [TensorProto.STRING], case_change_action="LOWER")
    assert nacre.decode_strings(call(model, [np.array(["Ah"], object)])["y0"]).tolist() == ["ah"]
    with pytest.raises(IndexRangeError):
        call(model, [x])


PATTERNS = [
    r"www\.[\w.-]+\.\bcom\b", r"a*b+c?", r"[^ab]\w*", r"(?:ab|c)*\Bd", ".", "é+[à-ü]*|中.", "^$|x", "[]a-]+",
    r"a{2,3}(b{2}|)$", "[\x00-\U0010ffff]{2}", r"(?P<n>\d|[[:upper:]z])+?", r"\x61\x{1F600}?\.", r"\S+\s\D",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_automata_accept_the_matches_of_python(pattern: str) -> None:
    machine = compile_expression(pattern)
    rng = np.random.default_rng(5)
    theirs = pattern.replace("[[:upper:]z]", "[A-Zz]").replace(r"\x{1F600}", "😀").replace(r"\b$", r"\b\Z")
    letters = [*LETTERS, "c", "d", "x", "é", "ï", "\n", "b", "aa", "www.", ".com"]
    accepted = 0
    for text in [*random_strings(rng, (700,), letters), "www.google.com", "a.", "a😀.", "abd", "cd"]:
        state = 0
        for byte in text.encode():
            state = machine.steps[state, machine.classes[byte]]
        expected = re.fullmatch(re.sub(r"\$$", r"\\Z", theirs), text, re.ASCII) is not None
        assert bool(machine.accepts[state]) == expected, text
        accepted += expected
    assert accepted


def test_expressions_in_calls() -> None:
    x = random_strings(np.random.default_rng(7), (7, 3))
    model = model_of("RegexFullMatch", [x], [TensorProto.BOOL], pattern=PATTERN)
    expected = [[bool(re.fullmatch(PATTERN, text, re.A)) for text in row] for row in x]
    assert call(model, [x])["y0"].tolist() == expected


@pytest.mark.parametrize(
    ("pattern", "message"),
    [("(a", "does not end"), ("a)", "unexpected"), ("*", "nothing to repeat"), (r"\pL", "not supported"),
     ("(?i)a", "flags"), ("a**", "repeated"), ("[b-a]", "bad range"), ("a{2,1}", "bad repetition"), ("[a", "ends"),
     ("(?=a)", "looks around"), ("(.{90}){90}", "too large"), ("(a|b)*a(a|b){12}", "states"), ("(" * 200, "deep")],
)  # fmt: skip
def test_expressions_that_are_refused(pattern: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        compile_expression(pattern)


def test_equality_and_moves() -> None:
    rng = np.random.default_rng(9)
    x, y = random_strings(rng, (5, 3)), random_strings(rng, (1, 3), ["longer strings", "a"])
    both = np.concatenate([x, y])
    found = call(model_of("Equal", [both, y], [TensorProto.BOOL]), [both, y])
    assert found["y0"].tolist() == (both == y).tolist()
    found = call(model_of("Concat", [x, y], [TensorProto.STRING], axis=0), [x, y])
    assert np.array_equal(nacre.decode_strings(found["y0"]), both)
    place = np.array([2, 0, -1])
    found = call(model_of("Gather", [x, place], [TensorProto.STRING], axis=1), [x, place])
    assert np.array_equal(nacre.decode_strings(found["y0"]), x[:, place])
    found = call(model_of("Shape", [x], [TensorProto.INT64]), [x])
    assert found["y0"].tolist() == [5, 3]


ENCODERS: Mapping[str, tuple[Any, Any, dict[str, Any], Any]] = {
    "text to text": (["é", "x", "b"], TensorProto.STRING, {
        "keys_strings": ["b", "é", "b"], "values_strings": ["two", "", "no"], "default_string": "?"}, ["", "?", "two"]),
    "numbers to text": ([3, 4, 9], TensorProto.STRING, {
        "keys_int64s": [9, 3], "values_strings": ["nine", "three"]}, ["three", "_Unused", "nine"]),
    "text to floats": (["c", "b", "a"], TensorProto.FLOAT, {
        "keys_strings": ["b", "a"], "values_floats": [0.5, 2.0], "default_float": 9.0}, [9.0, 0.5, 2.0]),
}  # fmt: skip


@pytest.mark.parametrize("name", ENCODERS)
def test_label_encoders(name: str) -> None:
    given, kind, attributes, expected = ENCODERS[name]
    x = np.array(given, object if isinstance(given[0], str) else np.int64)
    made = call(model_of("LabelEncoder", [x], [kind], "ai.onnx.ml", **attributes), [x])["y0"]
    assert (nacre.decode_strings(made) if made.dtype == np.uint8 else made).tolist() == expected


def test_categories_and_counts() -> None:
    x = np.array([["a", "b", "a"], ["b", "a", "zz"]], object)
    model = model_of("OneHotEncoder", [x], [TensorProto.FLOAT], "ai.onnx.ml", cats_strings=["b", "a"])
    assert call(model, [x])["y0"].tolist() == [[[0, 1], [1, 0], [0, 1]], [[1, 0], [0, 1], [0, 0]]]
    numbers = {"cats_strings": ["b", "a"], "cats_int64s": [7, 5]}
    model = model_of("CategoryMapper", [x], [TensorProto.INT64], "ai.onnx.ml", **numbers)
    assert call(model, [x])["y0"].tolist() == [[5, 7, 5], [7, 5, -1]]
    grams = {
        "mode": "TF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0, "ngram_counts": [0, 2],
        "ngram_indexes": [0, 1, 2], "pool_strings": ["a", "c", "b", "a"],
    }  # fmt: skip
    model = model_of("TfIdfVectorizer", [x], [TensorProto.FLOAT], **grams)
    assert call(model, [x])["y0"].tolist() == [[2, 0, 1], [1, 0, 1]]


@pytest.mark.parametrize(("op", "attributes"), [("Unique", {}), ("Cast", {"to": TensorProto.INT64})])
def test_other_operators_refuse_strings(op: str, attributes: dict[str, Any]) -> None:
    x = np.array(["3"], object)
    with pytest.raises(DiagnosticError, match="has strings as operand 0"):
        read_proto(model_of(op, [x], [TensorProto.INT64], **attributes), "net", "net.onnx", None)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("level", [0, 2])
def test_compiled_code(level: int) -> None:
    """Splits and matches in one entry, with batches of 7 rows and of one."""
    argument = helper.make_tensor_value_info("x0", TensorProto.STRING, ["B", 2])
    kinds = {"y0": TensorProto.STRING, "y1": TensorProto.INT64, "match": TensorProto.BOOL}
    nodes = [
        helper.make_node("StringSplit", ["x0"], ["y0", "y1"]),
        helper.make_node("RegexFullMatch", ["x0"], ["match"], pattern=PATTERN),
    ]
    outputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()]
    graph = helper.make_graph(nodes, "many", [argument], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    source = read_proto(model, "net", "net.onnx", None)
    entry = nacre.compile(source, opt_level=level)
    for count in (7, 1):
        x = random_strings(np.random.default_rng(count), (count, 2))
        found = dict(zip(source.module.functions[0].result_names, entry(nacre.encode_strings(x)), strict=True))
        check_pieces(found, x, "", None)
        assert found["match"].tolist() == [[bool(re.fullmatch(PATTERN, s, re.A)) for s in row] for row in x]


def test_arrays_of_bytes() -> None:
    texts = np.array([["", "é"], ["中a", "😀"]], object)
    data = nacre.encode_strings(texts)
    assert data.shape == (2, 2, 4) and np.array_equal(nacre.decode_strings(data), texts)
    assert nacre.encode_strings("ab", width=3).tolist() == [97, 98, 0]
    assert nacre.encode_strings([]).shape == (0, 1)
    for wrong, message in (("a\0b", "U\\+0000"), ([1], "int"), ("\ud800", "UTF-8")):
        with pytest.raises(ArgumentError, match=message):
            nacre.encode_strings(wrong)
    with pytest.raises(ArgumentError, match="room for 1"):
        nacre.encode_strings("ab", width=1)
    with pytest.raises(ArgumentError, match="not UTF-8"):
        nacre.decode_strings(np.array([255], np.uint8))
    with pytest.raises(ArgumentError, match="expected u8"):
        nacre.decode_strings(np.array([1.0]))
    with pytest.raises(ArgumentError, match=r"expected u8\[\.\.\., bytes\], got uint8\[\]"):
        nacre.decode_strings(np.uint8(97))


def test_arrays_of_strings_in_other_orders() -> None:
    """Column-major arrays, turned ones, and axes that change places in a cycle."""
    texts = random_strings(np.random.default_rng(3), (2, 3, 5))
    width = nacre.encode_strings(texts).shape[-1]
    for other in (np.asfortranarray(texts), texts[::-1, :, ::2], texts.transpose(1, 2, 0)):
        data = nacre.encode_strings(other, width)
        assert data.shape == (*other.shape, width)
        for place in np.ndindex(*other.shape):
            assert data[place].tobytes().rstrip(b"\0") == other[place].encode()
        for given in (data, np.asfortranarray(data)):
            assert nacre.decode_strings(given).tolist() == other.tolist()
