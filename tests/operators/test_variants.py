"""Every operator as code of every CPU variant: equal to its reference.

Variants that this CPU lacks are emulated; `differential/emulated.py` states what that covers. By default, one case of
each operator that has sums or rows runs in the widest variant. With `--variants`, all cases run in all variants. An
emulated variant that only adds instructions to another one runs the cases whose kernels differ from those of the other:
equal kernels are the same code on the CPU that emulates them.
"""

from __future__ import annotations

import re

import pytest
from differential.emulated import HOST, generate_for_here, tile_for
from nacre.compiler.codegen.objects import CodeOptions
from nacre.compiler.targets.target import Target, parse_targets
from nacre.compiler.targets.variants import VARIANTS as RECORDS
from nacre.compiler.validate.native import Library
from test_compiled import GROUP, TESTED, Uses, check, lower_uses, symbolic_uses, uses

VARIANTS = [parse_targets(name)[0] for name in RECORDS]
WIDEST = VARIANTS[-1]
each_variant = pytest.mark.parametrize("target", VARIANTS, ids=lambda target: target.name)
pytestmark = pytest.mark.skipif(not HOST.runs_here, reason=f"needs {HOST.name}")


ADDED = re.compile("i8|bf16")
"""The types in kernels for which a variant behind x86-64-v4 has further instructions."""
SUMS = tuple(o for o in TESTED if any(map(o.has, ("contraction", "reduction", "rowwise"))))


def build(uses: Uses, target: Target) -> Library:
    options = CodeOptions((target,), 2, quick=True, visible=True)
    return Library(*generate_for_here(lower_uses(uses, 2, target), options), None)


def beyond(found: Uses, target: Target) -> Uses:
    """Returns the functions with a kernel that is another one for the variant before, where both are emulated. Such a
    variant adds instructions for `ADDED` types alone."""
    number = VARIANTS.index(target)
    narrower = VARIANTS[number - 1]
    if target.runs_here or narrower.runs_here or number == 0:
        return found
    assert target.unit is not None and narrower.unit is not None and target.unit.panels == narrower.unit.panels
    lowered = lower_uses(found, 2, target)
    kernels = [kernel for kernel in lowered.kernels if ADDED.search(kernel.text(""))]
    own, other = (tile_for(kernels, CodeOptions((each,), 2, quick=True, visible=True)) for each in (target, narrower))
    changed = {symbol for symbol, kernel in own.items() if kernel != other[symbol]}
    names = {f.name for f in lowered.functions if any(call.symbol in changed for call in f.calls)}
    return {name: use for name, use in found.items() if use[0].name in names}


@each_variant
def test_one_case_of_each_operator(target: Target, request: pytest.FixtureRequest) -> None:
    if target != WIDEST and not request.config.getoption("--variants"):
        pytest.skip("is run with --variants")
    operators = TESTED if request.config.getoption("--variants") else SUMS
    found = symbolic_uses(operators, 1)
    missing = {operator.name for operator in operators} - {item.operator.name for _, item in found.values()}
    for name, use in uses(operators, everything=False).items():
        if use[1].operator.name in missing:
            missing.remove(use[1].operator.name)
            found[name] = use
    assert not missing
    check(found, build(found, target))


@pytest.mark.parametrize("first", range(0, len(TESTED), GROUP))
@each_variant
def test_every_case(target: Target, first: int, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--variants"):
        pytest.skip("takes minutes: is run with --variants")
    group = TESTED[first : first + GROUP]
    found = beyond(uses(group, everything=True) | symbolic_uses(group), target)
    if found:
        check(found, build(found, target))
