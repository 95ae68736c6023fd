"""The tokenizer of a folder as the document that artifacts carry; see `vocabulary` of the reader of GGUF files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..architectures.special_tokens import end_tokens, fill_tokens
from .config_json import bad_folder, read_json


def tokenizer_document(folder: Path, config: Mapping[str, Any]) -> bytes | None:
    """Returns the document, or None if the folder has no `tokenizer.json`. Raises DiagnosticError."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    tokenizer = read_json(path)
    if not isinstance(tokenizer.get("model"), dict):
        raise bad_folder(f"`{path}` has no `model`")
    settings = _optional(folder / "tokenizer_config.json")
    generation = _optional(folder / "generation_config.json")
    try:
        begin, behind = _around(tokenizer)
        ids = _ids(tokenizer)
    except (AttributeError, IndexError, KeyError, TypeError):
        raise bad_folder(f"`{path}` does not have the format of the package `tokenizers`") from None
    ends = [*_listed(config.get("eos_token_id")), *_listed(generation.get("eos_token_id")), *behind, *begin]
    stated = _text(settings.get("eos_token"))
    ends += [*end_tokens(ids), *([ids[stated]] if stated in ids else [])]
    wrong = next((number for number in ends if type(number) is not int or number < 0), None)
    if wrong is not None:
        raise bad_folder(f"`{path}` has a special token with the id {wrong!r}")
    # Truncation and padding are settings for batches.
    plain = {**tokenizer, "truncation": None, "padding": None}
    document: dict[str, Any] = {"tokenizer": plain, "begin": begin, "behind": behind, "end": sorted(set(ends))}
    fill = fill_tokens(ids)
    if fill:
        document["fill"] = fill
    template, tool_template = _templates(folder, settings)
    if template:
        names = {f"{name}_token": _text(settings.get(f"{name}_token")) for name in ("bos", "eos")}
        document |= {"template": template, "names": {key: text for key, text in names.items() if text}}
        if tool_template:
            document["tool_template"] = tool_template
    return json.dumps(document, separators=(",", ":")).encode()


def _optional(path: Path) -> Mapping[str, Any]:
    return read_json(path) if path.is_file() else {}


def _text(token: Any) -> str:
    """Returns the text of a token, which may be an object with flags."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else ""


def _listed(number: Any) -> list[int]:
    return [n for n in (number if isinstance(number, list) else [number]) if type(n) is int]


def _ids(tokenizer: Mapping[str, Any]) -> dict[str, int]:
    vocabulary = tokenizer["model"].get("vocab")
    known = dict(vocabulary) if isinstance(vocabulary, dict) else {}
    added = tokenizer.get("added_tokens") or []
    return known | {token["content"]: token["id"] for token in added}


def _around(tokenizer: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """Returns the ids that the template for single texts inserts before and after a text."""
    steps = _steps(tokenizer.get("post_processor"))
    before: list[int] = []
    behind: list[int] = []
    for step in steps:
        if step.get("type") == "TemplateProcessing":
            special = step.get("special_tokens") or {}
            side = before
            for part in step.get("single") or []:
                if "Sequence" in part:
                    side = behind
                else:
                    side += special.get(part.get("SpecialToken", {}).get("id"), {}).get("ids", [])
        elif step.get("type") in ("BertProcessing", "RobertaProcessing"):
            before.append(step["cls"][1])
            behind.append(step["sep"][1])
    return before, behind


def _steps(processor: Any) -> Sequence[Mapping[str, Any]]:
    if not isinstance(processor, dict):
        return []
    if processor.get("type") == "Sequence":
        return [step for step in processor.get("processors") or [] if isinstance(step, dict)]
    return [processor]


def _templates(folder: Path, settings: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the template of conversations, and that of conversations with tools, empty if it is the same."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8"), ""
        except (OSError, ValueError) as error:
            raise bad_folder(f"`{path}` cannot be read: {error}") from None
    found = settings.get("chat_template")
    if isinstance(found, list):
        named = {str(t.get("name")): t.get("template") for t in found if isinstance(t, dict)}
        both = (named.get("default"), named.get("tool_use"))
    else:
        both = (found, None)
    first, second = (text if isinstance(text, str) else "" for text in both)
    return first, second
