"""The memory plan: nothing that lives at the same time overlaps, and slots are shared where sizes can be compared."""

from __future__ import annotations

import random

import pytest
from hypothesis import strategies as st
from nacre.dialect.dims import Size, Symbol, evaluate
from nacre.passes import analysis
from nacre.passes.analysis.compare_sizes import Points, never_less
from nacre.passes.analysis.liveness import ALIGNMENT, Step, lower_bound
from nacre.passes.analysis.plan_memory import Plan, plan_memory
from property_tests import given, settings

B, T = Symbol("B", 1, 8), Symbol("T", 1, 512)


def chain(count: int) -> list[Step]:
    """Each tensor is made from the one before it."""
    return [Step((f"v{i - 1}", f"v{i}") if i else ("v0",)) for i in range(count)]


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


def test_comparisons_of_two_sizes() -> None:
    b, t = B.size, T.size
    assert never_less(b * t, t) and never_less(b * t, b) and never_less(b * t * 2, b + t) and never_less(5, 5)
    assert never_less((t + 7) // 8 * b, (t + 7) // 8) and never_less(b * t * t + 1, b * t + 1)
    assert never_less(Symbol("E", 8, 64, 8).size * b, b * 8)
    assert never_less((t * 12 + 63) // 64 * 64, t * 12) and never_less(t * 12 + 63, (t * 12 + 63) // 64 * 64)
    assert not never_less((t * 12 + 62) // 64 * 64, t * 12) and not never_less(t * 12 + 62, (t * 12 + 63) // 64 * 64)
    # A multiple of a quotient: 8 * (t // 4) lies between 2 * t - 6 and 2 * t.
    assert never_less(t // 4 * 8 + 6, t * 2) and never_less(t * 2, t // 4 * 8)
    assert not never_less(t // 4 * 8 + 5, t * 2) and not never_less(t + 1, t // 4 * 8)
    assert not never_less(b, t) and not never_less(t, b) and not never_less(b * t, b * 2) and not never_less(4, 5)
    assert not never_less(Symbol("Z", 0, 9).size * t, t)


def test_coefficients_prove_what_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most orders of rounded sizes need no proof by `never_less`, and none is found that does not hold."""
    b, t = Symbol("B", 1, 5).size, Symbol("T", 2, 30).size
    sizes = [t * 12, t * 12 + 63, b * t * 4, b * t * 4 + 3, t * 24, t * 3, b * 64]
    sizes += [(size + 63) // 64 * 64 for size in sizes] + [t // 4 * 8, t // 4 * 8 + 6, t * 2, (t + 7) // 8 * b]
    sizes += [left + right for left in sizes[:11] for right in sizes[7:18]]
    monkeypatch.setattr("nacre.passes.analysis.compare_sizes.never_less", lambda left, right: False)
    points, dims = Points(sizes), [{"B": x, "T": y} for x in range(1, 6) for y in range(2, 31)]
    values = {size: [evaluate(size, each) for each in dims] for size in sizes}
    found = [(x, y) for x in sizes for y in sizes if points.never_less(points.of(x), points.of(y))]
    assert all(x >= y for pair in found for x, y in zip(values[pair[0]], values[pair[1]], strict=True))
    proven = sum(never_less(x, y) for x in sizes for y in sizes)
    assert len(found) > 0.7 * proven, (len(found), proven)


def test_sizes_are_aligned_only_in_sum() -> None:
    plan = plan_memory([Step(("a",)), Step(("b",)), Step(("a", "b"))], {"a": T.size * 4, "b": 4})
    for t in (1, 15, 16, 17, 512):
        values = {"T": t}
        offsets = {name: evaluate(offset, values) for name, offset in plan.offsets.items()}
        assert offsets == {"a": 0, "b": -(-4 * t // 64) * 64}
        assert evaluate(plan.total, values) == offsets["b"] + 64


def test_nothing_at_all() -> None:
    assert plan_memory([], {}).total == 0
    assert plan_memory([Step(("a",))], {"a": 0}).total == 0


def test_a_long_function_takes_few_proofs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a loop over time leaves it that was unrolled: much lives from beginning to end beside short lives."""
    steps = [Step((f"x{i}",)) for i in range(60)]
    for i in range(60):
        before = (f"y{i - 1}",) if i else ()
        steps += [Step((f"x{i}", *before, f"a{i}")), Step((f"a{i}", f"y{i}"))]
    steps += [Step((f"x{i}",)) for i in range(60)] + [Step(("x0", "b", "c")), Step(("b", "c"))]
    # `b` has the most bytes that an `x` may have, which no coefficient shows.
    size = {"x": B.size * 20, "a": B.size * 112, "y": T.size * 28, "b": B.high * 20, "c": T.size * 8}
    sizes: dict[str, Size] = {name: size[name[0]] for step in steps for name in step.tensors}
    proofs = 0

    def counted(left: Size, right: Size) -> bool:
        nonlocal proofs
        proofs += 1
        return never_less(left, right)

    monkeypatch.setattr("nacre.passes.analysis.compare_sizes.never_less", counted)
    check(steps, sizes, plan_memory(steps, sizes), {"B": 3, "T": 77})
    assert 0 < proofs < len(sizes), proofs


def check(steps: list[Step], sizes: dict[str, Size], plan: Plan, values: dict[str, int]) -> None:
    """Nothing overlaps what lives at the same time, but for tensors that may share their place and lie in the same."""
    total = evaluate(plan.total, values)
    lives: dict[str, tuple[int, int]] = {}
    for number, step in enumerate(steps):
        for name in step.tensors:
            first, _ = lives.get(name, (number, number))
            lives[name] = (first, number)
    shared = {
        frozenset(pair)
        for number, step in enumerate(steps)
        for pair in step.in_place
        if lives[pair[0]][0] == number == lives[pair[1]][1]
    }
    assert lives.keys() == plan.offsets.keys()
    places = [(n, *lives[n], evaluate(plan.offsets[n], values), evaluate(sizes[n], values)) for n in lives]
    for i, (name, first, last, offset, size) in enumerate(places):
        assert offset % ALIGNMENT == 0 and offset + size <= total
        for other, begin, end, start, length in places[:i]:
            if first > end or begin > last or 0 in (size, length):
                continue
            if frozenset((name, other)) in shared and offset == start and size == length:
                continue
            assert offset + size <= start or start + length <= offset, (name, other)
    assert lower_bound(steps, sizes, values) <= total


def random_program(seed: int) -> tuple[list[Step], dict[str, Size]]:
    rng = random.Random(seed)
    formulas: list[Size] = [0, 4, 100, 4096, B.size * 4, T.size * 4, B.size * T.size * 12, T.size // 2 * 8 + 8]
    sizes: dict[str, Size] = {}
    steps: list[Step] = []
    for number in range(rng.randrange(1, 14)):
        reads = rng.sample(list(sizes), min(len(sizes), rng.randrange(4)))
        writes = [f"v{number}_{k}" for k in range(rng.randrange(1, 3))]
        sizes |= {name: rng.choice(formulas if rng.random() < 0.5 else formulas[-3:-1]) for name in writes}
        pairs = tuple((w, r) for w in writes for r in reads if rng.random() < 0.5)
        steps.append(Step((*reads, *writes), pairs))
    return steps, sizes


@settings(max_examples=100)
@given(st.integers(0, 10**9))
def test_random_programs(seed: int) -> None:
    steps, sizes = random_program(seed)
    plan = plan_memory(steps, sizes)
    for values in ({"B": 1, "T": 1}, {"B": 8, "T": 512}, {"B": 3, "T": 37}, {"B": 8, "T": 1}):
        check(steps, sizes, plan, values)


# In place


def test_a_tensor_takes_the_buffer_of_one_that_dies() -> None:
    steps = [Step(("a",)), Step(("a", "b"), (("b", "a"),)), Step(("b", "c"), (("c", "b"),))]
    sizes: dict[str, Size] = dict.fromkeys("abc", T.size * 64)
    plan = plan_memory(steps, sizes)
    assert plan.total == T.size * 64 and set(plan.offsets.values()) == {0}
    assert lower_bound(steps, sizes, {"T": 3}) == 3 * 64


def test_the_buffer_of_a_tensor_that_is_read_later_is_not_taken() -> None:
    steps = [Step(("a",)), Step(("a", "b"), (("b", "a"),)), Step(("a", "b"))]
    sizes: dict[str, Size] = dict.fromkeys("ab", 64)
    assert plan_memory(steps, sizes).total == 128 == lower_bound(steps, sizes, {})


def test_a_buffer_of_another_size_is_not_taken() -> None:
    steps = [Step(("a",)), Step(("a", "b"), (("b", "a"),))]
    sizes: dict[str, Size] = {"a": T.size * 64, "b": B.size * 64}
    assert plan_memory(steps, sizes).total == T.size * 64 + B.size * 64


def test_two_results_take_two_buffers() -> None:
    """As many as can: `c` has to leave `a` to `d`, which may lie nowhere else."""
    pairs = (("c", "a"), ("c", "b"), ("d", "a"))
    steps = [Step(("a", "b")), Step(("a", "b", "c", "d"), pairs)]
    sizes: dict[str, Size] = dict.fromkeys("abcd", 64)
    plan = plan_memory(steps, sizes)
    assert plan.total == 128 == lower_bound(steps, sizes, {})
    assert plan.offsets["d"] == plan.offsets["a"] and plan.offsets["c"] == plan.offsets["b"]


def test_only_one_tensor_takes_a_buffer() -> None:
    steps = [Step(("a",)), Step(("a", "b", "c"), (("b", "a"), ("c", "a")))]
    sizes: dict[str, Size] = dict.fromkeys("abc", 64)
    assert plan_memory(steps, sizes).total == 128 == lower_bound(steps, sizes, {})


# How much is needed


def static_program(seed: int) -> tuple[list[Step], dict[str, Size]]:
    steps, sizes = random_program(seed)
    return steps, {name: evaluate(size, {"B": 3, "T": 37}) for name, size in sizes.items()}


def test_another_order_is_tried_where_the_largest_first_wastes(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, sizes = static_program(204)
    assert plan_memory(steps, sizes).total == lower_bound(steps, sizes, {})
    monkeypatch.setattr(analysis.plan_memory, "_TRIES", 1)
    monkeypatch.setattr(analysis.plan_memory, "_ORDERS", analysis.plan_memory._ORDERS[:1])
    assert plan_memory(steps, sizes).total > lower_bound(steps, sizes, {})


def test_an_order_that_wastes_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, sizes = static_program(236)
    assert plan_memory(steps, sizes).total == lower_bound(steps, sizes, {})
    monkeypatch.setattr(analysis.plan_memory, "_TRIES", 1)
    assert plan_memory(steps, sizes).total > lower_bound(steps, sizes, {})


def test_random_programs_need_little_more_than_they_must() -> None:
    """Sizes that depend on no dim can always be compared: then little is wasted."""
    worst: list[float] = []
    for seed in range(60):
        steps, sizes = static_program(seed)
        worst.append(evaluate(plan_memory(steps, sizes).total, {}) / max(1, lower_bound(steps, sizes, {})))
    assert max(worst) <= 1.02 and sum(worst) / len(worst) <= 1.01, worst
