"""Tensors in requests and answers of the protocol KServe v2, as JSON or as bytes after it:
https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol

    {"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]}
    {"name": "x", "shape": [2], "datatype": "FP32", "parameters": {"binary_data_size": 8}}      and 8 bytes after
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from ....runtime.arguments import Argument
from .fields import RequestError

Tensor = np.ndarray[Any, Any]
DATATYPES: Mapping[str, str] = {
    "bool": "BOOL",
    **{f"{sign}{bits}": f"{word}{bits}" for sign, word in (("i", "INT"), ("u", "UINT")) for bits in (8, 16, 32, 64)},
    "f16": "FP16",
    "bf16": "BF16",
    "f32": "FP32",
    "f64": "FP64",
}
"""The names of dtypes in the protocol. Other dtypes cannot be sent."""
_NUMPY: Mapping[str, Any] = {
    "bool": np.bool_,
    **{f"{sign}{bits}": f"<{sign}{bits // 8}" for sign in "iu" for bits in (8, 16, 32, 64)},
    "f16": "<f2",
    "bf16": ml_dtypes.bfloat16,
    "f32": "<f4",
    "f64": "<f8",
}


def _parameters(record: Mapping[str, Any]) -> Mapping[str, Any]:
    found = record.get("parameters") or {}
    if not isinstance(found, dict):
        raise RequestError(400, "`parameters` is not an object")
    return found


def describe(argument: Argument) -> dict[str, Any]:
    """Returns the metadata of an argument or result. A size that is known only in a call is -1."""
    shape = [size if isinstance(size, int) else -1 for size in argument.shape]
    return {"name": argument.name, "datatype": DATATYPES[argument.dtype], "shape": shape}


def read_inputs(arguments: Sequence[Argument], body: Mapping[str, Any], rest: bytes) -> list[Tensor]:
    """Returns the arguments of a call from the JSON of a request and the bytes after it. Raises RequestError."""
    given = body.get("inputs")
    if not isinstance(given, list) or not all(isinstance(g, dict) and isinstance(g.get("name"), str) for g in given):
        raise RequestError(400, "`inputs` is not a list of objects with a `name`")
    found: dict[str, Tensor] = {}
    known = {argument.name: argument for argument in arguments}
    at = 0
    for one in given:
        name = one["name"]
        if name not in known or name in found:
            said = "is given twice" if name in found else f"is not among {', '.join(known) or 'no inputs'}"
            raise RequestError(400, f"the input `{name}` {said}")
        size = _parameters(one).get("binary_data_size") if "data" not in one else 0
        if type(size) is not int or not 0 <= size <= len(rest) - at:
            raise RequestError(
                400, f"the input `{name}` has neither `data` nor a `binary_data_size` that the body holds"
            )
        found[name] = _read(known[name], one, rest[at : at + size])
        at += size
    missing = [name for name in known if name not in found]
    if missing or at != len(rest):
        said = f"the input `{missing[0]}` is missing" if missing else f"the body has {len(rest) - at} bytes too many"
        raise RequestError(400, said)
    return [found[name] for name in known]


def _read(argument: Argument, given: Mapping[str, Any], binary: bytes) -> Tensor:
    shape = given.get("shape")
    if not isinstance(shape, list) or not all(type(size) is int and 0 <= size < 1 << 40 for size in shape):
        raise RequestError(400, f"the shape of `{argument.name}` is not a list of sizes")
    if given.get("datatype") != DATATYPES[argument.dtype]:
        wanted = DATATYPES[argument.dtype]
        raise RequestError(400, f"the input `{argument.name}` has the datatype {given.get('datatype')}, not {wanted}")
    if len(shape) != len(argument.shape):
        raise RequestError(400, f"the input `{argument.name}` has {len(shape)} axes, not {len(argument.shape)}")
    dtype = np.dtype(_NUMPY[argument.dtype])
    count = math.prod(shape)
    if "data" not in given:
        if len(binary) != count * dtype.itemsize:
            raise RequestError(
                400, f"the input `{argument.name}` has {len(binary)} bytes, not {count * dtype.itemsize}"
            )
        return _shaped(argument, np.frombuffer(binary, dtype).copy(), shape)
    try:
        values = np.array(given["data"])
        # Integers and truth values are not made of other numbers.
        if values.size and not np.can_cast(values.dtype, dtype, "same_kind") and values.dtype.kind not in "iu":
            raise ValueError
        flat = values.ravel()
        if dtype.kind in "iu" and flat.size:
            limits = np.iinfo(dtype)
            if int(flat.min()) < limits.min or int(flat.max()) > limits.max:
                raise ValueError
        with np.errstate(over="raise"):
            tensor = flat.astype(dtype)
    except (ValueError, TypeError, ArithmeticError):
        wanted = DATATYPES[argument.dtype]
        raise RequestError(400, f"the data of `{argument.name}` are not numbers of the datatype {wanted}") from None
    if tensor.size != count:
        raise RequestError(400, f"the input `{argument.name}` has {tensor.size} numbers, and its shape has {count}")
    return _shaped(argument, tensor, shape)


def _shaped(argument: Argument, tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """Returns a tensor in another shape with as many numbers."""
    try:
        return tensor.reshape(shape)
    except ValueError:  # the product of the other sizes exceeds an address, where one size is 0
        raise RequestError(400, f"the shape of `{argument.name}` is too large") from None


def choose_outputs(results: Sequence[Argument], body: Mapping[str, Any]) -> dict[str, bool]:
    """Returns the names of the requested results, and whether each is sent as bytes. Raises RequestError."""
    binary = bool(_parameters(body).get("binary_data_output"))
    wanted = body.get("outputs")
    if wanted is None:
        return {result.name: binary for result in results}
    if not isinstance(wanted, list) or not all(isinstance(one, dict) for one in wanted):
        raise RequestError(400, "`outputs` is not a list of objects")
    names = [result.name for result in results]
    for one in wanted:
        if one.get("name") not in names:
            raise RequestError(400, f"the output `{one.get('name')}` is not among {', '.join(names)}")
    return {one["name"]: bool(_parameters(one).get("binary_data", binary)) for one in wanted}


def write_output(result: Argument, tensor: Tensor, binary: bool) -> tuple[dict[str, Any], bytes]:
    """Returns the JSON of a result, and the bytes after it. Raises RequestError."""
    said = {"name": result.name, "datatype": DATATYPES[result.dtype], "shape": list(tensor.shape)}
    if binary:
        content = np.ascontiguousarray(tensor, _NUMPY[result.dtype]).tobytes()
        return said | {"parameters": {"binary_data_size": len(content)}}, content
    wide = tensor.astype(np.float64) if result.dtype in ("f16", "bf16", "f32") else tensor
    if wide.dtype.kind == "f" and not np.isfinite(wide).all():
        message = f"the output `{result.name}` has numbers that JSON cannot hold; ask for it as binary data"
        raise RequestError(400, message)
    return said | {"data": wide.ravel().tolist()}, b""
