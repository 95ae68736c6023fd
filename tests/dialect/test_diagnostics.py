"""How a diagnostic looks on a terminal, where tests/files cannot say it: odd spans, odd characters, missing sources."""

import pytest
from nacre.dialect.diagnostics import Collector, Diagnostic, DiagnosticError, Note, Span, render

TEXT = "first\nsecond line\n\tthird"


def test_notes_and_help_stand_under_the_gutter() -> None:
    source = {"m": "\n" * 11 + "return x @ w"}
    notes = (Note("384 is `width`", Span("m", 4, 38, 4, 43)), Note("and so on"))
    fault = Diagnostic("shape", "no", Span("m", 12, 8, 12, 13), "384 and 512 differ", notes, "did you mean y?")
    assert render(fault, source) == (
        "error[shape]: no\n"
        "  --> m:12:8\n"
        "   |\n"
        "12 | return x @ w\n"
        "   |        ^^^^^ 384 and 512 differ\n"
        "   |\n"
        "   = 384 is `width`, at m:4:38\n"
        "   = and so on\n"
        "   = help: did you mean y?"
    )


@pytest.mark.parametrize(
    ("span", "shown"),
    [
        (Span("m", 1, 2, 2, 4), "1 | first\n  |  ^^^^"),  # to the end of its first line
        (Span("m", 2, 12, 2, 13), "2 | second line\n  |            ^"),  # behind the last character
        (Span("m", 2, 12, 3, 1), "2 | second line\n  |            ^"),
        (Span("m", 1, 3, 1, 3), "1 | first\n  |   ^"),  # an empty one
        (Span("m", 3, 2, 3, 7), "3 | \tthird\n  | \t^^^^^"),
        (Span("m", 3, 90, 3, 95), "3 | \tthird\n  | \t     ^"),  # outside of the line
    ],
)
def test_carets(span: Span, shown: str) -> None:
    text = render(Diagnostic("c", "m", span), {"m": TEXT})
    assert text == f"error[c]: m\n --> {span}\n  |\n{shown}"


def test_a_source_that_is_not_known() -> None:
    fault = Diagnostic("c", "message", Span("other", 7, 1, 7, 2), "label")
    assert render(fault, {"m": TEXT}) == "error[c]: message\n  --> other:7:1\n   = label"
    assert render(Diagnostic("c", "message", severity="warning"), {}) == "warning[c]: message"


def test_nothing_that_a_terminal_obeys_is_printed() -> None:
    fault = Diagnostic("c", "bad \x1b[31m", Span("m", 1, 1, 1, 2), "\x07", (Note("\x08"),), "\u202e")
    assert render(fault, {"m": "\x1b[31m\x00\ud800"}).replace("\n", "").isprintable()


def test_carriage_returns_are_not_columns() -> None:
    assert "1 | a\n" in render(Diagnostic("c", "m", Span("m", 1, 2, 1, 3)), {"m": "a\r\nb\r\n"})


def test_a_long_line_is_shown_in_part() -> None:
    line = "x" * 300 + "fault" + "y" * 300
    shown = render(Diagnostic("c", "m", Span("m", 1, 301, 1, 306)), {"m": line}).splitlines()[3:]
    assert shown[0].startswith("1 | ...xxx") and shown[0].endswith("yyy...") and len(shown[0]) < 180
    assert shown[0][shown[1].index("^") : shown[1].rindex("^") + 1] == "fault"


def test_a_collector_tells_each_fault_once() -> None:
    collector = Collector()
    collector.raise_if_any()
    for message in ("a", "b", "a"):
        collector.report(Diagnostic("c", message))
    with pytest.raises(DiagnosticError) as caught:
        collector.raise_if_any({"m": TEXT})
    assert [d.message for d in caught.value.diagnostics] == ["a", "b"]
    assert str(caught.value) == "error[c]: a\n\nerror[c]: b"
