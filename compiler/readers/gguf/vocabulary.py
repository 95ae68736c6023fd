"""The tokenizer of a GGUF file in the format of the package `tokenizers`, with the template of conversations.

    {"tokenizer": {...}, "template": "{% for message in messages %}...", "begin": [1], "end": [2], "fill": [5, 6, 7]}

`template` is absent if the file has none, `tool_template` if the same one serves conversations with tools; `begin` are
ids before every text, `end` ids that end an answer, `fill` the tokens for filling in the middle, if there are any. This
module needs no package: it writes the document, and the tools that generate text read it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...weights.gguf_header import GgufHeader
from ..architectures.special_tokens import end_tokens, fill_tokens
from .metadata import bad_gguf

_PREFIX = "tokenizer.ggml."
_TEMPLATES = {"template": "tokenizer.chat_template", "tool_template": "tokenizer.chat_template.tool_use"}
_CONTROL, _USER = 3, 4
"""Types of tokens that are matched in a text before it is split."""
_SPACE = "\u2581"
_GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_BYTES = {**_GPT2, "use_regex": False}
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)

_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}]*[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]+{_ENDINGS}"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}]+[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]*{_ENDINGS}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _pattern(regex: str) -> Sequence[Mapping[str, Any]]:
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return [split, _BYTES]


_SPLITS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "gpt-2": [_GPT2],
    "default": [_GPT2],
    "phi-2": [_GPT2],
    "mpt": [_GPT2],
    "olmo": [_GPT2],
    "smollm": [{"type": "Digits", "individual_digits": True}, _GPT2],
    "llama-bpe": _pattern(_LLAMA3),
    "gpt-4o": _pattern(_O200K),
    "qwen2": _pattern(_LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")),
}
"""The patterns that split a text before pairs are merged, by their names in the file."""


def tokenizer_document(header: GgufHeader) -> bytes | None:
    """Returns the document, or None if the file has no tokenizer. Raises DiagnosticError for one of an unknown kind."""
    found = header.metadata
    kind = found.get(f"{_PREFIX}model")
    if kind is None or (isinstance(kind, str) and kind == "none"):
        return None
    if not isinstance(kind, str) or kind not in ("gpt2", "llama"):
        raise bad_gguf(f"`{header.path}` has a tokenizer of the unknown kind `{kind}`")
    tokens = found.get(f"{_PREFIX}tokens")
    types = found.get(f"{_PREFIX}token_type")
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise bad_gguf(f"`{header.path}` has a tokenizer without tokens")
    wrong = next((i for i, token in enumerate(tokens) if not _is_unicode(token)), None)
    if wrong is not None:
        raise bad_gguf(f"token {wrong} of the tokenizer of `{header.path}` is not UTF-8")
    if types is not None and _count(types) != len(tokens):
        raise bad_gguf(f"`{header.path}` has {len(tokens)} tokens and {_count(types)} types of them")
    types = np.ones(len(tokens), np.int32) if types is None else types
    special = [i for i, type in enumerate(types) if type in (_CONTROL, _USER)]
    made = _byte_level(header, tokens) if kind == "gpt2" else _sentence_piece(header, tokens)
    made |= {
        "version": "1.0",
        "added_tokens": [_added(i, tokens[i], types[i] == _CONTROL) for i in special],
        "post_processor": None,
    }
    begin = _begin(header, kind, len(tokens))
    document: dict[str, Any] = {"tokenizer": made, "begin": begin, "end": _ends(header, tokens, begin)}
    fill = _fill(header, tokens)
    if fill:
        document["fill"] = fill
    for key, name in _TEMPLATES.items():
        template = found.get(name)
        if isinstance(template, str):
            if not _is_unicode(template):
                raise bad_gguf(f"the template of conversations of `{header.path}` is not UTF-8")
            document[key] = template
    if "template" in document:
        document["names"] = {
            f"{name}_token": tokens[number]
            for name in ("bos", "eos")
            if (number := _id(header, name)) is not None and number < len(tokens)
        }
    return json.dumps(document, separators=(",", ":")).encode()


def _count(numbers: Any) -> int:
    return len(numbers) if isinstance(numbers, np.ndarray) else 0


def _added(number: int, content: str, special: bool) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": bool(special)}
    return {"id": number, "content": content, **flags}


def _is_unicode(text: str) -> bool:
    """Returns whether a text of the file was UTF-8; other bytes are surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _id(header: GgufHeader, name: str) -> int | None:
    """Returns the id of a token with a role, which may exceed the vocabulary; None if there is none."""
    number = header.metadata.get(f"{_PREFIX}{name}_token_id")
    return number if type(number) is int and number >= 0 else None


