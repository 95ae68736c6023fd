"""Runs handwritten PTX on the machine in C, without a driver and a model."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np

HEAD = ".version 7.0\n.target sm_80\n.address_size 64\n"


class Allocation(ctypes.Structure):
    _fields_ = (
        ("begin", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        *((name, ctypes.c_void_p) for name in ("written", "writers", "readers")),
    )


class State(ctypes.Structure):
    _fields_ = (
        ("allocations", ctypes.POINTER(Allocation)),
        ("count", ctypes.c_int),
        ("error", ctypes.c_char * 512),
        ("first", ctypes.c_uint32),
        ("banks", ctypes.c_void_p),
        ("races", ctypes.c_void_p),
    )


def run_kernel(
    driver: ctypes.CDLL,
    program: Path,
    name: str,
    threads: int,
    memory: np.ndarray,
    *,
    blocks: int = 1,
    launches: int = 1,
    is_written: bool = True,
    finds_races: bool = False,
) -> str:
    """Runs a kernel whose parameter is the address of memory, which may be written before; returns the error."""
    driver.create_races.restype = ctypes.c_void_p
    races = ctypes.c_void_p(driver.create_races())
    flags = [np.zeros(memory.nbytes, dtype) for dtype in (np.uint8, np.uint32, np.uint32)]
    flags[0][:] = is_written
    begin = memory.ctypes.data
    allocation = Allocation(begin, begin + memory.nbytes, *(each.ctypes.data for each in flags))
    state = State(ctypes.pointer(allocation), 1, b"", 1, None, races if finds_races else None)
    parameters = np.array([begin], np.uint64)
    for _ in range(launches):
        given = ctypes.byref(state), blocks, threads, ctypes.c_void_p(parameters.ctypes.data)
        driver.run_program(str(program).encode(), name.encode(), *given)
    driver.free_races(races)
    return str(state.error.decode())
