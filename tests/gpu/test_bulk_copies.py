"""Copies between global and shared memory, of bytes and of boxes: what arrives, and copies that are wrong."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from compile_kernels import compile_ptx
from fake_driver import Machine
from handwritten import HEAD, run_kernel

ROWS, COLUMNS, BOX = 7, 80, (64, 8)
"""A tensor of f16, which is at FROM in memory, and a box, whose first axis is the fast one."""
FROM, TO = 1024, 4096
MAGIC = 0x7113A9
KERNEL = """
.shared .align 1024 .b8 tiles[1032];
.visible .entry copies(
	.param .u64 .ptr .align 1 copies_param_0
)
.maxntid 1
{
	.reg .pred 	%p<2>;
	.reg .b32 	%r<4>;
	.reg .b64 	%rd<5>;

	ld.param.b64 	%rd1, [copies_param_0];
	add.s64 	%rd2, %rd1, 128;
	add.s64 	%rd3, %rd1, 1024;
	add.s64 	%rd4, %rd1, 4096;
	mov.b32 	%r1, 3;
	mov.b32 	%r2, -2;
	mbarrier.init.shared::cta.b64 [1024], 1;
	fence.proxy.async.shared::cta;
	mbarrier.arrive.expect_tx.shared::cta.b64 _, [1024], 1024;
	LOAD
	mbarrier.try_wait.parity.shared::cta.b64 %p1, [1024], 0;
	STORE
	cp.async.bulk.commit_group;
	cp.async.bulk.wait_group 0;
	ret;
}
"""
LOADS = {
    "bytes": "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [0], [%rd3], 1024, [1024];",
    "box": "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
    "[0], [%rd1, {%r1, %r2}], [1024];",
}
STORES = {
    "bytes": "cp.async.bulk.global.shared::cta.bulk_group [%rd4], [0], 1024;",
    "box": "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd2, {%r1, %r2}], [0];",
}


def tensor_map(base: int) -> bytes:
    """A tensor map as the fake driver writes it."""
    return struct.pack("<2Q5Q4Q5I2I", MAGIC, base, COLUMNS, ROWS, 1, 1, 1, 2 * COLUMNS, 0, 0, 0, *BOX, 1, 1, 1, 2, 2)


def run(machine: Machine, folder: Path, load: str, store: str, bytes: int = 1024) -> tuple[np.ndarray, np.ndarray, str]:
    """Returns the tensor, the memory that was copied to, and the error. The load has a number of bytes."""
    memory = np.zeros((512, 2), np.int64)
    values = memory.reshape(-1).view(np.uint16)
    tensor = np.arange(1, ROWS * COLUMNS + 1, dtype=np.uint16)
    values[FROM // 2 :][: tensor.size] = tensor
    for n, place in enumerate((FROM, TO)):
        data = np.frombuffer(tensor_map(memory.ctypes.data + place), np.uint8)
        memory.reshape(-1).view(np.uint8)[128 * n :][: data.size] = data
    text = KERNEL if bytes == 1024 else KERNEL.replace("[1024], 1024", f"[1024], {bytes}").replace("[1032]", "[3072]")
    text = text.replace("LOAD", load).replace("STORE", store)
    program = compile_ptx(HEAD + text, folder)
    error = run_kernel(machine.library, program, "copies", 1, memory, finds_races=True)
    return tensor.reshape(ROWS, COLUMNS), values[TO // 2 :][: tensor.size].reshape(ROWS, COLUMNS), error


def test_bytes(machine: Machine, machine_folder: Path) -> None:
    tensor, made, error = run(machine, machine_folder, LOADS["bytes"], STORES["bytes"])
    assert error == ""
    np.testing.assert_array_equal(made.reshape(-1), np.where(np.arange(made.size) < 512, tensor.reshape(-1), 0))


def test_boxes_have_zeros_outside_of_the_tensor_and_leave_its_surroundings(
    machine: Machine, machine_folder: Path
) -> None:
    tensor, made, error = run(machine, machine_folder, LOADS["box"], STORES["box"])
    assert error == ""
    expected = np.zeros_like(tensor)
    expected[:6, 3:67] = tensor[:6, 3:67]
    np.testing.assert_array_equal(made, expected)


def test_pieces_of_rows_are_exchanged_in_boxes(machine: Machine, machine_folder: Path) -> None:
    """The bytes of shared memory, where the first two rows are outside."""
    tensor, made, error = run(machine, machine_folder, LOADS["box"], STORES["bytes"])
    assert error == ""
    box = np.zeros((8, 8, 8), np.uint16)
    box[2:] = tensor[:6, 3:67].reshape(6, 8, 8)
    exchanged = np.stack([row[np.arange(8) ^ n] for n, row in enumerate(box)])
    np.testing.assert_array_equal(made.reshape(-1)[:512], exchanged.reshape(-1))


@pytest.mark.parametrize(
    ("load", "store", "message"),
    [
        (LOADS["bytes"].replace("[%rd3]", "[%rd3+8]"), STORES["bytes"], "no whole pieces of 16 bytes"),
        (LOADS["bytes"].replace("[0]", "[16]"), STORES["bytes"], "wrong target 16"),
        (LOADS["box"].replace("[%rd1,", "[%rd3,"), STORES["bytes"], "no tensor map of 2 axes"),
        (LOADS["box"].replace("[0]", "[128]"), STORES["bytes"], "wrong target 128"),
        (LOADS["bytes"], STORES["bytes"].replace("[0]", "[16]"), "wrong source 16"),
        (LOADS["bytes"], STORES["bytes"].replace("1024", "1000"), "no whole pieces of 16 bytes"),
        (LOADS["bytes"], STORES["box"].replace("[0]", "[128]"), "wrong source 128"),
    ],
    ids=["source", "target of bytes", "map", "target of a box", "bytes arrive", "bytes of a store", "source of a box"],
)
def test_wrong_copies_are_refused(machine: Machine, machine_folder: Path, load: str, store: str, message: str) -> None:
    assert message in run(machine, machine_folder, load, store)[2]


def test_copies_are_waited_for(machine: Machine, machine_folder: Path) -> None:
    late = STORES["bytes"] + " cp.async.bulk.commit_group; cp.async.bulk.wait_group 1; ret;"
    error = run(machine, machine_folder, LOADS["bytes"], late)[2]
    assert "a copy has not arrived when the block ends" in error


@pytest.mark.parametrize(("place", "is_race"), [(4, False), (6, True), (14, True), (134, False), (132, True)])
def test_writes_beside_a_box(machine: Machine, machine_folder: Path, place: int, is_race: bool) -> None:
    """The first row of the box has the bytes from 6 to 134 of the tensor: it ends within pieces of 16 bytes."""
    load = f"{LOADS['box']} st.global.b16 [%rd3+{place}], %r1;"
    error = run(machine, machine_folder, load, STORES["bytes"])[2]
    assert ("no wait is between a copy to shared memory, which reads" in error) if is_race else error == ""


def test_writes_beside_two_boxes(machine: Machine, machine_folder: Path) -> None:
    """The second box has the first three columns. Both read elements of the first 16 bytes."""
    second = LOADS["box"].replace("[0]", "[2048]").replace("{%r1,", "{%r3,")
    load = f"mov.b32 %r3, -61; {LOADS['box']} {second} st.global.b16 [%rd3+6], %r1;"
    error = run(machine, machine_folder, load, STORES["bytes"], 2048)[2]
    assert "no wait is between a copy to shared memory, which reads" in error


@pytest.mark.parametrize(("place", "is_race"), [(4, False), (6, True), (134, False)])
def test_writes_beside_a_stored_box(machine: Machine, machine_folder: Path, place: int, is_race: bool) -> None:
    store = f"{STORES['box']} st.global.b16 [%rd4+{place}], %r1;"
    error = run(machine, machine_folder, LOADS["box"], store)[2]
    assert ("no wait is between a copy from shared memory, which writes" in error) if is_race else error == ""
