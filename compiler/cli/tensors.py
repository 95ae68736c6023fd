"""Tensors on the command line: `ids=ids.npy`, `ids=data.npz:key`, or a small JSON value such as `x=[[1, 2]]`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from ...dialect.types import DTYPES, Array
from ..checkpoint import open_checkpoint


def split_assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"`{text}` is not of the form NAME=FILE or NAME=VALUE")
    return name, value


def read_tensor(value: str, dtype: str) -> Array:
    """The tensor that `value` names or spells; `dtype` is what a spelled one becomes, and a file must already be."""
    path, _, key = value.partition(":")
    if path.endswith((".npy", ".npz", ".safetensors")):
        checkpoint = open_checkpoint(Path(path))
        names = list(checkpoint.names())
        if key and key not in names:
            raise click.BadParameter(f"`{path}` holds {', '.join(names)}, not `{key}`")
        if not key and len(names) != 1:
            raise click.BadParameter(f"`{path}` holds {len(names)} tensors: name one as {path}:KEY")
        return checkpoint.read(key or names[0])
    try:
        spelled = json.loads(value)
        return np.asarray(spelled).astype(DTYPES[dtype].numpy)
    except (ValueError, TypeError, OverflowError) as error:
        raise click.BadParameter(f"`{value}` is neither a .npy, .npz or .safetensors file nor a JSON value") from error


def read_inputs(assignments: Sequence[str], arguments: Sequence[dict[str, Any]]) -> list[Array]:
    """The inputs of an entry in its order, from `NAME=VALUE` texts; `arguments` is how the artifact describes them."""
    given = dict(split_assignment(a) for a in assignments)
    names = [a["name"] for a in arguments]
    unknown = [n for n in given if n not in names]
    missing = [n for n in names if n not in given]
    if unknown or missing:
        what = [f"unknown {', '.join(unknown)}"] * bool(unknown) + [f"missing {', '.join(missing)}"] * bool(missing)
        raise click.BadParameter(f"{'; '.join(what)}; the entry takes {', '.join(names) or 'no input'}")
    return [read_tensor(given[a["name"]], a["dtype"]) for a in arguments]


def summary(array: Array) -> dict[str, Any]:
    """What is worth showing of a result: dtype, shape, and for numbers their range and first elements."""
    flat = np.asarray(array).reshape(-1)
    info: dict[str, Any] = {"dtype": str(array.dtype), "shape": list(array.shape)}
    if flat.size:
        values = flat.astype(np.float64)
        info |= {"min": float(values.min()), "max": float(values.max()), "mean": float(values.mean())}
        info["first"] = [float(v) for v in values[:8]]
    return info
