"""Parses StableHLO with the bindings of MLIR, and writes its operations as JSON: `python -m ... FILE`.

It runs in a separate process with a limit of memory, because MLIR may abort, or may allocate as much memory as a
number in the file says. Exit code 1: the file cannot be parsed, stderr contains the reason.
"""

from __future__ import annotations

import base64
import json
import resource
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ...base.mlir import PACKAGE, ir

MOST_OPERATIONS = 100_000
"""The maximum number of operations, more than in any network; each takes kilobytes until it is in the graph."""
_LEAST_MEMORY, _MEMORY_OF_BYTE = 1 << 30, 64
"""The memory that parsing may take in addition to the bindings: a constant, and a multiple of the file size."""
_KINDS = {"FloatAttr": float, "IntegerAttr": int, "BoolAttr": bool}


def main(path: str) -> int:
    context = ir.Context()
    context.allow_unregistered_dialects = True  # JAX writes hints for devices in a separate dialect
    stablehlo = import_module(f"{PACKAGE}._mlir_libs._stablehlo")
    stablehlo.register_dialect(context)
    data = Path(path).read_bytes()
    limit_memory(_LEAST_MEMORY + _MEMORY_OF_BYTE * len(data))
    try:
        if data[:4] == b"ML\xefR":
            module = _from_bytecode(stablehlo, context, data)
        else:
            module = ir.Module.parse(data.decode(), context)
    except UnicodeDecodeError as error:
        print(f"it is not UTF-8 text: {error.reason} at byte {error.start}", file=sys.stderr)
        return 1
    except Exception as error:  # the bindings have errors of their own classes
        lines = [line.strip() for line in str(error).splitlines() if "error:" in line] or [str(error)]
        print(" ".join(lines[0].split()) or error.__class__.__name__, file=sys.stderr)
        return 1
    if count_operations(module.operation, MOST_OPERATIONS) > MOST_OPERATIONS:
        print(f"error: it has more than {MOST_OPERATIONS:,} operations", file=sys.stderr)
        return 1
    functions = [_function(op) for op in module.body.operations]
    json.dump({"functions": functions}, sys.stdout)
    return 0


def limit_memory(more: int) -> None:
    """Limits the address space to its present size plus `more` bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    soft = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def count_operations(operation: Any, most: int) -> int:
    """Returns the number of operations inside, or a number above `most` as soon as it is exceeded."""
    count = 0
    for region in operation.regions:
        for block in region.blocks:
            for op in block.operations:
                count += 1 + (count_operations(op.operation, most - count) if len(op.operation.regions) else 0)
                if count > most:
                    return count
    return count


def _from_bytecode(stablehlo: Any, context: Any, data: bytes) -> Any:
    try:
        return stablehlo.deserialize_portable_artifact(context, data)
    except Exception:  # bytecode that is not a portable artifact is parsed as MLIR
        return ir.Module.parse(data, context)


def _function(op: Any) -> dict[str, Any]:
    operation = op.operation
    if operation.name != "func.func":
        return {"op": operation.name, "name": "", "line": _line(operation)}
    name = ir.StringAttr(operation.attributes["sym_name"]).value
    visibility = str(operation.attributes["sym_visibility"]) if "sym_visibility" in operation.attributes else ""
    return {"op": "func.func", "name": name, "private": "private" in visibility, **_region(operation.regions[0])}


def _region(region: Any) -> dict[str, Any]:
    numbers: dict[Any, int] = {}
    return _block(region.blocks[0], numbers)


def _block(block: Any, numbers: dict[Any, int]) -> dict[str, Any]:
    def number(value: Any) -> int:
        key = hash(value)
        return numbers.setdefault(key, len(numbers))

    arguments = [[number(argument), _type(argument.type)] for argument in block.arguments]
    operations = []
    for op in block.operations:
        operation = op.operation
        operations.append(
            {
                "op": operation.name,
                "operands": [number(value) for value in operation.operands],
                "results": [[number(value), _type(value.type)] for value in operation.results],
                "attributes": {_key(name): _attribute(operation, name) for name in operation.attributes},
                "regions": [_block(region.blocks[0], numbers) for region in operation.regions if len(region.blocks)],
                "line": _line(operation),
            }
        )
    return {"arguments": arguments, "operations": operations}


def _key(name: Any) -> str:
    return name if isinstance(name, str) else str(name.name)


def _type(tensor: Any) -> dict[str, Any]:
    if not isinstance(tensor, ir.RankedTensorType):
        return {"other": str(tensor)}
    shape = [None if tensor.is_dynamic_dim(i) else tensor.get_dim_size(i) for i in range(tensor.rank)]
    return {"shape": shape, "element": str(tensor.element_type)}


def _line(operation: Any) -> int:
    location = operation.location
    return int(getattr(location, "start_line", 0) or 0)


def _attribute(operation: Any, name: Any) -> Any:
    try:
        attribute = operation.attributes[_key(name)]
    except TypeError:  # the bindings have no class for complex elements
        return {**_type(operation.results[0].type), "text": str(operation)}
    kind = attribute.__class__.__name__
    if kind in _KINDS:
        return _KINDS[kind](attribute.value)
    if kind == "StringAttr":
        return attribute.value
    if kind.startswith("Dense") and kind.endswith("ArrayAttr"):
        return list(attribute)
    if kind.startswith("Dense"):
        return _dense(attribute)
    return str(attribute)


def _dense(attribute: Any) -> Any:
    tensor = _type(attribute.type)
    if attribute.is_splat:
        return {**tensor, "splat": str(attribute.get_splat_value())}
    try:
        data = np.array(attribute)
    except TypeError:  # NumPy has no such dtype
        return {**tensor, "text": str(attribute)}
    return {**tensor, "dtype": data.dtype.str, "data": base64.b64encode(np.ascontiguousarray(data).tobytes()).decode()}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
