"""Structured output: JSON schemas, grammars and regular expressions, in commands and with drafts."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.cli.main import run
from nacre.compiler.tools.generate.guide import GRAMMAR, JSON_SCHEMA, REGEX, Form, Forms
from nacre.compiler.tools.generate.tokens import Generator, Sampling
from nacre.compiler.tools.generate.vocabulary import Vocabulary, read_vocabulary
from nacre.dialect.diagnostics import DiagnosticError
from talker import CONTEXT, TOKENS

pytest.importorskip("llguidance", reason="the package llguidance is not installed")

SCHEMA = {
    "type": "object",
    "properties": {"the": {"type": "integer", "minimum": 10, "maximum": 99}, "on": {"type": "boolean"}},
    "required": ["the", "on"],
    "additionalProperties": False,
}
BOUNDED = r"[a-m]{3}(the|\?)"


@pytest.fixture(scope="module")
def vocabulary(talker: Path) -> Vocabulary:
    return read_vocabulary(nacre.load(talker))


@pytest.fixture(scope="module")
def forms(vocabulary: Vocabulary) -> Forms:
    return Forms(vocabulary, len(TOKENS))


def answer(talker: Path, forms: Forms, form: Form, sampling: Sampling, lookup: int = 0) -> str:
    vocabulary = read_vocabulary(nacre.load(talker))
    guide = forms.guide(form)
    generator = Generator(nacre.load(talker), CONTEXT, lookup)
    drawn = list(generator.generate([1, 262], 40, sampling, vocabulary.end, guide))
    assert guide.is_complete
    return "".join(vocabulary.stream([], drawn))


def test_only_tokens_of_the_form_are_allowed(forms: Forms) -> None:
    guide = forms.guide(Form(REGEX, "(the|to)a*"))
    expected = [{"t", "th", "the"}, {"h", "o"}, {"e"}]
    for wanted, token in zip(expected, "the", strict=True):
        assert {TOKENS[i] for i in np.flatnonzero(guide.allowed())} - {f"<0x{ord(c):02X}>" for c in "tho e"} == wanted
        assert not guide.is_complete
        guide.accept(TOKENS.index(token))
    ends = {TOKENS[i] for i in np.flatnonzero(guide.allowed())}
    assert guide.is_complete and not guide.is_done and {"a", "</s>"} <= ends and "t" not in ends


@pytest.mark.parametrize("seed", range(6))
def test_answers_have_their_form(talker: Path, forms: Forms, seed: int) -> None:
    sampling = Sampling(temperature=2.0, top_k=0, top_p=1, min_p=0, seed=seed)
    assert re.fullmatch(BOUNDED, answer(talker, forms, Form(REGEX, BOUNDED), sampling))
    values = json.loads(answer(talker, forms, Form(JSON_SCHEMA, json.dumps(SCHEMA)), sampling))
    assert values.keys() == {"the", "on"} and type(values["on"]) is bool and 10 <= values["the"] <= 99
    text = answer(talker, forms, Form(GRAMMAR, 'start: word ("." word)~3\nword: /[xyz]/ | "(" word ")"\n'), sampling)
    assert re.fullmatch(r"\(*[xyz]\)*(\.\(*[xyz]\)*){3}", text) and text.count("(") == text.count(")")


def test_an_answer_ends_where_nothing_can_follow(talker: Path, forms: Forms, vocabulary: Vocabulary) -> None:
    guide = forms.guide(Form(REGEX, "the"))
    generator = Generator(nacre.load(talker), CONTEXT)
    drawn = list(generator.generate([1, 262], 40, Sampling(temperature=0), vocabulary.end, guide))
    assert "".join(TOKENS[i] for i in drawn) == "the" and guide.is_done


def test_drafts_do_not_change_the_answer(talker: Path, forms: Forms) -> None:
    form = Form(REGEX, "(ab|the |moth ){9}")
    texts = [answer(talker, forms, form, Sampling(temperature=0), lookup) for lookup in (0, 6)]
    assert texts[0] == texts[1] and re.fullmatch(form.text, texts[0])


def test_options_of_commands(talker: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema, grammar = tmp_path / "schema.json", tmp_path / "form.lark"
    schema.write_text(json.dumps(SCHEMA))
    grammar.write_text('start: "a" /[bc]/\n')
    given = ["a", "--seed", "3", "--tokens", "40"]
    assert run(["generate", str(talker), *given, "--regex", BOUNDED]) == 0
    assert re.fullmatch(f"a{BOUNDED}\n", capsys.readouterr().out)
    assert run(["chat", str(talker), *given, "--json-schema", str(schema)]) == 0
    assert json.loads(capsys.readouterr().out).keys() == {"the", "on"}
    assert run(["generate", str(talker), *given, "--grammar", str(grammar)]) == 0
    assert re.fullmatch("aa[bc]\n", capsys.readouterr().out)
    assert run(["generate", str(talker), *given, "--grammar", str(grammar), "--regex", "a"]) == 2
    assert "exclude each other" in capsys.readouterr().err


def test_an_answer_that_is_too_short(talker: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["generate", str(talker), "a", "--regex", "[abc]{20}", "--tokens", "5"]) == 1
    printed = capsys.readouterr()
    assert re.fullmatch("a[abc]{5}\n", printed.out)
    assert "error[incomplete-form]: the answer ended before its form was complete" in printed.err


BAD = {
    "regex": (Form(REGEX, "[a"), "the regular expression is not valid: unclosed character class"),
    "grammar": (Form(GRAMMAR, "start: x"), 'the grammar is not valid: .*unknown name: "x"'),
    "text": (Form(JSON_SCHEMA, "{"), "the JSON schema is not valid: Expecting property name"),
    "list": (Form(JSON_SCHEMA, "[]"), "the JSON schema is not valid: it is not a JSON object"),
    "deep": (Form(JSON_SCHEMA, "[" * 100_000), "the JSON schema is not valid: its values are nested too deeply"),
    "type": (Form(JSON_SCHEMA, '{"type": "foo"}'), "the JSON schema is not valid: .*foo"),
    "elsewhere": (Form(JSON_SCHEMA, '{"$ref": "http://a.example/b"}'), "the JSON schema is not valid: "),
    "not": (Form(JSON_SCHEMA, '{"not": {"type": "string"}}'), "the JSON schema is not valid: .*not"),
}


@pytest.mark.parametrize("name", BAD)
def test_forms_that_are_not_valid(forms: Forms, name: str) -> None:
    form, message = BAD[name]
    with pytest.raises(DiagnosticError, match=message) as raised:
        forms.guide(form)
    assert [found.code for found in raised.value.diagnostics] == ["bad-form"]


def test_forms_need_a_token_that_ends_an_answer(vocabulary: Vocabulary) -> None:
    with pytest.raises(DiagnosticError, match="no token that ends an answer"):
        Forms(replace(vocabulary, end=frozenset()), len(TOKENS))


def test_forms_need_a_package(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(DiagnosticError, match="needs the Python package `llguidance`"):
        Forms(vocabulary, len(TOKENS))
