"""Costs of the nodes of a function at sizes of its dims, and estimates of its time on a machine.

Operations are counted as the budgets count them (`lower/cost.py`), bytes as the report of a build does: the tensors
that a node reads and writes, each once, regardless of caches. The memory of a node is the total of the tensors that are
live while it runs: its own tensors and those that are read later, without arguments and weights. Times are lower bounds
of the roofline model, or those of a profile; this module measures nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ....dialect.control_flow import called_regions, trip_count
from ....dialect.dims import Size, evaluate
from ....dialect.graph import Function, Module, Node, parameters_read, read_values
from ....dialect.ops import OPERATORS
from ....passes.analysis.liveness import Step, find_lives
from ...lower.cost import count_bytes, count_operations
from ...lower.kinds import inner_nodes, kind_of
from . import show
from .flow import key


@dataclass(frozen=True, slots=True)
class Machine:
    """The peak performance of a machine: float operations and bytes per second.

    The default is about one core of a server CPU with AVX-512, in float32, that reads from main memory. Set the values
    of the actual machine for meaningful times:

    >>> machine = Machine(flops_per_second=50e9, bytes_per_second=10e9)
    >>> machine.balance  # float operations for each byte, above which it computes longer than it reads
    5.0
    """

    flops_per_second: float = 150e9
    bytes_per_second: float = 20e9

    @property
    def balance(self) -> float:
        return self.flops_per_second / self.bytes_per_second


USUAL_MACHINE = Machine()


@dataclass(frozen=True, slots=True, repr=False)
class NodeCost:
    """The cost of a node in one call; for a node in a loop, the total of all iterations.

    `flops` and `bytes` are totals; `memory` is the live memory while it runs, in bytes; `calls` is the number of its
    executions. `seconds` is the roofline's time, or a measured one; `bound` is the limiting resource: `compute`,
    `memory`, `nothing` for a node without cost, or `measured`.

    >>> cost = example.costs(B=8)["1"]
    >>> cost
    <matmul `1`: 256 flop, 320 bytes, 0.0 us>
    >>> cost.kind, cost.calls, cost.memory, cost.intensity
    ('contraction', 1, 128, 0.8)
    """

    node: Node
    kind: str
    calls: int
    flops: int
    bytes: int
    memory: int
    seconds: float
    bound: str

    def __repr__(self) -> str:
        scopes = dict.fromkeys(node.scope for node in inner_nodes(self.node) if node.scope)
        where = f" in {', '.join(scopes)}" if scopes else ""
        cost = f"{self.flops:,} flop, {self.bytes:,} bytes, {self.seconds * 1e6:,.1f} us"
        return f"<{self.operators} `{self.name}`{where}: {cost}>"

    @property
    def name(self) -> str:
        return key(self.node)

    @property
    def operators(self) -> str:
        """The name of its operator; for a group, the names of the operators inside."""
        inner = inner_nodes(self.node)
        return ", ".join(n.op for n in inner if len(inner) == 1 or n.op != "constant")

    @property
    def intensity(self) -> float:
        """Float operations per byte; 0 if no byte is moved."""
        return self.flops / self.bytes if self.bytes else 0.0


@dataclass(frozen=True)
class Costs:
    """The costs of a function at `dims`. `nodes` are those that run as one: whole groups, and the nodes inside loops.

    `bottlenecks` and `critical_path` attribute the time; `peak_memory` is the largest `memory` of any node.

    >>> costs = example.costs(Machine(flops_per_second=1e9, bytes_per_second=1e9), B=8)
    >>> costs.bottlenecks(2)
    (<matmul `1`: 256 flop, 320 bytes, 0.3 us>, <add `3`: 32 flop, 256 bytes, 0.3 us>)
    >>> [cost.name for cost in costs.critical_path()]
    ['w', '1', '3', 'y']
    >>> costs.seconds, costs.parameter_bytes
    (8.32e-07, 64)
    """

    function: Function
    dims: Mapping[str, int]
    machine: Machine
    nodes: tuple[NodeCost, ...]
    parameter_bytes: int
    by_name: Mapping[str, NodeCost] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {cost.name: cost for cost in self.nodes})

    def __getitem__(self, name: str) -> NodeCost:
        """Returns the cost of the node whose first result has the name."""
        return self.by_name[name]

    def __repr__(self) -> str:
        return f"<costs of {len(self.nodes)} nodes at {dict(self.dims)}: {self.flops:,} flop, {self.bytes:,} bytes>"

    def _repr_html_(self) -> str:
        sizes = ", ".join(f"{name}={size}" for name, size in self.dims.items())
        head = f"{self.function.name}({sizes}): {self.flops:,} flop, {self.bytes:,} bytes, {self.peak_memory:,} at once"
        rows = (
            show.CostRow(c.node, c.operators, c.flops, c.bytes, c.seconds, c.bound)
            for c in self.bottlenecks(len(self.nodes))
        )
        return show.costs_page(head, tuple(rows))

    @property
    def flops(self) -> int:
        return sum(cost.flops for cost in self.nodes)

    @property
    def bytes(self) -> int:
        return sum(cost.bytes for cost in self.nodes)

    @property
    def peak_memory(self) -> int:
        return max((cost.memory for cost in self.nodes), default=0)

    @property
    def seconds(self) -> float:
        """The time of all nodes, executed sequentially."""
        return sum(cost.seconds for cost in self.nodes)

    def bottlenecks(self, count: int = 10) -> tuple[NodeCost, ...]:
        """Returns the nodes with the longest times, the longest first."""
        return tuple(sorted(self.nodes, key=lambda cost: -cost.seconds)[:count])

    def critical_path(self) -> tuple[NodeCost, ...]:
        """Returns the nodes of the longest chain of dependences, in order: more processors cannot shorten its time."""
        path = _longest_path(self.function.body, self.by_name)[1]
        return tuple(self.by_name[name] for name in path)

    def measured(self, seconds: Mapping[str, float]) -> Costs:
        """Returns the same costs with measured times, by the names of nodes; unmeasured nodes take no time."""
        nodes = (replace(c, seconds=seconds.get(c.name, 0.0), bound="measured") for c in self.nodes)
        return replace(self, nodes=tuple(nodes))


def count_costs(module: Module, function: Function, dims: Mapping[str, int], machine: Machine) -> Costs:
    """Counts every node's cost. Raises DimError if a dim is missing or outside of its declared range."""
    nodes = tuple(_costs(function.body, dims, machine, 1, 0, frozenset(v.name for v in function.results)))
    used = set(parameters_read(n.node for n in nodes))
    sizes = (p.type.bytes for name, p in module.parameter_index.items() if name in used)
    counts = (_product(module.parameter_index[name].counts) for name in module.parameter_index if name in used)
    stored = sum(evaluate(size, dims) * count for size, count in zip(sizes, counts, strict=True))
    return Costs(function, dims, machine, nodes, stored)


