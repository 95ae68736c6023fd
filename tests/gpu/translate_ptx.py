"""Translates PTX to threaded code, so that a CPU runs what a GPU would run; `machine.h` has the memory and the threads.

An instruction becomes a row of words: the function in C that executes its form, and what the form leaves open, which
are the offsets of registers, numbers, addresses and the distance of a jump.

    add.s32 %r3, %r4, 7;    form: U32(1) = (int32_t)((int32_t)(U32(2)) + (int32_t)((uint32_t)o[3]));    words: 24, 28, 7

Kernels have few forms, so the C compiler has little to compile. An unknown instruction is an error. The translation
knows the instructions that the compiler writes: no texture, no atomic, no call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

_REGISTERS = re.compile(r"\.reg \.(\w+)\s+(%\w+)<(\d+)>;")
_DEPOT = re.compile(r"\.local \.align (\d+) \.b8\s+(\w+)\[(\d+)\];")
_SHARED = re.compile(r"\.shared \.align (\d+) \.b8 (\w+)\[(\d*)\]")
_GLOBAL = re.compile(r"\.(?:global|const) \.align (\d+) \.b(\d+) (\w+)(?:\[(\d+)\])?(?: = (?:\{([^}]*)\}|(\w+)))?;")
_PARAMETER = re.compile(r"\.param (?:\.align \d+ )?\.(\w+)\s+(?:\.ptr [^,)]*?)?([\w$]+)(?:\[(\d+)\])?\s*[,\n)]")
_COPY = re.compile(r"\[([^]]+)\], \[([^,]+), \{([^}]+)\}\], \[([^]]+)\]$")
_COMMA = re.compile(r",(?![^{\[]*[}\]])")
_LABEL = re.compile(r"([\w$]+):\s*")
_INTEGER = re.compile(r"-?\d+|0x[0-9a-fA-F]+U?")
_OWN, _HALF = re.compile(r"\{ \.reg \.(b\d+) %?tmp"), re.compile(r"%?\btmp\b")
"""The half of a register that nothing reads: a block of its own declares it."""
_ENTRY = re.compile(r"\.entry ([\w$]+)\((.*?)\)(.*?)\n\{\n(.*?)\n\}", re.DOTALL)

_C_TYPES = {"pred": "uint8_t", "b8": "uint8_t", "b16": "uint16_t", "b32": "uint32_t", "b64": "uint64_t"}
_C_TYPES |= {f"{kind}{bits}": f"{'u' if kind == 'u' else ''}int{bits}_t" for kind in "us" for bits in (8, 16, 32, 64)}
_READ = {"f32": "f32({})", "f64": "f64({})", "f16": "f16({})", "bf16": "bf16({})"}
_WRITE = {"f32": "of_f32({})", "f64": "of_f64({})", "f16": "of_f16({})", "bf16": "of_bf16({})"}
_FLOATS = {"f32": "float", "f64": "double"}
"""The dtypes that are C types as wide as their registers."""
_WIDTHS = {"f16": 16, "bf16": 16, "pred": 8}
_BINARY = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^", "div": "/", "rem": "%"}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "hs": ">=", "hi": ">"}
_FLOAT_COMPARE = {name: f"{{a}} {_COMPARE[name]} {{b}}" for name in ("eq", "lt", "le", "gt", "ge")}
_FLOAT_COMPARE |= {"ltu": "!({a} >= {b})", "leu": "!({a} > {b})", "gtu": "!({a} <= {b})", "geu": "!({a} < {b})"}
_FLOAT_COMPARE |= {"neu": "{a} != {b}", "ne": "{a} < {b} || {a} > {b}", "equ": "!({a} < {b} || {a} > {b})"}
_FLOAT_COMPARE |= {"nan": "isunordered({a}, {b})", "num": "!isunordered({a}, {b})"}
"""Comparisons of floats. Those of C are false for a NaN, except for `!=`."""
_ROUND = {"rni": "nearbyint", "rmi": "floor", "rpi": "ceil", "rzi": "trunc"}
_SHUFFLES = {"bfly": 0, "down": 1, "up": 2, "idx": 3}
_PRODUCTS = {("f16", "f16"): (0, 16, "f32"), ("bf16", "bf16"): (1, 16, "f32"), ("tf32", "tf32"): (2, 8, "f32")}
_PRODUCTS |= {(a, b): (4 + 2 * (a == "s8") + (b == "s8"), 32, "s32") for a in ("u8", "s8") for b in ("u8", "s8")}
"""The number of a product for `machine.c`, its depth, and the dtype of its sums."""
_SPECIAL = {"%tid.x": "B->thread", "%ntid.x": "B->threads", "%ctaid.x": "B->number", "%nctaid.x": "B->blocks"}
_SPECIAL |= {"%tid.y": "0", "%tid.z": "0", "%ctaid.y": "0", "%ctaid.z": "0", "%laneid": "(B->thread % 32)"}


LABEL, DATA, TEXT = "label", "data", "text"
"""The kinds of operands that are not numbers: labels, constants by their numbers, and texts of instructions."""
Operand = tuple[str, int | str]
"""A kind, which is empty for a number, and the value."""
Row = tuple[str, list[Operand]]
"""The form of an instruction, or of what is before or behind its wait, and its operands."""
_WAITED = "@"
"""Parts an instruction where a thread waits."""


class UnknownError(Exception):
    """An instruction that has no translation."""


@cache
def width(type: str) -> int:
    return _WIDTHS.get(type) or int(re.sub(r"\D", "", type))


@dataclass
class _Kernel:
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
    """The registers of the last product of a warpgroup."""

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
        """A register: its bits, or for a type in `_FLOATS` the number in it."""
        kind = f"F{width(type)}" if type in _FLOATS else f"U{width(self.types[name])}"
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
        if type in _FLOATS and self.holds(text.strip(), type):
            return self.register(text.strip(), type)
        bits = self.raw(text, type)
        if type in _READ:
            return _READ[type].format(bits)
        return f"({_C_TYPES[type]})({bits})"

    def assign(self, target: str, value: str, type: str) -> str:
        if target == "_":
            return ""
        if type in _FLOATS:
            return f"{self.register(target, type)} = {value};"
        if type in _WRITE:
            return f"{self.register(target)} = {_WRITE[type].format(value)};"
        if self.types[target] == "pred":
            return f"{self.register(target)} = ({value}) != 0;"
        return f"{self.register(target)} = ({_C_TYPES[type]})({value});"

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

    # Instructions

    def write(self, text: str) -> None:
        """Translates one instruction."""
        guard, self.operands = "", []
        if text.startswith("@"):
            predicate, _, text = text[1:].partition(" ")
            negated = predicate.startswith("!")
            guard = f"if ({'!' if negated else ''}{self.register(predicate.lstrip('!'))}) "
        name, _, rest = text.strip().partition(" ")
        operation, *modifiers = name.split(".")
        operands = split_operands(rest)
        made = self.translate(operation, modifiers, operands, text.strip())
        for part in made.split(_WAITED):
            self.rows.append((f"{guard}{{ {part.strip()} }}", self.operands))

    def translate(self, operation: str, modifiers: list[str], operands: list[str], text: str) -> str:
        special: Callable[[list[str], list[str], str], str] | None = getattr(self, f"_{operation}", None)
        if special is not None:
            return special(modifiers, operands, text)
        type = modifiers[-1] if modifiers else ""
        values = [self.value(operand, type) for operand in operands[1:]]
        if operation in _BINARY:
            return self.assign(operands[0], self._combine(operation, modifiers, type, values), type)
        raise UnknownError(text)

    def _combine(self, operation: str, modifiers: list[str], type: str, values: list[str]) -> str:
        if operation == "mul" and "wide" in modifiers:
            wide = f"{'u' if type[0] == 'u' else ''}int{2 * width(type)}_t"
            return f"({wide}){values[0]} * ({wide}){values[1]}"
        if operation == "mul" and "hi" in modifiers:
            wide = "unsigned __int128" if type[0] == "u" else "__int128"
            return f"(({wide}){values[0]} * ({wide}){values[1]}) >> {width(type)}"
        if operation in ("div", "rem") and type not in _READ:
            return f"{values[1]} == 0 ? 0 : {values[0]} {_BINARY[operation]} {values[1]}"
        return f"{values[0]} {_BINARY[operation]} {values[1]}"

    def _mul(self, modifiers: list[str], operands: list[str], text: str) -> str:
        type = modifiers[-1]
        made = self._combine("mul", modifiers, type, [self.value(o, type) for o in operands[1:]])
        if "wide" in modifiers:
            return f"{self.register(operands[0])} = ({_C_TYPES[f'b{2 * width(type)}']})({made});"
        return self.assign(operands[0], made, type)

    def _mad(self, modifiers: list[str], operands: list[str], text: str) -> str:
        type = modifiers[-1]
        product = self._combine("mul", modifiers, type, [self.value(o, type) for o in operands[1:3]])
        wide = f"{type[0]}{2 * width(type)}" if "wide" in modifiers else type
        return self.assign(operands[0], f"({product}) + {self.value(operands[3], wide)}", wide)

    def _fma(self, modifiers: list[str], operands: list[str], text: str) -> str:
        type = modifiers[-1]
        values = ", ".join(self.value(operand, type) for operand in operands[1:])
        return self.assign(operands[0], f"{'fmaf' if type == 'f32' else 'fma'}({values})", type)

    def _not(self, modifiers: list[str], operands: list[str], text: str) -> str:
        type = modifiers[-1]
        negate = "!" if type == "pred" else "~"
        return self.assign(operands[0], f"{negate}{self.raw(operands[1], type)}", type)

    def _neg(self, modifiers: list[str], operands: list[str], text: str) -> str:
        type = modifiers[-1]
        if type in _READ:
            sign = 1 << (width(type) - 1)
            suffix = "ull" if type == "f64" else "u"
            return f"{self.register(operands[0])} = {self.raw(operands[1], type)} ^ {sign}{suffix};"
        return self.assign(operands[0], f"-{self.value(operands[1], type)}", type)

    def _abs(self, modifiers: list[str], operands: list[str], text: str) -> str:
        type = modifiers[-1]
        if type in _READ:
            rest = (1 << (width(type) - 1)) - 1
            suffix = "ull" if type == "f64" else "u"
            return f"{self.register(operands[0])} = {self.raw(operands[1], type)} & {rest}{suffix};"
        value = self.value(operands[1], type)
        return self.assign(operands[0], f"{value} < 0 ? -{value} : {value}", type)

    def _copysign(self, modifiers: list[str], operands: list[str], text: str) -> str:
        type = modifiers[-1]
        sign, value = (self.value(operand, type) for operand in operands[1:])
        return self.assign(operands[0], f"copysign({value}, {sign})", type)

    def _extreme(self, name: str, modifiers: list[str], operands: list[str]) -> str:
        type = modifiers[-1]
        a, b = (self.value(operand, type) for operand in operands[1:])
        if type in _READ:
            return self.assign(operands[0], f"f{name}_{'nan' if 'NaN' in modifiers else 'num'}({a}, {b})", type)
        return self.assign(operands[0], f"{a} {'>' if name == 'max' else '<'} {b} ? {a} : {b}", type)

    def _max(self, modifiers: list[str], operands: list[str], text: str) -> str:
        return self._extreme("max", modifiers, operands)

    def _min(self, modifiers: list[str], operands: list[str], text: str) -> str:
        return self._extreme("min", modifiers, operands)

    def _sqrt(self, modifiers: list[str], operands: list[str], text: str) -> str:
        type = modifiers[-1]
        function = "sqrtf" if type == "f32" else "sqrt"
        return self.assign(operands[0], f"{function}({self.value(operands[1], type)})", type)

    def _rcp(self, modifiers: list[str], operands: list[str], text: str) -> str:
        type = modifiers[-1]
        return self.assign(operands[0], f"1 / {self.value(operands[1], type)}", type)

    def _shift(self, modifiers: list[str], operands: list[str], sign: str) -> str:
        type = modifiers[-1]
        value, count = self.value(operands[1], type), self.value(operands[2], "u32")
        beyond = f"{value} < 0 ? -1 : 0" if type[0] == "s" else "0"
        return self.assign(operands[0], f"{count} >= {width(type)} ? ({beyond}) : {value} {sign} {count}", type)

    def _shl(self, modifiers: list[str], operands: list[str], text: str) -> str:
        return self._shift(modifiers, operands, "<<")

    def _shr(self, modifiers: list[str], operands: list[str], text: str) -> str:
        return self._shift(modifiers, operands, ">>")

    def _shf(self, modifiers: list[str], operands: list[str], text: str) -> str:
        low, high, count = (self.value(operand, "u32") for operand in operands[1:])
        both = f"((uint64_t){high} << 32 | {low})"
        count = f"({count} & 31)" if "wrap" in modifiers else f"({count} > 32 ? 32 : {count})"
        made = f"{both} << {count} >> 32" if "l" in modifiers else f"{both} >> {count}"
        return self.assign(operands[0], made, "b32")

    def _prmt(self, modifiers: list[str], operands: list[str], text: str) -> str:
        return self.assign(operands[0], f"prmt({', '.join(self.value(o, 'u32') for o in operands[1:])})", "b32")

    def _bfe(self, modifiers: list[str], operands: list[str], text: str) -> str:
        type, value = modifiers[-1], self.value(operands[1], modifiers[-1])
        begin, length = (self.value(operand, "u32") for operand in operands[2:])
        wide = "int64_t" if type[0] == "s" else "uint64_t"
        up = f"(64 - {begin} - {length})"
        return self.assign(
            operands[0], f"{length} == 0 ? 0 : ({wide})((uint64_t){value} << {up}) >> (64 - {length})", type
        )

    def _bfi(self, modifiers: list[str], operands: list[str], text: str) -> str:
        type = modifiers[-1]
        part, whole = (f"(uint64_t){self.raw(operand, type)}" for operand in operands[1:3])
        begin, length = (self.value(operand, "u32") for operand in operands[3:])
        mask = f"((({length} >= 64 ? 0 : 1ull << {length}) - 1) << {begin})"
        return self.assign(operands[0], f"({whole} & ~{mask}) | ({part} << {begin} & {mask})", type)

    def _popc(self, modifiers: list[str], operands: list[str], text: str) -> str:
        return self.assign(operands[0], f"__builtin_popcountll({self.raw(operands[1], modifiers[-1])})", "b32")

    def _clz(self, modifiers: list[str], operands: list[str], text: str) -> str:
        value, bits = self.raw(operands[1], modifiers[-1]), width(modifiers[-1])
        return self.assign(operands[0], f"{value} ? __builtin_clzll({value}) - {64 - bits} : {bits}", "b32")

    def _brev(self, modifiers: list[str], operands: list[str], text: str) -> str:
        value, type = self.raw(operands[1], modifiers[-1]), modifiers[-1]
        turn = f"for (int i = 0; i < {width(type)}; i++) r = r << 1 | (v >> i & 1);"
        made = f"({{ uint64_t v = {value}, r = 0; {turn} r; }})"
        return self.assign(operands[0], made, type)

    def _setp(self, modifiers: list[str], operands: list[str], text: str) -> str:
        compare, type = modifiers[0], modifiers[-1]
        a, b = (self.value(operand, type) for operand in operands[1:])
        if type not in _READ:
            sign = "<=" if compare == "ls" else _COMPARE[compare]
            return self.assign(operands[0], f"{a} {sign} {b}", "pred")
        return self.assign(operands[0], _FLOAT_COMPARE[compare].format(a=a, b=b), "pred")

    def _testp(self, modifiers: list[str], operands: list[str], text: str) -> str:
        test = {"infinite": "isinf", "finite": "isfinite", "notanumber": "isnan"}[modifiers[0]]
        return self.assign(operands[0], f"{test}({self.value(operands[1], modifiers[-1])})", "pred")

    def _selp(self, modifiers: list[str], operands: list[str], text: str) -> str:
        type = f"b{width(modifiers[-1])}"
        yes, no = (self.raw(operand, type) for operand in operands[1:3])
        return self.assign(operands[0], f"{self.register(operands[3])} ? {yes} : {no}", type)

    def _mov(self, modifiers: list[str], operands: list[str], text: str) -> str:
        type, (target, source) = modifiers[-1], operands
        bits = width(type)
        if target.startswith("{"):
            parts = split_operands(target[1:-1])
            each = bits // len(parts)
            moves = [
                "" if p == "_" else f"{self.register(p)} = ({_C_TYPES[f'b{each}']})(v >> {i * each});"
                for i, p in enumerate(parts)
            ]
            return f"const uint64_t v = {self.raw(source, type)}; {' '.join(moves)}"
        if source.startswith("{"):
            parts = split_operands(source[1:-1])
            each = bits // len(parts)
            joined = " | ".join(f"(uint64_t){self.raw(p, f'b{each}')} << {i * each}" for i, p in enumerate(parts))
            return self.assign(target, joined, f"b{bits}")
        return self.assign(target, self.raw(source, type), "pred" if type == "pred" else f"b{bits}")

    def _cvta(self, modifiers: list[str], operands: list[str], text: str) -> str:
        return self.assign(operands[0], self.raw(operands[1], "b64"), "b64")

    def _cvt(self, modifiers: list[str], operands: list[str], text: str) -> str:
        *how, target, source = modifiers
        if target in ("f16x2", "bf16x2"):
            half = target.removesuffix("x2")
            high, low = (_WRITE[half].format(self.value(operand, "f32")) for operand in operands[1:])
            return self.assign(operands[0], f"(uint32_t){high} << 16 | {low}", "b32")
        if target == "tf32":
            assert how == ["rna"] and source == "f32", text
            return self.assign(operands[0], f"{self.raw(operands[1], 'b32')} + 0x1000u & 0xffffe000u", "b32")
        value = self.value(operands[1], source)
        rounding = next((_ROUND[word] for word in how if word in _ROUND), None)
        if source in _READ and rounding is not None:
            value = f"{rounding}({value})"
        if target in _READ:
            if target == "f16" and source == "f64":
                return f"{self.register(operands[0])} = f64_to_f16({value});"
            return self.assign(operands[0], f"({'double' if target == 'f64' else 'float'})({value})", target)
        if source in _READ:
            return self._sized(operands[0], f"to_{target}({value})", target)
        if "sat" in how:
            raise UnknownError(text)
        return self._sized(operands[0], value, target)

    def _sized(self, target: str, value: str, type: str) -> str:
        """Assigns a number that may be narrower than its register, which takes its sign."""
        return f"{self.register(target)} = ({_C_TYPES[type]})({value});"

    def _ld(self, modifiers: list[str], operands: list[str], text: str) -> str:
        type = modifiers[-1]
        bytes = width(type) // 8
        targets = split_operands(operands[0][1:-1]) if operands[0].startswith("{") else [operands[0]]
        if "param" in modifiers:
            name, _, offset = operands[1][1:-1].partition("+")
            begin = self.parameters[name][0] + int(offset or 0)
            return self._read(targets[0], f"B->parameters + {self.operand(begin)}", f"b{8 * bytes}")
        pointer = self.pointer(modifiers, operands[1], bytes * len(targets), False, text)
        loads = [
            "" if target == "_" else self._read(target, f"p + {i * bytes}", type) for i, target in enumerate(targets)
        ]
        return f"register const uint8_t *p = {pointer}; {' '.join(loads)}"

    def _read(self, target: str, place: str, type: str) -> str:
        bytes = width(type) // 8
        if self.holds(target, type):
            return f"memcpy(&{self.register(target)}, {place}, {bytes});"
        # A signed number that is narrower than its register is extended.
        kind = _C_TYPES[type if type in _C_TYPES and type[0] == "s" else f"b{8 * bytes}"]
        return f"{{ {kind} v; memcpy(&v, {place}, {bytes}); {self.register(target)} = v; }}"

    def _st(self, modifiers: list[str], operands: list[str], text: str) -> str:
        type = f"b{width(modifiers[-1])}"
        bytes = width(type) // 8
        sources = split_operands(operands[1][1:-1]) if operands[1].startswith("{") else [operands[1]]
        pointer = self.pointer(modifiers, operands[0], bytes * len(sources), True, text)
        stores = [
            f"memcpy(p + {i * bytes}, &{self.register(source)}, {bytes});"
            if self.holds(source, type)
            else f"{{ {_C_TYPES[type]} v = {self.raw(source, type)}; memcpy(p + {i * bytes}, &v, {bytes}); }}"
            for i, source in enumerate(sources)
        ]
        return f"register uint8_t *p = {pointer}; {' '.join(stores)}"

    def _bra(self, modifiers: list[str], operands: list[str], text: str) -> str:
        return f"return o + {self.operand(operands[0], LABEL)};"

    def _ret(self, modifiers: list[str], operands: list[str], text: str) -> str:
        return "END"

    # Meetings

    def _wait(self, kind: str) -> str:
        """The end of a row: a thread goes on with the next one when others have come."""
        self.places += 1
        return f"WAIT({kind}, {self.operand(self.places)}) {_WAITED}"

    def _bar(self, modifiers: list[str], operands: list[str], text: str) -> str:
        return self._wait("BARRIER")

    _barrier = _bar

    def _shfl(self, modifiers: list[str], operands: list[str], text: str) -> str:
        targets = operands[0].split("|")
        value, by = (self.value(operand, "u32") for operand in operands[1:3])
        sent = f"M->in[0] = {value}; M->in[1] = {by}; M->in[2] = {_SHUFFLES[modifiers[1]]};"
        taken = " ".join(f"{self.register(t)} = M->out[{i}];" for i, t in enumerate(targets))
        return f"{sent} {self._wait('SHUFFLE')} {taken}"

    def _mma(self, modifiers: list[str], operands: list[str], text: str) -> str:
        shape, types = modifiers[2], modifiers[-4:]
        dtype, depth, sums = _PRODUCTS[types[1], types[2]]
        assert shape == f"m16n8k{depth}" and types[0] == types[3] == sums, text
        inputs = [p for operand in operands[1:] for p in split_operands(operand[1:-1])]
        sent = " ".join(f"M->in[{i}] = {self.raw(p, 'b32')};" for i, p in enumerate(inputs))
        results = split_operands(operands[0][1:-1])
        taken = " ".join(f"{self.register(p)} = M->out[{i}];" for i, p in enumerate(results))
        return f"{sent} M->in[10] = {dtype}; {self._wait('MATRIX')} {taken}"

    def _ldmatrix(self, modifiers: list[str], operands: list[str], text: str) -> str:
        assert modifiers[2] == "m8n8" and modifiers[-1] == "b16" and "shared" in modifiers, text
        targets = split_operands(operands[0][1:-1])
        assert modifiers[3] == f"x{len(targets)}", text
        turned = int("trans" in modifiers)
        sent = f"M->in[0] = {self.address(operands[1])}; M->in[1] = {len(targets)}; M->in[2] = {turned};"
        taken = " ".join(f"{self.register(t)} = M->out[{i}];" for i, t in enumerate(targets))
        return f"{sent} {self._wait('FRAGMENTS')} {taken}"

    # Asynchronous copies

    def _cp(self, modifiers: list[str], operands: list[str], text: str) -> str:
        if modifiers[:2] == ["async", "commit_group"]:
            return "M->group++;"
        if modifiers[:2] == ["async", "wait_group"]:
            return f"wait_for_copies(B, M, {int(operands[0])});"
        if modifiers[:3] == ["async", "bulk", "tensor"]:
            return self._copy_tile(modifiers, text)
        assert modifiers[0] == "async" and modifiers[2:4] == ["shared", "global"], text
        target, source = (self.address(operand) for operand in operands[:2])
        read = self.raw(operands[3], "b32") if len(operands) > 3 else operands[2]
        return f"copy_async(B, M, {target}, {source}, {int(operands[2])}, {read}, {self.shown(text)});"

    def _copy_tile(self, modifiers: list[str], text: str) -> str:
        found = _COPY.search(text)
        wanted = ["shared::cluster", "global", "mbarrier::complete_tx::bytes"]
        assert found is not None and modifiers[4:] == wanted, text
        places = [self.value(place, "s32") for place in found[3].split(",")]
        assert modifiers[3] == f"{len(places)}d", text
        target, barrier = (self.address(f"[{found[n]}]") for n in (1, 4))
        given = f"{target}, {self.raw(found[2], 'b64')}, at, {len(places)}, {barrier}"
        return f"const int32_t at[] = {{{', '.join(places)}}}; copy_tile(B, {given}, {self.shown(text)});"

    # Barriers in shared memory, and products of warpgroups

    def _mbarrier(self, modifiers: list[str], operands: list[str], text: str) -> str:
        assert modifiers[-2:] == ["shared::cta", "b64"], text
        kind = modifiers[:-2]
        if kind == ["init"]:
            return f"create_barrier(B, {self.address(operands[0])}, {self.raw(operands[1], 'b32')});"
        if kind in (["arrive"], ["arrive", "expect_tx"]):
            bytes = self.raw(operands[2], "b32") if len(operands) > 2 else "0"
            return f"arrive(B, {self.address(operands[1])}, {bytes});"
        assert kind == ["try_wait", "parity"], text
        sent = f"M->address = {self.address(operands[1])}; M->in[0] = {self.raw(operands[2], 'b32')};"
        # A thread whose phase has ended goes on at once, so that it may run far ahead of the others.
        waiting = f"if (!has_passed(B, M)) {self._wait('PHASE')}"
        return f"{sent} {waiting} {self.assign(operands[0], '1', 'pred')}"

    def _fence(self, modifiers: list[str], operands: list[str], text: str) -> str:
        assert modifiers == ["proxy", "async", "shared::cta"], text
        return "B->unpublished = 0;"

    def _setmaxnreg(self, modifiers: list[str], operands: list[str], text: str) -> str:
        assert modifiers[1:] == ["sync", "aligned", "u32"] and int(operands[0]) % 8 == 0, text
        return ""

    def _wgmma(self, modifiers: list[str], operands: list[str], text: str) -> str:
        kind, *rest = modifiers
        if kind == "fence":
            return "M->is_fenced = 1;"
        if kind == "commit_group":
            return "M->group_of_products++;"
        if kind == "wait_group":
            waited = f"wait_for_products(B, M, {int(operands[0])});"
            if int(operands[0]):
                return waited
            taken = " ".join(f"{self.register(p)} = M->sums[{i}];" for i, p in enumerate(self.sums))
            return f"{waited} if (M->is_multiplying) {{ M->is_multiplying = 0; {taken} }}"
        shape, sums, *types = rest[2:]
        sizes = re.fullmatch(r"m64n(\d+)k16", shape)
        registers = split_operands(operands[0][1:-1])
        assert kind == "mma_async" and sizes is not None and sums == "f32" and types[0] == types[1], text
        assert len(registers) == int(sizes[1]) // 2 and operands[4:6] == ["1", "1"], text
        assert not self.sums or self.sums == registers, "products of one kernel have the same sums"
        self.sums = registers
        given = " ".join(f"M->sums[{i}] = {self.raw(p, 'b32')};" for i, p in enumerate(registers))
        sent = f"if (!M->is_multiplying) {{ {given} }} M->is_multiplying = 1;"
        taken = " ".join(f"{self.register(p)} = NO_SUM;" for p in registers)
        for n in range(2):
            sent += f" M->tiles[{n}] = {self.raw(operands[1 + n], 'b64')};"
        adds = self.raw(operands[3], "pred")
        flags = (sizes[1], str(int(types[0] == "bf16")), operands[6], operands[7], adds)
        sent += " ".join(f" M->in[{n}] = {flag};" for n, flag in enumerate(flags))
        return f"{sent} {self._wait('WARPGROUP')} {taken}"

    def _ex2(self, modifiers: list[str], operands: list[str], text: str) -> str:
        assert modifiers[0] == "approx" and modifiers[-1] == "f32", text
        return self.assign(operands[0], f"exp2f({self.value(operands[1], 'f32')})", "f32")


@dataclass
class Program:
    """Kernels, and constants: each with its alignment."""

    kernels: list[_Kernel] = field(default_factory=list)
    data: list[tuple[int, bytes]] = field(default_factory=list)


def split_operands(text: str) -> list[str]:
    """Splits at the commas outside of brackets."""
    parts = _COMMA.split(text) if "{" in text or "[" in text else text.split(",")
    return [stripped for part in parts if (stripped := part.strip())]


def translate(*modules: str) -> Program:
    """Returns the code of all kernels of modules, and their constants."""
    made = Program()
    for ptx in modules:
        _add_module(ptx, made)
    return made


def _add_module(ptx: str, to: Program) -> None:
    ptx = re.sub(r"//[^\n]*", "", ptx)
    assert ".extern .func" not in ptx
    shared: dict[str, int] = {}
    end = 0
    # Memory without a size is that of the launch, behind the rest.
    for align, name, size in sorted(_SHARED.findall(ptx), key=lambda each: not each[2]):
        begin = -(-end // int(align)) * int(align)
        shared[name], end = begin, begin + int(size) if size else end
    dynamic = max([end, *(begin for begin in shared.values())])
    globals: dict[str, int] = {}
    for align, bits, name, count, values, single in _GLOBAL.findall(ptx):
        globals[name] = len(to.data)
        mask = (1 << int(bits)) - 1
        numbers = [int(number, 0) & mask for number in (values or single or "0").split(",")]
        data = b"".join(number.to_bytes(int(bits) // 8, "little") for number in numbers)
        to.data.append((int(align), data.ljust(int(count or 1) * int(bits) // 8, b"\0")))
    for name, parameters, _, body in _ENTRY.findall(ptx):
        to.kernels.append(_translate_kernel(_Kernel(name, _place(parameters), shared, globals, dynamic), body))


def _place(parameters: str) -> dict[str, tuple[int, int]]:
    """Returns the places and sizes of parameters."""
    places: dict[str, tuple[int, int]] = {}
    end = 0
    for type, parameter, count in _PARAMETER.findall(parameters + ")"):
        size = width(type) // 8 * int(count or 1)
        end = -(-end // size) * size
        places[parameter] = (end, size)
        end += size
    return places


def _translate_kernel(kernel: _Kernel, body: str) -> _Kernel:
    for type, prefix, count in _REGISTERS.findall(body):
        for number in range(int(count)):
            kernel.declare(f"{prefix}{number}", type)
    for special in ("%SP", "%SPL"):
        if f"{special};" in body:
            kernel.declare(special, "b64")
    depot = _DEPOT.search(body)
    if depot is not None:
        kernel.depot = (depot[2], int(depot[3]))
        kernel.place(depot[2], int(depot[3]), 16)
    half = ""
    for statement in body.split(";"):
        text = " ".join(statement.split())
        while (found := _LABEL.match(text)) is not None:
            kernel.labels[found[1]] = len(kernel.rows)
            text = text[found.end() :]
        if (own := _OWN.fullmatch(text)) is not None:
            half = f"%tmp_{own[1]}"
            if half not in kernel.types:
                kernel.declare(half, own[1])
            continue
        text = text.removeprefix("}").strip()
        if text and not text.startswith("."):
            kernel.write(_HALF.sub(half, text) if "tmp" in text else text)
    kernel.write("ret")
    return kernel
