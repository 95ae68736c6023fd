"""Prompt lookup: drafts for speculative decoding without a second model.

Texts such as summaries and edited programs repeat parts of themselves. The draft is the continuation of the last
earlier occurrence of the tokens at the end of the text:

    ids      a b c d e ... b c
    draft    d e ...            the continuation of the earlier `b c`

The model verifies a draft in one call, which reads its weights once: it computes the logits after every token of the
draft. Rejected tokens are dropped from the KV cache.
"""

from __future__ import annotations

from collections.abc import Sequence

_LONGEST, _SHORTEST = 3, 2
"""The numbers of tokens at the end of the text that are searched for: the longer one first."""


def draft(ids: Sequence[int], count: int) -> list[int]:
    """Returns `count` tokens that may follow `ids`, or none if the end of `ids` occurs nowhere else. If the
    continuation reaches the end of the text, it goes on with the draft itself."""
    text = list(ids)
    for length in range(min(_LONGEST, len(ids) - 1), _SHORTEST - 1, -1):
        end = text[-length:]
        for start in range(len(ids) - length - 1, -1, -1):
            if text[start] == end[0] and text[start : start + length] == end:
                for index in range(start + length, start + length + count):
                    text.append(text[index])
                return text[len(ids) :]
    return []
