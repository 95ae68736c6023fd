"""The generated tables of an artifact, for the fixed runtime: the data that `tables.h` declares."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from ... import runtime
from ...dialect.dims import INFINITY, Size, Symbol, format_size
from ...dialect.types import TensorType
from ...runtime.arguments import DTYPE_CODES
from ..targets.variants import VARIANTS, Variant
from .assembly import Assembly
from .dim_bindings import Binding, bind_dims
from .formulas import encode_constant, encode_formula
from .spec import ArgumentSpec, ArtifactSpec, DeviceSpec, LevelSpec, blob_bytes
from .structs import (
    ADDRESS,
    ARGUMENT,
    ARTIFACT,
    BINDING,
    CONSTRAINT,
    DEVICE_CODE,
    DEVICE_ENTRY,
    DEVICE_LEVEL,
    DIM,
    ENTRY,
    I32,
    LEVEL,
    SIZE,
    STATE,
    Row,
)
from .weights import WrittenWeights, fnv1a

DESCRIPTION, CALLS = "nacre_description", "nacre_calls"
WEIGHTS, DEVICE_WEIGHTS = "nacre_weights", "nacre_device_weights"
"""The symbols of included files."""
RELATIONS = ("==", ">=", "multiple-of", "fits")
"""The relations of constraints, in the order of `tables.h`."""
PLAIN, OBSERVED = 7, 8
"""The number of arguments of an entry's code, and of its copy for observed calls."""
_INT64_MAX = (1 << 63) - 1


@lru_cache(maxsize=1)
def feature_bits() -> Mapping[str, int]:
    """Returns the bit of each CPU feature by its name in `cpu.h`, which lists the features in the order of the bits."""
    text = (Path(runtime.__file__).parent / "cpu.h").read_text()
    return {name: 1 << number for number, name in enumerate(re.findall(r"^ +X\((\w+),", text, re.MULTILINE))}


@lru_cache(maxsize=32)
def _feature_mask(features: tuple[str, ...]) -> int:
    """Returns the bits of features with these names in LLVM."""
    return sum(feature_bits()[name] for name in {re.sub("[.-]", "_", feature) for feature in features})


def _size(out: Assembly, size: Size, index: Mapping[Symbol, int]) -> Row:
    if isinstance(size, int):
        return {"constant": encode_constant(size), "formula": None, "text": None}
    formula = out.formula(encode_formula(size, index))
    return {"constant": 0, "formula": formula, "text": out.text(format_size(size))}


def _argument(out: Assembly, name: str, type: TensorType, shape: str, index: Mapping[Symbol, int]) -> Row:
    """Returns the row of a tensor; its sizes become the array `shape`."""
    return {
        "name": out.text(name),
        "type": out.text(str(type)),
        "shape": out.array(shape, SIZE, [_size(out, size, index) for size in type.shape]),
        "dtype": DTYPE_CODES[type.dtype.name],
        "rank": type.rank,
    }


def _dim(out: Assembly, symbol: Symbol) -> Row:
    high = _INT64_MAX if symbol.high >= INFINITY else symbol.high
    return {"name": out.text(symbol.name), "low": symbol.low, "high": high, "multiple": symbol.multiple}


def _binding(out: Assembly, binding: Binding, index: Mapping[Symbol, int]) -> Row:
    return {
        "dim": index[binding.dim],
        "argument": binding.argument,
        "axis": binding.axis,
        "rest": _size(out, binding.rest, index),
        "divisor": _size(out, binding.divisor, index),
        "factor": binding.factor,
    }


def _level(out: Assembly, level: LevelSpec | Variant) -> Row:
    return {"name": out.text(level.name), "features": _feature_mask(level.features)}


def _code(out: Assembly, prefix: str, symbols: Sequence[str], observed: Sequence[str]) -> Row:
    """Returns the fields of an entry's functions: one for each level, and their copies for observed calls."""
    kernels = [out.function(symbol, PLAIN) for symbol in symbols]
    watched = [out.function(symbol, OBSERVED) for symbol in observed]
    return {
        "kernels": out.array(f"{prefix}_kernels", ADDRESS, kernels),
        "observed_kernels": out.array(f"{prefix}_observed", ADDRESS, watched),
    }


def _checks(out: Assembly, prefix: str, checks: Sequence[str]) -> str | None:
    return out.array(f"{prefix}_checks", ADDRESS, [out.text(text) for text in checks])


