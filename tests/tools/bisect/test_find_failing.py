"""The order in which `nacre bisect` tries cases, and what attempts share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from nacre.compiler.artifact import link
from nacre.compiler.options import Options
from nacre.compiler.readers.language import load_module
from nacre.compiler.tools.bisect import sharing
from nacre.compiler.tools.bisect.bisect import alike_in_passes, find_failing
from nacre.compiler.tools.bisect.case import Case, make_case
from nacre.compiler.tools.bisect.failures import ALONE, CODE, NUMBERS, Examiner, Failure

MODULE = load_module("dim B in 1..4\nmodel f(x: f32[B]) -> f32[B] {\n  return relu(x)\n}\n", text=True).module
SMALL, LARGE = (
    make_case(MODULE, "f", {"x": np.ones(size, np.float32)}, lambda _: np.zeros(0, np.float32)) for size in (1, 3)
)
WRONG, HIDDEN = (Failure(NUMBERS, origin, "other numbers") for origin in (CODE, ALONE))


@pytest.fixture
def examiner(monkeypatch: pytest.MonkeyPatch) -> Examiner:
    """An examiner that finds nothing wrong."""
    for way in ("passes", "alone", "code", "runtime"):
        monkeypatch.setattr(Examiner, way, lambda self, case: None)
    return Examiner(Options())


def fails(monkeypatch: pytest.MonkeyPatch, way: str, failing: Case, failure: Failure) -> None:
    monkeypatch.setattr(Examiner, way, lambda self, case: failure if case is failing else None)


def refuse() -> Sequence[Case]:
    raise AssertionError("further cases are asked for")


def test_further_cases_are_tried_last(examiner: Examiner, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(further: Sequence[Case]) -> tuple[Case, Failure] | None:
        return find_failing([SMALL], examiner, lambda _: None, further=lambda: further)

    assert found([LARGE]) is None
    fails(monkeypatch, "alone", SMALL, HIDDEN)
    assert found([LARGE]) == (SMALL, HIDDEN)
    fails(monkeypatch, "code", LARGE, WRONG)
    assert found([LARGE]) == (LARGE, WRONG)
    fails(monkeypatch, "code", SMALL, WRONG)
    assert find_failing([SMALL], examiner, lambda _: None, further=refuse) == (SMALL, WRONG)


def test_the_runtime_is_compiled_before_a_fork(
    examiner: Examiner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also without a cache on disk."""
    monkeypatch.setenv("NACRE_NO_CACHE", "1")
    monkeypatch.setattr(link, "_made", {})
    examiner.prepare_code()
    assert len(link._made) == 1
    monkeypatch.setattr(link, "_compiled_objects", None)
    examiner.prepare_code()
    monkeypatch.setattr(link, "_made", {})
    monkeypatch.setenv("CC", str(tmp_path / "absent"))
    examiner.prepare_code()  # the attempts report that there is no linker
    assert not link._made


def test_a_search_sends_light_cases_to_one_child(monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[int] = []
    monkeypatch.setattr(os, "fork", lambda fork=os.fork: children.append(0) or fork())
    with sharing.sharing(Examiner(Options()), [SMALL]) as shared:
        find = alike_in_passes(shared, WRONG)
        assert find([SMALL]) is None and find([LARGE, SMALL]) is None and len(children) == 1
        monkeypatch.setattr(sharing, "_MOST_SENT", 0)
        assert find([SMALL]) is None and len(children) == 1
        assert find([LARGE, SMALL]) is None and len(children) == 2
