"""Tokens with a role that vocabularies do not state, known by their texts."""

from __future__ import annotations

from collections.abc import Mapping

_ENDS = ("<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "</s>")
_FILLS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    ("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),
    ("<\uff5cfim\u2581begin\uff5c>", "<\uff5cfim\u2581hole\uff5c>", "<\uff5cfim\u2581end\uff5c>"),
    ("\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>"),
)
_ENDS_OF_FILLS = ("<|fim_pad|>", "<|file_sep|>", "<|repo_name|>", "<fim_pad>", "<file_sep>", "\u2581<EOT>")


def end_tokens(known: Mapping[str, int]) -> list[int]:
    """Returns the tokens of a vocabulary that end an answer, besides the one that it states."""
    fills = _ENDS_OF_FILLS if fill_tokens(known) else ()
    return [known[token] for token in (*_ENDS, *fills) if token in known]


def fill_tokens(known: Mapping[str, int]) -> list[int]:
    """Returns the tokens for filling in the middle: before a prefix, before a suffix, and before the text between them.
    Returns none if the vocabulary lacks one."""
    found = next((tokens for tokens in _FILLS if all(token in known for token in tokens)), ())
    return [known[token] for token in found]
