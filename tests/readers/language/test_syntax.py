"""The parser: what binds to what, where statements end, where nodes are, and that no input ends in a traceback.

The faults that it reports are file tests, under tests/files/syntax.
"""

import dataclasses
import random
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from nacre.compiler.readers.language import syntax
from nacre.compiler.readers.language.parse import normalise, parse, parse_bytes
from nacre.dialect.diagnostics import DiagnosticError, Span
from random_source import RandomSource, damage_bytes, damage_tokens

FOLDER = Path(__file__).parents[3] / "samples"
SAMPLES = sorted(FOLDER.rglob("*.nacre"))
MINILM = FOLDER / "minilm" / "minilm.nacre"


def value(text: str) -> syntax.Expression:
    """The expression on the right of an assignment."""
    (item,) = parse(f"y = {text}", "test").items
    assert isinstance(item, syntax.Assign)
    return item.value


def test_trees_without_errors_are_kept() -> None:
    text = MINILM.read_text(encoding="utf-8")
    assert parse(text, "a") is parse(text, "a") is parse(text.replace("\n", "\r\n"), "a")
    files = {item.span.file for file in ("a", "b") for item in parse(text, file).items}
    assert files == {"a", "b"}


def test_errors_are_reported_each_time() -> None:
    message = []
    for _ in range(2):
        with pytest.raises(DiagnosticError) as found:
            parse("dim B in\nmodel m(x: f32[B]) -> f32[B] { return }\n", "a")
        message.append(found.value.diagnostics)
    assert message[0] == message[1] and len(message[0]) == 2


def statements(body: str) -> tuple[syntax.Statement, ...]:
    (item,) = parse(f"block A() -> f32 {{\n{body}\n}}", "test").items
    assert isinstance(item, syntax.Block)
    return item.body


def nodes(node: object) -> Iterator[syntax.Node]:
    if isinstance(node, syntax.Node):
        yield node
        for field in dataclasses.fields(node):
            yield from nodes(getattr(node, field.name))
    elif isinstance(node, tuple):
        for element in node:
            yield from nodes(element)


def text_at(text: str, span: Span) -> str:
    lines = normalise(text).split("\n")[span.line - 1 : span.end_line]
    lines[-1] = lines[-1][: span.end_column - 1]
    lines[0] = lines[0][span.column - 1 :]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "grouped"),
    [
        ("a + b * c", "a + (b * c)"),
        ("a * b @ c", "(a * b) @ c"),
        ("a - b - c", "(a - b) - c"),
        ("a / b // c % d", "((a / b) // c) % d"),
        ("-a ** -b ** c", "-(a ** (-(b ** c)))"),
        ("-a.T", "-(a.T)"),
        ("-a[0](b)", "-((a[0])(b))"),
        ("- - a", "-(-a)"),
        ("a + b < c * d", "(a + b) < (c * d)"),
        ("not a == b and c", "(not (a == b)) and c"),
        ("a or b and not c", "a or (b and (not c))"),
        ("a if b or c else d if e else f", "a if (b or c) else (d if e else f)"),
        ("a @ b |> f(c) |> g", "((a @ b) |> f(c)) |> g"),
        ("a if b else c |> f", "(a if b else c) |> f"),
        ("x |> f", "x |> f()"),
        ("x |> m.f<n>(a) |> l[i]", "(x |> m.f<n>(a)) |> l[i]()"),
        ("f(a, k=b,)", "f(a, k=b)"),
        ("x[a, ]", "x[a]"),
        ("1_000", "1000"),
        ("1.", "1.0"),
        (".5e1", "5.0"),
        ("1.E+2", "1e2"),
        ("(x[1].T, 2)", "(((x[1]).T), 2)"),
    ],
)
def test_grouping(text: str, grouped: str) -> None:
    assert value(text) == value(grouped)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("a + b * c", "(a + b) * c"),
        ("-a ** b", "(-a) ** b"),
        ("a - b - c", "a - (b - c)"),
        ("(a,)", "(a)"),
        ("[a]", "(a,)"),
        ("x[a, b]", "x[(a, b)]"),
        ("x[:]", "x[::1]"),
        ("x[1:]", "x[:1]"),
        ("f(a)", "f<n>(a)"),
        ("x |> f", "f(x)"),
        ("1", "1.0"),
        ("true", "None"),
    ],
)
def test_different(text: str, other: str) -> None:
    assert value(text) != value(other)


