"""The JSON descriptions that `describe` and `describe_calls` of an artifact return, specified in `runtime/ABI.md`.

Calls of kernels have a separate description, since a program that only calls the artifact does not need it.
"""

from __future__ import annotations

import json

from ...dialect.dims import INFINITY, Size, Symbol, format_size
from ...dialect.types import TensorType
from .spec import (
    ArgumentSpec,
    ArtifactSpec,
    CallSpec,
    EntrySpec,
    JsonValue,
    LevelSpec,
    OperationSpec,
    ValueSpec,
)

ABI_VERSION = 1


def _size(size: Size) -> int | str:
    return size if isinstance(size, int) else format_size(size)


def _type(type: TensorType) -> dict[str, JsonValue]:
    return {"type": str(type), "dtype": type.dtype.name, "shape": [_size(s) for s in type.shape]}


def _argument(argument: ArgumentSpec) -> dict[str, JsonValue]:
    return {"name": argument.name, **_type(argument.type)}


def _dim(symbol: Symbol) -> dict[str, JsonValue]:
    high = None if symbol.high >= INFINITY else symbol.high
    return {"name": symbol.name, "low": symbol.low, "high": high, "multiple": symbol.multiple}


def _entry(entry: EntrySpec) -> dict[str, JsonValue]:
    return {
        "name": entry.name,
        "doc": entry.doc,
        "arguments": [_argument(a) for a in entry.arguments],
        "results": [_argument(r) for r in entry.results],
        "dims": [_dim(s) for s in entry.dims],
        "constraints": [str(c) for c in entry.constraints],
        "workspace": _size(entry.workspace),
        **({"states": list(entry.states)} if entry.states else {}),
    }


def _level(level: LevelSpec) -> dict[str, JsonValue]:
    described: dict[str, JsonValue] = {"name": level.name, "cpu": level.cpu, "features": list(level.features)}
    if level.untiled:
        described["untiled"] = [{"kernel": kernel, "reason": reason} for kernel, reason in level.untiled]
    if level.loops:
        described["loops"] = list(level.loops)
    return described


def _device(spec: ArtifactSpec) -> dict[str, JsonValue]:
    """Describes the code for a device, if there is some."""
    if spec.device is None:
        return {}
    levels: list[JsonValue] = [level.name for level in spec.device.levels]
    cubins: dict[str, JsonValue] = {level.name: level.assembler for level in spec.device.levels if level.assembler}
    size = spec.weight_bytes if spec.device.weights is None else spec.device.weight_bytes
    described: dict[str, JsonValue] = {"levels": levels, "cubins": cubins, "weight_bytes": size}
    untiled: list[JsonValue] = [
        {"kernel": kernel, "target": level.name, "reason": reason}
        for level in spec.device.levels
        for kernel, reason in level.untiled
    ]
    return {"device": described | ({"untiled": untiled} if untiled else {})}


def describe_artifact(
    spec: ArtifactSpec, *, placement: str = "embedded", weights_hash: str = ""
) -> dict[str, JsonValue]:
    """Returns the description without the artifact's own hash, which covers the description among other data."""
    tensors: list[JsonValue] = [{"name": w.name, **_type(w.type), "offset": w.offset} for w in spec.weights]
    return {
        "format": "nacre",
        "abi": ABI_VERSION,
        "name": spec.name,
        "compiler": spec.compiler_version,
        "source_hash": spec.source_hash,
        "target": {"triple": spec.triple, "levels": [_level(level) for level in spec.levels], **_device(spec)},
        "options": dict(spec.options),
        "entries": [_entry(e) for e in spec.entries],
        "weights": {"placement": placement, "bytes": spec.weight_bytes, "hash": weights_hash, "tensors": tensors},
        **_session(spec),
    }


def _session(spec: ArtifactSpec) -> dict[str, JsonValue]:
    """Describes the states of a session, if there are any."""
    if not spec.states:
        return {}
    states: list[JsonValue] = [
        {"name": state.name, **_type(state.type), "initial": "value" if state.initial_bytes else "zeros"}
        for state in spec.states
    ]
    dims: list[JsonValue] = [_dim(symbol) for symbol in spec.session_dims]
    return {"session": {"dims": dims, "states": states, "bytes": _size(spec.session_bytes)}}


def _operation(operation: OperationSpec) -> dict[str, JsonValue]:
    at = None if operation.span is None else str(operation.span)
    factors = None if operation.factors is None else operation.factors.name
    described: dict[str, JsonValue] = {"op": operation.op, "scope": operation.scope, "at": at}
    return described | {"flops": _size(operation.flops), "factors": factors}


def _value(value: ValueSpec) -> dict[str, JsonValue]:
    storage: dict[str, JsonValue] = (
        {"workspace": _size(value.offset)} if value.output is None else {"output": value.output}
    )
    point: JsonValue = None if value.named is None else {"name": value.named.name, "axes": list(value.named.axes)}
    return {"name": value.name, **_type(value.type), "point": point, "operation": value.operation, **storage}


def _call(call: CallSpec) -> dict[str, JsonValue]:
    return {
        "kernel": call.kernel,
        "kind": call.kind,
        "bytes": _size(call.bytes),
        "operations": [_operation(o) for o in call.operations],
        "values": [_value(v) for v in call.values],
    }


def describe_calls(spec: ArtifactSpec) -> dict[str, JsonValue]:
    """Returns the description of calls: the kernels that an entry calls, those for a device apart."""
    described: dict[str, JsonValue] = {
        "entries": [{"name": e.name, "calls": [_call(c) for c in e.calls]} for e in spec.entries]
    }
    if spec.device is not None:
        pairs = zip(spec.entries, spec.device.entries, strict=True)
        described["device"] = [{"name": e.name, "calls": [_call(c) for c in own.calls]} for e, own in pairs]
    return described


def to_json(description: dict[str, JsonValue]) -> str:
    return json.dumps(description, separators=(",", ":"), ensure_ascii=True)
