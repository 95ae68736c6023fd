"""Limits of the language at their last number: it is accepted, and the next one is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from nacre.compiler.readers.language import context as contexts
from nacre.compiler.readers.language import examples, layout, load_module, statics
from nacre.dialect.diagnostics import DiagnosticError, Span

SPAN = Span("test.nacre", 1, 1, 1, 2)


class StoppedError(Exception):
    pass


def test_steps_of_an_elaboration(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(code: str, message: str, span: Span) -> StoppedError:
        assert (code, span) == ("too-large", SPAN)
        return StoppedError(message)

    monkeypatch.setattr(contexts, "STEPS", 10)
    context: Any = SimpleNamespace(steps=0, reporter=SimpleNamespace(stop=stop))
    contexts.Context.count_steps(context, 9, SPAN)
    contexts.Context.count_steps(context, 1, SPAN)
    with pytest.raises(StoppedError):
        contexts.Context.count_steps(context, 1, SPAN)


def test_elements_in_the_text_of_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(count: int) -> None:
        numbers = ", ".join(map(str, range(count)))
        text = f"model f(x: f32[{count}]) -> f32[{count}] {{\n  return x\n}}\n"
        load_module(f'{text}\ntest f "numbers" {{\n  given x = [{numbers}]\n  expect [{numbers}]\n}}\n', text=True)

    monkeypatch.setattr(examples, "DATA_ELEMENTS", 7)
    load(7)
    with pytest.raises(DiagnosticError, match="literals of this size must be stored in a file"):
        load(8)


def test_parts_of_a_power_of_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """`(N + 1)**3` has four terms and six factors."""

    def load(power: int) -> None:
        size = f"(N + 1)**{power}"
        load_module(f"dim N in 0..9\nmodel f(n: f32[N], x: f32[{size}]) -> f32[{size}] {{ return x }}\n", text=True)

    for power in range(9):
        load(power)
    with pytest.raises(DiagnosticError, match="cannot be raised to 9"):
        load(9)
    monkeypatch.setattr(statics, "SIZE_PARTS", 11)
    load(3)
    monkeypatch.setattr(statics, "SIZE_PARTS", 10)
    load(2)
    with pytest.raises(DiagnosticError, match="the formula of this size is too long"):
        load(3)


def test_lines_are_filled_to_the_last_column() -> None:
    """The comma after the last element of a line counts."""
    for length, widths in ((layout.WIDTH - 8, [layout.WIDTH, 5]), (layout.WIDTH - 7, [6, layout.WIDTH - 2, 5])):
        assert [len(line) for line in layout._filled(["1", "a" * length, "2"], 4)] == widths
