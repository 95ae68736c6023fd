"""ptxas, the assembler of CUDA: the package `nvidia-cuda-nvcc-cu12` brings it, and no GPU is needed."""

from __future__ import annotations

import hashlib
import os
import re
import struct
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

import pytest
from compile_kernels import find_ptx
from nacre.compiler.base.cuda_tools import find_cuda_tool

_HEAD = re.compile(r"^\.version.*\n\.target.*\n\.address_size.*\n", re.MULTILINE)
_ENTRY = re.compile(r"\.entry ([\w$]+)")
_SPILLS = re.compile(r"Compiling entry function '([^']+)'.*?(\d+) bytes spill stores", re.DOTALL)
_OWN = re.compile(r"^\.(?:global|const)\b.*?\.b\d+ ([\w$]+)", re.MULTILINE)
_REGISTERS = re.compile(r"\.reg \.(\w+)\s+%\w+<(\d+)>")
_WORDS = {"pred": 0, "b16": 1, "b32": 1, "b64": 2, "f32": 1, "f64": 2}
"""The registers of 32 bits that a PTX register of each type needs."""
_ELF, _HEADER, _CUDA = re.compile(rb"\x7fELF\x02\x01"), struct.Struct("<16sHHIQQQIHHHHHH"), 190
"""The beginning of an ELF file, the format of its header, and the number of the machine in that of a cubin."""
_KERNEL_SECTION = re.compile(rb"\0\.text\.([\w$]+)(?=\0)")


def find_ptxas() -> str:
    """Returns the path of ptxas, or skips the test."""
    found = find_cuda_tool("ptxas")
    if found is None:
        pytest.skip("no ptxas: `pip install nvidia-cuda-nvcc-cu12` installs it, or $NACRE_PTXAS names it")
    return found


def ptx_of(artifact: Path) -> list[str]:
    """Returns the PTX modules in an artifact."""
    return find_ptx(artifact.read_bytes())


def find_cubins(code: bytes) -> list[bytes]:
    """Returns the files with machine code for GPUs in an artifact or an object file."""
    found = []
    for match in _ELF.finditer(code):
        begin = match.start()
        header = _HEADER.unpack_from(code, begin)
        machine, sections, size_of_section, section_count = header[2], header[6], header[11], header[12]
        segments, size_of_segment, segment_count = header[5], header[9], header[10]
        if machine == _CUDA:
            ends = sections + size_of_section * section_count, segments + size_of_segment * segment_count
            found.append(code[begin : begin + max(ends)])
    return found


def kernels_in(cubin: bytes) -> list[str]:
    """Returns the kernels in a file with machine code."""
    return [name.decode() for name in dict.fromkeys(_KERNEL_SECTION.findall(cubin))]


def symbols_in(texts: Iterable[str]) -> set[str]:
    """Returns the kernels of PTX modules."""
    return {symbol for text in texts for symbol in _ENTRY.findall(text)}


def may_spill(text: str) -> bool:
    """Returns whether registers of a PTX module may end up in memory: not where all registers of each kernel fit into
    three quarters of those of a thread, even if none is used twice. The assembler's own temporaries have the rest."""
    return any(4 * _count_registers(kernel) > 3 * _most_registers(kernel) for kernel in text.split(".entry ")[1:])


def _count_registers(kernel: str) -> int:
    return sum(_WORDS[type] * int(count) for type, count in _REGISTERS.findall(kernel))


