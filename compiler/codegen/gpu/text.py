"""Writes a device function as MLIR text: names for values, indentation for regions, and the position of a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ....dialect.emitter import Index
from ..structured.positions import Position, plain, write_position

_REGISTER = "llvm.nvvm.read.ptx.sreg"


class Text:
    """The lines of one function. Every method that computes returns the name of the value."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0
        self._depth = 1
        self._constants: dict[str, str] = {}

    def fresh(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def line(self, text: str) -> None:
        self.lines.append("  " * self._depth + text)

    def let(self, text: str) -> str:
        name = self.fresh()
        self.line(f"{name} = {text}")
        return name

    def let_many(self, count: int, text: str) -> list[str]:
        name = self.fresh()
        if count == 1:
            self.line(f"{name} = {text}")
            return [name]
        self.line(f"{name}:{count} = {text}")
        return [f"{name}#{number}" for number in range(count)]

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Iterator[None]:
        self.line(f"{head} {{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line(tail)

    @contextmanager
    def next_region(self) -> Iterator[None]:
        """Encloses the second region of an operation whose first one is a `block` with a tail such as `} else {`."""
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}")

    @contextmanager
    def loop(
        self, bounds: str, carried: Sequence[str], starts: Sequence[str], types: Sequence[str]
    ) -> Iterator[list[str]]:
        """Encloses the body of an `scf.for` with carried values; yields the names of its results."""
        if not types:
            with self.block(f"scf.for {bounds}"):
                yield []
            return
        pairs = ", ".join(f"{name} = {start}" for name, start in zip(carried, starts, strict=True))
        name = self.fresh()
        count = f":{len(types)}" if len(types) > 1 else ""
        with self.block(f"{name}{count} = scf.for {bounds} iter_args({pairs}) -> ({', '.join(types)})"):
            yield [f"{name}#{number}" for number in range(len(types))] if len(types) > 1 else [name]

    def choose(
        self,
        condition: str,
        types: Sequence[str],
        then: Callable[[], Sequence[str]],
        otherwise: Callable[[], Sequence[str]],
    ) -> list[str]:
        """Returns the values of one of two regions of an `scf.if`."""
        name, count = self.fresh(), f":{len(types)}" if len(types) > 1 else ""
        with self.block(f"{name}{count} = scf.if {condition} -> ({', '.join(types)})", "} else {"):
            self.carry(then(), types)
        with self.next_region():
            self.carry(otherwise(), types)
        return [f"{name}#{number}" for number in range(len(types))] if count else [name]

    def carry(self, values: Sequence[str], types: Sequence[str]) -> None:
        """Ends a region with the values that its operation carries on or returns."""
        if values:
            self.line(f"scf.yield {', '.join(values)} : {', '.join(types)}")

    def constant(self, value: int, type: str = "index") -> str:
        """Returns a constant, defined at the top of the function."""
        return self._constants.setdefault(f"{value} : {type}", f"%k{len(self._constants)}")

    def function(self, head: str, results: Sequence[str] = (), types: Sequence[str] = ()) -> str:
        """Returns the whole function, which returns `results`."""
        constants = [f"  {name} = arith.constant {text}" for text, name in self._constants.items()]
        back = f"  return {', '.join(results)} : {', '.join(types)}" if results else "  return"
        return "\n".join([f"func.func private {head} {{", *constants, *self.lines, back, "}", ""])

    # Arithmetic of indices

    def index(self, operation: str, left: str, right: str) -> str:
        return self.let(f"arith.{operation} {left}, {right} : index")

    def multiply(self, *factors: str) -> str:
        product, *others = factors
        for factor in others:
            product = self.let(f"arith.muli {product}, {factor} overflow<nsw, nuw> : index")
        return product

    def add(self, left: str, right: str) -> str:
        return self.let(f"arith.addi {left}, {right} overflow<nsw, nuw> : index")

    def below(self, left: str, right: str) -> str:
        return self.let(f"arith.cmpi ult, {left}, {right} : index")

    def apply(self, position: Position, loops: Sequence[str]) -> str:
        """Returns the value of a position where the loops have these values."""
        if isinstance(position, Index) and not position.coefficients:
            return self.constant(position.constant)
        loop = plain(position)
        if loop is not None:
            return loops[loop]
        dims = ", ".join(f"d{number}" for number in range(len(loops)))
        return self.let(f"affine.apply affine_map<({dims}) -> ({write_position(position)})>({', '.join(loops)})")

    # Threads

    def special(self, register: str) -> str:
        """Returns a special register, such as `tid.x`."""
        value = self.let(f'llvm.call_intrinsic "{_REGISTER}.{register}"() : () -> i32')
        return self.let(f"arith.index_castui {value} : i32 to index")

    def exchange(self, value: str, type: str, distance: int) -> str:
        """Returns the value of the lane whose number differs in the bit `distance`; the whole warp calls it."""
        bits = 16 if type == "bf16" else int(type[1:])
        number = value if type[0] == "i" else self.let(f"arith.bitcast {value} : {type} to i{bits}")
        if bits == 64:
            high = self.let(f"arith.shrui {number}, {self.constant(32, 'i64')} : i64")
            low, high = (self._exchange(self.let(f"arith.trunci {n} : i64 to i32"), distance) for n in (number, high))
            low, high = (self.let(f"arith.extui {n} : i32 to i64") for n in (low, high))
            shifted = self.let(f"arith.shli {high}, {self.constant(32, 'i64')} : i64")
            number = self.let(f"arith.ori {low}, {shifted} : i64")
        else:
            wide = number if bits == 32 else self.let(f"arith.extui {number} : i{bits} to i32")
            number = self._exchange(wide, distance)
            number = number if bits == 32 else self.let(f"arith.trunci {number} : i32 to i{bits}")
        return number if type[0] == "i" else self.let(f"arith.bitcast {number} : i{bits} to {type}")

    def _exchange(self, value: str, distance: int) -> str:
        everyone, by, last = (self.constant(n, "i32") for n in (-1, distance, 31))
        name = "llvm.nvvm.shfl.sync.bfly.i32"
        arguments = f"({everyone}, {value}, {by}, {last}) : (i32, i32, i32, i32) -> i32"
        return self.let(f'llvm.call_intrinsic "{name}"{arguments}')

    def barrier(self) -> None:
        """Waits until every thread of the block is here; writes before it are seen by reads after it."""
        zero = self.constant(0, "i32")
        self.line(f'llvm.call_intrinsic "llvm.nvvm.barrier.cta.sync.aligned.all"({zero}) : (i32) -> ()')
