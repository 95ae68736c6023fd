"""The GPUs of this machine, and the targets whose code it can run.

The driver is opened in a child process: a process that opened it could not use it in children of its own, and those
run the checks.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence

from ...dialect.lazy_dataclass import dataclass
from ..targets.target import Target
from .isolated import Died, Progress, allow_reserved_memory, run_isolated

_DRIVER = "libcuda.so.1"
_VARIABLE = "NACRE_CUDA_DRIVER"
_MAJOR, _MINOR = 75, 76
"""`CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR` of the CUDA driver API."""
_NO_DEVICE = 100
"""`CUDA_ERROR_NO_DEVICE`."""
CPU, DEVICE = "cpu", "cuda"
"""The devices of sessions, as `nacre.load` names them."""


@dataclass(frozen=True, slots=True)
class Runnable:
    """The targets whose code this machine can run, and the reason for each other one."""

    targets: tuple[Target, ...]
    reasons: tuple[tuple[Target, str], ...] = ()

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices of sessions that compute with the code of these targets."""
        kinds = {target.is_device for target in self.targets}
        return tuple(name for is_device, name in ((False, CPU), (True, DEVICE)) if is_device in kinds)


def find_runnable(targets: Sequence[Target]) -> Runnable:
    """Returns the targets that this machine can run. The driver is opened only if one of them is a GPU."""
    capability = _first_capability() if any(target.is_device for target in targets) else ""
    reasons = [(target, _reason(target, capability)) for target in targets]
    return Runnable(
        tuple(target for target, reason in reasons if not reason),
        tuple((target, reason) for target, reason in reasons if reason),
    )


def select_device(name: str) -> None:
    """Makes `name` the device of all sessions that this process creates from now on."""
    os.environ["NACRE_DEVICE"] = name
    if name != CPU:
        allow_reserved_memory()


def _reason(target: Target, capability: int | str) -> str:
    """Returns the reason why code for the target cannot be run, or an empty text."""
    if not target.is_device:
        return "" if target.runs_here else "this machine has another CPU"
    if isinstance(capability, str):
        return capability
    needed = target.cpu.removeprefix("sm_")
    # Code for an architecture with a suffix runs on that architecture alone.
    fits = capability == int(needed[:-1]) if needed.endswith("a") else capability >= int(needed)
    return "" if fits else f"the device is sm_{capability}"


def _first_capability() -> int | str:
    """Returns the compute capability of the first device, such as 80, or the reason why there is none."""
    (found,) = run_isolated([_ask_driver])
    return f"the CUDA driver fails: {found.message}" if isinstance(found, Died) else found


def _ask_driver(report: Progress) -> int | str:
    report("the CUDA driver")
    allow_reserved_memory()
    try:
        driver = ctypes.CDLL(os.environ.get(_VARIABLE) or _DRIVER)
    except OSError as error:
        return f"there is no CUDA driver: {error}"
    status = driver.cuInit(0)
    if status == _NO_DEVICE:
        return "the CUDA driver has no device"
    if status:
        return f"the CUDA driver does not start (CUDA error {status})"
    count, device, major, minor = (ctypes.c_int() for _ in range(4))
    if driver.cuDeviceGetCount(ctypes.byref(count)) or count.value == 0:
        return "the CUDA driver has no device"
    failed = driver.cuDeviceGet(ctypes.byref(device), 0)
    for value, attribute in ((major, _MAJOR), (minor, _MINOR)):
        failed = failed or driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
    return f"the CUDA driver does not describe the device (CUDA error {failed})" if failed else _number(major, minor)


def _number(major: ctypes.c_int, minor: ctypes.c_int) -> int:
    return 10 * major.value + minor.value
