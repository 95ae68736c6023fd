"""Tiles in shared memory: asynchronous copies into them, and fragments for tensor cores out of them.

A tile has a slow and a fast axis; the fast one is the axis that is contiguous in memory, so that a copy moves 16 bytes.
16 more bytes after each row put the rows of a matrix into different banks. `ldmatrix` reads four matrices of 8 rows of
16 bytes, where lane 8 i + r addresses row r of matrix i; it can transpose those of 16-bit elements, so that either
axis of such a tile may be the depth of the product. For other elements the fast axis is the depth.

    registers of lane l, g = l / 4, p = l % 4    a: rows g, g + 8; depths 2p, 2p + 1 and 2p + 8, 2p + 9
                                                 b: column g;      the same depths
                                                 c: rows g, g + 8; columns 2p, 2p + 1

These are the fragments of 16-bit elements. A register has the same 4 bytes of a row for elements of every size.

https://docs.nvidia.com/cuda/parallel-thread-execution/#warp-level-matrix-fragment-mma-16816-float
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ....dialect.lazy_dataclass import dataclass
from .nest import Operand
from .plain import is_inside, load_element
from .text import Text

BYTES = {"f16": 2, "bf16": 2, "i8": 1, "f32": 4}
ZEROS = {"f16": "0.0", "bf16": "0.0", "i8": "0", "f32": "0.0"}
CHUNK = 16
"""The bytes of a copy, and of a row of a matrix."""
_WORD = 4
_TOGETHER = 4
"""The single elements that a thread reads before it stores the first of them, where nothing else is possible."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile. `base` is the address of its first byte in shared memory."""

    text: Text
    base: str
    element: str
    slow: int
    fast: int

    @property
    def size(self) -> int:
        """The bytes of an element."""
        return BYTES[self.element]

    @property
    def pitch(self) -> int:
        """The bytes from one row to the next."""
        return self.fast * self.size + CHUNK

    @property
    def bytes(self) -> int:
        return self.slow * self.pitch

    def address(self, slow: str, fast: str) -> str:
        text = self.text
        row = text.multiply(slow, text.constant(self.pitch))
        return text.add(text.add(self.base, row), text.multiply(fast, text.constant(self.size)))

    def lanes(self, slow: str, slow_bit: int) -> str:
        """Returns the address that this lane gives to `ldmatrix`, for matrices that begin at a row. Bit `slow_bit` of a
        matrix's number selects the lower one of two along the slow axis, the other bit that along the fast axis."""
        text, lane = self.text, self.text.index("remui", self.text.special("tid.x"), self.text.constant(32))
        bits = text.index("divui", lane, text.constant(8))
        each = [text.index("remui", bits, text.constant(2)), text.index("divui", bits, text.constant(2))]
        down = text.multiply(each[slow_bit], text.constant(8))
        right = text.multiply(each[1 - slow_bit], text.constant(CHUNK // self.size))
        row = text.add(text.add(slow, down), text.index("remui", lane, text.constant(8)))
        return self.address(row, right)

    def matrices(self, lanes: str, slow: int, fast: int, *, turned: bool) -> list[str]:
        """Returns the four registers of `ldmatrix`, at a distance from the addresses of `lanes`."""
        text = self.text
        offset = text.add(lanes, text.constant(slow * self.pitch + fast * self.size))
        way = ".trans" if turned else ""
        result = "!llvm.struct<(i32, i32, i32, i32)>"
        name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4{way}.b16"
        made = text.let(f'llvm.call_intrinsic "{name}"({shared_pointer(text, offset)}) : (!llvm.ptr<3>) -> {result}')
        return [text.let(f"llvm.extractvalue {made}[{n}] : {result}") for n in range(4)]


def _pointer(text: Text, address: str, space: int) -> str:
    number = text.let(f"arith.index_cast {address} : index to i64")
    if space == 3:
        return text.let(f"llvm.inttoptr {number} : i64 to !llvm.ptr<3>")
    generic = text.let(f"llvm.inttoptr {number} : i64 to !llvm.ptr")
    return text.let(f"llvm.addrspacecast {generic} : !llvm.ptr to !llvm.ptr<1>")


def shared_pointer(text: Text, address: str) -> str:
    return _pointer(text, address, 3)


def layout_of(text: Text, name: str, operand: Operand) -> tuple[str, list[str]]:
    """Returns the address of the first element of an operand, and the strides."""
    rank = len(operand.index)
    types = ", ".join(["index"] * (2 * rank + 1))
    made = text.fresh()
    split = f"memref.extract_strided_metadata {name} : {operand.type} -> memref<{operand.element}>, {types}"
    text.line(f"{made}:{2 * rank + 2} = {split}")
    address = text.let(f"memref.extract_aligned_pointer_as_index {name} : {operand.type} -> index")
    first = text.add(address, text.multiply(f"{made}#1", text.constant(BYTES[operand.element])))
    return first, [f"{made}#{2 + rank + axis}" for axis in range(rank)]


@dataclass(frozen=True, slots=True)
class Source:
    """An operand whose elements are copied to tiles. `at` returns the positions of the loops by those along the slow
    and the fast axis of a tile, which end at `limits`."""

    text: Text
    name: str
    operand: Operand
    fast_axis: int
    limits: tuple[str, str]
    at: Callable[[str, str], Sequence[str]]
    is_crossed: bool = False
    """Whether elements are contiguous in memory along the slow axis of a tile."""

    @property
    def size(self) -> int:
        return BYTES[self.operand.element]

    @property
    def chunk(self) -> int:
        """The elements of a copy of 16 bytes."""
        return CHUNK // self.size

    def is_aligned(self) -> str:
        """Returns whether all rows begin at multiples of 16 bytes."""
        text = self.text
        base, strides = self._layout()
        bits = base
        for axis, stride in enumerate(strides):
            if axis != self.fast_axis:
                bits = text.index("ori", bits, text.multiply(stride, text.constant(self.size)))
        low = text.index("andi", bits, text.constant(CHUNK - 1))
        own = text.let(f"arith.cmpi eq, {strides[self.fast_axis]}, {text.constant(1)} : index")
        aligned = text.let(f"arith.cmpi eq, {low}, {text.constant(0)} : index")
        return text.let(f"arith.andi {aligned}, {own} : i1")

    def _layout(self) -> tuple[str, list[str]]:
        """Returns the address of the first element, and the strides."""
        return layout_of(self.text, self.name, self.operand)

    def copy(self, tile: Tile, first: tuple[str, str], threads: int, aligned: str | None) -> None:
        """Begins to copy the elements from a position on; elements after the limits are 0. Copies by 16 bytes, for
        which sources are `aligned`, and those of words arrive with their group, others at once."""
        text = self.text
        thread = text.special("tid.x")
        if aligned is None:
            self._copy_elements(tile, first, threads, thread, _TOGETHER)
            return
        with text.block(f"scf.if {aligned}", "} else {"):
            self._copy_chunks(tile, first, threads, thread)
        with text.next_region():
            self._copy_elements(tile, first, threads, thread, 1)

    def _copy_chunks(self, tile: Tile, first: tuple[str, str], threads: int, thread: str) -> None:
        text, in_row = self.text, tile.fast // self.chunk
        base, strides = self._layout()
        zero = text.constant(0)
        for part in range(-(-tile.slow * in_row // threads)):
            number = text.add(thread, text.constant(part * threads))
            if (part + 1) * threads <= tile.slow * in_row:
                self._copy_chunk(tile, first, number, base, strides, zero)
                continue
            with text.block(f"scf.if {text.below(number, text.constant(tile.slow * in_row))}"):
                self._copy_chunk(tile, first, number, base, strides, zero)

    def _copy_chunk(
        self, tile: Tile, first: tuple[str, str], number: str, base: str, strides: Sequence[str], zero: str
    ) -> None:
        text, in_row = self.text, self.text.constant(tile.fast // self.chunk)
        slow = text.index("divui", number, in_row)
        fast = text.multiply(text.index("remui", number, in_row), text.constant(self.chunk))
        here, there = text.add(first[0], slow), text.add(first[1], fast)
        inside = self._is_inside(here, there)
        left = text.let(f"arith.subi {self.limits[1]}, {there} : index")
        count = text.index("minui", left, text.constant(self.chunk))
        bytes = text.let(f"arith.select {inside}, {text.multiply(count, text.constant(self.size))}, {zero} : index")
        source = text.let(f"arith.select {inside}, {self._address(base, strides, here, there)}, {base} : index")
        self._begin_copy(tile.address(slow, fast), source, bytes, "cg", CHUNK)

    def _copy_elements(self, tile: Tile, first: tuple[str, str], threads: int, thread: str, together: int) -> None:
        text, begin, total = self.text, self.text.fresh(), tile.slow * tile.fast
        together = together if total % (together * threads) == 0 else 1
        step = text.constant(together * threads)
        with text.loop(f"{begin} = {thread} to {text.constant(total)} step {step}", [], [], []):
            numbers = [text.add(begin, text.constant(part * threads)) for part in range(together)]
            offsets = [self._element_offset(tile, number) for number in numbers]
            if self.size == _WORD:
                for slow, fast in offsets:
                    self._copy_word(tile, first, slow, fast)
                return
            values = [self._read_element(text.add(first[0], slow), text.add(first[1], fast)) for slow, fast in offsets]
            for value, (slow, fast) in zip(values, offsets, strict=True):
                target = shared_pointer(text, tile.address(slow, fast))
                text.line(f"llvm.store {value}, {target} : {self.operand.element}, !llvm.ptr<3>")

    def _element_offset(self, tile: Tile, number: str) -> tuple[str, str]:
        """Returns the position in a tile of the element that a thread copies: neighbouring threads read neighbouring
        elements."""
        text = self.text
        inner = text.constant(tile.slow if self.is_crossed else tile.fast)
        outer, within = (text.index(operation, number, inner) for operation in ("divui", "remui"))
        return (within, outer) if self.is_crossed else (outer, within)

    def _copy_word(self, tile: Tile, first: tuple[str, str], slow: str, fast: str) -> None:
        """Begins to copy an element of 4 bytes."""
        text, zero = self.text, self.text.constant(0)
        base, strides = self._layout()
        here, there = text.add(first[0], slow), text.add(first[1], fast)
        inside = self._is_inside(here, there)
        source = text.let(f"arith.select {inside}, {self._address(base, strides, here, there)}, {base} : index")
        bytes = text.let(f"arith.select {inside}, {text.constant(_WORD)}, {zero} : index")
        self._begin_copy(tile.address(slow, fast), source, bytes, "ca", _WORD)

    def _is_inside(self, slow: str, fast: str) -> str:
        """Returns whether an element exists: it is before the limits, and not in the padding."""
        text = self.text
        known = [text.below(slow, self.limits[0]), text.below(fast, self.limits[1])]
        inside = text.let(f"arith.andi {known[0]}, {known[1]} : i1")
        if not self.operand.padded:
            return inside
        positions = self.at(slow, fast)
        indices = [text.apply(expression, positions) for expression in self.operand.index]
        return text.let(f"arith.andi {inside}, {is_inside(text, self.operand, self.name, indices)} : i1")

    def _address(self, base: str, strides: Sequence[str], slow: str, fast: str) -> str:
        text, offset, positions = self.text, base, self.at(slow, fast)
        for expression, stride in zip(self.operand.index, strides, strict=True):
            step = text.multiply(text.apply(expression, positions), stride)
            offset = text.add(offset, text.multiply(step, text.constant(self.size)))
        return offset

    def _begin_copy(self, target: str, source: str, bytes: str, cached: str, most: int) -> None:
        text = self.text
        pointers = f"{shared_pointer(text, target)}, {_pointer(text, source, 1)}"
        size = text.let(f"arith.index_cast {bytes} : index to i32")
        name = f"llvm.nvvm.cp.async.{cached}.shared.global.{most}.s"
        text.line(f'llvm.call_intrinsic "{name}"({pointers}, {size}) : (!llvm.ptr<3>, !llvm.ptr<1>, i32) -> ()')

    def _read_element(self, here: str, there: str) -> str:
        text, element, value = self.text, self.operand.element, self.text.fresh()
        inside = self._is_inside(here, there)
        with text.block(f"{value} = scf.if {inside} -> ({element})", "} else {"):
            read = load_element(text, replace(self.operand, padded=()), self.name, self.at(here, there))
            text.carry([read], [element])
        with text.next_region():
            text.carry([text.let(f"arith.constant {ZEROS[element]} : {element}")], [element])
        return value


def commit_copies(text: Text) -> None:
    """Ends a group of copies."""
    text.line('llvm.call_intrinsic "llvm.nvvm.cp.async.commit.group"() : () -> ()')


def wait_for_copies(text: Text, left: int) -> None:
    """Waits for this thread's copies, except for the last groups."""
    text.line(f'llvm.call_intrinsic "llvm.nvvm.cp.async.wait.group"({text.constant(left, "i32")}) : (i32) -> ()')


def round_pair(text: Text, element: str, low: str, high: str) -> str:
    """Returns two numbers of f32, rounded, in one register."""
    name, type = {"f16": ("ff2f16x2", "vector<2xf16>"), "bf16": ("ff2bf16x2", "vector<2xbf16>")}[element]
    made = text.let(f'llvm.call_intrinsic "llvm.nvvm.{name}.rn"({high}, {low}) : (f32, f32) -> {type}')
    return text.let(f"llvm.bitcast {made} : {type} to i32")
