"""The tables that the compiler writes have the layout and the constants of the runtime's headers, by the C compiler."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from c_models import CC, STRICT
from nacre.compiler.artifact import formulas
from nacre.compiler.artifact.link import RUNTIME_FOLDER
from nacre.compiler.artifact.structs import STRUCTS, Scalar, Struct
from nacre.compiler.artifact.tables import RELATIONS, feature_bits
from nacre.runtime.arguments import DTYPE_CODES

OPERATIONS = ("CONSTANT", "DIM", "SUM", "PRODUCT", "FLOOR_DIV", "MIN", "MAX")
HOST_STRUCTS = tuple(struct for struct in STRUCTS if "device" not in struct.name)
MACHINES = {
    8: ("-D_GNU_SOURCE",),
    # Addresses of 4 bytes, and i64 aligned to 8, as in WebAssembly.
    4: ("-m32", "-malign-double", "-ffreestanding"),
}
"""The flags of the C compiler, by the bytes of an address."""


def facts(structs: tuple[Struct, ...], address: int) -> Iterator[str]:
    """Yields expressions of C that are true if the layouts are equal."""
    for struct in structs:
        yield f"sizeof({struct.name}) == {struct.width(address)}"
        yield f"_Alignof({struct.name}) == {struct.alignment(address)}"
        for (name, kind), offset in zip(struct.fields.items(), struct.offsets(address), strict=True):
            field = f"(({struct.name} *)0)->{name}"
            yield f"offsetof({struct.name}, {name}) == {offset}"
            yield f"sizeof({field}) == {kind.width(address)}"
            if isinstance(kind, Scalar):
                # Only an address is neither an integer nor a struct.
                is_number = f"_Generic({field}, int32_t: 1, int64_t: 1, uint64_t: 1, default: 0)"
                yield f"{is_number} == {int(kind.bytes > 0)}"


def check(folder: Path, header: str, expected: Iterator[str], *flags: str) -> subprocess.CompletedProcess[str]:
    assert CC
    lines = ["#include <stddef.h>", f'#include "{header}"', *(f'_Static_assert({e}, "{e}");' for e in expected)]
    (folder / "facts.c").write_text("\n".join(lines) + "\n")
    command = [CC, *STRICT, *flags, "-fsyntax-only", f"-I{RUNTIME_FOLDER}", "facts.c"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize("address", MACHINES)
def test_layouts(tmp_path: Path, address: int) -> None:
    if address == 4 and platform.machine() != "x86_64":
        pytest.skip("needs a C compiler with code for 32-bit addresses")
    # Code for devices is on machines with a system alone, so its header needs the C library.
    header, structs = ("cuda/code.h", STRUCTS) if address == 8 else ("tables.h", HOST_STRUCTS)
    done = check(tmp_path, header, facts(structs, address), *MACHINES[address])
    assert done.returncode == 0, done.stderr


def test_a_difference_is_noticed(tmp_path: Path) -> None:
    (size,) = (struct for struct in STRUCTS if struct.name == "nacre_size")
    swapped = Struct(size.name, dict(reversed(size.fields.items())))
    stderr = check(tmp_path, "tables.h", facts((swapped,), 8)).stderr
    assert "offsetof(nacre_size, text) == 0" in stderr and "sizeof(nacre_size)" not in stderr


def test_constants(tmp_path: Path) -> None:
    expected = [f"NACRE_{name} == {getattr(formulas, name)}" for name in OPERATIONS]
    names = ("EQUAL", "AT_LEAST", "MULTIPLE_OF", "FITS")
    expected += [f"NACRE_{name} == {number}" for number, name in enumerate(names)]
    assert len(names) == len(RELATIONS)
    expected += [f"NACRE_{name.upper()} == {code}" for name, code in DTYPE_CODES.items()]
    expected += [f"NACRE_CPU({name}) == UINT64_C({bit})" for name, bit in feature_bits().items()]
    expected.append(f"NACRE_CPU_FEATURE_COUNT == {len(feature_bits())}")
    done = check(tmp_path, "cpu.h", iter(expected))
    assert done.returncode == 0, done.stderr
