"""The peaks of a GPU that is present: those of its data sheet, if it is a known one."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from ....dialect.dtypes import DTYPES
from ...targets.chips import CHIPS, Chip
from .device_code import Code, modules_of, read_code
from .device_model import product_rate
from .machine import Peak

Peaks = Callable[[str], Peak | None]
"""Returns the peak for a kernel by its name: its instructions decide the rate of its products. None: unknown."""
_DRIVER = "libcuda.so.1"


def device_name(device: str) -> str:
    """Returns the name that the driver has for `cuda:NUMBER`, or `cuda:NUMBER` if it tells none."""
    number, name = ctypes.c_int(), ctypes.create_string_buffer(128)
    try:
        driver = ctypes.CDLL(os.environ.get("NACRE_CUDA_DRIVER") or _DRIVER)
        failed = driver.cuDeviceGet(ctypes.byref(number), int(device.rpartition(":")[2]))
        failed = failed or driver.cuDeviceGetName(name, len(name), number)
    except (OSError, AttributeError):
        return device
    return device if failed else name.value.decode(errors="replace")


def find_chip(name: str) -> Chip | None:
    """Returns the chip whose device has this name."""
    return next((chip for chip in CHIPS.values() if chip.device == name), None)


def chip_peaks(artifact: Path, chip: Chip) -> Peaks:
    """Returns the peaks of the kernels of an artifact on a chip."""
    codes = [code for text in modules_of(artifact) for code in read_code(text)]

    def peak(kernel: str) -> Peak:
        return _peak_of([code for code in codes if code.name.startswith(kernel)], chip)

    return peak


def _peak_of(launches: Sequence[Code], chip: Chip) -> Peak:
    return Peak(chip.flops, chip.bandwidth, {name: product_rate(chip, launches, name) for name in DTYPES})
