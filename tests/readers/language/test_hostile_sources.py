"""Sources that are large or wrong all over: bounded time and memory, and errors that are counted beyond the first."""

import tracemalloc

import pytest
from nacre.compiler.readers.language import load_module
from nacre.compiler.readers.language.parse import MAX_BYTES, parse, parse_bytes
from nacre.compiler.readers.language.tokens import MAX_LENGTH, MAX_TOKENS
from nacre.dialect.diagnostics import MOST_LISTED, Collector, Diagnostic, DiagnosticError, Span, render, render_all

HEAD = "language 1\n\nmodel m(x: f32[4]) -> f32[4] {\n"


def errors(text: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(DiagnosticError) as caught:
        parse(text, "test.nacre")
    return caught.value.diagnostics


def test_more_bytes_than_a_source_may_have() -> None:
    with pytest.raises(DiagnosticError) as caught:
        parse_bytes(b"#" * (MAX_BYTES + 1), "test.nacre")
    assert "has 16,777,217 bytes, a source file has at most 16,777,216" in str(caught.value)


def test_more_tokens_than_a_source_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nacre.compiler.readers.language.tokens.MAX_TOKENS", 1000)
    assert MAX_TOKENS > 1000
    (error,) = errors(HEAD + "  return " + "x + " * 600 + "x\n}\n")
    assert error.code == "too-large"
    assert error.span == Span("test.nacre", 4, 1966, 4, 1967)


@pytest.mark.parametrize("token", ['"' + r"\n" * MAX_LENGTH + '"', '"' + r"\n" * MAX_LENGTH, "a" * (2 * MAX_LENGTH)])
def test_a_long_token_takes_memory_in_proportion(token: str) -> None:
    tracemalloc.start()
    found = errors(f"{HEAD}  weights {token}\n  return x\n}}\n")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert any(error.code == "too-large" for error in found)
    assert all(len(render(error, {"test.nacre": token})) < 1000 for error in found)
    assert peak < 16 * len(token) + (4 << 20)


def test_errors_beyond_the_listed_ones_are_counted() -> None:
    found = errors(HEAD + "".join(f"  a{i} = = x\n" for i in range(1000)) + "  return x\n}\n")
    assert len(found) == MOST_LISTED + 1
    assert found[-1].code == "too-many-errors"
    assert found[-1].message == "800 more errors are not listed"
    assert found[-1].span == Span("test.nacre", 4 + MOST_LISTED, 10, 4 + MOST_LISTED, 11)


def test_an_error_that_is_reported_again_is_not_counted() -> None:
    collector = Collector()
    for number in (*range(MOST_LISTED + 1), 0, 1):
        collector.report(Diagnostic("bad", f"error {number}"))
    assert collector.omitted == 1
    with pytest.raises(DiagnosticError, match="1 more error is not listed"):
        collector.raise_if_any()


def test_texts_of_many_errors_are_those_of_each() -> None:
    sources = {"a": "one\ntwo\n", "b": "three"}
    many = [Diagnostic("bad", "message", Span(file, line, 1, line, 3)) for file in "abc" for line in (1, 2, 3)]
    assert render_all(many, sources) == "\n\n".join(render(each, sources) for each in many)


def found_in(text: str) -> list[Diagnostic]:
    try:
        return list(load_module(text, text=True).warnings)
    except DiagnosticError as error:
        return list(error.diagnostics)


@pytest.mark.parametrize("count", [MOST_LISTED, MOST_LISTED + 1, 1000])
def test_the_check_of_names_ends_with_a_count(count: int) -> None:
    found = found_in(HEAD + "".join(f"  x = q{i}\n" for i in range(count)) + "  return x\n}\n")
    assert [error.code for error in found[:MOST_LISTED]] == ["unknown-name"] * MOST_LISTED
    more = [(error.message, error.span) for error in found[MOST_LISTED:]]
    place = Span("model.nacre", 4 + MOST_LISTED, 7, 4 + MOST_LISTED, 7 + len(f"q{MOST_LISTED}"))
    assert more == ([("the check ends after 200 errors", place)] if count > MOST_LISTED else [])


@pytest.mark.parametrize("count", [MOST_LISTED, MOST_LISTED + 1, 1000])
def test_warnings_end_no_check(count: int) -> None:
    """The error of a block that nothing uses is found behind any number of warnings."""
    model = HEAD + "".join(f"  a{i} = x\n" for i in range(count)) + "  return x\n}\n"
    found = found_in(model)
    assert [warning.code for warning in found[:MOST_LISTED]] == ["unused-name"] * MOST_LISTED
    more = {0: [], 1: ["1 more warning is not listed"], 800: ["800 more warnings are not listed"]}
    assert [warning.message for warning in found[MOST_LISTED:]] == more[count - MOST_LISTED]
    assert all(warning.severity == "warning" for warning in found)
    wrong = found_in(model + "block b(x: f32[4]) -> f32[4] { return relu(x, 1, 2) }\n")
    assert [error.severity for error in wrong] == ["error"]


def test_parameters_without_a_gradient_leave_the_training_step() -> None:
    parameters = "".join(f"  param p{i}: f32[4] = 0.0\n" for i in range(MOST_LISTED + 50))
    uses = "".join(f"  _a{i} = p{i}\n" for i in range(MOST_LISTED + 50))
    text = f"language 1\ntrain step(x: f32[4]) -> loss: f32 {{\n  param w: f32[4] = 0.0\n{parameters}{uses}"
    text += "  loss = sum((x * w) ** 2, axis=0)\n  minimize loss with sgd(lr=0.1)\n}\n"
    text += "model f(x: f32[4]) -> f32[4] { return x }\n"
    model = load_module(text, text=True)
    assert [function.name for function in model.module.functions] == ["step", "f"]
    assert {warning.code for warning in model.warnings} == {"untrained", "too-many-warnings"}
