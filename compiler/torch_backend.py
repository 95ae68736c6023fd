"""The backend of `torch.compile(model, backend="nacre")`, for inference.

PyTorch traces the model, and passes each graph of operators to `compile_graph`. A graph is compiled at its first call,
when its parameters are known: they become weights of the artifact. If a parameter is replaced or written later, the
graph is compiled again. PyTorch does not count changes through `.data`, so these are not noticed. Models that require
gradients are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from ..dialect.diagnostics import Diagnostic, DiagnosticError
from .api import compile
from .readers.torch.assemble import assemble
from .readers.torch.program import Program, Stored
from .readers.torch.torch_program import decompositions
from .readers.torch.writing.arrays import to_tensor
from .readers.torch.writing.package import load_torch


def compile_graph(graph_module: Any, example_inputs: Sequence[Any]) -> Any:
    """Returns a callable for a graph of TorchDynamo."""
    common = load_torch("_dynamo.backends.common")
    compiler = common.aot_autograd(
        fw_compiler=_refuse_gradients, inference_compiler=_prepare, decompositions=dict(decompositions().items())
    )
    return compiler(graph_module, example_inputs)


def _refuse_gradients(graph_module: Any, example_inputs: Sequence[Any]) -> NoReturn:
    help_text = "call the model under `torch.no_grad()` or `torch.inference_mode()`"
    message = "the backend `nacre` of torch.compile computes no gradients"
    raise DiagnosticError([Diagnostic("no-gradient", message, help=help_text)])


def _prepare(graph_module: Any, example_inputs: Sequence[Any]) -> Any:
    tracing = load_torch("_guards").TracingContext.try_get()
    metadata = None if tracing is None else tracing.fw_metadata
    static = frozenset() if metadata is None else _constant_inputs(metadata)
    made = load_torch("_functorch.aot_autograd").make_boxed_func(CompiledGraph(graph_module, static))
    return made


def _constant_inputs(metadata: Any) -> frozenset[int]:
    """Returns the positions of parameters and buffers; a buffer that the graph writes is an argument."""
    return frozenset(
        number for number in metadata.static_input_indices or () if not metadata.input_info[number].mutates_data
    )


Key = tuple[tuple[int, int], ...]
"""The memory and the version of each parameter."""


@dataclass
class CompiledGraph:
    """A graph in core ATen. `static` are the positions of arguments that become weights. Tensors that were made in
    `torch.inference_mode` do not: PyTorch does not count their changes."""

    graph_module: Any
    static: frozenset[int]
    _key: Key | None = None
    _call: Callable[..., Any] | None = None
    _held: list[Any] = field(default_factory=list)  # parameters stay alive, so that no other has their memory

    def __call__(self, *arguments: Any) -> list[Any]:
        self.static -= {number for number in self.static if arguments[number].is_inference()}
        held = [each for number, each in enumerate(arguments) if number in self.static]
        key = tuple((each.data_ptr(), each._version) for each in held)
        if self._call is None or key != self._key:
            self._key, self._held, self._call = key, held, self._compile(arguments)
        return self._results(arguments)

    def _compile(self, arguments: Sequence[Any]) -> Callable[..., Any]:
        nodes = [node for node in self.graph_module.graph.nodes if node.op == "placeholder"]
        stored = {
            node.name: Stored(node.name, argument)
            for number, (node, argument) in enumerate(zip(nodes, arguments, strict=True))
            if number in self.static
        }
        results = [(f"r{number}", node) for number, node in enumerate(self._outputs) if _is_node(node)]
        program = Program(self.graph_module, "graph", stored, {}, results, ranges=_ranges(nodes))
        return compile(assemble(program, "<torch.compile>")) if results else lambda *tensors: ()

    @property
    def _outputs(self) -> Sequence[Any]:
        found: Sequence[Any] = next(node for node in self.graph_module.graph.nodes if node.op == "output").args[0]
        return found

    def _results(self, arguments: Sequence[Any]) -> list[Any]:
        assert self._call is not None
        tensors = [
            each.detach()
            for number, each in enumerate(arguments)
            if number not in self.static and hasattr(each, "dtype")
        ]
        made = self._call(*tensors)
        outputs = self._outputs
        listed = iter([made] if sum(map(_is_node, outputs)) == 1 else made)
        return [_as_described(next(listed), node) if _is_node(node) else node for node in outputs]


def _is_node(value: Any) -> bool:
    return type(value).__name__ == "Node"


def _as_described(result: Any, node: Any) -> Any:
    """Returns a result as a tensor, or as the number that the graph describes."""
    array = np.asarray(result)
    return to_tensor(array) if hasattr(node.meta["val"], "dtype") else array.item()


def _ranges(nodes: Sequence[Any]) -> dict[str, tuple[int, int]]:
    """Returns the ranges of the symbols in the shapes of arguments."""
    ranges: dict[str, tuple[int, int]] = {}
    for node in nodes:
        value = node.meta.get("val")
        for size in (*getattr(value, "shape", ()), value):
            environment = getattr(getattr(size, "node", None), "shape_env", None)
            if environment is None:
                continue
            for symbol in size.node.expr.free_symbols:
                found = environment.var_to_range.get(symbol)
                if found is not None:
                    low, high = str(found.lower), str(found.upper)
                    ranges[str(symbol)] = (int(low) if low.isdigit() else 0, int(high) if high.isdigit() else 1 << 62)
    return ranges
