"""Reads a file of HDF5 in a separate process: `python -m ...hdf5_child FILE OUTPUT`.

The library of HDF5 is written in C, and damaged files can crash it or let it run without an end. The child has limits
of memory and time. It writes `OUTPUT`, an npz file with the datasets, and prints the attributes as JSON.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from .hdf5_package import load_h5py

_MOST_MEMORY = 8 << 30
_MOST_SECONDS = 120
_MOST_DATASETS = 100_000
_SPARE_BYTES = 64 << 20
_MOST_GROWTH = 16
"""The maximum ratio of the bytes of all datasets to those of the file: compressed datasets are larger than the file."""


def main(path: str, output: str) -> None:
    for kind, limit in ((resource.RLIMIT_AS, _MOST_MEMORY), (resource.RLIMIT_CPU, _MOST_SECONDS)):
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    h5py = load_h5py()
    arrays: dict[str, Any] = {}
    orders: dict[str, list[str]] = {}
    left = Path(path).stat().st_size * _MOST_GROWTH + _SPARE_BYTES
    with h5py.File(path, "r") as file:
        attributes = {name: _text(file.attrs.get(name)) for name in ("model_config", "keras_version")}

        def visit(name: str, item: Any) -> None:
            nonlocal left
            if name.startswith(("optimizer", "_optimizer")):
                return
            if "weight_names" in item.attrs:
                orders[name] = [_text(each) for each in item.attrs["weight_names"]]
            if not isinstance(item, h5py.Dataset):
                return
            # HDF5 stores bf16 as two bytes without a numeric type.
            is_bfloat = item.dtype == "V2" and item.attrs.get("dtype") == "bfloat16"
            if is_bfloat or item.dtype.kind in "fiub":
                left -= item.size * (4 if is_bfloat else item.dtype.itemsize)
                if left < 0 or len(arrays) >= _MOST_DATASETS:
                    raise SystemExit("its datasets are much larger than the file")
                array = np.asarray(item[()])
                arrays[name] = array.view(bfloat16).astype(np.float32) if is_bfloat else array

        file.visititems(visit)
    np.savez(output, **{f"a{number}": array for number, array in enumerate(arrays.values())})
    print(json.dumps({"attributes": attributes, "orders": orders, "names": list(arrays)}))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else "" if value is None else str(value)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, MemoryError) as error:
        raise SystemExit(str(error) or type(error).__name__) from None
