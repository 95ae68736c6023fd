"""The generated tables of an artifact, in C, for the fixed runtime."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ...dialect.dims import INFINITY, Size, Symbol, format_size
from ...dialect.types import TensorType
from ..targets.variants import VARIANTS, Variant
from .dim_bindings import Binding, bind_dims
from .formulas import Functions, c_expression
from .spec import (
    ArgumentSpec,
    ArtifactSpec,
    DeviceSpec,
    EntrySpec,
    LevelSpec,
    blob_bytes,
    c_identifier,
)
from .weights import WrittenWeights, fnv1a

_RELATIONS = {"==": "NACRE_EQUAL", ">=": "NACRE_AT_LEAST", "multiple-of": "NACRE_MULTIPLE_OF", "fits": "NACRE_FITS"}


def c_string(text: str) -> str:
    """Returns a C string literal; characters outside of plain ASCII become octal escapes of their UTF-8 bytes."""
    plain = set(range(32, 127)) - set(b'"\\?')
    return '"' + "".join(chr(b) if b in plain else f"\\{b:03o}" for b in text.encode()) + '"'


def _array(kind: str, name: str, rows: Sequence[str]) -> list[str]:
    """Returns an array definition; C has no empty arrays, so an empty one becomes a null pointer at its uses."""
    return [f"static const {kind} {name}[] = {{", *(f"    {row}," for row in rows), "};"] if rows else []


def _pointer(name: str, rows: Sequence[object]) -> str:
    return name if rows else "0"


class _EntryTables:
    """The tables of one entry, in the order that C requires."""

    def __init__(self, entry: EntrySpec, spec: ArtifactSpec, number: int, functions: Functions) -> None:
        self.entry = entry
        self.first_check = sum(len(before.checks) for before in spec.entries[:number])
        self.session = {symbol: i for i, symbol in enumerate(spec.session_dims)}
        levels = spec.levels
        self.symbols = [entry.symbol + level.suffix for level in levels]
        self.observed = [entry.observed + level.suffix for level in levels if entry.observed]
        self.prefix = f"entry_{number}"
        self.functions = functions
        self.index: Mapping[Symbol, int] = {symbol: i for i, symbol in enumerate(entry.dims)}
        self.lines: list[str] = []

    def size(self, size: Size) -> str:
        return _size(size, self.index, self.functions)

    def arguments(self, arguments: Sequence[ArgumentSpec], name: str) -> None:
        rows: list[str] = []
        for i, argument in enumerate(arguments):
            shape = f"{name}_shape_{i}"
            self.lines += _array("nacre_size", shape, [self.size(s) for s in argument.type.shape])
            rows.append(_argument(argument.name, argument.type, shape))
        self.lines += _array("nacre_argument", name, rows)

    def binding(self, binding: Binding) -> str:
        rest = c_expression(binding.rest, self.index)
        divisor = c_expression(binding.divisor, self.index)
        # If rest and divisor are constant, the dims are not read.
        body = f"(void)d; return nacre_solve(n, {rest}, {divisor}, INT64_C({binding.factor}));"
        solve = self.functions.add("const int64_t *d, int64_t n", body, "solve_")
        return f"{{{self.index[binding.dim]}, {binding.argument}, {binding.axis}, {solve}}}"

    def emit(self) -> str:
        """Fills `lines` and returns the row of the entry."""
        entry, prefix = self.entry, self.prefix
        bindings, unbound = bind_dims(entry)
        assert not unbound, unbound
        given = [f"{{{self.index[s]}, -1, {self.session[s]}, 0}}" for s in entry.session_dims]
        constraints = [
            f"{{{self.size(c.left)}, {self.size(c.right)}, {c_string(str(c))}, {_RELATIONS[c.relation]}}}"
            for c in entry.constraints
        ]
        self.lines += _array("nacre_kernel", f"{prefix}_kernels", self.symbols)
        self.lines += _array("nacre_observed_kernel", f"{prefix}_observed", self.observed)
        self.arguments(entry.arguments, f"{prefix}_arguments")
        self.arguments(entry.results, f"{prefix}_results")
        self.lines += _array("nacre_dim", f"{prefix}_dims", [_dim(s) for s in entry.dims])
        self.lines += _array("nacre_binding", f"{prefix}_bindings", [*given, *map(self.binding, bindings)])
        self.lines += _array("nacre_constraint", f"{prefix}_constraints", constraints)
        self.lines += _array("char *const", f"{prefix}_checks", [c_string(text) for text in entry.checks])
        self.lines += _array("int32_t", f"{prefix}_states", list(map(str, entry.states)))
        fields = [
            c_string(entry.name),
            _pointer(f"{prefix}_kernels", self.symbols),
            _pointer(f"{prefix}_observed", self.observed),
            _pointer(f"{prefix}_arguments", entry.arguments),
            _pointer(f"{prefix}_results", entry.results),
            _pointer(f"{prefix}_dims", entry.dims),
            _pointer(f"{prefix}_bindings", entry.dims),
            _pointer(f"{prefix}_constraints", constraints),
            _pointer(f"{prefix}_checks", entry.checks),
            self.size(entry.workspace),
            *map(str, (len(entry.arguments), len(entry.results), len(entry.dims), len(constraints))),
            _pointer(f"{prefix}_states", entry.states),
            *(str(len(entry.states)), str(self.first_check)),
        ]
        return "{" + ", ".join(fields) + "}"


def _size(size: Size, index: Mapping[Symbol, int], functions: Functions) -> str:
    if isinstance(size, int):
        return f"{{{c_expression(size, index)}, 0, 0}}"
    return f"{{0, {functions.formula(size, index)}, {c_string(format_size(size))}}}"


def _argument(name: str, type: TensorType, shape: str) -> str:
    dtype = f"NACRE_{type.dtype.name.upper()}"
    return f"{{{c_string(name)}, {c_string(str(type))}, {_pointer(shape, type.shape)}, {dtype}, {type.rank}}}"


def _dim(symbol: Symbol) -> str:
    high = "INT64_MAX" if symbol.high >= INFINITY else f"INT64_C({symbol.high})"
    return f"{{{c_string(symbol.name)}, INT64_C({symbol.low}), {high}, INT64_C({symbol.multiple})}}"


def _emit_states(spec: ArtifactSpec, functions: Functions) -> list[str]:
    """Returns the tables of the states and of the dims that a session binds."""
    index = {symbol: i for i, symbol in enumerate(spec.session_dims)}
    lines: list[str] = []
    rows: list[str] = []
    for i, state in enumerate(spec.states):
        shape = f"state_shape_{i}"
        lines += _array("nacre_size", shape, [_size(s, index, functions) for s in state.type.shape])
        initial = f"INT64_C({state.initial}), INT64_C({state.initial_bytes})"
        rows.append(f"{{{_argument(state.name, state.type, shape)}, {initial}}}")
    return [
        *lines,
        *_array("nacre_state", "states", rows),
        *_array("nacre_dim", "session_dims", [_dim(s) for s in spec.session_dims]),
    ]


def _level(level: LevelSpec | Variant) -> str:
    features = " | ".join(f"NACRE_CPU({re.sub('[.-]', '_', feature)})" for feature in level.features)
    return f"{{{c_string(level.name)}, {features or '0'}}}"


PLAIN = "nacre_team *, nacre_failure *"
OBSERVED = f"{PLAIN}, nacre_watch *"
"""The parameters of an entry after its dims, and those of its copy for observed calls."""


def _declare(symbol: str, further: str) -> str:
    arguments = f"const void *const *, void *const *, char *, const char *, const int64_t *, {further}"
    return f'extern __attribute__((visibility("hidden"))) int64_t {symbol}({arguments});'


def _emit_device(spec: ArtifactSpec, device: DeviceSpec, functions: Functions, *, external: bool) -> list[str]:
    """Returns the tables of the code for a device."""
    weights, size, offset = "nacre_device_weights", device.weight_bytes, spec.weight_bytes
    if device.weights is None:
        weights, size, offset = "nacre_weights", spec.weight_bytes, 0
    lines: list[str] = []
    rows: list[str] = []
    for i, (entry, computed) in enumerate(zip(spec.entries, device.entries, strict=True)):
        symbols, observed = (
            [symbol + level.suffix for level in device.levels] for symbol in (computed.symbol, computed.observed)
        )
        index = {symbol: position for position, symbol in enumerate(entry.dims)}
        lines += [_declare(symbol, PLAIN) for symbol in symbols]
        lines += [_declare(symbol, OBSERVED) for symbol in observed]
        lines += _array("nacre_kernel", f"device_{i}_kernels", symbols)
        lines += _array("nacre_observed_kernel", f"device_{i}_observed", observed)
        lines += _array("char *const", f"device_{i}_checks", [c_string(text) for text in computed.checks])
        checks = _pointer(f"device_{i}_checks", computed.checks)
        workspace = _size(computed.workspace, index, functions)
        rows.append(f"{{device_{i}_kernels, device_{i}_observed, {checks}, {workspace}}}")
    levels = []
    for level in device.levels:
        lines.append(f'extern __attribute__((visibility("hidden"))) const nacre_images nacre_images{level.suffix};')
        fields = (
            c_string(level.name),
            str(level.capability),
            str(int(level.exact)),
            f"&nacre_images{level.suffix}",
            str(level.release),
        )
        levels.append(f"{{{', '.join(fields)}}}")
    return [
        f'extern __attribute__((visibility("hidden"))) const char {weights}[];',
        *lines,
        *_array("nacre_device_level", "device_levels", levels),
        *_array("nacre_device_entry", "device_entries", rows),
        "const nacre_device_code nacre_this_device_code = {",
        f"    device_levels, device_entries, {len(levels)},",
        f"    {weights if size and not external else '0'}, INT64_C({size}), INT64_C({offset})",
        "};",
    ]


def emit_tables(spec: ArtifactSpec, weights: WrittenWeights) -> str:
    """Returns the C source of the tables of one artifact."""
    functions = Functions()
    lines: list[str] = []
    rows: list[str] = []
    kernels: list[str] = []
    for i, entry in enumerate(spec.entries):
        tables = _EntryTables(entry, spec, i, functions)
        rows.append(tables.emit())
        lines += tables.lines
        kernels += [_declare(symbol, PLAIN) for symbol in tables.symbols]
        kernels += [_declare(symbol, OBSERVED) for symbol in tables.observed]
    lines += _emit_states(spec, functions)
    external = bool(weights.header)
    device = [] if spec.device is None else _emit_device(spec, spec.device, functions, external=external)
    alias = f"nacre_get_api_{c_identifier(spec.name)}"
    embedded = spec.weight_bytes and not external
    file_bytes = blob_bytes(spec.file_weights) if external else 0
    return "\n".join(
        [
            '#include "cpu.h"',
            '#include "tables.h"',
            *(['#include "cuda/code.h"'] if device else []),
            'extern __attribute__((visibility("hidden"))) const char '
            "nacre_description[], nacre_calls[], nacre_weights[];",
            *kernels,
            *functions.definitions(),
            *lines,
            *device,
            *_array("nacre_level", "levels", [_level(level) for level in spec.levels]),
            *_array("nacre_level", "known_levels", [_level(variant) for variant in VARIANTS.values()]),
            *_array("nacre_entry", "entries", rows),
            "const nacre_artifact nacre_this_artifact = {",
            f"    nacre_description, nacre_calls, {_pointer('levels', spec.levels)}, entries,"
            f" {len(spec.levels)}, {len(rows)},",
            f"    {'nacre_weights' if embedded else '0'},",
            f"    INT64_C({spec.weight_bytes}), {len(weights.header)}, UINT64_C({fnv1a(weights.header)}),",
            f"    INT64_C({file_bytes}),",
            f"    {_pointer('states', spec.states)}, {_pointer('session_dims', spec.session_dims)},",
            f"    {len(spec.states)}, {len(spec.session_dims)}, {sum(len(entry.checks) for entry in spec.entries)},",
            f"    {len(VARIANTS)}, known_levels",
            "};",
            f'__attribute__((visibility("default"))) const nacre_api *{alias}(uint32_t version);',
            f"const nacre_api *{alias}(uint32_t version) {{ return nacre_offered_api(version); }}",
            "",
        ]
    )
