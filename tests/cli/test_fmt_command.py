"""`nacre fmt`: what it writes, what it only shows, and that nothing is lost."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from cli_harness import DOUBLE, Cli, leftovers, nacre_process

MESSY = DOUBLE.replace("x + x", "x+x   # twice").replace("  return", " return")
NEAT = DOUBLE.replace("x + x", "x + x  # twice")


@pytest.fixture
def messy(tmp_path: Path) -> Path:
    path = tmp_path / "messy.nacre"
    path.write_text(MESSY)
    path.chmod(0o640)
    return path


def test_writes(cli: Cli, messy: Path) -> None:
    done = cli("fmt", messy)
    assert (done.code, done.out, done.err) == (0, "", f"formatted {messy}\n")
    assert messy.read_text() == NEAT
    assert messy.stat().st_mode & 0o777 == 0o640
    before = messy.stat().st_mtime_ns
    assert cli("fmt", messy).err == ""
    assert messy.stat().st_mtime_ns == before


def test_check_and_diff_write_nothing(cli: Cli, messy: Path) -> None:
    done = cli("fmt", "--check", messy)
    assert (done.code, done.out, done.err) == (1, "", f"would format {messy}\n")
    done = cli("fmt", "--diff", messy)
    assert done.code == 1
    assert done.out.startswith(f"--- {messy}\n+++ {messy} (formatted)\n@@")
    assert "\n- return x+x   # twice\n+  return x + x  # twice\n" in done.out
    assert messy.read_text() == MESSY
    messy.write_text(NEAT)
    done = cli("fmt", "--check", "--diff", messy)
    assert (done.code, done.out, done.err) == (0, "", "")


def test_difference_of_a_last_line_without_an_end(cli: Cli, messy: Path) -> None:
    messy.write_text(DOUBLE.rstrip("\n"))
    assert "\n-}\n\\ no newline at the end of the file\n+}\n" in cli("fmt", "--diff", messy).out


def test_standard_input(cli: Cli) -> None:
    done = cli("fmt", "-", stdin=MESSY.encode())
    assert (done.code, done.out, done.err) == (0, NEAT, "")
    assert cli("fmt", "-", stdin=NEAT.encode()).out == NEAT
    done = cli("fmt", "--check", "-", stdin=MESSY.encode())
    assert (done.code, done.out) == (1, "")
    assert "would format <stdin>" in done.err
    done = cli("fmt", "-", stdin=b"model {")
    assert done.code == 1 and "--> <stdin>:1:" in done.err and done.out == ""


def test_byte_order_mark_and_line_ends_go(cli: Cli, messy: Path) -> None:
    messy.write_bytes(b"\xef\xbb\xbf" + MESSY.replace("\n", "\r\n").encode())
    assert cli("fmt", messy).code == 0
    assert messy.read_bytes() == NEAT.encode()


def test_a_faulty_file_stays_and_the_others_are_formatted(cli: Cli, messy: Path) -> None:
    faulty, binary = messy.with_name("a.nacre"), messy.with_name("b.nacre")
    faulty.write_text("model m(x: f32[2] {\n")
    binary.write_bytes(b"\x80")
    done = cli("fmt", faulty, binary, messy)
    assert done.code == 1
    assert "error[" in done.err and "not UTF-8" in done.err
    assert faulty.read_text() == "model m(x: f32[2] {\n"
    assert messy.read_text() == NEAT


def test_missing_file(cli: Cli, tmp_path: Path) -> None:
    done = cli("fmt", tmp_path / "none.nacre")
    assert done.code == 1 and "no such file" in done.err


def test_full_disk_keeps_the_file(messy: Path) -> None:
    done = nacre_process("fmt", messy, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8, 8)))
    assert done.code == 1 and "cannot write" in done.err
    assert messy.read_text() == MESSY
    assert leftovers(messy.parent) == []
