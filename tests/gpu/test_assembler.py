"""Modules are joined before ptxas reads them, and its faults are found in each of them."""

from __future__ import annotations

from pathlib import Path

import assembler
import pytest
from assembler import assemble, find_faults, find_ptxas, join_modules, may_spill, symbols_in

HEAD = ".version 7.0\n.target sm_80\n.address_size 64\n"


def kernel(name: str, registers: int, live: int) -> str:
    """A kernel that loads as many numbers as are live at once, and stores them in the other order."""
    loads = "".join(f"ld.volatile.global.u32 %r{n}, [%rd1+{4 * n}];\n" for n in range(live))
    stores = "".join(f"st.volatile.global.u32 [%rd1+{4 * n}], %r{live - 1 - n};\n" for n in range(live))
    body = f".reg .b64 %rd<3>;\n.reg .b32 %r<{live + 1}>;\nld.param.u64 %rd1, [{name}_p];\n"
    read = f"mov.u64 %rd2, table;\nld.global.u32 %r{live}, [%rd2];\nst.volatile.global.u32 [%rd1], %r{live};\n"
    head = f".visible .entry {name}(.param .u64 {name}_p)\n.maxnreg {registers}\n"
    return f"{HEAD}.global .align 4 .b8 table[4] = {{1, 2, 3, 4}};\n{head}{{\n{body}{loads}{stores}{read}ret;\n}}\n"


def test_constants_of_equal_names_stay_apart(tmp_path: Path) -> None:
    (joined,) = join_modules([kernel("first", 64, 8), kernel("second", 64, 8)])
    assert joined.count(".version") == 1 and "table_0[4]" in joined and "mov.u64 %rd2, table_1;" in joined
    assert assemble(find_ptxas(), joined, "sm_80", tmp_path) == []


def test_targets_stay_apart() -> None:
    texts = [kernel("first", 64, 8), kernel("second", 64, 8).replace("sm_80", "sm_90a")]
    assert [text.count(".entry") for text in join_modules(texts)] == [1, 1]


def test_a_spill_is_found_in_one_of_several_kernels(tmp_path: Path) -> None:
    (joined,) = join_modules([kernel("first", 64, 8), kernel("second", 24, 60), kernel("third", 64, 8)])
    (fault,) = assemble(find_ptxas(), joined, "sm_80", tmp_path)
    assert fault.startswith("registers in memory: ") and fault.endswith(" bytes of `second`")
    assert assemble(find_ptxas(), joined, "sm_80", tmp_path, spills=True) == []


def test_an_error_is_found_in_one_of_several_kernels(tmp_path: Path) -> None:
    (joined,) = join_modules([kernel("first", 64, 8), kernel("second", 64, 8).replace("ret;", "return;")])
    assert assemble(find_ptxas(), joined, "sm_80", tmp_path)


def test_an_error_is_found_at_each_level(tmp_path: Path) -> None:
    text = kernel("first", 64, 8)
    for level in (0, 3):
        assert assemble(find_ptxas(), text, "sm_80", tmp_path, level=level) == []
        assert assemble(find_ptxas(), text.replace("ret;", "return;"), "sm_80", tmp_path, level=level)
        assert assemble(find_ptxas(), f".extern .func unknown();\n{text}", "sm_80", tmp_path, level=level)


def test_kernels_that_may_spill_are_assembled_apart(tmp_path: Path) -> None:
    """A kernel with few registers is checked at the fastest level, beside one of the same module with many."""
    few, many = kernel("few", 64, 8), kernel("many", 24, 60)
    both = few + many[many.index(".visible") :]
    (spilled,) = find_faults([both, kernel("other", 64, 8)], tmp_path, "sm_80")
    assert spilled.endswith(" bytes of `many`")
    assert find_faults([few, kernel("other", 64, 8)], tmp_path, "sm_80") == []


def test_kernels_without_faults_are_assembled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel of another name is the same; one for another architecture, with other code or other constants is not."""
    first, many = kernel("first", 64, 8), kernel("many", 24, 60)
    assert find_faults([first], tmp_path, "sm_80") == []
    assert find_faults([first, many], tmp_path, "sm_80") == find_faults([many], tmp_path, "sm_80") != []
    monkeypatch.setattr(assembler, "assemble", lambda _, text, *__, **___: symbols_in([text]))
    assert find_faults([first, kernel("second", 64, 8)], tmp_path, "sm_80") == []
    assert find_faults([first], tmp_path, "sm_80", "sm_90") == ["sm_90: first"]
    assert find_faults([first], tmp_path, "sm_80", everywhere=True) == ["sm_80: first"]
    assert find_faults([kernel("third", 64, 9)], tmp_path, "sm_80") == ["sm_80: third"]
    assert find_faults([first.replace("{1, 2,", "{2, 2,")], tmp_path, "sm_80") == ["sm_80: first"]


def test_products_of_warpgroups_need_the_default_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other level tells about those that wait for each other."""
    text = kernel("first", 64, 8).replace("ret;", "wgmma.fence.sync.aligned;\nret;")
    monkeypatch.setattr(assembler, "assemble", lambda *_, level, **__: [f"level {level}"])
    assert find_faults([text], tmp_path, "sm_90a") == ["sm_90a: level 3"]


def test_an_instruction_of_later_devices_is_found(tmp_path: Path) -> None:
    """A device of compute capability 8.0 has no hyperbolic tangent of bf16."""
    plain = [kernel(name, 64, 8).replace(".version 7.0", ".version 7.8") for name in ("first", "second")]
    late = plain[1].replace("ret;", "{ .reg .b16 %h; mov.b16 %h, 0; tanh.approx.bf16 %h, %h; }\nret;")
    assert find_faults(plain, tmp_path, "sm_80") == []
    assert any(
        "requires .target sm_90 or higher" in fault for fault in find_faults([plain[0], late], tmp_path, "sm_80")
    )


def test_kernels_with_few_registers_need_no_memory() -> None:
    """A kernel has its numbers, an address in two registers, and the address of a table in two."""
    assert not may_spill(kernel("first", 64, 41)) and may_spill(kernel("first", 64, 42))
    assert may_spill(kernel("first", 255, 8) + kernel("second", 24, 60))
    assert not may_spill(kernel("first", 255, 100))
    assert may_spill(kernel("first", 255, 100).replace(".maxnreg 255", ".maxntid 256\n.minnctapersm 2"))