def _most_registers(kernel: str) -> int:
    """Returns the registers that a thread has, at most 255."""
    threads, blocks, stated = (
        int(found[1]) if (found := re.search(rf"^\.{name} (\d+)", kernel, re.MULTILINE)) else least
        for name, least in (("maxntid", 1), ("minnctapersm", 1), ("maxnreg", 255))
    )
    return min(255, stated, 65536 // (threads * blocks))


def join_modules(texts: Sequence[str]) -> list[str]:
    """Returns the same kernels in few modules, one for each version and target. ptxas takes four times as long for
    small modules one by one. Modules may have constants of equal names."""
    joined: dict[str, list[str]] = {}
    for number, text in enumerate(texts):
        head = _HEAD.search(text)
        assert head is not None, text[:200]
        for name in set(_OWN.findall(text)):
            text = re.sub(rf"{re.escape(name)}\b", f"{name}_{number}", text)
        joined.setdefault(head[0], []).append(_HEAD.sub("", text))
    return [head + "\n".join(parts) for head, parts in joined.items()]


def assemble(
    ptxas: str, text: str, architecture: str, folder: Path, *, spills: bool = False, level: int = 3
) -> list[str]:
    """Returns the faults of a PTX module: errors, functions that it does not define, products of warpgroups that wait
    for each other, and, unless `spills` are allowed, registers in memory. Level 0 takes a third of the time, but keeps
    more registers than the default level."""
    if ".extern .func" in text:
        return [f"an unknown function: {text[text.index('.extern .func') :][:80]}"]
    source = folder / f"{os.getpid()}.ptx"
    source.write_text(text)
    made = source.with_suffix(".cubin")
    command = [ptxas, "-v", f"-arch={architecture}", f"-O{level}", str(source), "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True)
    said = (done.stdout + done.stderr).splitlines()
    if done.returncode:
        return said or ["ptxas fails"]
    slow = [line for line in said if "instructions are serialized" in line]
    if slow:
        return slow
    stores = _SPILLS.findall("\n".join(said))
    return [] if spills else [f"registers in memory: {count} bytes of `{name}`" for name, count in stores if int(count)]


@dataclass(frozen=True)
class _Kernel:
    """A kernel of a module, what stands before the kernels there, and the level of ptxas that it needs."""

    head: str
    code: str
    level: int

    @cached_property
    def digest(self) -> str:
        """Stands for the code, whatever its name and its number in a module are."""
        (symbol,) = symbols_in([self.code])
        plain = re.sub(r"//[^\n]*|(?<=\$L__BB)\d+", "", self.head + self.code)
        return hashlib.sha256(plain.replace(symbol, "kernel").encode()).hexdigest()[:32]


def find_faults(texts: Iterable[str], folder: Path, *architectures: str, everywhere: bool = False) -> list[str]:
    """Returns the faults of PTX modules for each of some architectures, registers in memory among them. Where none can
    be there, the fastest level of ptxas is enough, unless the default level is wanted `everywhere`. The folder keeps a
    file for each kernel without faults: no kernel is assembled again. Skips the test without ptxas."""
    ptxas, faults = find_ptxas(), list[str]()
    kernels = [kernel for text in texts for kernel in _split(text, everywhere)]
    assert kernels, "the modules have no kernels"
    for architecture, level in product(architectures, (0, 3)):
        wanted = {folder / f"{each.digest}.{architecture}.{level}": each for each in kernels if each.level == level}
        new = {mark: kernel for mark, kernel in wanted.items() if not mark.exists()}
        found = [
            fault
            for text in join_modules(_group(new.values()))
            for fault in assemble(ptxas, text, architecture, folder, spills=level == 0, level=level)
        ]
        faults += [f"{architecture}: {fault}" for fault in found]
        for mark in () if found else new:
            mark.touch()
    return faults


def _split(text: str, everywhere: bool) -> list[_Kernel]:
    """Returns the kernels of a module. Only the default level tells about products that wait for each other."""
    head, *kernels = re.split(r"^(?=\.visible \.entry )", text, flags=re.MULTILINE)
    return [_Kernel(head, each, 3 if everywhere or "wgmma" in each or may_spill(each) else 0) for each in kernels]


def _group(kernels: Iterable[_Kernel]) -> list[str]:
    """Returns modules with kernels."""
    found: dict[str, list[str]] = {}
    for kernel in kernels:
        found.setdefault(kernel.head, []).append(kernel.code)
    return ["".join([head, *codes]) for head, codes in found.items()]


def check_assembly(artifact: Path, folder: Path, *architectures: str) -> None:
    """Asserts that ptxas assembles every PTX module of an artifact without spills, as `find_faults` tells."""
    assert find_faults(ptx_of(artifact), folder, *architectures) == []
