"""`Graph`: one function of a module, with queries and edits.

Graphs are immutable: an edit returns another graph, which the verifier has accepted. The implementation of queries is
in `flow` and `node_costs`, that of edits in `edit`, that of display in `show`; this module is the public interface.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from ....dialect.graph import Function, Module, Parameter, Value, parameters_read
from ....dialect.printer import print_module
from ....dialect.types import Array
from ....passes.manager import PassManager
from ....passes.pass_list import parse_pipeline
from ....runtime.loader import Model
from ...readers.language.model_writer import write_model
from ...report import usual_size
from . import edit, show
from .flow import Flow, between, cut
from .measured_times import Measured, join_profile, parse_profile, read_profile
from .node_costs import USUAL_MACHINE, Costs, Machine, count_costs
from .nodes import GraphNode, Nodes, wrap
from .running import Origin, compile_module, run_function, save_text

Named: TypeAlias = "str | Value | GraphNode"
"""A value, its name, or the node whose only or first result it is."""


@dataclass(frozen=True, eq=False)
class Graph:
    """One function of a module. `nacre.graph.read` creates it from a model; graphs are equal if their texts are equal.

    >>> example
    <graph `f`: 5 nodes, f(x: f32[B, 4]) -> (y: f32[B, 4])>
    >>> print(example.text)
    module example
    <BLANKLINE>
    dim B in 1..8
    <BLANKLINE>
    param "w" : f32[4, 4]
    ...
    """

    module: Module
    entry: str
    origin: Origin = field(default_factory=Origin, repr=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and (self.text, self.entry) == (other.text, other.entry)

    def __hash__(self) -> int:
        return hash((self.text, self.entry))

    def __repr__(self) -> str:
        arguments = ", ".join(f"{v.name}: {v.type}" for v in self.arguments)
        results = ", ".join(f"{name}: {v.type}" for name, v in self.results.items())
        return f"<graph `{self.entry}`: {len(self.nodes)} nodes, {self.entry}({arguments}) -> ({results})>"

    def _repr_html_(self) -> str:
        return show.graph_page(self.function)

    # --- contents ---

    @cached_property
    def function(self) -> Function:
        return self.module.function(self.entry)

    @cached_property
    def flow(self) -> Flow:
        return Flow(self.function)

    @property
    def text(self) -> str:
        """The graph as text, exact except for the data of large constants, which appears as a hash."""
        return print_module(self.module)

    @property
    def model_text(self) -> str:
        """The graph as model source, without its blocks. Raises DiagnosticError if the language cannot express it:
        operators that only passes create, constants of more than 65536 elements.

        >>> print(example.model_text)
        language 1
        dim B in 1..8
        <BLANKLINE>
        model f(x: f32[B, 4]) -> y: f32[B, 4] {
          param w: f32[4, 4]
          v1 = x @ w
          v3 = v1 + 1.0
          y = relu(v3)
          return y
        }
        <BLANKLINE>
        """
        return write_model(self.module)

    @property
    def entries(self) -> tuple[str, ...]:
        """The names of all functions of the module."""
        return tuple(function.name for function in self.module.functions)

    def select(self, entry: str) -> Graph:
        """Returns the graph of another function of the module. Raises KeyError.

        >>> example.entries
        ('f',)
        >>> example.select("f") == example
        True
        """
        self.module.function(entry)
        return replace(self, entry=entry)

    @property
    def arguments(self) -> tuple[Value, ...]:
        return self.function.arguments

    @property
    def results(self) -> dict[str, Value]:
        """The results by name.

        >>> example.results
        {'y': %y: f32[B, 4]}
        """
        return dict(zip(self.function.result_names, self.function.results, strict=True))

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters that the function reads."""
        return tuple(self.module.parameter_index[name] for name in parameters_read(self.flow.order))

    @property
    def dims(self) -> dict[str, tuple[int, int]]:
        """The minimum and maximum of each dim, by name.

        >>> example.dims
        {'B': (1, 8)}
        """
        return {s.name: (s.low, s.high) for s in self.function.symbols()}

    @cached_property
    def nodes(self) -> Nodes:
        """Every node in order; those of loops and groups follow the node that contains them."""
        return wrap(self.flow, self.flow.order)

    def __iter__(self) -> Iterator[GraphNode]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    # --- queries ---

    def value(self, name: Named) -> Value:
        """Returns a value by its name. Raises KeyError with the nearest existing name.

        >>> example.value("y")
        %y: f32[B, 4]
        """
        if isinstance(name, GraphNode):
            return name.outputs[0]
        wanted = name.name if isinstance(name, Value) else name
        if wanted not in self.flow.values:
            near = difflib.get_close_matches(wanted, self.flow.values, 1)
            raise KeyError(f"the graph has no value `{wanted}`" + (f"; did you mean `{near[0]}`?" if near else ""))
        return self.flow.values[wanted]

    def __getitem__(self, name: Named) -> GraphNode:
        """Returns the node that computes a value. Raises KeyError if there is no such value, or it is an argument.

        >>> example["y"]
        %y = relu(%3) : f32[B, 4]
        """
        value = self.value(name)
        if value.name not in self.flow.makers:
            raise KeyError(f"`{value.name}` is an argument, not the result of a node")
        return GraphNode(self.flow, self.flow.makers[value.name])

    def find(
        self,
        op: str | None = None,
        *,
        name: str | None = None,
        scope: str | None = None,
        where: Callable[[GraphNode], bool] | None = None,
    ) -> Nodes:
        """Returns the nodes that match all given criteria: patterns (`*`, `?`, `[...]`) for the operator, for the name
        of a result and for the scope, which also matches nodes in nested scopes; and a predicate on the node.

        >>> example.find("re*")
        %y = relu(%3) : f32[B, 4]
        >>> example.find(where=lambda node: node.operator.has("elementwise")).names
        ('3', 'y')
        """
        return self.nodes.find(op, name=name, scope=scope, where=where)

    def producer(self, value: str | Value) -> GraphNode | None:
        """Returns the node that computes a value; None for an argument.

        >>> example.producer("y").op, example.producer("x")
        ('relu', None)
        """
        maker = self.flow.makers.get(self.value(value).name)
        return None if maker is None else GraphNode(self.flow, maker)

    def consumers(self, value: str | Value) -> Nodes:
        """Returns the nodes that read a value, in order.

        >>> example.consumers("x").names
        ('1',)
        """
        return wrap(self.flow, self.flow.users.get(self.value(value).name, ()))

    def between(self, starts: Sequence[Named] | Named, ends: Sequence[Named] | Named) -> Nodes:
        """Returns the nodes through which one of the values `starts` reaches one of `ends`, outside of loops or all in
        one.

        >>> example.between("x", "3").names
        ('1', '3')
        """
        first, last = self._values(starts), self._values(ends)
        maker = self.flow.makers.get(last[0].name)
        body = self.function.body if maker is None else self.flow.siblings(maker)
        return wrap(self.flow, between(body, {v.name for v in first}, {v.name for v in last}))

    def extract(self, starts: Sequence[Named] | Named, ends: Sequence[Named] | Named) -> Graph:
        """Returns a separate graph that computes the values `ends` from the values `starts`, which become its
        arguments; parameters and constants are included. Values inside loops cannot be extracted from them.

        Raises DiagnosticError if the values `starts` are not sufficient.

        >>> example.extract("1", "y")
        <graph `f`: 3 nodes, f(1: f32[B, 4]) -> (result: f32[B, 4])>
        """
        function = cut(self.function, self._values(starts), self._values(ends))
        return self._with(edit.finish(replace(self.module, functions=(function,)), function))

    def _values(self, names: Sequence[Named] | Named) -> tuple[Value, ...]:
        if isinstance(names, (str, Value, GraphNode)):
            return (self.value(names),)
        return tuple(self.value(name) for name in names)

    # --- costs ---

    def costs(self, machine: Machine = USUAL_MACHINE, **dims: int) -> Costs:
        """Returns the operations, bytes and live memory of each node at sizes of the dims, and estimates of its time on
        a machine. A dim that is not given is 128, or the nearest size that it admits.

        >>> costs = example.costs(B=8)
        >>> costs.flops, costs.bytes, costs.peak_memory
        (320, 832, 256)
        >>> costs["1"].flops, costs["1"].bound
        (256, 'memory')
        """
        sizes = {s.name: dims.pop(s.name, usual_size(s)) for s in self.function.symbols()}
        if dims:
            raise TypeError(f"the graph has no dim {', '.join(map(repr, dims))}")
        return count_costs(self.module, self.function, sizes, machine)

    def measured(self, profile: Mapping[str, Any] | str | os.PathLike[str]) -> Costs:
        """Returns the costs with the times of a profile, at its sizes: a file of `nacre profile --json`, or its
        content. The graph must be the measured one, such as that of `read(..., level=2)`.

        Raises DiagnosticError if it is not, or if the file does not exist.

        >>> example.measured(folder / "profile.json").bottlenecks(1)
        (<matmul `1`: 256 flop, 320 bytes, 2.0 us>,)
        """
        reported = parse_profile(profile) if isinstance(profile, Mapping) else read_profile(Path(profile))
        machine = Machine(reported.flops_per_second, reported.bytes_per_second)
        costs = self.costs(machine, **{name: size for name, size in reported.dims.items() if name in self.dims})
        nodes = {(self.entry, v.name): Measured(n, c.flops) for n, c in enumerate(costs.nodes) for v in c.node.outputs}
        calls = join_profile(reported, nodes)
        return costs.measured({costs.nodes[number].name: call.seconds for number, call in calls.items()})

    # --- edits ---

    def _with(self, module: Module) -> Graph:
        return replace(self, module=module)

    def _targets(self, nodes: Iterable[GraphNode] | Named) -> list[str]:
        if isinstance(nodes, (str, Value, GraphNode)):
            return [self[nodes].name]
        return [self[node].name for node in nodes]

    def replace(self, nodes: Iterable[GraphNode] | Named, build: edit.Build) -> Graph:
        """Returns the graph with each of the nodes replaced: `build(b, *operands)` writes the replacement with a
        builder that has a method for every operator, and returns a value for each result. Types must not change.

        Raises DiagnosticError if they do, or if an operator does not accept its operands.

        >>> smooth = example.replace("y", lambda b, x: b.gelu(x, approximate="tanh"))
        >>> smooth["y"]
        %y = gelu(%3) {approximate = "tanh"} : f32[B, 4]
        """
        return self._with(edit.replace_nodes(self.module, self.function, self._targets(nodes), build))

    def replace_part(self, nodes: Iterable[GraphNode], build: edit.Build) -> Graph:
        """Returns the graph with several nodes replaced together: `build(b, *inputs)` gets the outside values that they
        read, in order of first use, and returns a value for each of their values that other nodes read.

        >>> part = example.between("x", "y")
        >>> shorter = example.replace_part(part, lambda b, x, w, one: b.matmul(x, w))
        >>> shorter["y"]
        %y = matmul(%x, %w) : f32[B, 4]
        """
        names = self._targets(nodes)
        if not names:
            return self
        body = self.flow.siblings(self.flow.makers[names[0]])
        part = edit.find_part(self.function, body, names)
        return self._with(edit.replace_part(self.module, self.function, part, build))

    def insert(self, value: Named, build: edit.Build) -> Graph:
        """Returns the graph with `build(b, value)` inserted after a value: its other uses read the inserted value.

        >>> [node.op for node in example.insert("x", lambda b, x: b.negate(x))]
        ['negate', 'parameter', 'matmul', 'constant', 'add', 'relu']
        """
        return self._with(edit.insert_behind(self.module, self.function, self.value(value), build))

    def remove(self, node: Named, *, by: Named | None = None) -> Graph:
        """Returns the graph without a node. The value `by`, or the first operand of the result's type, replaces its
        result. Raises DiagnosticError if there is none.

        >>> [node.op for node in example.remove("y")]
        ['parameter', 'matmul', 'constant', 'add']
        """
        stand_in = None if by is None else self.value(by)
        return self._with(edit.remove_node(self.module, self.function, self[node].node, stand_in))

    def rename(self, names: Mapping[str, str]) -> Graph:
        """Returns the graph with values renamed. Callers refer to arguments by their names.

        >>> example.rename({"x": "image"}).arguments
        (%image: f32[B, 4],)
        """
        for name in names:
            self.value(name)
        return self._with(edit.rename_values(self.module, self.function, names))

    def set(self, node: Named, **attributes: Any) -> Graph:
        """Returns the graph with other attributes of a node, whose results must keep their types.

        >>> smooth = example.replace("y", lambda b, x: b.gelu(x))
        >>> smooth.set("y", approximate="tanh")["y"].attributes
        {'approximate': 'tanh'}
        """
        return self._with(edit.set_attributes(self.module, self.function, self[node].node, attributes))

    def apply(self, passes: str) -> Graph:
        """Returns the graph after passes, given as for `nacre opt --pass`. Raises DiagnosticError for an unknown one.

        >>> [node.op for node in example.apply("fuse")]
        ['parameter', 'constant', 'fusion', 'constant', 'matmul', 'add', 'relu']
        """
        return self._with(PassManager(parse_pipeline(passes)).run(self.module))

    # --- execution and output ---

    def run(
        self,
        *arrays: Any,
        weights: Mapping[str, Array] | str | os.PathLike[str] | None = None,
        float64: bool = False,
    ) -> Any:
        """Runs the reference interpreter on arrays in the order of the arguments; returns one array, or a tuple.

        weights: arrays by key, or a checkpoint, in place of the one that the model names.
        float64: computes in float64 throughout, to measure the rounding error of the declared dtypes.

        Raises DiagnosticError if the weights do not fit, DimError if the shapes of the arrays do not.

        >>> example.run(np.ones((1, 4), np.float32), weights={"w": np.eye(4, dtype=np.float32)})
        array([[2., 2., 2., 2.]], dtype=float32)
        """
        results = run_function(self.module, self.function, self.origin, arrays, weights, float64)
        return results[0] if len(results) == 1 else results

    def compile(
        self,
        output: str | os.PathLike[str] | None = None,
        *,
        weights: Mapping[str, Array] | str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> Model:
        """Compiles the whole module and loads it. Arguments and errors are those of `nacre.compile`; `weights` may also
        be arrays by key.

        >>> model = example.compile(weights={"w": np.eye(4, dtype=np.float32)})
        >>> model(np.ones((1, 4), np.float32))
        array([[2., 2., 2., 2.]], dtype=float32)
        """
        return compile_module(self.module, self.origin, output, weights, options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the module as text: `.nacre` as model source with blocks, loops and its original checkpoint, and
        `.graph` as graph text. Raises ValueError for another suffix, DiagnosticError if the language cannot express the
        graph or the file cannot be written.

        >>> example.save(folder / "example.nacre")
        >>> read(folder / "example.nacre")
        <graph `f`: 5 nodes, f(x: f32[B, 4]) -> (y: f32[B, 4])>
        """
        save_text(self.module, self.origin, path)