def test_literals() -> None:
    tuple_ = value(r'(7, 1e-5, "a\"\n", true, None, -2)')
    assert isinstance(tuple_, syntax.Tuple)
    seven, small, string, true, none, negative = tuple_.items
    assert isinstance(seven, syntax.Integer) and seven.value == 7
    assert isinstance(small, syntax.Float) and small.value == 1e-5
    assert isinstance(string, syntax.String) and string.value == 'a"\n'
    assert isinstance(true, syntax.Boolean) and true.value is True
    assert isinstance(none, syntax.Nothing)
    assert isinstance(negative, syntax.Unary) and negative.operator == "-"


def test_index_items() -> None:
    index = value("x[:, None, 1, 2:, -1, ..., a:b:c]")
    assert isinstance(index, syntax.Index)
    kinds = [type(item) for item in index.items]
    Slice, Nothing = syntax.Slice, syntax.Nothing  # noqa: N806 - short names for the classes
    assert kinds == [Slice, Nothing, syntax.Integer, Slice, syntax.Unary, syntax.Dots, Slice]
    first, _, _, second, _, _, last = index.items
    assert isinstance(first, Slice) and (first.start, first.stop, first.step) == (None, None, None)
    assert isinstance(second, Slice) and second.start == value("2") and second.stop is None
    assert isinstance(last, Slice) and last.step == value("c")


def test_hyper_parameters_are_not_comparisons() -> None:
    call = value("f<a, 2*b, k=-1>(x)")
    assert isinstance(call, syntax.Call) and call.hypers is not None
    assert [argument.name.name if argument.name else None for argument in call.hypers] == [None, None, "k"]
    assert value("f < a") == value("f<a") == value("(f) < (a)")
    spaced = value("f(a < b, c > (d))")
    assert isinstance(spaced, syntax.Call) and len(spaced.arguments) == 2
    touching = value("f(a<b, c>(d))")
    assert isinstance(touching, syntax.Call) and len(touching.arguments) == 1
    assert statements("model = false < x\nuse q = L < a , b >\nreturn model<x") == statements(
        "model = (false < x)\nuse q = L<a, b>\nreturn (model < x)"
    )


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("y = a\n  |> f\n  # why\n\n  + 1 |> g", None),
        ("y = a\n  |> f(\n  x\n,\n y)\n  |> g\nz = b", "y = a |> f(x, y) |> g; z = b"),
        ("y = a\n- b\nz = a\nand b", "y = a - b; z = a and b"),
        ("y = f(a # one\n # two\n, b)", "y = f(a, b)"),
        ("repeat i in 0..2 { x = y; z = x }", "repeat i in 0..2 {\n\nx = y\n\n\nz = x\n}"),
        (";;x = y;;\n;", "x = y"),
        ("use q = L<\n  a,\n  b,\n>\nreturn q", "use q = L<a, b>; return q"),
        ("# only a comment", ""),
    ],
)
def test_where_statements_end(text: str, same: str | None) -> None:
    if same is None:
        with pytest.raises(DiagnosticError):
            statements(text)
    else:
        assert statements(text) == statements(same)


def test_words_are_names_where_nothing_else_could_stand() -> None:
    calls = "state = transpose(file, dim=c.block, from=1); model, test = split(within, as)"
    assigned = statements(f"{calls}\nweights = train\nquantize = grad")
    assert all(isinstance(statement, syntax.Assign) for statement in assigned)
    assert len(assigned) == 4
    (attribute,) = [node for node in nodes(assigned) if isinstance(node, syntax.Attribute)]
    assert attribute.name.name == "block"


