"""What can be said of what to compile for, and what it means."""

from __future__ import annotations

from itertools import pairwise

import pytest
from nacre.compiler.codegen.target import LEVELS, Target, parse_targets
from nacre.dialect.diagnostics import DiagnosticError


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("native", ["native"]),
        ("x86-64-v3", ["x86-64-v3"]),
        ("x86-64-v3,x86-64-v4", ["x86-64-v4", "x86-64-v3"]),
        ("x86-64-v4, x86-64-v3,x86-64-v4", ["x86-64-v4", "x86-64-v3"]),
        ("portable", ["x86-64-v4-vnni-bf16", "x86-64-v4-vnni", "x86-64-v4", "x86-64-v3"]),
        ("portable,x86-64-v2", ["x86-64-v4-vnni-bf16", "x86-64-v4-vnni", "x86-64-v4", "x86-64-v3", "x86-64-v2"]),
        ("znver4", ["znver4"]),
        ("x86-64-v3+avx512f", ["x86-64-v3+avx512f"]),
        ("aarch64-linux-gnu", ["aarch64-linux-gnu"]),
        ("riscv64-linux-gnu", ["riscv64-linux-gnu"]),
    ],
)
def test_names(text: str, names: list[str]) -> None:
    targets = parse_targets(text)
    assert [target.name for target in targets] == names
    assert len({target.suffix for target in targets}) == len(targets)
    for target in targets:
        assert parse_targets(target.name) == (target,)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "names no CPU"),
        ("?", "`\\?` names no CPU"),
        ("+avx2", "names no CPU"),
        ("native,x86-64-v3", "`native` is no CPU level, and only levels"),
        ("x86-64-v3,znver4", "`znver4` is no CPU level"),
        ("x86-64-v3,", "`` is no CPU level"),
    ],
)
def test_what_is_none(text: str, told: str) -> None:
    with pytest.raises(DiagnosticError, match=told):
        parse_targets(text)


def test_what_levels_need() -> None:
    for name, features in LEVELS.items():
        (target,) = parse_targets(name)
        assert set(target.needs) == set(features), name
    assert parse_targets("x86-64-v3+avx512f")[0].needs == tuple(sorted((*LEVELS["x86-64-v3"], "avx512f")))
    assert Target("native").needs == ()


def test_levels_grow() -> None:
    for less, more in pairwise(LEVELS):
        assert set(LEVELS[less]) < set(LEVELS[more])
