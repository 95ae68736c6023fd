"""Tokenizers, templates and prompts that are not valid have one diagnostic each, and the session stays usable."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nacre
import numpy as np
import pytest
from nacre.compiler.cli.main import run
from nacre.compiler.tools.generate.guide import Forms
from nacre.compiler.tools.generate.tokens import Generator, Sampling
from nacre.compiler.tools.generate.vocabulary import ENTRY, Vocabulary, read_vocabulary
from nacre.dialect.diagnostics import DiagnosticError
from nacre.runtime.loader import Model
from talker import CONTEXT, TOKENS

GREEDY = Sampling(temperature=0)


@pytest.fixture(scope="module")
def model(talker: Path) -> Model:
    return nacre.load(talker)


def _changed(model: Model, change: Callable[[dict[str, Any]], object]) -> Vocabulary:
    """Returns the vocabulary of a model whose tokenizer is another one."""
    document = json.loads(bytes(model.entries[ENTRY]()))
    change(document)
    content = np.frombuffer(json.dumps(document).encode(), np.uint8)
    return read_vocabulary(SimpleNamespace(name="changed", entries={ENTRY: lambda: content}))  # type: ignore[arg-type]  # a model


@pytest.mark.parametrize(
    "damage",
    [
        lambda document: document["tokenizer"]["model"].update(type="Other"),
        lambda document: document["tokenizer"]["model"]["merges"].append(["q", "zz"]),
        lambda document: document["tokenizer"]["model"]["vocab"].update({"\udcff": 0}),
        lambda document: document["tokenizer"].update(decoder={"type": "Nothing"}),
    ],
)
def test_a_tokenizer_that_is_not_valid(model: Model, damage: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(DiagnosticError, match="the tokenizer of model `changed` is not valid: ") as raised:
        _changed(model, damage)
    assert [found.code for found in raised.value.diagnostics] == ["bad-tokenizer"]


@pytest.mark.parametrize(
    "template",
    [
        "{{ 1 / 0 }}",
        "{{ none + 1 }}",
        "{{ messages[0].x.y }}",
        "{{ 'a' * 10**30 }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for i in range(10**9) %}a{% endfor %}",
        "{% if",
    ],
)
def test_a_template_that_fails(model: Model, template: str) -> None:
    vocabulary = _changed(model, lambda document: document.update(template=template))
    with pytest.raises(DiagnosticError, match="the template of the model fails: ") as raised:
        vocabulary.converse([{"role": "user", "content": "a"}])
    assert [found.code for found in raised.value.diagnostics] == ["bad-template"]


def test_a_prompt_that_is_not_unicode(talker: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["generate", str(talker), "ab\udcff", "--tokens", "1"]) == 1
    assert "error[bad-text]: character 2 of the text is U+DCFF" in capsys.readouterr().err


def test_a_question_that_is_not_utf8(
    talker: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\n"), "utf-8"))
    assert run(["chat", str(talker)]) == 1
    assert "error[bad-text]: the input is not text" in capsys.readouterr().err


@pytest.mark.parametrize("token", [-1, len(TOKENS), 1 << 40])
def test_tokens_of_another_model(model: Model, token: int) -> None:
    generator = Generator(model, CONTEXT)
    with pytest.raises(DiagnosticError, match=f"token {token}, which is not among the {len(TOKENS)} of the model"):
        list(generator.generate([1, token], 3, GREEDY, frozenset()))
    expected = list(Generator(model, CONTEXT).generate([1, 262], 3, GREEDY, frozenset()))
    assert list(generator.generate([1, 262], 3, GREEDY, frozenset())) == expected


def test_forms_of_a_tokenizer_with_more_tokens_than_the_model(model: Model) -> None:
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    with pytest.raises(DiagnosticError, match="does not permit forms"):
        Forms(read_vocabulary(model), 100)