def test_statements() -> None:
    param, plain, use, weights, pair, repeat, result = statements(
        """
        param w: q8[block 32][n, ..., 4*k] from "h.{i}.w" transpose 1, 0
        param b: f32 transpose
        use query, layer[n + 1] = attention.Linear<width, outputs=3>
        weights "model.safetensors"
        a, b = b, a
        repeat i in 1..n - 1 { x = layer[i](x) }
        return a, b
        """
    )
    assert isinstance(param, syntax.Param) and param.key is not None and param.key.value == "h.{i}.w"
    assert param.type.dtype.name == "q8" and param.type.dtype.block == value("32") and len(param.type.dims) == 3
    assert param.transpose == (value("1"), value("0"))
    assert isinstance(plain, syntax.Param) and plain.transpose == () and plain.type.dims == ()
    assert isinstance(use, syntax.Use) and [i.count is None for i in use.instances] == [True, False]
    assert [name.name for name in use.block.path] == ["attention", "Linear"]
    assert isinstance(weights, syntax.Weights) and weights.path.value == "model.safetensors"
    assert isinstance(pair, syntax.Assign) and pair.value == value("(b, a)") and len(pair.targets) == 2
    assert isinstance(repeat, syntax.Repeat) and repeat.stop == value("n - 1") and len(repeat.body) == 1
    assert isinstance(result, syntax.Return) and len(result.values) == 2


def test_items() -> None:
    file = parse(
        """
        language 1
        config "config.json" as c
        dim B in 1..2*32 multiple 8
        import "attention.nacre"
        import "norms.nacre" as norms
        heads = 12
        block A<n, k = 2*n>() -> f32 {}
        model m(x: f32[B], y: i64[]) -> first: f32[B], f32 { return x, y }
        test m "a title" { given x = file "x.npy", y = 3; expect first = file "y.npy" within 1e-5 signed; expect x }
        budget m { memory(B=1) <= 8 MiB; latency < 1.5 ms; kernels <= 3 }
        """,
        "test",
    )
    assert file.language == 1
    config, dim, plain, named, constant, block, model, test, budget = file.items
    assert isinstance(config, syntax.Config) and config.name.name == "c"
    assert isinstance(dim, syntax.Dim) and (dim.high, dim.multiple) == (value("2*32"), value("8"))
    assert isinstance(plain, syntax.Import) and plain.name is None
    assert isinstance(named, syntax.Import) and named.name is not None and named.name.name == "norms"
    assert isinstance(constant, syntax.Assign)
    assert type(block) is syntax.Block and [h.default for h in block.hypers] == [None, value("2*n")]
    assert isinstance(model, syntax.Model) and [r.name and r.name.name for r in model.results] == ["first", None]
    assert isinstance(test, syntax.Test) and test.title.value == "a title" and len(test.givens) == 2
    first, second = test.expects
    assert first.name is not None and isinstance(first.value, syntax.FileData) and first.within == value("1e-5")
    assert first.signed and not second.signed
    assert second.name is None and second.value == value("x") and second.within is None
    assert isinstance(budget, syntax.Budget)
    memory, latency, kernels = budget.limits
    assert (memory.quantity.measure, memory.quantity.base_value) == ("bytes", 8 * 2**20)
    assert (latency.quantity.measure, latency.quantity.base_value) == ("seconds", 1.5e-3)
    assert (kernels.comparison, kernels.quantity.measure, kernels.quantity.base_value) == ("<=", "count", 3)


def test_spans_of_headers() -> None:
    text = 'block A(x: f32) -> f32 {\n  return x\n}\ntest A "t" {\n}\nbudget A { }'
    block, test, budget = parse(text, "test").items
    assert text_at(text, block.span) == "block A(x: f32) -> f32"
    assert text_at(text, test.span) == 'test A "t"'
    assert text_at(text, budget.span) == "budget A"


@cache
def sources() -> list[str]:
    made = [RandomSource(random.Random(seed)).file() for seed in range(12)]
    return [path.read_text(encoding="utf-8") for path in SAMPLES] + made


