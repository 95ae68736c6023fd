"""PyTorch's own samples of its operators, read as models: each sample becomes an entry, traced to core ATen."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from nacre.compiler.model.source import SourceModel
from nacre.compiler.readers.torch.assemble import assemble
from nacre.compiler.readers.torch.program import Program
from nacre.compiler.readers.torch.torch_program import decompositions
from nacre.compiler.readers.torch.walk import name_of
from nacre.compiler.readers.torch.writing.arrays import DTYPES, to_array
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

TESTED = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool)
_MOST_ELEMENTS = 1 << 14


@dataclass(frozen=True, eq=False)
class Sample:
    """A use of an operator: its name, the graph module, the arguments and the results of eager PyTorch."""

    name: str
    dtype: torch.dtype
    graph_module: Any
    arguments: Sequence[torch.Tensor]
    expected: Sequence[torch.Tensor]

    @property
    def overloads(self) -> set[str]:
        nodes = self.graph_module.graph.nodes
        return {name_of(node) for node in nodes if node.op == "call_function" and hasattr(node.target, "_schema")}

    def read(self) -> SourceModel:
        results = next(node for node in self.graph_module.graph.nodes if node.op == "output").args[0]
        named = [(f"r{number}", node) for number, node in enumerate(results)]
        return assemble(Program(self.graph_module, "sample", {}, {}, named), "<sample>")


_TABLE: dict[Any, Any] = {}


def _table() -> dict[Any, Any]:
    if not _TABLE:
        _TABLE.update(decompositions().items())
    return _TABLE


def samples_of(info: Any, dtype: torch.dtype, most: int = 1 << 30) -> Iterator[Sample]:
    """Yields the samples of an operator that can be traced, on tensors of a moderate size."""
    torch.manual_seed(0)
    taken = 0
    for number, sample in enumerate(info.sample_inputs("cpu", dtype, requires_grad=False)):
        if taken >= most:
            return
        flat, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        places = [i for i, each in enumerate(flat) if isinstance(each, torch.Tensor)]
        tensors = [flat[i] for i in places]
        if any(t.numel() > _MOST_ELEMENTS or str(t.dtype) not in DTYPES for t in tensors):
            continue
        found = trace(info.op, flat, spec, places)
        if found is not None:
            taken += 1
            graph_module, expected = found
            name = f"{info.name}{'.' + info.variant_test_name if info.variant_test_name else ''}"
            yield Sample(f"{name}#{number}", dtype, graph_module, tensors, expected)


def trace(op: Any, flat: Sequence[Any], spec: Any, places: Sequence[int]) -> tuple[Any, Sequence[torch.Tensor]] | None:
    """Returns the graph of a call and its results; None if PyTorch cannot trace it, or its results are no tensors."""

    def call(*tensors: torch.Tensor) -> list[Any]:
        filled = list(flat)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        first, args, kwargs = pytree.tree_unflatten(filled, spec)
        return list(pytree.tree_leaves(op(first, *args, **kwargs)))

    tensors = [flat[i] for i in places]
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = call(*(t.clone() for t in tensors))
            functional = torch.func.functionalize(call, remove="mutations")
            graph_module = make_fx(functional, decomposition_table=_table(), tracing_mode="fake")(*tensors)
    except Exception:  # torch raises errors of many classes for what it cannot trace
        return None
    results = next(node for node in graph_module.graph.nodes if node.op == "output").args[0]
    if not expected or len(results) != len(expected):
        return None
    if not all(isinstance(t, torch.Tensor) and str(t.dtype) in DTYPES for t in expected):
        return None
    return graph_module, expected


def arrays_of(sample: Sample) -> list[Any]:
    return [to_array(tensor) for tensor in sample.arguments]
