"""Budgets: what a model file says that the model may cost, held against what it does cost.

What follows from the graph and the memory plan is checked before machine code is made; time and file size are measured
by `nacre test`. A budget that does not hold is a fault of the input, told with by how much.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ..dialect.diagnostics import Diagnostic
from ..dialect.dims import DimError, Size, evaluate, product
from ..dialect.graph import Module
from .frontend import ModelBudget
from .frontend.syntax import UNITS
from .lower.cost import count_operations
from .lower.module import Lowered
from .parameters import used_parameters

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Costs:
    """What a model costs, by the names that budgets use; a metric that needs a measurement has no entry here."""

    module: Module
    lowered: Lowered

    def formula(self, metric: str, model: str) -> Size | None:
        """The cost as a formula of the dims, or None for what has to be measured."""
        if metric == "memory":
            return next(e.workspace for e in self.lowered.entries if e.name == model)
        if metric == "operations":
            return count_operations(self.module.function(model).body)
        parameters = used_parameters(self.module)[model]
        if metric == "weights":
            return sum(_static(p.type.bytes) for p in parameters)
        if metric == "parameters":
            return sum(_static(product(p.type.shape)) for p in parameters)
        return None


def _static(size: Size) -> int:
    assert isinstance(size, int), size
    return size


def holds(budget: ModelBudget, value: float) -> bool:
    return _COMPARE[budget.comparison](value, budget.limit)


def check_budgets(budgets: Iterable[ModelBudget], costs: Costs) -> list[Diagnostic]:
    """The budgets that do not hold, of those that need no measurement."""
    faults: list[Diagnostic] = []
    for budget in budgets:
        formula = costs.formula(budget.metric, budget.model)
        if formula is None:
            continue
        try:
            value = evaluate(formula, budget.dims)
        except DimError as error:
            faults.append(Diagnostic("budget", f"`{budget.metric}` cannot be told: {error}", budget.span))
            continue
        if not holds(budget, value):
            faults.append(over_budget(budget, value))
    return faults


def over_budget(budget: ModelBudget, value: float) -> Diagnostic:
    dims = ", ".join(f"{name}={size}" for name, size in budget.dims.items())
    what = f"{budget.metric}({dims})" if dims else budget.metric
    excess = value / budget.limit - 1 if budget.limit else float("inf")
    limit = f"{budget.comparison} {show(budget.limit, budget)}"
    message = f"`{what}` of `{budget.model}` is {show(value, budget)}, the budget is {limit}"
    return Diagnostic("budget", message, budget.span, label=f"missed by {abs(excess):.1%}")


def show(value: float, budget: ModelBudget) -> str:
    """The value in the budget's own unit."""
    scale = UNITS[budget.unit][1] if budget.unit else 1
    return f"{value / scale:,.4g} {budget.unit}".rstrip()
