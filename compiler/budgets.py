"""Budgets: the limits in a model file, compared with the costs of the model.

Costs that follow from the graph and the memory plan are checked before linking; `nacre test` measures time and file
size. An exceeded budget is an error of the input; the diagnostic reports the difference.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping

from ..dialect.diagnostics import Diagnostic
from ..dialect.dims import DimError, Size, evaluate, product
from ..dialect.graph import Module
from ..dialect.lazy_dataclass import dataclass
from ..dialect.states import session_bytes
from ..dialect.wrapping import counted
from ..passes.fusion.recompute import Recompute
from .codegen.objects import Program
from .host.plan import LoweredEntry
from .lower.cost import count_operations
from .lower.storage import Weight
from .model.checks import ModelBudget
from .model.parameters import used_parameters
from .model.units import UNITS

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of a model, by the names that budgets use.

    Parameters are counted as the `source` declares them, operations in the graph after the passes, `optimized`; the
    workspace and the weights are those of the artifact, and the states those of a session, for all models together.
    """

    source: Module
    optimized: Module
    program: Program

    def formula(self, metric: str, model: str) -> Size | None:
        """Returns the cost as a formula of the dims, or None for a cost that must be measured."""
        if metric == "memory":
            return self._entry(model).workspace
        if metric == "states":
            return session_bytes(self.source.states)
        if metric == "operations":
            return count_operations(self.optimized.function(model).body)
        if metric == "weights":
            return self._weight_bytes(self._entry(model))
        if metric == "parameters":
            used = used_parameters(self.source)[model]
            return sum(_static(product([*p.counts, *p.type.shape])) for p in used)
        return None

    def _entry(self, model: str) -> LoweredEntry:
        return next(entry for entry in self.program.entries if entry.name == model)

    def _weight_bytes(self, entry: LoweredEntry) -> int:
        """Returns the total bytes of the tensors that the entry reads, each counted once."""
        read = {storage.offset for call in entry.calls for storage in call.storages if isinstance(storage, Weight)}
        return sum(_static(w.type.bytes) for w in self.program.lowered.weights if w.offset in read)


def _static(size: Size) -> int:
    assert isinstance(size, int), size
    return size


def recompute_cost(before: Module, after: Module, step: Recompute) -> str:
    """Returns a sentence on the operations and the bytes that the recomputation of values takes."""
    dims = {name: int(size) for name, _, size in (pair.partition(":") for pair in step.at)}
    old, new = (module.function(step.entry).body for module in (before, after))
    known = {value.name for node in old for value in node.outputs}
    added = [node for node in new if any(value.name not in known for value in node.outputs)]
    operations, more = evaluate(count_operations(old), dims), evaluate(count_operations(added), dims)
    written = sum(evaluate(value.type.bytes, dims) for node in added for value in node.outputs)
    shown = ", ".join(f"{name}={size}" for name, size in dims.items())
    at = f" at {shown}" if shown else ""
    share = f" ({more / operations:.1%})" if operations else ""
    return (
        f"`{step.entry}`{at} computes {counted(len(added), 'node')} again to need less memory:"
        f" {more / 1e6:,.1f} MFLOP more{share}, which write up to {written / 1024:,.0f} KiB"
    )


def holds(budget: ModelBudget, value: float) -> bool:
    return _COMPARE[budget.comparison](value, budget.limit)


def check_budgets(budgets: Iterable[ModelBudget], costs: Costs) -> list[Diagnostic]:
    """Returns a diagnostic for each exceeded budget among those that need no measurement."""
    errors: list[Diagnostic] = []
    for budget in budgets:
        formula = costs.formula(budget.metric, budget.model)
        if formula is None:
            continue
        try:
            value = evaluate(formula, budget.dims)
        except DimError as error:
            errors.append(Diagnostic("budget", f"`{budget.metric}` cannot be computed: {error}", budget.span))
            continue
        if not holds(budget, value):
            errors.append(over_budget(budget, value))
    return errors


def over_budget(budget: ModelBudget, value: float) -> Diagnostic:
    dims = ", ".join(f"{name}={size}" for name, size in budget.dims.items())
    what = f"{budget.metric}({dims})" if dims else budget.metric
    limit = f"{budget.comparison} {show(budget.limit, budget)}"
    message = f"`{what}` of `{budget.model}` is {show(value, budget)}, the budget is {limit}"
    excess = abs(value - budget.limit)
    share = f" ({excess / budget.limit:.1%})" if budget.limit else ""
    return Diagnostic("budget", message, budget.span, label=f"missed by {show(excess, budget)}{share}")


def show(value: float, budget: ModelBudget) -> str:
    """Formats the value in the unit of the budget; integers are exact."""
    amount = value / (UNITS[budget.unit][1] if budget.unit else 1)
    text = f"{amount:,.0f}" if amount == round(amount) and abs(amount) < 1e15 else f"{amount:,.4g}"
    return f"{text} {budget.unit}".rstrip()
