"""What runs the artifacts of each family other than this machine's: qemu for CPUs, an engine for WebAssembly."""

from __future__ import annotations

from emulation import Emulator
from nacre.compiler.targets.families import FAMILIES
from web_assembly import Engine

OTHERS = [machine for machine, family in FAMILIES.items() if machine != "x86_64" and not family.device]


def find_emulator(machine: str) -> Emulator | Engine:
    """Returns the emulator of a machine, or skips the test where it is not installed."""
    found = Engine() if machine == Engine.machine else Emulator(machine)
    found.need()
    return found
