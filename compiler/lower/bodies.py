"""The bodies of structured ops and of sequential loops: scalar statements, and the statements specific to each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ...dialect import emitter as protocol
from ...dialect.emitter import IndexMap
from ...dialect.types import I64
from .records import Local
from .scalars import Alarm, ScalarWriter, as_element
from .shapes import tensor_type
from .statements import Element
from .text import FunctionText, element_type


class BodyWriter(ScalarWriter):
    """A writer of a structured op's body. `loops` maps the loops of the body to those of the op that is being written:
    the identity, unless the body is inlined."""

    def __init__(
        self, text: FunctionText, load_element: Callable[..., Element], alarm: Alarm, loops: IndexMap, depth: int = 2
    ) -> None:
        super().__init__(text, load_element, alarm, depth)
        self.loops = loops
        self._indices: dict[int, Element] = {}

    @contextmanager
    def inside(self, loops: IndexMap, location: str) -> Iterator[None]:
        outer, self.loops, self.location = (self.loops, self.location), loops, location
        yield
        self.loops, self.location = outer

    def index(self, number: int) -> Element:
        form = self.loops[number]
        total: Element | None = None
        for loop, coefficient in form.coefficients:
            part = self._loop(loop)
            if coefficient != 1:
                part = self.op("arith.muli", part, self.constant(coefficient, I64))
            total = part if total is None else self.op("arith.addi", total, part)
        if total is None:
            return self.constant(form.constant, I64)
        return self.op("arith.addi", total, self.constant(form.constant, I64)) if form.constant else total

    def _loop(self, loop: int) -> Element:
        position = self.define(f"linalg.index {loop} : index", I64)
        return self.define(f"arith.index_cast {position.name} : index to i64", I64)


class SequenceWriter(ScalarWriter):
    """A writer of the body of sequential loops, which may also store elements."""

    def store(
        self, tensor: protocol.Tensor, indices: Sequence[protocol.Scalar], value: protocol.Scalar
    ) -> protocol.Tensor:
        assert isinstance(tensor, Local), tensor
        element = as_element(value)
        assert element.dtype == tensor.type.dtype and len(indices) == tensor.type.rank, (tensor, value, indices)
        coordinates = ", ".join(self.position(i) for i in indices)
        type = tensor_type(tensor.type)
        name = self.define(
            f"tensor.insert {element.name} into {tensor.name}[{coordinates}] : {type}", element.dtype
        ).name
        return Local(tensor.type, name)

    def repeat(
        self,
        count: protocol.Scalar,
        tensors: Sequence[protocol.Tensor],
        scalars: Sequence[protocol.Scalar],
        body: protocol.Turn,
    ) -> tuple[tuple[protocol.Tensor, ...], tuple[protocol.Scalar, ...]]:
        locals = [as_local(x) for x in tensors]
        elements = [as_element(x) for x in scalars]
        limit, variable = self.position(count), self.text.fresh()
        inner = [Local(x.type, self.text.fresh()) for x in locals]
        carried = [Element(self.text.fresh(), x.dtype) for x in elements]
        label, names = self.text.results(len(inner) + len(carried))
        inside = [*(x.name for x in inner), *(x.name for x in carried)]
        outside = [*(x.name for x in locals), *(x.name for x in elements)]
        arguments = ", ".join(f"{new} = {old}" for new, old in zip(inside, outside, strict=True))
        types = ", ".join([*(tensor_type(x.type) for x in locals), *(element_type(x.dtype) for x in elements)])
        bounds = f"{self.text.index(0)} to {limit} step {self.text.index(1)}"
        self.line(f"{label} = scf.for {variable} = {bounds} iter_args({arguments}) -> ({types}) {{")
        with self.deeper():
            index = self.define(f"arith.index_cast {variable} : index to i64", I64)
            written, computed = body(index, inner, carried)
            after = [as_local(x) for x in written]
            values = [as_element(x) for x in computed]
            assert [x.type for x in after] == [x.type for x in locals], (after, locals)
            assert [x.dtype for x in values] == [x.dtype for x in elements], (values, elements)
            names_after = [*(x.name for x in after), *(x.name for x in values)]
            self.line(f"scf.yield {', '.join(names_after)} : {types}")
        self.line("}")
        done = [Local(x.type, name) for x, name in zip(locals, names, strict=False)]
        results = [Element(name, x.dtype) for x, name in zip(elements, names[len(locals) :], strict=True)]
        return tuple(done), tuple(results)

    def branch(
        self,
        condition: protocol.Scalar,
        then: Callable[[], Sequence[protocol.Tensor]],
        otherwise: Sequence[protocol.Tensor],
    ) -> tuple[protocol.Tensor, ...]:
        kept = [as_local(x) for x in otherwise]
        types = ", ".join(tensor_type(x.type) for x in kept)
        label, names = self.text.results(len(kept))
        self.line(f"{label} = scf.if {as_element(condition).name} -> ({types}) {{")
        with self.deeper():
            changed = [as_local(x) for x in then()]
            assert [x.type for x in changed] == [x.type for x in kept], (changed, kept)
            self.line(f"scf.yield {', '.join(x.name for x in changed)} : {types}")
        self.line("} else {")
        with self.deeper():
            self.line(f"scf.yield {', '.join(x.name for x in kept)} : {types}")
        self.line("}")
        return tuple(Local(x.type, name) for x, name in zip(kept, names, strict=True))


def as_local(x: protocol.Tensor) -> Local:
    assert isinstance(x, Local), x
    return x
