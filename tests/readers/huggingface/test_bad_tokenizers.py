"""Files of tokenizers in a folder that do not have their format give one diagnostic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from nacre.compiler.readers.huggingface.tokenizer import tokenizer_document
from nacre.dialect.diagnostics import DiagnosticError

GOOD: dict[str, Any] = {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}
BEGINS = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]}
FORMAT = "does not have the format of the package `tokenizers`"
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no model": ({"model": 3}, "has no `model`"),
    "added number": ({"added_tokens": [3]}, FORMAT),
    "added without id": ({"added_tokens": [{"content": "b"}]}, FORMAT),
    "added without a list": ({"added_tokens": 3}, FORMAT),
    "part": ({"post_processor": {**BEGINS, "single": [3]}}, FORMAT),
    "special": ({"post_processor": {**BEGINS, "special_tokens": {"<s>": 3}}}, FORMAT),
    "ids": ({"post_processor": {**BEGINS, "special_tokens": {"<s>": {"ids": 3}}}}, FORMAT),
    "no end": ({"post_processor": {"type": "BertProcessing", "cls": ["a", 0]}}, FORMAT),
    "short end": ({"post_processor": {"type": "BertProcessing", "cls": ["a", 0], "sep": ["a"]}}, FORMAT),
    "text as id": (
        {"post_processor": {**BEGINS, "special_tokens": {"<s>": {"ids": ["a"]}}}},
        "a special token with the id 'a'",
    ),
    "negative id": (
        {"post_processor": {**BEGINS, "special_tokens": {"<s>": {"ids": [-1]}}}},
        "a special token with the id -1",
    ),
    "list as id": ({"added_tokens": [{"content": "</s>", "id": [2]}]}, r"a special token with the id \[2\]"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_without_the_format(name: str, tmp_path: Path) -> None:
    changes, message = BAD[name]
    (tmp_path / "tokenizer.json").write_text(json.dumps(GOOD | changes))
    with pytest.raises(DiagnosticError, match=message) as raised:
        tokenizer_document(tmp_path, {})
    assert [found.code for found in raised.value.diagnostics] == ["bad-folder"]


def test_special_tokens_around_a_text(tmp_path: Path) -> None:
    processor = {**BEGINS, "special_tokens": {"<s>": {"ids": [7]}}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(GOOD | {"post_processor": processor}))
    document = json.loads(tokenizer_document(tmp_path, {"eos_token_id": [2, True, "a"]}) or b"")
    assert (document["begin"], document["behind"], document["end"]) == ([7], [], [2, 7])


def test_tokens_for_filling_in_the_middle_and_a_template_for_tools(tmp_path: Path) -> None:
    """A vocabulary needs all three tokens; further ones end an answer."""
    names = ("<|fim_prefix|>", "<|fim_suffix|>", "<|file_sep|>", "<|fim_middle|>")
    added = [{"content": name, "id": 5 + number} for number, name in enumerate(names)]
    templates = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": templates}))
    for count, fill, end in ((3, None, []), (4, [5, 6, 8], [7])):
        (tmp_path / "tokenizer.json").write_text(json.dumps(GOOD | {"added_tokens": added[:count]}))
        document = json.loads(tokenizer_document(tmp_path, {}) or b"")
        assert (document.get("fill"), document["end"]) == (fill, end)
    assert (document["template"], document["tool_template"]) == ("a", "b")
