"""The operands of PTX instructions in C, and the code of a kernel that they are part of.

An operand is a word of its instruction: `U32(o[1])` is the register of 32 bits whose place is the first word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

_COMMA = re.compile(r",(?![^{\[]*[}\]])")
_INTEGER = re.compile(r"-?\d+|0x[0-9a-fA-F]+U?")
C_TYPES = {"pred": "uint8_t", "b8": "uint8_t", "b16": "uint16_t", "b32": "uint32_t", "b64": "uint64_t"}
C_TYPES |= {f"{kind}{bits}": f"{'u' if kind == 'u' else ''}int{bits}_t" for kind in "us" for bits in (8, 16, 32, 64)}
READ = {"f32": "f32({})", "f64": "f64({})", "f16": "f16({})", "bf16": "bf16({})"}
WRITE = {"f32": "of_f32({})", "f64": "of_f64({})", "f16": "of_f16({})", "bf16": "of_bf16({})"}
FLOATS = frozenset({"f32", "f64"})
"""The dtypes whose registers hold numbers of C."""
WIDTHS = {"f16": 16, "bf16": 16, "pred": 8}
_SPECIAL = {"%tid.x": "B->thread", "%ntid.x": "B->threads", "%ctaid.x": "B->number", "%nctaid.x": "B->blocks"}
_SPECIAL |= {"%tid.y": "0", "%tid.z": "0", "%ctaid.y": "0", "%ctaid.z": "0", "%laneid": "(B->thread % 32)"}
LABEL, DATA, TEXT = "label", "data", "text"
"""The kinds of operands that are not numbers: labels, constants by their numbers, and texts of instructions."""
Operand = tuple[str, int | str]
"""A kind, which is empty for a number, and the value."""
Row = tuple[str, list[Operand]]
"""The form of an instruction, or of what is before or behind its wait, and its operands."""


class UnknownError(Exception):
    """An instruction that has no translation."""


@cache
def width(type: str) -> int:
    return WIDTHS.get(type) or int(re.sub(r"\D", "", type))


def split_operands(text: str) -> list[str]:
    """Splits at the commas outside of brackets."""
    parts = _COMMA.split(text) if "{" in text or "[" in text else text.split(",")
    return [stripped for part in parts if (stripped := part.strip())]


@dataclass
class Code:
    """The code of a kernel, which grows by its instructions."""

    name: str
    parameters: dict[str, tuple[int, int]]
    shared: Mapping[str, int]
    globals: Mapping[str, int]
    shared_bytes: int
    types: dict[str, str] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    """The places of registers in the memory of a thread."""
    bytes: int = 8
    """The memory of a thread, which begins with the address of its next instruction."""
    depot: tuple[str, int] | None = None
    rows: list[Row] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    """The row that each label precedes."""
    places: int = 0
    operands: list[Operand] = field(default_factory=list)
    """The operands of the current instruction."""
    sums: list[str] = field(default_factory=list)
    """The registers of the sums of products of warpgroups."""

    # Operands

    def place(self, name: str, bytes: int, align: int) -> None:
        self.offsets[name] = begin = -(-self.bytes // align) * align
        self.bytes = begin + bytes

    def declare(self, name: str, type: str) -> None:
        self.types[name] = type
        self.place(name, width(type) // 8, width(type) // 8)

    def operand(self, value: int | str, kind: str = "") -> str:
        """Adds an operand of the current instruction, and returns its word in C."""
        self.operands.append((kind, value))
        return f"o[{len(self.operands)}]"

    def register(self, name: str, type: str = "") -> str:
        """A register: its bits, or for a type in `FLOATS` the number in it."""
        kind = f"F{width(type)}" if type in FLOATS else f"U{width(self.types[name])}"
        return f"{kind}({self.operand(self.offsets[name])})"

    def number(self, number: int, bits: int) -> str:
        return f"(uint{64 if bits == 64 else 32}_t){self.operand(number)}"

    def holds(self, name: str, type: str) -> bool:
        """Is this a register as wide as the type?"""
        return name in self.types and width(self.types[name]) == width(type)

    def raw(self, text: str, type: str) -> str:
        """The bits of an operand, as an unsigned number of the type's width."""
        text = text.strip()
        if text in _SPECIAL:
            return f"(uint32_t){_SPECIAL[text]}"
        if text.startswith("%") and text in self.types:
            return self.register(text)
        if text.startswith(("0f", "0d")):
            return self.number(int(text[2:], 16), 32 if text[1] == "f" else 64)
        if text in self.shared:
            return self.number(self.shared[text], 64)
        if text in self.globals:
            return f"(uint64_t){self.operand(self.globals[text], DATA)}"
        if text in self.parameters:
            return f"(uint64_t)(uintptr_t)(B->parameters + {self.operand(self.parameters[text][0])})"
        if self.depot is not None and text == self.depot[0]:
            return f"(uint64_t)(uintptr_t)(R + {self.operand(self.offsets[text])})"
        if _INTEGER.fullmatch(text):
            return self.number(int(text.rstrip("U"), 0) & ((1 << width(type)) - 1), width(type))
        if text in ("true", "false"):
            return str(int(text == "true"))
        raise UnknownError(f"operand {text}")

    def value(self, text: str, type: str) -> str:
        if type in FLOATS and self.holds(text.strip(), type):
            return self.register(text.strip(), type)
        bits = self.raw(text, type)
        if type in READ:
            return READ[type].format(bits)
        return f"({C_TYPES[type]})({bits})"

    def assign(self, target: str, value: str, type: str) -> str:
        if target == "_":
            return ""
        if type in FLOATS:
            return f"{self.register(target, type)} = {value};"
        if type in WRITE:
            return f"{self.register(target)} = {WRITE[type].format(value)};"
        if self.types[target] == "pred":
            return f"{self.register(target)} = ({value}) != 0;"
        return f"{self.register(target)} = ({C_TYPES[type]})({value});"

    def address(self, text: str) -> str:
        base, _, offset = text.strip()[1:-1].partition("+")
        value = self.raw(base, "b64" if width(self.types.get(base, "b64")) == 64 else "b32")
        return f"(uint64_t){value}" + (f" + (uint64_t){self.operand(int(offset))}" if offset else "")

    def pointer(self, modifiers: list[str], text: str, bytes: int, write: bool, shown: str) -> str:
        place, quoted = self.address(text), self.shown(shown)
        if "shared" in modifiers or "shared::cta" in modifiers:
            return f"shared(B, {place}, {bytes}, {int(write)}, {quoted})"
        if "local" in modifiers or (self.depot and not {"global", "const"} & set(modifiers)):
            assert self.depot is not None, text
            depot = f"R + {self.operand(self.offsets[self.depot[0]])}, (uint64_t){self.operand(self.depot[1])}"
            return f"local(B, {place}, {bytes}, {depot}, {quoted})"
        return f"global(B, {place}, {bytes}, {int(write)}, {quoted})"

    def shown(self, text: str) -> str:
        """The text of an instruction, for messages."""
        return f"(const char *){self.operand(text, TEXT)}"
