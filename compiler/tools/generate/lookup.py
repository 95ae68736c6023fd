"""Drafts of the tokens that follow: a text often repeats itself, as summaries and edited programs do.

    ids      a b c d e ... b c
    draft    d e ...            after the last earlier place of `b c`

The model computes the logits after all tokens of a draft in one call, which reads its weights once. Tokens of the
draft that it would not have chosen are dropped from the cache.
"""

from __future__ import annotations

from collections.abc import Sequence

_LONGEST, _SHORTEST = 3, 2
"""Tokens at the end of a text that are looked up; fewer where these do not occur earlier."""


def draft(ids: Sequence[int], count: int) -> list[int]:
    """Returns `count` tokens that may follow, or none. A draft that reaches the end of the text repeats itself."""
    text = list(ids)
    for length in range(min(_LONGEST, len(ids) - 1), _SHORTEST - 1, -1):
        end = text[-length:]
        for start in range(len(ids) - length - 1, -1, -1):
            if text[start] == end[0] and text[start : start + length] == end:
                for place in range(start + length, start + length + count):
                    text.append(text[place])
                return text[len(ids) :]
    return []