def _entry(out: Assembly, spec: ArtifactSpec, number: int) -> Row:
    entry, prefix = spec.entries[number], f"entry_{number}"
    index = {symbol: i for i, symbol in enumerate(entry.dims)}
    session = {symbol: i for i, symbol in enumerate(spec.session_dims)}
    found, unbound = bind_dims(entry)
    assert not unbound, unbound
    bindings = [*(Binding(symbol, -1, session[symbol], 0, 1, 1) for symbol in entry.session_dims), *found]
    constraints = [
        {
            "left": _size(out, constraint.left, index),
            "right": _size(out, constraint.right, index),
            "text": out.text(str(constraint)),
            "relation": RELATIONS.index(constraint.relation),
        }
        for constraint in entry.constraints
    ]

    def arguments(specs: Sequence[ArgumentSpec], name: str) -> str | None:
        shapes = (f"{name}_shape_{i}" for i in range(len(specs)))
        rows = [_argument(out, a.name, a.type, shape, index) for a, shape in zip(specs, shapes, strict=True)]
        return out.array(name, ARGUMENT, rows)

    symbols = [entry.symbol + level.suffix for level in spec.levels]
    observed = [entry.observed + level.suffix for level in spec.levels if entry.observed]
    return {
        "name": out.text(entry.name),
        **_code(out, prefix, symbols, observed),
        "arguments": arguments(entry.arguments, f"{prefix}_arguments"),
        "results": arguments(entry.results, f"{prefix}_results"),
        "dims": out.array(f"{prefix}_dims", DIM, [_dim(out, symbol) for symbol in entry.dims]),
        "bindings": out.array(f"{prefix}_bindings", BINDING, [_binding(out, b, index) for b in bindings]),
        "constraints": out.array(f"{prefix}_constraints", CONSTRAINT, constraints),
        "checks": _checks(out, prefix, entry.checks),
        "workspace": _size(out, entry.workspace, index),
        "argument_count": len(entry.arguments),
        "result_count": len(entry.results),
        "dim_count": len(entry.dims),
        "constraint_count": len(constraints),
        "states": out.array(f"{prefix}_states", I32, entry.states),
        "state_count": len(entry.states),
        "first_check": sum(len(before.checks) for before in spec.entries[:number]),
    }


def _states(out: Assembly, spec: ArtifactSpec) -> list[Row]:
    index = {symbol: i for i, symbol in enumerate(spec.session_dims)}
    return [
        {
            "tensor": _argument(out, state.name, state.type, f"state_shape_{i}", index),
            "initial": state.initial,
            "initial_bytes": state.initial_bytes,
        }
        for i, state in enumerate(spec.states)
    ]


def _write_device(out: Assembly, spec: ArtifactSpec, device: DeviceSpec, *, external: bool) -> None:
    """Writes the tables of the code for a device."""
    weights, size, offset = DEVICE_WEIGHTS, device.weight_bytes, spec.weight_bytes
    if device.weights is None:
        weights, size, offset = WEIGHTS, spec.weight_bytes, 0
    entries: list[Row] = []
    for i, (entry, computed) in enumerate(zip(spec.entries, device.entries, strict=True)):
        symbols, observed = (
            [symbol + level.suffix for level in device.levels] for symbol in (computed.symbol, computed.observed)
        )
        index = {symbol: position for position, symbol in enumerate(entry.dims)}
        entries.append(
            {
                **_code(out, f"device_{i}", symbols, observed),
                "checks": _checks(out, f"device_{i}", computed.checks),
                "workspace": _size(out, computed.workspace, index),
            }
        )
    levels = [
        {
            "name": out.text(level.name),
            "capability": level.capability,
            "exact": int(level.exact),
            "images": out.data(f"nacre_images{level.suffix}"),
            "release": level.release,
        }
        for level in device.levels
    ]
    code = {
        "levels": out.array("device_levels", DEVICE_LEVEL, levels),
        "entries": out.array("device_entries", DEVICE_ENTRY, entries),
        "level_count": len(levels),
        "weights": weights if size and not external else None,
        "weight_bytes": size,
        "weight_offset": offset,
    }
    out.array("nacre_this_device_code", DEVICE_CODE, [code], visible=True)


def write_tables(out: Assembly, spec: ArtifactSpec, weights: WrittenWeights) -> None:
    """Writes the tables of one artifact. They refer to its included files by their symbols."""
    external = bool(weights.header)
    entries = [_entry(out, spec, number) for number in range(len(spec.entries))]
    states = _states(out, spec)
    if spec.device is not None:
        _write_device(out, spec, spec.device, external=external)
    artifact = {
        "description": DESCRIPTION,
        "calls": CALLS,
        "levels": out.array("levels", LEVEL, [_level(out, level) for level in spec.levels]),
        "entries": out.array("entries", ENTRY, entries),
        "level_count": len(spec.levels),
        "entry_count": len(entries),
        "weights": WEIGHTS if spec.weight_bytes and not external else None,
        "weight_bytes": spec.weight_bytes,
        "header_bytes": len(weights.header),
        "header_hash": fnv1a(weights.header),
        "file_bytes": blob_bytes(spec.file_weights) if external else 0,
        "states": out.array("states", STATE, states),
        "session_dims": out.array("session_dims", DIM, [_dim(out, symbol) for symbol in spec.session_dims]),
        "state_count": len(states),
        "session_dim_count": len(spec.session_dims),
        "check_count": sum(len(entry.checks) for entry in spec.entries),
        "known_count": len(VARIANTS),
        "known_levels": out.array("known_levels", LEVEL, [_level(out, variant) for variant in VARIANTS.values()]),
    }
    out.array("nacre_this_artifact", ARTIFACT, [artifact], visible=True)
