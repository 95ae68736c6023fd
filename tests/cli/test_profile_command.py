"""`nacre profile` and `nacre bench`: their tables, their JSON, made up inputs, and what is refused."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
from cli_harness import DIGITS, Cli, leftovers, on_terminal

PEAK = ("--peak", "1000,100")
SHORT = ("--seconds", "0.01")


def test_profile_of_an_artifact(cli: Cli, digits_so: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    done = cli("profile", "--json", digits_so, "--at", "B=3", "--threads", "1", *SHORT, *PEAK, "--trace", trace)
    assert done.code == 0, done.err
    message = done.json
    assert (message["entry"], message["dims"], message["threads"]) == ("classify", {"B": 3}, 1)
    assert message["peak"] == {"flops_per_second": 1e12, "bytes_per_second": 1e11, "products_per_second": {}}
    seconds = sum(k["seconds"] for k in message["kernels"])
    assert 0 < seconds <= message["seconds"] and seconds + message["outside_kernels"] == pytest.approx(
        message["seconds"]
    )
    assert sum(line["seconds"] for line in message["lines"]) == pytest.approx(seconds)
    assert sum(line["share"] for line in message["lines"]) <= 1
    assert sum(c["seconds"] for c in message["calls"]) == pytest.approx(seconds)
    assert [c["number"] for c in message["calls"]] == list(range(len(message["calls"])))
    largest = max(message["kernels"], key=lambda k: k["flops"])
    assert largest["kind"] == "contraction" and largest["operations"][0]["op"] == "conv2d"
    assert largest["compute_share"] == pytest.approx(largest["flops"] / largest["seconds"] / 1e12)
    assert all(
        k["bound"] in ("compute", "memory", "caches", "neither") and k["balance"] <= 1 for k in message["kernels"]
    )
    assert json.loads(trace.read_text())["traceEvents"] and leftovers(tmp_path) == []


def test_profile_of_a_model_file_on_a_terminal(double: Path) -> None:
    done = on_terminal("profile", double, "--input", "x=[[1, 2], [3, 4]]", *SHORT, *PEAK)
    assert done.code == 0, done.out
    assert "double at N=2" in done.out and "bound by" in done.out and "balance" in done.out
    # The line, and its text out of the file.
    assert "double.nacre:4" in done.out and "return x + x" in done.out


def test_bench(cli: Cli, digits_so: Path) -> None:
    start = time.perf_counter()
    done = cli("bench", "--json", digits_so, "--at", "B=2", "--threads", "1", "--seconds", "0.1", "--warm-up", "0")
    taken = time.perf_counter() - start
    assert done.code == 0, done.err
    message = done.json
    assert (message["entry"], message["dims"], message["threads"]) == ("classify", {"B": 2}, 1)
    times = message["seconds"]
    order = [times[key] for key in ("min", "p50", "p90", "p99", "p99.9", "max")]
    assert order[0] > 0 and order == sorted(order) and order[0] <= times["mean"] <= order[-1]
    assert taken >= 0.1 and 0 < message["calls"] * times["mean"] <= taken
    assert message["per_second"] == pytest.approx(1 / times["mean"])
    assert message["bytes"]["file"] == digits_so.stat().st_size and message["bytes"]["workspace"] > 0
    assert 0 < message["bytes"]["resident"] <= message["bytes"]["peak_resident"]
    assert message["cold"]["load"] > 0 and message["cold"]["first_call"] > 0


def test_bench_on_a_terminal(double: Path) -> None:
    done = on_terminal("bench", double, "--seconds", "0.01", "--warm-up", "0")
    assert done.code == 0, done.out
    assert "double at N=64" in done.out
    assert all(f"\n  {name} " in done.out.replace("\r", "") for name in ("calls", "p50", "p99.9", "workspace", "load"))


def test_bfloat16_goes_through_the_process(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "m.nacre").write_text("dim N in 1..9\nmodel m(x: bf16[N], odd: bool[N]) -> bf16[N] { return x + x }\n")
    done = cli("bench", "--json", tmp_path / "m.nacre", "--seconds", "0.01", "--warm-up", "0")
    assert done.code == 0, done.err


@pytest.mark.parametrize("command", ["bench", "profile"])
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--at", "B=0"], 2, "`B` cannot be 0"),
        (["--at", "Q=1"], 2, "there is no dim `Q`; there are B"),
        (["--at", "B"], 2, "is not a dim and its size"),
        (["--at", "B=1", "--input", "image=x.npy"], 2, "--at is for random inputs"),
        (["--input", "y=x.npy"], 2, "unknown y; missing image"),
        (["--input", "image=x.npy"], 1, "expected f32[B, 8, 8], got f32[2, 3]"),
        (["--entry", "none"], 2, "the model has the entries classify"),
        (["-O", "1"], 2, "-O is for model files"),
        (["--strict"], 2, "--strict is for model files"),
        (["--threads", "-1"], 2, "-1"),
        (["--seconds", "-1"], 2, "-1"),
    ],
)
def test_refused_options(
    cli: Cli, digits_so: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, arguments: list[str],
    code: int, message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.zeros((2, 3), np.float32))
    done = cli(command, digits_so, *arguments)
    assert (done.code, done.out) == (code, "") and message in " ".join(done.err.split())


@pytest.mark.parametrize("peak", ["fast", "1", "1,2,3", "0,1", "-1,2", "1,x", "nan,1"])
def test_peaks_that_are_none(cli: Cli, digits_so: Path, peak: str) -> None:
    done = cli("profile", "--json", digits_so, f"--peak={peak}")
    assert done.code == 2 and "neither `measure` nor GFLOP/s and GB/s" in " ".join(done.err.split())


def test_a_trace_that_cannot_be_written_is_refused_first(cli: Cli, digits_so: Path, tmp_path: Path) -> None:
    done = cli("profile", "--json", digits_so, "--trace", tmp_path / "none" / "t.json")
    assert done.code == 1 and "cannot-write" in done.err and done.out == ""


def test_a_file_that_is_no_artifact(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "m.so").write_bytes(b"\x7fELF" + bytes(100))
    for command in ("bench", "profile"):
        done = cli(command, tmp_path / "m.so")
        assert done.code == 1 and "bad-artifact" in done.err, done.err


def test_the_digits_have_the_lines_of_their_file(cli: Cli) -> None:
    done = cli("profile", "--json", DIGITS / "digits.nacre", "--at", "B=2", *SHORT, *PEAK)
    assert done.code == 0, done.err
    text = (DIGITS / "digits.nacre").read_text().splitlines()
    for line in done.json["lines"]:
        file, number = line["at"].split(":")
        assert file == "digits.nacre"
        written = text[int(number) - 1]
        named = {"conv2d": "conv2d", "softmax": "softmax", "matmul": "@", "relu": "relu", "max_pool2d": "max_pool2d"}
        assert all(named[op] in written for op in line["operators"] if op in named), line
