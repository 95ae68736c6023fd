"""The TextMate grammar equals the generated one, and gives every word of the samples a scope."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from nacre.compiler.tools.reference.textmate import FILE, format_grammar, words

ROOT = Path(__file__).parents[3]


def test_the_grammar_is_generated() -> None:
    assert FILE.read_text() == format_grammar(), "run python -m nacre.compiler.tools.reference.textmate"


def scope(text: str, column: int) -> str:
    """The scope of a column of a line, by the rules of TextMate: the first match from the left, then the first rule."""
    patterns = json.loads(FILE.read_text())["patterns"]
    at = 0
    while at < len(text):
        found = []
        for rule in patterns:
            match = re.compile(rule.get("match") or r'"(?:\\.|[^"\\])*("|$)').search(text, at)
            if match is not None:
                found.append((match.start(), patterns.index(rule), match, rule))
        if not found:
            return ""
        start, _, match, rule = min(found, key=lambda each: each[:2])
        if start > column:
            return ""
        if match.end() > column:
            for group, capture in rule.get("captures", {}).items():
                if match.start(int(group)) <= column < match.end(int(group)):
                    return str(capture["name"])
            return str(rule.get("name", ""))
        at = max(match.end(), at + 1)
    return ""


@pytest.mark.parametrize(
    ("line", "part", "expected"),
    [
        ("block Linear<a>(x: f32[a]) -> f32[a] {", "Linear", "entity.name.type.nacre"),
        ("block Linear<a>(x: f32[a]) -> f32[a] {", "f32", "storage.type.nacre"),
        ("  use layer[n] = Layer<w>", "use", "keyword.control.nacre"),
        ("  y = softmax(x) |> relu", "softmax", "support.function.nacre"),
        ("  model = model + 1  # the model", "# the", "comment.line.number-sign.nacre"),
        ("  model = model + 1", "model =", ""),
        ('weights "model.safetensors"', "model.safe", "string.quoted.double.nacre"),
        ("  x = a if true else b", "true", "constant.language.nacre"),
        ("  x = y.T", "T", "variable.other.member.nacre"),
        ("  x = 1e-5", "1e-5", "constant.numeric.nacre"),
    ],
)
def test_scopes(line: str, part: str, expected: str) -> None:
    assert scope(line, line.index(part)) == expected


def test_every_word_of_the_language_has_a_scope() -> None:
    missing = [word for word in words() if not scope(f"{word} x", 0)]
    assert not missing


def test_the_extension_names_files_that_exist() -> None:
    folder = FILE.parents[1]
    package = json.loads((folder / "package.json").read_text())
    contributed = package["contributes"]
    assert (folder / contributed["grammars"][0]["path"]).samefile(FILE)
    assert json.loads((folder / contributed["languages"][0]["configuration"]).read_text())["comments"]
    assert (folder / package["main"]).is_file()
