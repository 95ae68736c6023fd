"""`Graph`: one function of a module as something to ask and to change.

Nothing is ever changed in place: what changes a graph gives another one, which the verifier has found valid. What is
asked stands in `flow` and `figures`, what changes in `edit`, what shows in `show`; here stands the public face of it.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from ...dialect.graph import Function, Module, Parameter, Value
from ...dialect.printer import print_module
from ...dialect.types import Array
from ...passes.manager import PassManager
from ...passes.pipeline import parse_pipeline
from ...runtime.loader import Model
from ..frontend.model_writer import write_model
from ..report import usual_size
from . import edit, show
from .figures import USUAL_MACHINE, Costs, Machine, count_costs
from .flow import Flow, between, cut
from .nodes import GraphNode, Nodes, wrap
from .profile import Measured, join_profile, parse_profile, read_profile
from .running import Origin, compile_module, run_function, save_text

Named: TypeAlias = "str | Value | GraphNode"
"""A value, by name or itself, or the node whose only or first result it is."""


@dataclass(frozen=True, eq=False)
class Graph:
    """One function of a module. `nacre.graph.read` makes it from a model; graphs are equal when they print equal.

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

    # --- what there is ---

    @cached_property
    def function(self) -> Function:
        return self.module.function(self.entry)

    @cached_property
    def flow(self) -> Flow:
        return Flow(self.function)

    @property
    def text(self) -> str:
        """The graph in its own text, exact but for the data of large constants, which is shown as a hash."""
        return print_module(self.module)

    @property
    def model_text(self) -> str:
        """The graph in the language of models, without its blocks. Raises DiagnosticError where that lacks words:
        operators that only passes bring in, constants of more than 65536 elements.

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
        """The graph of another function of the module. Raises KeyError.

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
        used = dict.fromkeys(str(n.attribute("name")) for n in self.flow.order if n.op == "parameter")
        return tuple(self.module.parameter_index[name] for name in used)

    @property
    def dims(self) -> dict[str, tuple[int, int]]:
        """The least and the greatest value of each dim, by name.

        >>> example.dims
        {'B': (1, 8)}
        """
        return {s.name: (s.low, s.high) for s in self.function.symbols()}

    @cached_property
    def nodes(self) -> Nodes:
        """Every node in order, those of loops and groups behind the node that they stand in."""
        return wrap(self.flow, self.flow.order)

    def __iter__(self) -> Iterator[GraphNode]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    # --- what is asked ---

    def value(self, name: Named) -> Value:
        """A value by its name. Raises KeyError with the nearest name that there is.

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
        """The node that makes a value. Raises KeyError where there is no such value, or it is an argument.

        >>> example["y"]
        %y = relu(%3) : f32[B, 4]
        """
        value = self.value(name)
        if value.name not in self.flow.makers:
            raise KeyError(f"`{value.name}` is an argument: no node makes it")
        return GraphNode(self.flow, self.flow.makers[value.name])

    def find(
        self,
        op: str | None = None,
        *,
        name: str | None = None,
        scope: str | None = None,
        where: Callable[[GraphNode], bool] | None = None,
    ) -> Nodes:
        """The nodes that fit all that is given: patterns (`*`, `?`, `[...]`) for the operator, for the name of a result
        and for the scope, in which a node that stands deeper is found too; and a function that says of a node whether
        it is meant.

        >>> example.find("re*")
        %y = relu(%3) : f32[B, 4]
        >>> example.find(where=lambda node: node.operator.has("elementwise")).names
        ('3', 'y')
        """
        return self.nodes.find(op, name=name, scope=scope, where=where)

    def producer(self, value: str | Value) -> GraphNode | None:
        """The node that makes a value; None for an argument.

        >>> example.producer("y").op, example.producer("x")
        ('relu', None)
        """
        maker = self.flow.makers.get(self.value(value).name)
        return None if maker is None else GraphNode(self.flow, maker)

    def consumers(self, value: str | Value) -> Nodes:
        """The nodes that read a value, in order.

        >>> example.consumers("x").names
        ('1',)
        """
        return wrap(self.flow, self.flow.users.get(self.value(value).name, ()))

    def between(self, starts: Sequence[Named] | Named, ends: Sequence[Named] | Named) -> Nodes:
        """The nodes through which one of the values `starts` reaches one of `ends`, outside of loops or all in one.

        >>> example.between("x", "3").names
        ('1', '3')
        """
        first, last = self._values(starts), self._values(ends)
        maker = self.flow.makers.get(last[0].name)
        body = self.function.body if maker is None else self.flow.siblings(maker)
        return wrap(self.flow, between(body, {v.name for v in first}, {v.name for v in last}))

    def extract(self, starts: Sequence[Named] | Named, ends: Sequence[Named] | Named) -> Graph:
        """A graph of its own that computes the values `ends` from the values `starts`, which become its arguments;
        parameters and constants come along. Values of loops cannot be taken out of them.

        Raises DiagnosticError where the values `starts` are not all that is needed.

        >>> example.extract("1", "y")
        <graph `f`: 3 nodes, f(1: f32[B, 4]) -> (result: f32[B, 4])>
        """
        function = cut(self.function, self._values(starts), self._values(ends))
        return self._with(edit.finish(replace(self.module, functions=(function,)), function))

    def _values(self, names: Sequence[Named] | Named) -> tuple[Value, ...]:
        if isinstance(names, (str, Value, GraphNode)):
            return (self.value(names),)
        return tuple(self.value(name) for name in names)

    # --- what it costs ---

    def costs(self, machine: Machine = USUAL_MACHINE, **dims: int) -> Costs:
        """What each node computes, reads and keeps in memory at sizes of the dims, and where the time would go on a
        machine. A dim that is not given is 128, or as near to that as it can be.

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
        """The costs with the times of a profile, at its sizes: a file of `nacre profile --json`, or what is in it. The
        graph has to be the one that was measured, such as `read(..., level=2)` gives.

        Raises DiagnosticError where it is not, or where there is no such file.

        >>> example.measured(folder / "profile.json").bottlenecks(1)
        (<matmul `1`: 256 flop, 320 bytes, 2.0 us>,)
        """
        told = parse_profile(profile) if isinstance(profile, Mapping) else read_profile(Path(profile))
        machine = Machine(told.flops_per_second, told.bytes_per_second)
        costs = self.costs(machine, **{name: size for name, size in told.dims.items() if name in self.dims})
        nodes = {(self.entry, v.name): Measured(n, c.flops) for n, c in enumerate(costs.nodes) for v in c.node.outputs}
        calls = join_profile(told, nodes)
        return costs.measured({costs.nodes[number].name: call.seconds for number, call in calls.items()})

    # --- what is changed ---

    def _with(self, module: Module) -> Graph:
        return replace(self, module=module)

    def _targets(self, nodes: Iterable[GraphNode] | Named) -> list[str]:
        if isinstance(nodes, (str, Value, GraphNode)):
            return [self[nodes].name]
        return [self[node].name for node in nodes]

    def replace(self, nodes: Iterable[GraphNode] | Named, build: edit.Build) -> Graph:
        """The graph with each of the nodes made anew: `build(b, *operands)` writes what stands for it with a builder
        that has a method for every operator, and returns a value for each result. Types have to stay.

        Raises DiagnosticError where they do not, or where an operator does not accept its operands.

        >>> smooth = example.replace("y", lambda b, x: b.gelu(x, approximate="tanh"))
        >>> smooth["y"]
        %y = gelu(%3) {approximate = "tanh"} : f32[B, 4]
        """
        return self._with(edit.replace_nodes(self.module, self.function, self._targets(nodes), build))

    def replace_part(self, nodes: Iterable[GraphNode], build: edit.Build) -> Graph:
        """The graph with several nodes made anew as one: `build(b, *inputs)` gets the values that they read from
        outside, in order of first use, and returns a value for each of theirs that others read.

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
        """The graph with `build(b, value)` behind a value: whoever reads the value reads that instead.

        >>> [node.op for node in example.insert("x", lambda b, x: b.negate(x))]
        ['negate', 'parameter', 'matmul', 'constant', 'add', 'relu']
        """
        return self._with(edit.insert_behind(self.module, self.function, self.value(value), build))

    def remove(self, node: Named, *, by: Named | None = None) -> Graph:
        """The graph without a node. Who reads its result reads the value `by` instead, or the first operand that has
        the result's type. Raises DiagnosticError where there is none.

        >>> [node.op for node in example.remove("y")]
        ['parameter', 'matmul', 'constant', 'add']
        """
        stand_in = None if by is None else self.value(by)
        return self._with(edit.remove_node(self.module, self.function, self[node].node, stand_in))

    def rename(self, names: Mapping[str, str]) -> Graph:
        """The graph with other names for values. Those of arguments are what callers use.

        >>> example.rename({"x": "image"}).arguments
        (%image: f32[B, 4],)
        """
        for name in names:
            self.value(name)
        return self._with(edit.rename_values(self.module, self.function, names))

    def set(self, node: Named, **attributes: Any) -> Graph:
        """The graph with other attributes of a node, whose results keep their types.

        >>> smooth = example.replace("y", lambda b, x: b.gelu(x))
        >>> smooth.set("y", approximate="tanh")["y"].attributes
        {'approximate': 'tanh'}
        """
        return self._with(edit.set_attributes(self.module, self.function, self[node].node, attributes))

    def apply(self, passes: str) -> Graph:
        """The graph after passes, as `nacre opt --pass` takes them. Raises DiagnosticError for an unknown one.

        >>> [node.op for node in example.apply("fuse")]
        ['parameter', 'constant', 'fusion', 'constant', 'matmul', 'add', 'relu']
        """
        return self._with(PassManager(parse_pipeline(passes)).run(self.module))

    # --- what is done with it ---

    def run(
        self,
        *arrays: Any,
        weights: Mapping[str, Array] | str | os.PathLike[str] | None = None,
        float64: bool = False,
    ) -> Any:
        """The results for arrays in the order of the arguments, by the reference interpreter: one array, or a tuple.

        weights: arrays by key, or a checkpoint, in place of the one that the model names.
        float64: computes in float64 throughout, as the measure of what rounding costs.

        Raises DiagnosticError where the weights do not fit, DimError where the shapes of the arrays do not.

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
        """Compiles the whole module and loads it. Arguments and errors are those of `nacre.compile`; `weights` may be
        arrays by key, too.

        >>> model = example.compile(weights={"w": np.eye(4, dtype=np.float32)})
        >>> model(np.ones((1, 4), np.float32))
        array([[2., 2., 2., 2.]], dtype=float32)
        """
        return compile_module(self.module, self.origin, output, weights, options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the module as text: `.nacre` in the language of models, with the checkpoint that it came with, and
        `.graph` in the graph's own. Raises ValueError for another suffix, DiagnosticError where the language lacks
        words or the file cannot be written.

        >>> example.save(folder / "example.nacre")
        >>> read(folder / "example.nacre")
        <graph `f`: 5 nodes, f(x: f32[B, 4]) -> (y: f32[B, 4])>
        """
        save_text(self.module, self.origin, path)
