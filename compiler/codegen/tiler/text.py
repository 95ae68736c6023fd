"""Writes a function in the vector, scf and arith dialects: named values, loops, and memory accesses by linear forms.

Each expression is remembered until the enclosing loop or branch ends, so a repeated expression is written once. A
vector has the stage's number of lanes; under a mask, only the first lanes are read and written.

For 8 lanes, a load of %x at the form `64*i + LANE`, a load at `64*i`, their product, and a store of it to %y at
`64*i + LANE + 8`, in a loop over i. The address `64*i` is written once:

    scf.for %v1 = %begin to %end step %c1 {
      %v2 = arith.muli %v1, %c64 : index
      %v3 = vector.load %x[%v2] : memref<...>, vector<8xf32>              LANE has the coefficient 1
      %v4 = memref.load %x[%v2] : memref<...>                             LANE is missing: one element
      %v5 = vector.broadcast %v4 : f32 to vector<8xf32>
      %v6 = "arith.mulf"(%v3, %v5) : (vector<8xf32>, vector<8xf32>) -> vector<8xf32>
      %v7 = arith.addi %v2, %c8 : index
      vector.store %v6, %y[%v7] : memref<...>, vector<8xf32>
    }

Constants, and the one-dimensional view of each argument, are written at the beginning of the function.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import reduce
from typing import Any, NamedTuple

from ....dialect.dims import Size, Symbol, multiply
from ....dialect.lazy_dataclass import dataclass
from ....dialect.types import FLOATS
from ...lower.text import FunctionText, literal
from ..elementary.find import Elementary, find_elementary
from ..isa import Instruction, find, supports
from ..isa.instruction import ZERO
from .forms import Form, constant
from .strided import STEPS, load_strided
from .structure import Buffer, Unsupported

_FLOATS = {dtype.mlir: dtype for dtype in FLOATS}

ENDLESS = 1 << 60
"""The size of memory with a known beginning and an unknown end."""


class Value(NamedTuple):
    """A scalar or a vector by its name, or an index value as a linear form. It is a tuple for the reason of `Form`."""

    name: str
    type: str
    vector: bool = False
    form: Form | None = None


INSTRUCTIONS: Mapping[str, str] = {
    "math.absf": "llvm.intr.fabs",
    "math.copysign": "llvm.intr.copysign",
    **{f"math.{name}": f"llvm.intr.{name}" for name in ("sqrt", "roundeven", "floor", "ceil", "trunc")},
}
"""Operations that are one instruction on vectors; the upstream lowering would expand them into calls of libm."""
STORED: Mapping[str, str] = {"i1": "i8", **{dtype.mlir: f"i{dtype.bits}" for dtype in FLOATS if dtype.is_half}}
"""The element types in memory, where they differ from those of values. A truth value takes a byte. 16-bit floats are
moved as integers, since LLVM would convert them through f32 where the CPU has no instructions for them."""


def stored_type(element: str) -> str:
    """Returns the element type in memory."""
    return STORED.get(element, element)


STACK_BYTES = 376 * 1024
"""The most bytes that a function allocates on the stack. Callers leave a kernel 384 KiB, also for what LLVM adds."""


def float_text(number: float, type: str) -> str:
    """Returns a float of a type as MLIR prints it."""
    return literal(number, _FLOATS[type])


def element_bytes(element: str) -> int:
    """Returns the number of bytes that an element takes in memory."""
    bits = re.search(r"\d+", stored_type(element))
    return int(bits[0]) // 8 if bits else 8


@dataclass(frozen=True, slots=True)
class _Scope:
    """A loop or branch: the expressions that it named, and the values that it remembered, by key, each with the one
    remembered before."""

    names: list[str] = field(default_factory=list)
    values: list[tuple[Hashable, Value | None]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Outside:
    """The vectors of conditions, by alarm, that are yet to be tested, and the depth of the lines that define them."""

    depth: int
    lanes: dict[str, list[str]] = field(default_factory=dict)


class Writer:
    """The text of one function. `locations` has one entry per line: the location of the op being written, or the
    function's location outside of ops. `features` are the usable CPU features, by their LLVM names."""

    def __init__(
        self, dims: Mapping[Symbol, str], location: Any = None, features: frozenset[str] = frozenset()
    ) -> None:
        self.function = FunctionText(dims)
        self.lines: list[str] = []
        self.locations: list[Any] = []
        self.location = location
        self.stack: list[str] = []
        """Allocations on the stack, written at the beginning of the function."""
        self.stack_bytes = 0
        self.depth = 1
        self.lanes = 1
        self.features = features
        self.mask: str | None = None
        self.outside: Outside | None = None
        self.functions: set[Elementary] = set()
        self.steps: set[int] = set()
        """The steps of the loops that were written."""
        self.multiples: dict[str, int] = {}
        """Loop indices that are known to be multiples of a number."""
        self.below: dict[str, int] = {}
        """Loop indices that are known to be below a number."""
        self._scopes = [_Scope()]
        self._names: dict[str, str] = {}
        """The names of the expressions in scope."""
        self._values: dict[Hashable, Value] = {}
        """The remembered values in scope."""
        self.without: set[str] = set()
        """The features of the CPU that LLVM does not use for the function."""
        self._halves: dict[str, Value] = {}
        """The numbers in f16 by the names of the scalars in f32 that they were converted to."""
        self._bound: dict[str, str] = {}
        self._hidden: dict[str, str] = {}
        self._count = 0

    # Lines

    def add(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)
        self.locations.append(self.location)

    @contextmanager
    def at(self, location: Any) -> Iterator[None]:
        """Attributes the lines written inside to this location, if there is one."""
        before, self.location = self.location, location or self.location
        yield
        self.location = before

    def fresh(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def let(self, expression: str) -> str:
        """Returns the name of an expression without effects; an expression is written once per scope."""
        name = self._names.get(expression)
        if name is None:
            name = self._names[expression] = self.fresh()
            self._scopes[-1].names.append(expression)
            self.add(f"{name} = {expression}")
        return name

    def recall(self, key: Hashable) -> Value | None:
        """Returns the remembered value, if it is still in scope."""
        return self._values.get(key)

    def remember(self, key: Hashable, value: Value) -> None:
        self._scopes[-1].values.append((key, self._values.get(key)))
        self._values[key] = value

    @contextmanager
    def scope(self, *, indent: bool = True) -> Iterator[None]:
        self._scopes.append(_Scope())
        self.depth += indent
        yield
        self.depth -= indent
        ended = self._scopes.pop()
        for expression in ended.names:
            del self._names[expression]
        for key, before in reversed(ended.values):
            if before is None:
                del self._values[key]
            else:
                self._values[key] = before

    # Index values

    def size(self, size: Size) -> str:
        return self.function.size(size)

    def index(self, form: Form) -> str:
        """Returns the value of a form without a lane."""
        if not form.terms:
            return self.size(form.constant)
        if form.constant != 0:
            base = self.index(Form(form.terms))
            return self.let(f"arith.addi {base}, {self.size(form.constant)} : index")
        total = ""
        for variable, coefficient in form.terms:
            part = variable
            if coefficient != 1:
                part = self.let(f"arith.muli {variable}, {self.size(coefficient)} : index")
            total = self.let(f"arith.addi {total}, {part} : index") if total else part
        return total

    def is_multiple(self, form: Form, number: int) -> bool:
        """Returns whether a form without a lane is known to be a multiple of a number."""
        factors = [(k, self.multiples.get(v, 1)) for v, k in form.terms]
        known = all(isinstance(k, int) and k * multiple % number == 0 for k, multiple in factors)
        return known and isinstance(form.constant, int) and form.constant % number == 0

    def rounded(self, start: str, end: str, step: int) -> str:
        """Returns the last index up to `end` that whole steps from `start` reach."""
        self.steps.add(step)
        left = self.let(f"arith.subi {end}, {start} : index")
        whole = self.let(f"arith.divui {left}, {self.size(step)} : index")
        way = self.let(f"arith.muli {whole}, {self.size(step)} : index")
        return self.let(f"arith.addi {start}, {way} : index")

    # Control

    @contextmanager
    def loop(self, start: str, end: str, step: int) -> Iterator[str]:
        name = self.fresh()
        self.steps.add(step)
        self.add(f"scf.for {name} = {start} to {end} step {self.size(step)} {{")
        with self.scope():
            yield name
        self.add("}")

    @contextmanager
    def carrying(self, start: str, end: str, step: int, carried: Sequence[Value]) -> Iterator[CarryingLoop]:
        """Writes a loop over carried values. The body's author sets `after`; `results` are valid after the loop."""
        if not carried:
            with self.loop(start, end, step) as name:
                yield CarryingLoop(name, ())
            return
        self.steps.add(step)
        names = [self.fresh() for _ in carried]
        results, index = self.fresh(), self.fresh()
        initial = ", ".join(f"{n} = {v.name}" for n, v in zip(names, carried, strict=True))
        types = ", ".join(self.type(v) for v in carried)
        count = f":{len(names)}" if len(names) > 1 else ""
        bounds = f"{start} to {end} step {self.size(step)}"
        self.add(f"{results}{count} = scf.for {index} = {bounds} iter_args({initial}) -> ({types}) {{")
        values = [Value(n, v.type, v.vector) for n, v in zip(names, carried, strict=True)]
        loop = CarryingLoop(index, values)
        with self.scope():
            yield loop
            self.add(f"scf.yield {', '.join(v.name for v in loop.after)} : {types}")
        self.add("}")
        outside = [f"{results}#{i}" for i in range(len(names))] if count else [results]
        loop.results = [Value(n, v.type, v.vector) for n, v in zip(outside, carried, strict=True)]

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        self.add(f"scf.if {condition} {{")
        with self.scope():
            yield
        self.add("}")

    def either(self, condition: str, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
        self.add(f"scf.if {condition} {{")
        with self.scope():
            then()
        self.add("} else {")
        with self.scope():
            otherwise()
        self.add("}")

    def switch(self, number: str, cases: Iterable[int], write: Callable[[int], None]) -> None:
        """Writes one case for each possible number."""
        self.add(f"scf.index_switch {number}")
        for case in cases:
            self.add(f"case {case} {{")
            with self.scope():
                write(case)
                self.add("scf.yield")
            self.add("}")
        self.add("default {")
        self.add("}")

    @contextmanager
    def masked(self, mask: str | None) -> Iterator[None]:
        before, self.mask = self.mask, mask
        yield
        self.mask = before

    # Types and values

    def vector_type(self, element: str) -> str:
        return f"vector<{self.lanes}x{element}>"

    def type(self, value: Value) -> str:
        return self.vector_type(value.type) if value.vector else value.type

    def constant(self, text: str, type: str) -> Value:
        """Returns a scalar constant; `text` is its attribute as MLIR prints it."""
        literal = text if ":" in text or text in ("true", "false") else f"{text} : {type}"
        return Value(self.function.define("arith.constant", literal), type)

    def number(self, number: float, type: str) -> Value:
        """Returns a scalar constant of floats."""
        return self.constant(float_text(number, type), type)

    def splat(self, text: str, type: str) -> str:
        """Returns a vector of one constant."""
        return self.function.define("arith.constant", f"dense<{text}> : {type}")

    def instruction(self, operation: str) -> Instruction | None:
        """Returns the CPU's instruction for an operation on vectors of `lanes` lanes, or None."""
        return find(operation, self.lanes, self.features)

    def use(self, instruction: Instruction, *operands: str) -> str:
        """Returns the result of an instruction."""
        trailing = [
            self.splat("0", instruction.vector_type(instruction.result))
            if text == ZERO
            else self.constant(*text.split(" : ")).name
            for text in instruction.trailing
        ]
        return self.let(instruction.call(operands, trailing))

    def broadcast(self, value: Value) -> Value:
        """Returns the value as a vector."""
        if value.form is not None:
            return self._lanes_of(value)
        if value.vector:
            return value
        if value.name in self._halves:
            # Broadcast first, then converted: a scalar's conversion depends on the previous content of its register.
            return self.apply("arith.extf", "", [self.broadcast(self._halves[value.name])], value.type)
        type = self.vector_type(value.type)
        return Value(self.let(f"vector.broadcast {value.name} : {value.type} to {type}"), value.type, True)

    def shuffle(self, left: Value, right: Value, picks: Sequence[int]) -> Value:
        """Returns the vector of some elements of two vectors, which are numbered one after the other. 16-bit floats are
        shuffled as integers: LLVM would move them one by one."""
        stored = stored_type(left.type) if left.type in _FLOATS else left.type
        type, names = self.vector_type(stored), [left.name, right.name]
        if stored != left.type:
            names = [self.let(f"arith.bitcast {name} : {self.vector_type(left.type)} to {type}") for name in names]
        name = self.let(f"vector.shuffle {names[0]}, {names[1]} {list(picks)} : {type}, {type}")
        if stored != left.type:
            name = self.let(f"arith.bitcast {name} : {type} to {self.vector_type(left.type)}")
        return Value(name, left.type, True)

    def scalar(self, value: Value) -> Value:
        """Returns a scalar value by its name."""
        if value.form is None or value.name:
            return value
        assert value.form.lane == 0, value
        name = self.index(value.form)
        if value.type != "index":
            name = self.let(f"arith.index_cast {name} : index to {value.type}")
        return Value(name, value.type)

    def _lanes_of(self, value: Value) -> Value:
        assert value.form is not None
        base = self.broadcast(self.scalar(Value("", value.type, form=value.form.base)))
        if value.form.lane == 0:
            return base
        vector = self.vector_type(value.type)
        lanes = self.function.define("vector.step", f": {self.vector_type('index')}")
        if value.type != "index":
            lanes = self.let(f"arith.index_cast {lanes} : {self.vector_type('index')} to {vector}")
        if value.form.lane != 1:
            step = self.broadcast(self.scalar(Value("", value.type, form=constant(value.form.lane))))
            lanes = self.let(f"arith.muli {lanes}, {step.name} : {vector}")
        return Value(self.let(f"arith.addi {base.name}, {lanes} : {vector}"), value.type, True)

    def apply(self, name: str, attributes: str, operands: Sequence[Value], type: str) -> Value:
        """Applies an elementwise operation, lane by lane if any operand is a vector."""
        vector = any(v.vector or (v.form is not None and v.form.lane != 0) for v in operands)
        values = [self.broadcast(v) if vector else self.scalar(v) for v in operands]
        result = self.vector_type(type) if vector else type
        types = ", ".join(self.type(v) for v in values)
        function = find_elementary(name, type, self.features, self.lanes if vector else None)
        if function is not None:
            self.functions.add(function)
            called = f"func.call @{function.symbol}({', '.join(v.name for v in values)}) : ({types}) -> {result}"
            return Value(self.let(called), type, vector)
        suffix = f" {{{attributes}}}" if attributes else ""
        written = INSTRUCTIONS.get(name, name) if vector else name
        text = f'"{written}"({", ".join(v.name for v in values)}){suffix} : ({types}) -> {result}'
        applied = Value(self.let(text), type, vector)
        if (
            name == "arith.extf"
            and values[0].type == "f16"
            and not vector
            and supports("convert-halves", self.features)
        ):
            self._halves[applied.name] = values[0]
        return applied

    def multiply_add(self, left: str, right: str, total: str, type: str) -> str:
        """Returns left * right + total of floats, rounded once where the CPU has a fused instruction."""
        if supports("multiply-add", self.features):
            return self.let(f"vector.fma {left}, {right}, {total} : {type}")
        return self.let(f"arith.addf {self.let(f'arith.mulf {left}, {right} : {type}')}, {total} : {type}")

    # Memory

    def memory(self, buffer: Buffer) -> str:
        """Returns the memory of an argument or of a constant as a one-dimensional memref."""
        if buffer.constant:
            return self._constant_memory(buffer)
        if buffer.name not in self._bound:
            element = stored_type(buffer.element)
            flat = f"memref<{ENDLESS}x{element}>"
            layout = f"to offset: [0], sizes: [{ENDLESS}], strides: [1] : memref<{element}> to {flat}"
            self._bound[buffer.name] = self.function.define("memref.reinterpret_cast", buffer.name, layout)
        return self._bound[buffer.name]

    def _constant_memory(self, buffer: Buffer) -> str:
        """Returns memory on the stack; the function stores the constant into it at its beginning."""
        if buffer.name not in self._bound:
            memory = self.on_stack(buffer.size, buffer.element).name
            element, type = stored_type(buffer.element), f"vector<{buffer.size}x{buffer.element}>"
            stored, name = f"vector<{buffer.size}x{element}>", f"{memory}_values"
            self.stack.append(f"{name} = arith.constant {buffer.constant} : {type}")
            if element != buffer.element:
                operation = "arith.extui" if buffer.element == "i1" else "arith.bitcast"
                self.stack.append(f"{name}_stored = {operation} {name} : {type} to {stored}")
                name += "_stored"
            address = f"{memory}[{self.size(0)}] : memref<{ENDLESS}x{element}>, {stored}"
            self.stack.append(f"vector.store {name}, {address}")
            self._bound[buffer.name] = memory
        return self._bound[buffer.name]

    def on_stack(self, elements: int, element: str) -> Buffer:
        """Allocates memory on the function's stack. Raises Unsupported beyond `STACK_BYTES`."""
        self.stack_bytes += elements * element_bytes(element)
        if self.stack_bytes > STACK_BYTES:
            raise Unsupported(f"{self.stack_bytes:,} bytes of the stack, of {STACK_BYTES:,}")
        name = f"%stack{len(self.stack)}"
        type = f"memref<{elements}x{stored_type(element)}>"
        self.stack.append(f"{name}_row = memref.alloca() {{alignment = 64 : i64}} : {type}")
        flat = f"memref<{ENDLESS}x{stored_type(element)}>"
        layout = f"to offset: [0], sizes: [{ENDLESS}], strides: [1] : {type} to {flat}"
        self.stack.append(f"{name} = memref.reinterpret_cast {name}_row {layout}")
        self._bound[name] = name
        return Buffer(name, element)

    def hidden(self, buffer: Buffer) -> str:
        """Returns a pointer to memory on the stack whose origin LLVM does not know, so that loads stay loads: it would
        replace those of a stored vector by instructions that extract its lanes."""
        if buffer.name not in self._hidden:
            name = f"{buffer.name}_hidden"
            flat = f"memref<{ENDLESS}x{stored_type(buffer.element)}>"
            address = f"memref.extract_aligned_pointer_as_index {buffer.name} : {flat} -> index"
            self.stack += [f"{name}_index = {address}", f"{name}_i64 = arith.index_cast {name}_index : index to i64"]
            self.stack.append(f"{name}_known = llvm.inttoptr {name}_i64 : i64 to !llvm.ptr")
            self.stack.append(f'{name} = llvm.inline_asm "", "=r,0" {name}_known : (!llvm.ptr) -> !llvm.ptr')
            self._hidden[buffer.name] = name
        return self._hidden[buffer.name]

    def hidden_here(self, buffer: Buffer) -> str:
        """Returns a pointer as `hidden` does, from which LLVM moves no loads out of the current loop."""
        name = self.fresh()
        types = "(!llvm.ptr) -> !llvm.ptr"
        self.add(f'{name} = llvm.inline_asm has_side_effects "", "=r,0" {self.hidden(buffer)} : {types}')
        return name

    def load(self, buffer: Buffer, form: Form) -> Value:
        """Loads the element at a form, or the vector of elements along its lanes."""
        element = stored_type(buffer.element)
        type = f"memref<{ENDLESS}x{element}>"
        memory, base = self.memory(buffer), form.base
        if form.lane == 0:
            value = Value(self.let(f"memref.load {memory}[{self.index(base)}] : {type}"), element)
        elif form.lane == 1:
            value = Value(self._load_vector(memory, base, element, self.mask), element, True)
        elif form.lane in STEPS and self.lanes > 1:
            assert isinstance(form.lane, int), form

            def load(offset: int, mask: str | None) -> str:
                return self._load_vector(memory, base.plus(offset), element, mask)

            none = self.splat("false", self.vector_type("i1"))
            name = load_strided(self.let, load, form.lane, self.lanes, element, self.mask, none)
            value = Value(name, element, True)
        else:
            indices = self._lanes_of(Value("", "index", form=Form((("lane", form.lane),))))
            value = self.gather(buffer, base, indices)
            return value
        return self.as_read(value, buffer)

    def _load_vector(self, memory: str, base: Form, element: str, mask: str | None) -> str:
        type, vector = f"memref<{ENDLESS}x{element}>", self.vector_type(element)
        address = f"{memory}[{self.index(base)}]"
        if mask is None:
            return self.let(f"vector.load {address} : {type}, {vector}")
        types = f"{type}, {self.vector_type('i1')}, {vector} into {vector}"
        return self.let(f"vector.maskedload {address}, {mask}, {self._zero(element).name} : {types}")

    def gather(self, buffer: Buffer, base: Form, indices: Value) -> Value:
        """Returns the elements at `base + indices`, lane by lane. Indices are of type index, or i32 and signed."""
        element = stored_type(buffer.element)
        vector, masks = self.vector_type(element), self.vector_type("i1")
        mask = self.mask or self._all_lanes()
        rest = self._zero(element)
        types = f"memref<{ENDLESS}x{element}>, {self.type(indices)}, {masks}, {vector} into {vector}"
        address = f"{self.memory(buffer)}[{self.index(base)}] [{indices.name}], {mask}, {rest.name}"
        return self.as_read(Value(self.let(f"vector.gather {address} : {types}"), element, True), buffer)

    def load_words(self, buffer: Buffer, form: Form, size: int, count: int, stride: Size = 1) -> Value:
        """Loads the `size` elements from a form on as a word of 32 bits, or as a vector of such words. For a single
        word, and for words with elements `stride` apart, only the first `count` elements are read, and the others
        are 0."""
        if count < size or stride != 1:
            parts = [self._load_bits(buffer, form.plus(multiply(i, stride)), i * (32 // size)) for i in range(count)]
            return reduce(lambda x, y: self.apply("arith.ori", "", [x, y], "i32"), parts)
        words = self.lanes if form.lane == size else 1
        assert form.lane in (0, size), (form, size)
        element = stored_type(buffer.element)
        type, bytes = f"memref<{ENDLESS}x{element}>", f"vector<{words * size}x{element}>"
        elements = self.let(f"vector.load {self.memory(buffer)}[{self.index(form.base)}] : {type}, {bytes}")
        name = self.let(f"vector.bitcast {elements} : {bytes} to vector<{words}xi32>")
        if form.lane == size:
            return Value(name, "i32", True)
        return Value(self.let(f"vector.extract {name}[0] : i32 from vector<1xi32>"), "i32")

    def _load_bits(self, buffer: Buffer, form: Form, shift: int) -> Value:
        """Loads an element's bits into a word, shifted left by `shift`."""
        value = self.load(replace(buffer, element=stored_type(buffer.element)), form)
        word = self.apply("arith.extui", "", [value], "i32")
        return self.apply("arith.shli", "", [word, self.constant(str(shift), "i32")], "i32")

    def prefetch(self, buffer: Buffer, form: Form, *, level: int = 1, write: bool = False) -> None:
        """Prefetches the memory at a form into the cache of a level, 1 or 2; an invalid address does no harm. `write`
        announces a store."""
        type, use = f"memref<{ENDLESS}x{stored_type(buffer.element)}>", "write" if write else "read"
        at = f"{self.memory(buffer)}[{self.index(form.base)}]"
        self.add(f"memref.prefetch {at}, {use}, locality<{4 - level}>, data : {type}")

    def _all_lanes(self) -> str:
        return self.function.define("vector.constant_mask", f"[{self.lanes}] : {self.vector_type('i1')}")

    def _zero(self, element: str) -> Value:
        return self.broadcast(self.constant(_zero_text(element), element))

    def as_read(self, value: Value, buffer: Buffer) -> Value:
        if stored_type(buffer.element) == buffer.element:
            return value
        return self.apply("arith.trunci" if buffer.element == "i1" else "arith.bitcast", "", [value], buffer.element)

    def store(self, buffer: Buffer, form: Form, value: Value) -> None:
        element = stored_type(buffer.element)
        if element != buffer.element:
            value = self.apply("arith.extui" if buffer.element == "i1" else "arith.bitcast", "", [value], element)
        type, memory = f"memref<{ENDLESS}x{element}>", self.memory(buffer)
        address = f"{memory}[{self.index(form.base)}]"
        if form.lane == 0:
            scalar = self.scalar(value)
            assert not scalar.vector, (form, value)
            self.add(f"memref.store {scalar.name}, {address} : {type}")
            return
        vector, masks = self.broadcast(value), self.vector_type("i1")
        if form.lane == 1 and self.mask is None:
            self.add(f"vector.store {vector.name}, {address} : {type}, {self.type(vector)}")
        elif form.lane == 1:
            self.add(f"vector.maskedstore {address}, {self.mask}, {vector.name} : {type}, {masks}, {self.type(vector)}")
        else:
            indices = self._lanes_of(Value("", "index", form=Form((("lane", form.lane),))))
            mask = self.mask or self._all_lanes()
            types = f"{type}, {self.vector_type('index')}, {masks}, {self.type(vector)}"
            self.add(f"vector.scatter {address} [{indices.name}], {mask}, {vector.name} : {types}")

    def compress(self, buffer: Buffer, form: Form, mask: str, value: Value) -> str:
        """Stores the lanes of a mask side by side from a form on; returns their number, as an i32."""
        type, masks = f"memref<{ENDLESS}x{stored_type(buffer.element)}>", self.vector_type("i1")
        address = f"{self.memory(buffer)}[{self.index(form)}]"
        self.add(f"vector.compressstore {address}, {mask}, {value.name} : {type}, {masks}, {self.type(value)}")
        ones = self.let(f"arith.extui {mask} : {masks} to {self.vector_type('i32')}")
        return self.let(f"vector.reduction <add>, {ones} : {self.vector_type('i32')} into i32")

    def first_lanes(self, count: Form) -> str:
        """Returns a mask of the first `count` lanes."""
        if not count.terms and isinstance(count.constant, int):
            return self.function.define("vector.constant_mask", f"[{count.constant}] : {self.vector_type('i1')}")
        return self.let(f"vector.create_mask {self.index(count)} : {self.vector_type('i1')}")


def _zero_text(element: str) -> str:
    return "0.0" if element.startswith(("f", "b")) else "0"


class CarryingLoop:
    """A loop that carries values: `values` inside it, `after` at the end of its body, `results` after it."""

    def __init__(self, index: str, values: Sequence[Value]) -> None:
        self.index, self.values = index, list(values)
        self.after: list[Value] = []
        self.results: list[Value] = []
