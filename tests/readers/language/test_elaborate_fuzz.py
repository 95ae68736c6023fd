"""Ten thousand damaged programs: whatever the input is, the answer is diagnostics, soon."""

import random
import re
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from nacre.compiler.readers import language as frontend
from nacre.compiler.readers.language.operators import BUILTINS
from nacre.dialect.diagnostics import Diagnostic, render_all
from operator_source import program

TESTS = Path(__file__).parents[2]
CHUNKS, ROUNDS = 20, 500
SECONDS = 20  # of one program; the slowest damage meets a limit of the elaboration

SOURCES = sorted((TESTS / "files" / "check").glob("*.nacre"))
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


CLASSES = [r"[A-Za-z_]\w*", r"\d[\w.]*", r'"', r"\s"]


@cache
def token_class(token: str) -> int:
    """Names, numbers, texts and space: what may stand for one another in a program that still parses."""
    return next((n for n, pattern in enumerate(CLASSES) if re.match(pattern, token)), -1)


def damaged(pieces: list[str], choice: random.Random) -> str:
    """The text of the tokens with a few of them replaced, doubled, swapped, or gone; sometimes with strange bytes."""
    pieces = list(pieces)
    gentle = choice.random() < 0.7
    for _ in range(choice.choice((1, 1, 2, 3, 6))):
        if not pieces:
            return ""
        at = choice.randrange(len(pieces))
        if gentle:
            # What still parses gets further.
            same = [p for p in (*pieces, *WORDS) if token_class(p) == token_class(pieces[at]) and p != pieces[at]]
            pieces[at] = choice.choice(same or pieces)
            continue
        kind = choice.random()
        if kind < 0.5:
            pieces[at] = choice.choice(WORDS)
        elif kind < 0.65:
            pieces.insert(at, choice.choice(WORDS))
        elif kind < 0.75:
            pieces[at:at] = pieces[at : at + choice.randrange(1, 12)]
        elif kind < 0.85:
            del pieces[at : at + choice.randrange(1, 4)]
        elif kind < 0.95:
            other = choice.randrange(len(pieces))
            pieces[at], pieces[other] = pieces[other], pieces[at]
        else:
            pieces[at] = choice.choice(["\0", "\t", "é", "…", "\ud800", '"', "#", "{", "}", "9" * 30, "\\", "\r"])
    return "".join(pieces)


def read(path: Path) -> tuple[list[str], Path]:
    return TOKEN.findall(path.read_text(encoding="utf-8")), path.parent


@cache
def seeds() -> tuple[list[tuple[list[str], Path]], ...]:
    """Faulty programs, programs with one model each, calls of operators, and whole samples."""
    faulty = [read(path) for path in SOURCES]
    single = []
    for path in sorted((TESTS / "files" / "run").glob("*.nacre")):
        items = re.split(r"\n\n(?=model )", path.read_text(encoding="utf-8"))
        single += [(TOKEN.findall(f"{items[0]}\n\n{model}"), path.parent) for model in items[1:]]
    calls = [
        (TOKEN.findall(program(operator, case)), TESTS) for operator in BUILTINS.values() for case in operator.cases[:2]
    ]
    # Those that meet the limits on purpose are slow, and are tested as they are.
    return [f for f in faulty if len(f[0]) < 400 and "A6" not in f[0]], single, calls, [read(p) for p in SAMPLES]


def programs(chunk: int) -> Iterator[tuple[str, Path]]:
    choice = random.Random(chunk)
    for number in range(ROUNDS):
        kind = 3 if number % 100 == 0 else choice.choices((0, 1, 2), (3, 4, 3))[0]
        pieces, folder = choice.choice(seeds()[kind])
        yield damaged(pieces, choice), folder


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_damage_ends_in_diagnostics(chunk: int) -> None:
    faulty = 0
    for text, folder in programs(chunk):
        started = time.process_time()
        found = frontend.check_source(text, "fuzz.nacre", folder)
        assert time.process_time() - started < SECONDS, text
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
