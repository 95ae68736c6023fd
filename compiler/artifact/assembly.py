"""Assembly that defines data: symbols of tables, of texts and of included files, for any machine.

Only the directives differ by object format. No compiler runs: an assembler of any machine takes a fraction of its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field

from ...dialect.lazy_dataclass import dataclass
from .structs import I64, Cell, Kind, Row

_PLAIN = frozenset(range(32, 127)) - set(b'"\\')


def quote(data: bytes) -> str:
    """Returns the bytes as a string of the assembler; those outside of plain ASCII become octal escapes."""
    return '"' + "".join(chr(b) if b in _PLAIN else f"\\{b:03o}" for b in data) + '"'


@dataclass(frozen=True, slots=True)
class ObjectFormat:
    """An object format.

    address: the bytes of an address.
    constant: the directives that begin a section of constants, for the data of a symbol.
    relocated: the same for constants with addresses, which the dynamic linker may have to add to.
    function: the directives that declare an external function with so many addresses as arguments and an i64 as
        result.
    begin, end: the first and the last directives of a file.
    """

    address: int
    constant: Callable[[str], str]
    relocated: Callable[[str], str]
    function: Callable[[str, int], Sequence[str]]
    begin: tuple[str, ...] = ()
    end: tuple[str, ...] = ()


ELF = ObjectFormat(
    address=8,
    constant=lambda symbol: '.section .rodata.nacre,"a",%progbits',
    relocated=lambda symbol: '.section .data.rel.ro.nacre,"aw",%progbits',
    function=lambda symbol, arguments: (f".hidden {symbol}",),
    # Without a name, the linker would take the random one of the object.
    begin=('.file "data.s"',),
    end=('.section .note.GNU-stack,"",%progbits',),
)
WASM = ObjectFormat(
    address=4,
    constant=lambda symbol: f'.section .rodata.{symbol},"",@',
    relocated=lambda symbol: f'.section .data.{symbol},"",@',
    function=lambda symbol, arguments: (
        f".functype {symbol} ({', '.join(['i32'] * arguments)}) -> (i64)",
        f".hidden {symbol}",
    ),
)
FORMATS: Mapping[str, ObjectFormat] = {"elf": ELF, "wasm": WASM}
"""The formats by their names in `System`."""


@dataclass
class Assembly:
    """Collects the lines of a file."""

    format: ObjectFormat
    lines: list[str] = field(default_factory=list)
    _texts: dict[str, str] = field(default_factory=dict)
    _formulas: dict[tuple[int, ...], str] = field(default_factory=dict)
    _functions: dict[str, None] = field(default_factory=dict)

    def define(self, symbol: str, section: str, content: Iterable[str], size: int, *, align: int, visible: bool) -> str:
        """Defines a symbol of `size` bytes in a section, aligned to `align`, a power of two. If it is `visible`, other
        objects of the artifact refer to it. Returns the symbol."""
        self.lines += [section, f".p2align {align.bit_length() - 1}"]
        if visible:
            self.lines += [f".globl {symbol}", f".hidden {symbol}"]
        self.lines += [f".type {symbol},@object", f"{symbol}:", *content, f".size {symbol}, {size}"]
        return symbol

    def include(self, symbol: str, file: str, size: int, *, section: str = "", align: int = 1, text: bool) -> str:
        """Defines a symbol with the contents of a file of so many bytes, in its own section if one is given. A zero
        byte follows a `text`."""
        content = [f'.incbin "{file}"', *([".byte 0"] if text else [])]
        where = section or self.format.constant(symbol)
        return self.define(symbol, where, content, size + text, align=align, visible=True)

    def text(self, text: str) -> str:
        """Returns the symbol of a text in UTF-8 that ends with a zero byte."""
        if text not in self._texts:
            data, symbol = text.encode(), f".Ltext_{len(self._texts)}"
            content = [f".asciz {quote(data)}"]
            self._texts[text] = self.define(
                symbol, self.format.constant(symbol), content, len(data) + 1, align=1, visible=False
            )
        return self._texts[text]

    def formula(self, words: tuple[int, ...]) -> str:
        """Returns the symbol of a formula, see `formulas.py`."""
        if words not in self._formulas:
            symbol = self.array(f"formula_{len(self._formulas)}", I64, words)
            assert symbol is not None
            self._formulas[words] = symbol
        return self._formulas[words]

    def function(self, symbol: str, arguments: int) -> str:
        """Declares a function that another object defines, and returns its symbol."""
        if symbol not in self._functions:
            self._functions[symbol] = None
            self.lines += self.format.function(symbol, arguments)
        return symbol

    def data(self, symbol: str) -> str:
        """Declares data that another object defines, and returns its symbol."""
        self.lines.append(f".hidden {symbol}")
        return symbol

    def array(self, symbol: str, kind: Kind, rows: Sequence[Row | Cell], *, visible: bool = False) -> str | None:
        """Defines an array and returns its symbol; None if it is empty."""
        if not rows:
            return None
        address = self.format.address
        cells = [list(kind.cells(row, address)) for row in rows]
        relocated = any(isinstance(value, str) for row in cells for _, value in row)
        section = (self.format.relocated if relocated else self.format.constant)(symbol)
        content = [line for row in cells for line in self._directives(row)]
        size, align = len(rows) * kind.width(address), kind.alignment(address)
        return self.define(symbol, section, content, size, align=align, visible=visible)

    def _directives(self, cells: Iterable[tuple[int, Cell]]) -> list[str]:
        """Returns the directives of a row: one for each run of values of the same size."""
        lines: list[str] = []
        last = 0
        for width, value in cells:
            assert width in (4, 8), (width, value)
            shown = "0" if value is None else str(value)
            if width == last:
                lines[-1] += f", {shown}"
            else:
                lines.append(f".{width}byte {shown}")
            last = width
        return lines

    def finish(self) -> str:
        return "\n".join([*self.format.begin, *self.lines, *self.format.end, ""])
