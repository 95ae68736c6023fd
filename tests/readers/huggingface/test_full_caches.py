"""A token for which the cache of a session has no room fails the call, and changes no state: the interpreter and
compiled code alike, for all architectures that have a cache.

Only `decode` of one layer is compiled, at -O0, where the architectures share most kernels.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import nacre
import numpy as np
import pytest
from interpreted import InterpretedSession
from nacre.compiler.checking import read_model
from nacre.dialect.interpreter import IndexRangeError
from nacre.runtime.loader import OutOfRangeError
from tiny_folders import DECODERS, IDS, write_first_layer

CAPACITY = 2
SCALINGS = ("llama3", "llama-yarn", "llama-linear", "phi3-short", "phi3-long")
"""Models that differ from others in the angles of positions alone."""


@pytest.mark.parametrize("name", [name for name in DECODERS if name not in (*SCALINGS, "mamba")])
def test_a_token_too_many(name: str, tmp_path: Path, unchecked: None) -> None:
    write_first_layer(tmp_path, name)
    source = read_model(tmp_path)
    source = replace(source, module=replace(source.module, functions=(source.module.function("decode"),)))
    interpreted = InterpretedSession(source, S=CAPACITY)
    session = nacre.compile(source, tmp_path / "model.so", opt_level=0).session(S=CAPACITY)
    for at in range(CAPACITY):
        token = IDS[at : at + 1]
        expected = interpreted.call("decode", token)
        atol = 1e-5 * float(np.abs(expected).max())
        np.testing.assert_allclose(session.entries["decode"](token), expected, rtol=0, atol=atol)
    before = {state: array.tobytes() for state, array in session.states.items()}
    with pytest.raises(IndexRangeError):
        interpreted.call("decode", IDS[:1])
    with pytest.raises(OutOfRangeError, match="out of range for an axis of size 2"):
        session.entries["decode"](IDS[:1])
    assert {state: array.tobytes() for state, array in session.states.items()} == before
    assert len(before) == 3
