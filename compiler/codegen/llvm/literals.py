"""Rewrites floating-point literals from the syntax of newer LLVMs to exact hexadecimal, which older ones read too.

A newer LLVM prints `+inf`, `-qnan`, `+nan(0x1)`, `+snan(0x1)`, `f0x3DCCCCCD`, and decimals that round to their type. An
older one requires exact decimals, or its own hexadecimal forms: sixteen digits of a double for `float` and `double`,
`0xH` for `half`, `0xR` for `bfloat`. Every literal comes after its type, so the last type read is its type. Strings,
comments and names are left unchanged; literals of wider types are rejected.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping

from ....dialect.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """A binary format: its width, the bits of its fraction, its name in struct (a bfloat is half a float)."""

    width: int
    fraction: int
    code: str

    @property
    def sign(self) -> int:
        return 1 << (self.width - 1)

    @property
    def quiet(self) -> int:
        return 1 << (self.fraction - 1)

    @property
    def infinity(self) -> int:
        """The infinity: all bits of the exponent."""
        return self.sign - (1 << self.fraction)


FORMATS: Mapping[str, Format] = {
    "half": Format(16, 10, "e"),
    "bfloat": Format(16, 7, "f"),
    "float": Format(32, 23, "f"),
    "double": Format(64, 52, "d"),
}
_WIDE = ("fp128", "x86_fp80", "ppc_fp128")

# A quote always ends a string: inside, it is written \22.
_STRING = '"[^"]*"'
_SKIPPED = f"{_STRING}|;[^\\n]*"
_NAME = rf"[%@$!^#](?:{_STRING}|[-\w.$]*)|[-A-Za-z$._][-\w$.]*:(?!:)"
_TYPE = rf"(?<![\w.$-])(?P<type>{'|'.join((*FORMATS, *_WIDE))})(?![\w.$-])"
_SPECIAL = r"[+-](?:inf|qnan|s?nan\(0x[0-9A-Fa-f]+\))"
_NUMBER = r"[+-]?(?:0x[0-9A-Fa-f]*\.?[0-9A-Fa-f]*p[+-]?\d+|\d+\.\d*(?:[eE][+-]?\d+)?)"
_BITS = r"f0x[0-9A-Fa-f]+"
_LITERAL = rf"(?<![\w.$%@\"-])(?P<literal>{_BITS}|{_SPECIAL}|{_NUMBER})(?![\w.$])"
_TOKEN = re.compile(f"{_SKIPPED}|{_NAME}|{_TYPE}|{_LITERAL}")


def rewrite_literals(text: str) -> str:
    """Returns the same LLVM IR with every literal of a `half`, `bfloat`, `float` or `double` in exact hexadecimal."""
    parts: list[str] = []
    done = 0
    for hint in _HINT.finditer(text):
        if hint.start() < done:
            continue
        start, end = text.rfind("\n", 0, hint.start()) + 1, text.find("\n", hint.end())
        if end < 0:
            end = len(text)
        parts += [text[done:start], _rewrite_line(text[start:end])]
        done = end
    return "".join([*parts, text[done:]])


_HINT = re.compile(r"[.xin](?:(?<=\d\.)\d|(?<=f0x)|(?<=0x)[0-9A-Fa-f.]+p|(?<=[+-]i)nf|(?<=[+-]n)an|(?<=[+-][qs]n)an)")
"""A part of a literal, which few lines have: of `1.5`, `f0x3D`, `0x1.8p+3`, `+inf`, `-nan`, `+qnan`. It begins with one
of four characters, so that the regular expression engine tries its alternatives nowhere else."""


def _rewrite_line(line: str) -> str:
    type = ""

    def rewrite(match: re.Match[str]) -> str:
        nonlocal type
        if match["type"]:
            type = match["type"]
        literal = match["literal"]
        if not literal:
            return match[0]
        assert type in FORMATS, f"a literal of type {type or 'unknown'}: {line}"
        return spell(literal_bits(literal, type), type)

    return _TOKEN.sub(rewrite, line)


def literal_bits(literal: str, type: str) -> int:
    """Returns the bit pattern of a literal, rounded to nearest even where it is a number."""
    format = FORMATS[type]
    if literal.startswith("f0x"):
        return int(literal[3:], 16)
    sign = format.sign if literal[0] == "-" else 0
    kind, _, payload = literal[1:].partition("(")
    if kind in ("inf", "qnan", "nan", "snan"):
        bits = int(payload[:-1], 16) if payload else 0
        return sign | format.infinity | bits | (format.quiet if kind in ("qnan", "nan") else 0)
    value = float.fromhex(literal) if "0x" in literal else float(literal)
    bits = _unpack(struct.pack(f"<{format.code}", value))
    if type != "bfloat":
        return bits
    # Adding half of the last kept bit, less one unless that bit is odd, carries exactly where rounding up is required.
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def _unpack(data: bytes) -> int:
    return int.from_bytes(data, "little")


def spell(bits: int, type: str) -> str:
    """Returns the bit pattern in a syntax that every LLVM reads."""
    if type == "half":
        return f"0xH{bits:04X}"
    if type == "bfloat":
        return f"0xR{bits:04X}"
    if type == "double":
        return f"0x{bits:016X}"
    return f"0x{_widen(bits):016X}"


def _widen(bits: int) -> int:
    """Returns the double with the value of a float, payload and signalling bit kept: the spelling of a float's
    literal."""
    single, double = FORMATS["float"], FORMATS["double"]
    if bits & single.infinity != single.infinity:
        (value,) = struct.unpack("<f", bits.to_bytes(4, "little"))
        return _unpack(struct.pack("<d", value))
    fraction = (bits & ((1 << single.fraction) - 1)) << (double.fraction - single.fraction)
    return (double.sign if bits & single.sign else 0) | double.infinity | fraction