def _product(counts: Sequence[int]) -> int:
    total = 1
    for count in counts:
        total *= count
    return total


def _costs(
    body: Sequence[Node],
    dims: Mapping[str, int],
    machine: Machine,
    times: int,
    beside: int,
    kept: frozenset[str],
) -> Iterator[NodeCost]:
    """Yields the costs of a body that runs `times` times with `beside` bytes live around it; its results are `kept`."""
    makers = {v.name: node for node in body for v in node.outputs}
    for node, live in zip(body, _live_bytes(body, dims, kept), strict=True):
        if node.regions and not OPERATORS[node.op].has("group"):
            # Both sides of an `if` count.
            count = max(0, evaluate(trip_count(node), dims))
            for region in called_regions(node):
                results = frozenset(v.name for v in region.results)
                yield from _costs(region.body, dims, machine, times * count, beside + live, results)
            continue
        flops = times * evaluate(count_operations([node]), dims)
        moved = 0 if is_free(node) else times * evaluate(count_bytes(node, makers), dims)
        compute, memory = flops / machine.flops_per_second, moved / machine.bytes_per_second
        bound = ("compute" if compute > memory else "memory") if flops or moved else "nothing"
        yield NodeCost(
            node, kind_of(inner_nodes(node)), times, flops, moved, beside + live, max(compute, memory), bound
        )


def is_free(node: Node) -> bool:
    """Returns whether the node moves no data: a stored weight, or a view with another shape."""
    operator = OPERATORS[node.op]
    return not operator.has("group") and (operator.has("structure") or operator.has("view"))


def _live_bytes(body: Sequence[Node], dims: Mapping[str, int], kept: frozenset[str]) -> list[int]:
    """Returns the live bytes at each node of a body; views of other values take none."""
    owners: dict[str, str] = {}
    sizes: dict[str, Size] = {}
    steps: list[Step] = []
    for node in body:
        view = OPERATORS[node.op].has("view") and node.inputs[0].name in owners
        for value in node.outputs:
            owners[value.name] = owners[node.inputs[0].name] if view else value.name
            if not view and not OPERATORS[node.op].has("stored"):
                sizes[value.name] = value.type.bytes
        names = (value.name for value in (*read_values(node), *node.outputs))
        steps.append(Step(tuple(owners[name] for name in names if name in owners)))
    steps[-1:] = [Step((*step.tensors, *(owners[name] for name in kept if name in owners))) for step in steps[-1:]]
    live = [0] * len(body)
    for life in find_lives(steps, sizes):
        for number in range(life.first, life.last + 1):
            live[number] += evaluate(life.size, dims)
    return live


def _longest_path(body: Sequence[Node], costs: Mapping[str, NodeCost]) -> tuple[float, tuple[str, ...]]:
    """Returns the seconds of the longest chain of a body, and the nodes in it that have a cost."""
    ends: dict[str, tuple[float, tuple[str, ...]]] = {}
    best: tuple[float, tuple[str, ...]] = (0.0, ())
    for node in body:
        before = max((ends[v.name] for v in read_values(node) if v.name in ends), default=(0.0, ()), key=lambda p: p[0])
        if node.regions and not OPERATORS[node.op].has("group"):
            # Iterations are sequential, and the seconds of a node are the total of all iterations.
            paths = [_longest_path(region.body, costs) for region in called_regions(node)]
            seconds, path = sum(p[0] for p in paths), tuple(name for p in paths for name in p[1])
        else:
            seconds, path = costs[key(node)].seconds, (key(node),)
        here = before[0] + seconds, (*before[1], *path)
        ends |= {v.name: here for v in node.outputs}
        best = max(best, here, key=lambda p: p[0])
    return best
