"""Tensors on the command line: `ids=ids.npy`, `ids=data.npz:key`, or a small JSON value such as `x=[[1, 2]]`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from ...dialect.ops.support.conversion import cast_array
from ...dialect.types import DTYPES, Array, DType, dtype_of
from ..weights import open_tensors

_FILE = re.compile(r"(.+\.(?:npy|npz|safetensors))(?::(.+))?", re.DOTALL)
_SHOWN = 8


class _UnfitError(Exception):
    """An element that the dtype cannot hold."""


def split_assignments(texts: Sequence[str]) -> dict[str, str]:
    """Parses texts `NAME=VALUE` into a mapping; a repeated name is an error."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"`{text}` is not of the form NAME=FILE or NAME=VALUE")
        if name in found:
            raise click.BadParameter(f"`{name}` is given twice")
        found[name] = value
    return found


def read_tensor(name: str, value: str, dtype: DType) -> Array:
    """Reads the tensor that `value` names or spells; a spelled tensor is converted to `dtype`, a file must have it."""
    file = _FILE.fullmatch(value)
    if file is None:
        return _spelled(name, value, dtype)
    path, key = file.groups()
    checkpoint = open_tensors(Path(path))
    names = list(checkpoint.names())
    if key is not None and key not in names:
        raise click.BadParameter(f"`{path}` holds {', '.join(names)}, not `{key}`")
    if key is None and len(names) != 1:
        raise click.BadParameter(f"`{path}` holds {len(names)} tensors: name one as {path}:KEY")
    return checkpoint.read(key or names[0])


def _spelled(name: str, value: str, dtype: DType) -> Array:
    try:
        spelled = json.loads(value)
        for element in _elements(spelled):
            _check_element(element, dtype)
        with np.errstate(over="ignore"):  # overflow gives infinity or the largest float
            array = np.array(spelled, np.float64 if dtype.is_float else object)
            if any(isinstance(element, list) for element in array.flat):
                raise ValueError(spelled)  # numpy represents ragged rows as objects
            return cast_array(array, dtype) if dtype.is_float else array.astype(dtype.numpy, copy=False)
    except json.JSONDecodeError:
        reason = "neither a .npy, .npz or .safetensors file nor a JSON value"
    except RecursionError:
        reason = "nested too deeply"
    except _UnfitError as error:
        reason = str(error)
    except (TypeError, OverflowError, ValueError):
        reason = "not rectangular: its rows differ in length"
    shown = value if len(value) <= 60 else f"{value[:57]}..."
    raise click.BadParameter(f"`{name}`: `{shown}` is {reason}")


def _elements(spelled: Any) -> Iterator[Any]:
    if isinstance(spelled, list):
        for part in spelled:
            yield from _elements(part)
    else:
        yield spelled


def _check_element(element: Any, dtype: DType) -> None:
    """Raises _UnfitError for an element that the dtype cannot hold; only floats are rounded, and nothing is wrapped."""
    if dtype.name == "bool":
        fits = isinstance(element, bool)
    elif isinstance(element, bool):
        fits = False
    elif dtype.is_float:
        fits = isinstance(element, (int, float)) and (isinstance(element, float) or abs(element) < 2**1000)
    else:
        limits = np.iinfo(dtype.numpy)  # type: ignore[type-var]  # only integers come here
        fits = isinstance(element, int) and limits.min <= element <= limits.max
    if not fits:
        raise _UnfitError(f"not {dtype}: it has {json.dumps(element)[:40]}")


def read_inputs(assignments: Sequence[str], arguments: Sequence[Mapping[str, Any]]) -> list[Array]:
    """Returns the inputs of an entry in its order, from `NAME=VALUE` texts; `arguments` describes them."""
    given = split_assignments(assignments)
    names = [a["name"] for a in arguments]
    unknown = [n for n in given if n not in names]
    missing = [n for n in names if n not in given]
    if unknown or missing:
        what = [f"unknown {', '.join(unknown)}"] * bool(unknown) + [f"missing {', '.join(missing)}"] * bool(missing)
        takes = ", ".join(f"{a['name']}: {a['type']}" for a in arguments) or "no input"
        raise click.BadParameter(f"{'; '.join(what)}; the entry takes {takes}")
    return [read_tensor(a["name"], given[a["name"]], DTYPES[a["dtype"]]) for a in arguments]


def _number(value: Any) -> float | int | bool | str:
    """Converts a number to a JSON value; NaN and infinities become text."""
    plain: float | int | bool = value if isinstance(value, (bool, int)) else float(value)
    return plain if math.isfinite(plain) else str(plain)


def summary(array: Array) -> dict[str, Any]:
    """Returns a summary of a result: dtype, shape, range, mean and the first values."""
    info: dict[str, Any] = {"dtype": dtype_of(array).name, "shape": list(array.shape)}
    flat: Any = array.reshape(-1)  # of any dtype: a static type cannot list its methods
    if flat.size:
        with np.errstate(all="ignore"):
            values = {"min": flat.min().item(), "max": flat.max().item(), "mean": flat.mean(dtype=np.float64)}
        info |= {key: _number(value) for key, value in values.items()}
        info["first"] = [_number(value) for value in flat[:_SHOWN].tolist()]
    return info