def _flag(header: GgufHeader, name: str, default: bool) -> bool:
    value = header.metadata.get(f"{_PREFIX}{name}", default)
    if type(value) not in (bool, int):
        raise bad_gguf(f"`{_PREFIX}{name}` of `{header.path}` is {value!r}, not true or false")
    return bool(value)


def _begin(header: GgufHeader, kind: str, count: int) -> list[int]:
    begin = _id(header, "bos")
    if not _flag(header, "add_bos_token", kind == "llama") or begin is None:
        return []
    if begin >= count:
        raise bad_gguf(f"texts of `{header.path}` begin with token {begin}, and its tokenizer has {count} tokens")
    return [begin]


def _ends(header: GgufHeader, tokens: list[str], begin: list[int]) -> list[int]:
    named = [_id(header, name) for name in ("eos", "eot", "fim_pad", "fim_rep", "fim_sep")]
    known = {token: number for number, token in enumerate(tokens)}
    # A model that continues with the token that begins texts starts another text, so this token ends an answer.
    found = [number for number in (*named, *begin, *end_tokens(known)) if number is not None]
    return sorted({number for number in found if number < len(tokens)})


def _fill(header: GgufHeader, tokens: list[str]) -> list[int]:
    """Returns the tokens for filling in the middle, none if the file does not have all of them."""
    for names in (("fim_pre", "fim_suf", "fim_mid"), ("prefix", "suffix", "middle")):
        named = [number for name in names if (number := _id(header, name)) is not None]
        if len(named) == len(names) and max(named) < len(tokens):
            return named
    return fill_tokens({token: number for number, token in enumerate(tokens)})


def _merges(header: GgufHeader, tokens: list[str]) -> list[list[str]]:
    """Returns the pairs of tokens that are merged, the first ones first."""
    merges = header.metadata.get(f"{_PREFIX}merges")
    if not isinstance(merges, list) or not all(isinstance(m, str) and " " in m for m in merges):
        raise bad_gguf(f"`{header.path}` has a tokenizer without merges")
    known, pairs = set(tokens), [merge.split(" ", 1) for merge in merges]
    for first, second in pairs:
        if not known.issuperset((first, second, first + second)):
            raise bad_gguf(f"`{header.path}` merges `{first}` and `{second}`, which are not tokens, or make none")
    return pairs


def _model(tokens: list[str], merges: Sequence[Any], **further: Any) -> dict[str, Any]:
    vocabulary = {token: number for number, token in enumerate(tokens)}
    plain = {"dropout": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False}
    return {"type": "BPE", **plain, "vocab": vocabulary, "merges": merges, **further}


def _byte_level(header: GgufHeader, tokens: list[str]) -> dict[str, Any]:
    name = header.metadata.get(f"{_PREFIX}pre", "default")
    splits = _SPLITS.get(str(name))
    if splits is None:
        known = ", ".join(_SPLITS)
        raise bad_gguf(f"the tokenizer of `{header.path}` splits text like `{name}`", f"known are {known}")
    ignored = {"ignore_merges": name == "llama-bpe", "unk_token": None, "byte_fallback": False}
    return {
        "normalizer": {"type": "NFC"} if name == "qwen2" else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": list(splits)},
        "decoder": _GPT2,
        "model": _model(tokens, _merges(header, tokens), **ignored),
    }


def _sentence_piece(header: GgufHeader, tokens: list[str]) -> dict[str, Any]:
    """Returns a SentencePiece model as a BPE model: every split of a piece into two other pieces is a merge, ordered by
    the score of the piece."""
    scores = header.metadata.get(f"{_PREFIX}scores")
    if not isinstance(scores, np.ndarray) or len(scores) != len(tokens):
        raise bad_gguf(f"`{header.path}` has a tokenizer without a score for each token")
    known = set(tokens)
    order = sorted(range(len(tokens)), key=lambda i: (-float(scores[i]), i))
    merges = [
        [tokens[i][:at], tokens[i][at:]]
        for i in order
        for at in range(1, len(tokens[i]))
        if tokens[i][:at] in known and tokens[i][at:] in known
    ]
    prefixed = _flag(header, "add_space_prefix", True)
    replaced = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    before = [{"type": "Prepend", "prepend": _SPACE}] if prefixed else []
    after = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefixed else []
    restored = {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}
    unknown = _id(header, "unknown")
    named = tokens[unknown] if unknown is not None and unknown < len(tokens) else None
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*before, replaced]},
        "pre_tokenizer": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [restored, {"type": "ByteFallback"}, {"type": "Fuse"}, *after],
        },
        "model": _model(tokens, merges, unk_token=named, byte_fallback=True, ignore_merges=False),
    }
