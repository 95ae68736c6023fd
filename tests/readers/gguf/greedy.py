"""Greedy decoding with the entries of a compiled language model, for tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from nacre.runtime.loader import Session


def continue_greedily(session: Session, prompt: Sequence[int], count: int) -> list[int]:
    """Returns the ids of the prompt and those that follow it, `count` ids in all."""
    ids = list(prompt)
    logits = session.entries["prefill"](np.array(ids, np.int32))
    while len(ids) < count:
        ids.append(int(np.reshape(logits, (-1, logits.shape[-1]))[-1].argmax()))
        if len(ids) < count:
            logits = session.entries["decode"](np.array(ids[-1:], np.int32))
    return ids
