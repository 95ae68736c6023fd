"""Ten thousand damaged programs: whatever the input is, the answer is diagnostics, soon."""

import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from nacre.compiler import frontend
from nacre.dialect.diagnostics import Diagnostic, render_all

TESTS = Path(__file__).parent.parent
CHUNKS, ROUNDS = 20, 500
SECONDS = 20  # of one program, on a busy machine; the slowest damage meets a limit of the elaboration

SOURCES = sorted((TESTS / "files" / "check").glob("*.nacre")) + sorted((TESTS / "files" / "run").glob("*.nacre"))
SAMPLES = sorted((TESTS.parent / "samples").glob("*/*.nacre"))
TOKEN = re.compile(r'"[^"\n]*"|\w+|\.\.\.|\|>|->|\*\*|//|[<>=!]=|\s+|.', re.DOTALL)
WORDS = [
    *("x", "y", "B", "T", "i", "n", "f", "width", "layer", "Linear", "weight", "missing", "None", "true", "inf", "f32"),
    *("i64", "bool", "f16", "0", "1", "2", "3", "4", "-1", "0.5", "64", "1000000", "9223372036854775807", "1e300"),
    *("+", "-", "*", "/", "//", "%", "**", "@", "==", "<", "and", "or", "not", "if", "else", "|>", ".T", ".mT"),
    *(".shape", "[0]", "[:, None]", "[::2]", "[...]", "(", ")", "[", "]", "<", ">", ",", "...", "=", "repeat", "use"),
    *("param", "return", "relu", "softmax", "sum", "max", "concat", "rearrange", "reshape", "iota", "where", "split"),
    *("cast", "conv2d", "einsum", "gather", "top_k", "pad", "zeros", "sqrt", "axis=1", '"b t -> t b"', '"same"', "\n"),
]


def damaged(pieces: list[str], choice: random.Random) -> str:
    """The text of the tokens with a few of them replaced, doubled, swapped, or gone; sometimes with strange bytes."""
    pieces = list(pieces)
    for _ in range(choice.choice((1, 1, 2, 3, 6))):
        at = choice.randrange(len(pieces))
        kind = choice.random()
        if kind < 0.4:
            pieces[at] = choice.choice(WORDS)
        elif kind < 0.6:
            pieces[at] = choice.choice(pieces)
        elif kind < 0.7:
            pieces.insert(at, choice.choice(WORDS))
        elif kind < 0.8:
            end = at + choice.randrange(1, 12)
            pieces[at:at] = pieces[at:end]
        elif kind < 0.88:
            del pieces[at : at + choice.randrange(1, 4)]
        elif kind < 0.96:
            other = choice.randrange(len(pieces))
            pieces[at], pieces[other] = pieces[other], pieces[at]
        else:
            pieces[at] = choice.choice(["\0", "\t", "é", "…", "\ud800", '"', "#", "{", "}", "9" * 30, "\\", "\r"])
        if not pieces:
            return ""
    return "".join(pieces)


def programs(chunk: int) -> Iterator[tuple[str, Path]]:
    choice = random.Random(chunk)
    texts = [(TOKEN.findall(path.read_text(encoding="utf-8")), path.parent) for path in SOURCES]
    # Those that meet the limits on purpose are slow, and are tested as they are.
    small = [item for item in texts if len(item[0]) < 400 and "A6" not in item[0]]
    large = [(TOKEN.findall(path.read_text(encoding="utf-8")), path.parent) for path in SAMPLES]
    for number in range(ROUNDS):
        pieces, folder = choice.choice(large if number % 50 == 0 else small)
        yield damaged(pieces, choice), folder


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_damage_ends_in_diagnostics(chunk: int) -> None:
    faulty = 0
    for text, folder in programs(chunk):
        started = time.monotonic()
        found = frontend.check_source(text, "fuzz.nacre", folder)
        assert time.monotonic() - started < SECONDS, text
        assert all(isinstance(fault, Diagnostic) for fault in found)
        assert render_all(found, {"fuzz.nacre": text}) or not found
        faulty += any(fault.severity == "error" for fault in found)
    # Most damage is found; some of it leaves a program that means something.
    assert ROUNDS // 2 < faulty < ROUNDS


def test_every_beginning_of_a_program_ends_in_diagnostics() -> None:
    for path in SAMPLES[:1]:
        text = path.read_text(encoding="utf-8")
        for end in range(0, len(text), 97):
            frontend.check_source(text[:end], path.name, path.parent)
