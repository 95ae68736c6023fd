"""PTX instructions in C: each method of `Kernel` returns the statements of an operation."""

from __future__ import annotations

import re
from collections.abc import Callable

from ptx_operands import C_TYPES, LABEL, READ, WRITE, Code, UnknownError, split_operands, width

_PLACES = re.compile(r"\[((?:[^][{}]|\{[^}]*\})*)\]")
"""An operand in brackets: an address, or a tensor map and the position of a box."""
_COMPLETED = "mbarrier::complete_tx::bytes"
_REGISTER = re.compile(r"%\w+")
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
_WAITED = "@"
"""Parts an instruction where a thread waits."""


class Kernel(Code):
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
        if self.sums and operation != "wgmma" and any(name in self.sums for name in _REGISTER.findall(rest)):
            made = f"touch_sums(B, M, {self.shown(text.strip())}); {made}"
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
        if operation in ("div", "rem") and type not in READ:
            return f"{values[1]} == 0 ? 0 : {values[0]} {_BINARY[operation]} {values[1]}"
        return f"{values[0]} {_BINARY[operation]} {values[1]}"

    def _mul(self, modifiers: list[str], operands: list[str], text: str) -> str:
        type = modifiers[-1]
        made = self._combine("mul", modifiers, type, [self.value(o, type) for o in operands[1:]])
        if "wide" in modifiers:
            return f"{self.register(operands[0])} = ({C_TYPES[f'b{2 * width(type)}']})({made});"
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
        if type in READ:
            sign = 1 << (width(type) - 1)
            suffix = "ull" if type == "f64" else "u"
            return f"{self.register(operands[0])} = {self.raw(operands[1], type)} ^ {sign}{suffix};"
        return self.assign(operands[0], f"-{self.value(operands[1], type)}", type)

    def _abs(self, modifiers: list[str], operands: list[str], text: str) -> str:
        type = modifiers[-1]
        if type in READ:
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
        if type in READ:
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
        if type not in READ:
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
                "" if p == "_" else f"{self.register(p)} = ({C_TYPES[f'b{each}']})(v >> {i * each});"
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
            high, low = (WRITE[half].format(self.value(operand, "f32")) for operand in operands[1:])
            return self.assign(operands[0], f"(uint32_t){high} << 16 | {low}", "b32")
        if target == "tf32":
            assert how == ["rna"] and source == "f32", text
            return self.assign(operands[0], f"{self.raw(operands[1], 'b32')} + 0x1000u & 0xffffe000u", "b32")
        value = self.value(operands[1], source)
        rounding = next((_ROUND[word] for word in how if word in _ROUND), None)
        if source in READ and rounding is not None:
            value = f"{rounding}({value})"
        if target in READ:
            if target == "f16" and source == "f64":
                return f"{self.register(operands[0])} = f64_to_f16({value});"
            return self.assign(operands[0], f"({'double' if target == 'f64' else 'float'})({value})", target)
        if source in READ:
            return self._sized(operands[0], f"to_{target}({value})", target)
        if "sat" in how:
            raise UnknownError(text)
        return self._sized(operands[0], value, target)

    def _sized(self, target: str, value: str, type: str) -> str:
        """Assigns a number that may be narrower than its register, which takes its sign."""
        return f"{self.register(target)} = ({C_TYPES[type]})({value});"

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
        kind = C_TYPES[type if type in C_TYPES and type[0] == "s" else f"b{8 * bytes}"]
        return f"{{ {kind} v; memcpy(&v, {place}, {bytes}); {self.register(target)} = v; }}"

    def _st(self, modifiers: list[str], operands: list[str], text: str) -> str:
        type = f"b{width(modifiers[-1])}"
        bytes = width(type) // 8
        sources = split_operands(operands[1][1:-1]) if operands[1].startswith("{") else [operands[1]]
        pointer = self.pointer(modifiers, operands[0], bytes * len(sources), True, text)
        stores = [
            f"memcpy(p + {i * bytes}, &{self.register(source)}, {bytes});"
            if self.holds(source, type)
            else f"{{ {C_TYPES[type]} v = {self.raw(source, type)}; memcpy(p + {i * bytes}, &v, {bytes}); }}"
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
        if modifiers[:2] == ["async", "bulk"]:
            return self._bulk(modifiers[2:], operands, text)
        assert modifiers[0] == "async" and modifiers[2:4] == ["shared", "global"], text
        target, source = (self.address(operand) for operand in operands[:2])
        read = self.raw(operands[3], "b32") if len(operands) > 3 else operands[2]
        return f"copy_async(B, M, {target}, {source}, {int(operands[2])}, {read}, {self.shown(text)});"

    def _bulk(self, modifiers: list[str], operands: list[str], text: str) -> str:
        """Copies of boxes and of bytes, in either direction."""
        if modifiers == ["commit_group"]:
            return "M->group_of_stores++;"
        if modifiers[0] == "wait_group":
            return f"wait_for_stores(B, M, {int(operands[0])}, {int('read' not in modifiers)});"
        is_store, is_tile = modifiers[-1] == "bulk_group", modifiers[0] == "tensor"
        wanted = ["global", "shared::cta", "bulk_group"] if is_store else ["shared::cluster", "global", _COMPLETED]
        assert modifiers[-3:] == wanted and len(modifiers) == (5 if is_tile else 3), text
        places = _PLACES.findall(text)
        to, source = places[:2]
        end = self.shown(text) if is_store else f"{self.address(f'[{places[2]}]')}, {self.shown(text)}"
        if not is_tile:
            bytes = self.raw(operands[2], "b32")
            name = "store_bytes(B, M, " if is_store else "copy_bytes(B, "
            return f"{name}{self.address(f'[{to}]')}, {self.address(f'[{source}]')}, {bytes}, {end});"
        memory, (map, _, box) = (source, to.partition(",")) if is_store else (to, source.partition(","))
        at = [self.value(place, "s32") for place in box.strip()[1:-1].split(",")]
        assert modifiers[1] == f"{len(at)}d", text
        tile, address = f"{self.raw(map, 'b64')}, at, {len(at)}", self.address(f"[{memory}]")
        call = f"store_tile(B, M, {tile}, {address}, {end})" if is_store else f"copy_tile(B, {address}, {tile}, {end})"
        return f"const int32_t at[] = {{{', '.join(at)}}}; {call};"

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
        return f"{sent} {waiting} pass_phase(B, M); {self.assign(operands[0], '1', 'pred')}"

    def _fence(self, modifiers: list[str], operands: list[str], text: str) -> str:
        assert modifiers in (["proxy", "async"], ["proxy", "async", "shared::cta"]), text
        return "fence_proxies(B);"

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
        assert self.sums == registers, "products of one kernel have the same sums"
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
