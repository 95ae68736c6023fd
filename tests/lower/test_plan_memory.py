"""The memory plan: nothing that lives at the same time overlaps, and slots are shared where sizes can be compared."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacre.dialect.dims import Size, Symbol, evaluate
from nacre.passes.plan_memory import ALIGNMENT, Plan, Step, never_less, plan_memory

B, T = Symbol("B", 1, 8), Symbol("T", 1, 512)


def chain(count: int) -> list[Step]:
    """Each tensor is made from the one before it."""
    return [Step((f"v{i - 1}",) if i else (), (f"v{i}",)) for i in range(count)]


def test_a_chain_needs_two_buffers() -> None:
    sizes: dict[str, Size] = {f"v{i}": B.size * 1024 for i in range(10)}
    plan = plan_memory(chain(10), sizes)
    assert plan.total == B.size * 2048
    assert set(plan.offsets.values()) == {0, B.size * 1024}


def test_sizes_that_cannot_be_compared_share_nothing() -> None:
    sizes: dict[str, Size] = {"v0": B.size * 64, "v1": 64, "v2": T.size * 64}
    assert plan_memory(chain(3), sizes).total == B.size * 64 + T.size * 64 + 64


def test_a_smaller_tensor_takes_a_larger_slot() -> None:
    sizes: dict[str, Size] = {"v0": B.size * T.size * 64, "v1": 64, "v2": T.size * 64}
    assert plan_memory(chain(3), sizes).total == B.size * T.size * 64 + 64


def test_what_is_known_of_two_sizes() -> None:
    b, t = B.size, T.size
    assert never_less(b * t, t) and never_less(b * t, b) and never_less(b * t * 2, b + t) and never_less(5, 5)
    assert never_less((t + 7) // 8 * b, (t + 7) // 8) and never_less(b * t * t + 1, b * t + 1)
    assert never_less(Symbol("E", 8, 64, 8).size * b, b * 8)
    assert never_less((t * 12 + 63) // 64 * 64, t * 12) and never_less(t * 12 + 63, (t * 12 + 63) // 64 * 64)
    assert not never_less((t * 12 + 62) // 64 * 64, t * 12) and not never_less(t * 12 + 62, (t * 12 + 63) // 64 * 64)
    assert not never_less(b, t) and not never_less(t, b) and not never_less(b * t, b * 2) and not never_less(4, 5)
    assert not never_less(Symbol("Z", 0, 9).size * t, t)


def test_sizes_are_aligned_only_in_sum() -> None:
    plan = plan_memory([Step((), ("a",)), Step((), ("b",)), Step(("a", "b"), ())], {"a": T.size * 4, "b": 4})
    for t in (1, 15, 16, 17, 512):
        values = {"T": t}
        offsets = {name: evaluate(offset, values) for name, offset in plan.offsets.items()}
        assert offsets == {"a": 0, "b": -(-4 * t // 64) * 64}
        assert evaluate(plan.total, values) == offsets["b"] + 64


def test_scratch_lives_as_long_as_its_kernel() -> None:
    steps = [Step((), ("a",), (256, 128)), Step(("a",), ("b",), (256,)), Step(("b",), ())]
    plan = plan_memory(steps, {"a": 64, "b": 64})
    assert plan.total == 256 + 128 + 64
    assert plan.scratch[0][0] == plan.scratch[1][0] == 0


def test_nothing_at_all() -> None:
    assert plan_memory([], {}).total == 0
    assert plan_memory([Step((), ("a",))], {"a": 0}).total == 0


def test_a_long_function_takes_few_proofs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a loop over time leaves it that was unrolled: much lives from beginning to end beside short lives."""
    steps = [Step((), (f"x{i}",)) for i in range(60)]
    for i in range(60):
        before = (f"y{i - 1}",) if i else ()
        steps += [Step((f"x{i}", *before), (f"a{i}",)), Step((f"a{i}",), (f"y{i}",))]
    steps += [Step((f"x{i}",), ()) for i in range(60)]
    size = {"x": B.size * 20, "a": B.size * 112, "y": T.size * 28}
    sizes: dict[str, Size] = {name: size[name[0]] for step in steps for name in step.writes}
    proofs = 0

    def counted(left: Size, right: Size) -> bool:
        nonlocal proofs
        proofs += 1
        return never_less(left, right)

    monkeypatch.setattr("nacre.passes.plan_memory.never_less", counted)
    check(steps, sizes, plan_memory(steps, sizes), {"B": 3, "T": 77})
    assert 0 < proofs < 20 * len(sizes)


def check(steps: list[Step], sizes: dict[str, Size], plan: Plan, values: dict[str, int]) -> None:
    total = evaluate(plan.total, values)
    lives: dict[str, tuple[int, int]] = {}
    for number, step in enumerate(steps):
        for name in (*step.reads, *step.writes):
            first, _ = lives.get(name, (number, number))
            lives[name] = (first, number)
    places = [(*lives[n], evaluate(plan.offsets[n], values), evaluate(sizes[n], values)) for n in lives]
    for number, step in enumerate(steps):
        for size, offset in zip(step.scratch, plan.scratch[number], strict=True):
            places.append((number, number, evaluate(offset, values), evaluate(size, values)))
    for i, (first, last, offset, size) in enumerate(places):
        assert offset % ALIGNMENT == 0 and offset + size <= total
        for other in places[:i]:
            if first <= other[1] and other[0] <= last:
                assert offset + size <= other[2] or other[2] + other[3] <= offset or 0 in (size, other[3])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9))
def test_random_programs(seed: int) -> None:
    rng = random.Random(seed)
    formulas: list[Size] = [0, 4, 100, 4096, B.size * 4, T.size * 4, B.size * T.size * 12, T.size // 2 * 8 + 8]
    sizes: dict[str, Size] = {}
    steps: list[Step] = []
    for number in range(rng.randrange(1, 12)):
        known = list(sizes)
        reads = tuple(rng.sample(known, min(len(known), rng.randrange(3))))
        writes = tuple(f"v{number}_{k}" for k in range(rng.randrange(1, 3)))
        sizes |= {name: rng.choice(formulas) for name in writes}
        steps.append(Step(reads, writes, tuple(rng.choice(formulas) for _ in range(rng.randrange(3)))))
    plan = plan_memory(steps, sizes)
    for values in ({"B": 1, "T": 1}, {"B": 8, "T": 512}, {"B": 3, "T": 37}, {"B": 8, "T": 1}):
        check(steps, sizes, plan, values)