@pytest.mark.parametrize("text", sources(), ids=lambda text: f"{len(text)}-characters")
def test_the_text_under_the_span_of_an_expression_is_that_expression(text: str) -> None:
    seen = 0
    for node in nodes(parse(text, "test").items):
        is_bare_stage = isinstance(node, syntax.Call) and node.span == node.function.span  # `x |> f`
        is_loop = isinstance(node, syntax.Repeat)  # a value of an assignment alone
        if isinstance(node, syntax.Expression) and not is_bare_stage and not is_loop:
            assert value(f"({text_at(text, node.span)}\n)") == node
            seen += 1
        if isinstance(node, syntax.Binary):
            assert text_at(text, node.operator_span) == node.operator
    assert seen


# --- no tracebacks ----------------------------------------------------------------------------------------------------


def only_diagnostics(data: bytes) -> int:
    """How many diagnostics there are; each has a place inside the text and can be shown."""
    try:
        parse_bytes(data, "test")
    except DiagnosticError as error:
        lines = error.sources["test"].split("\n")
        for diagnostic in error.diagnostics:
            span = diagnostic.span
            assert span is not None
            assert 1 <= span.line <= len(lines) and 1 <= span.column <= len(lines[span.line - 1]) + 1, diagnostic
        places = [(d.span.line, d.span.column) for d in error.diagnostics if d.span]
        assert places == sorted(places)
        assert str(error).isprintable() or "\n" in str(error)
        return len(error.diagnostics)
    return 0


@pytest.mark.parametrize("seed", range(10))
def test_damaged_sources(seed: int) -> None:
    choice = random.Random(seed)
    faults = 0
    for _ in range(30):
        text = choice.choice(sources())
        times = choice.randint(1, 6)
        if choice.random() < 0.5:
            data = damage_tokens(text, choice, times).encode("utf-8", "surrogatepass")
        else:
            data = damage_bytes(text.encode(), choice, times)
        faults += only_diagnostics(data) > 0
    assert faults > 15


@pytest.mark.parametrize(
    "text",
    [
        "(" * 3000,
        "block A() -> f32 {" + "repeat i in 0..1 {" * 2000,
        "y = " + "- " * 3000 + "1",
        "y = " + "not " * 3000 + "1",
        "y = 1" + " + 1" * 3000,
        "y = 1" + " ** 1" * 3000,
        "y = x" + " |> f" * 3000,
        "y = x" + ".T" * 3000,
        "y = x" + "[0]" * 3000,
        "y = x" + "()" * 3000,
        "y = " + "1 if a else " * 3000 + "1",
        "y = f<" + "a<" * 1000,
        "y = " + "9" * 20000,
        "}" * 500,
        '"' * 501,
        "\0" * 500,
        "$ " * 500,
    ],
    ids=lambda text: re.sub(r"\s+", "", text[:24]).replace("\0", "nul"),
)
def test_extreme_sources(text: str) -> None:
    assert only_diagnostics(text.encode()) > 0


def test_sources_below_the_limits_parse() -> None:
    assert parse("y = " + "(" * 60 + "1" + ")" * 60, "test") == parse("y = 1", "test")
    parse("y = 1" + " + 1" * 98, "test")
    parse("block A() -> f32 {\n" + "x = y\n" * 2000 + "}", "test")


def test_most_single_mistakes_are_reported_once() -> None:
    """Every word of a model is left out, once; errors that follow from one mistake are not reported."""
    text = MINILM.read_text(encoding="utf-8")
    spots = [match.span() for match in re.finditer(r"\w+|->|\|>|\.\.\.|[^\w\s]", re.sub(r"#.*", "", text))]
    text = re.sub(r"#.*", "", text)
    counts = [only_diagnostics((text[:start] + text[end:]).encode()) for start, end in spots[::31]]
    assert max(counts) <= 6
    assert sum(count <= 2 for count in counts) > 0.95 * len(counts)
