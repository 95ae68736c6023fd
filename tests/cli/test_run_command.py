"""`nacre run`: text and artifacts, every way to give inputs, and the inputs that are refused."""

from __future__ import annotations

import re
from pathlib import Path

import click
import ml_dtypes
import nacre
import numpy as np
import pytest
from cli_harness import DIGITS, DOUBLE, Cli, leftovers, on_terminal
from nacre.compiler.cli.tensors import read_tensor, summary
from nacre.dialect.types import DTYPES
from safetensors.numpy import save_file


def test_artifact(cli: Cli, double_so: Path) -> None:
    done = cli("run", "--json", double_so, "--input", "x=[[1, 2], [3, 4.5]]")
    assert done.code == 0, done.err
    assert done.json == {
        "y": {"dtype": "f32", "shape": [2, 2], "min": 2.0, "max": 9.0, "mean": 5.25, "first": [2.0, 4.0, 6.0, 9.0]}
    }


def test_files(cli: Cli, double_so: Path, tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "many.npz", one=x, two=x * 2)
    save_file({"three": x * 3}, tmp_path / "single.safetensors")
    for value, factor in (("x.npy", 2), ("many.npz:two", 4), ("single.safetensors", 6)):
        done = cli("run", "--json", double_so, "--input", f"x={tmp_path / value}", "--output", tmp_path / "out")
        assert done.code == 0, done.err
        np.testing.assert_array_equal(np.load(tmp_path / "out" / "y.npy"), x * factor)
    assert leftovers(tmp_path / "out") == []


def test_digits(cli: Cli, digits_so: Path, tmp_path: Path) -> None:
    with np.load(DIGITS / "test_images.npz") as file:
        np.save(tmp_path / "image.npy", file["images"][:5].astype(np.float32))
        labels = file["labels"][:5]
    done = cli("run", "--json", digits_so, f"--input=image={tmp_path / 'image.npy'}", "--output", tmp_path)
    assert done.code == 0
    assert done.json["probabilities"]["shape"] == [5, 10]
    np.testing.assert_array_equal(np.load(tmp_path / "probabilities.npy").argmax(axis=1), labels)


@pytest.mark.parametrize(
    ("inputs", "code", "message"),
    [
        (["x=[[1, 2, 3]]"], 1, "argument `x`: expected f32[N, 2], got f32[1, 3]"),
        (["x=[1, 2]"], 1, "expected f32[N, 2]"),
        (["x=f64.npy"], 1, "dtype f64, expected f32"),
        (["x=long.npy"], 1, "`N` is 65, outside 1..64"),
        (["x=none.npy"], 1, "there is no file `none.npy`"),
        (["x=broken.npy"], 1, "checkpoint-broken"),
        (["x=many.npz"], 2, "`many.npz` holds 2 tensors: name one as many.npz:KEY"),
        (["x=many.npz:three"], 2, "`many.npz` holds one, two, not `three`"),
        (["y=[[1, 2]]"], 2, "unknown y; missing x; the entry takes x: f32[N, 2]"),
        ([], 2, "missing x"),
        (["x"], 2, "`x` is not of the form NAME=FILE or NAME=VALUE"),
        (["=1"], 2, "not of the form"),
        (["x=[[1, 2]]", "x=[[1, 2]]"], 2, "`x` is given twice"),
        (["x=[[1, 2], [3]]"], 2, "is not rectangular"),
        (["x=file.txt"], 2, "is neither a .npy, .npz or .safetensors file nor a JSON value"),
        (["x=[[true, 1]]"], 2, "is not f32: it has true"),
        (['x=[["1", "2"]]'], 2, "is not f32"),
        (["x=null"], 2, "is not f32: it has null"),
        (["x={}"], 2, "is not f32"),
        (["x=" + "[" * 100_000], 2, "`x`: `[["),
    ],
    ids=lambda value: str(value)[:30],
)
def test_inputs_that_are_refused(
    cli: Cli,
    double_so: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    inputs: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("f64.npy", np.zeros((1, 2)))
    np.save("long.npy", np.zeros((65, 2), np.float32))
    np.savez("many.npz", one=np.zeros(1), two=np.zeros(1))
    Path("broken.npy").write_bytes(b"\x93NUMPY")
    done = cli("run", "--json", double_so, *(f"--input={i}" for i in inputs), "--output", "out")
    assert done.code == code, done
    assert message in " ".join(done.err.split())
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("dtype", "text"),
    [("u8", "256"), ("u8", "-1"), ("i32", "1.0"), ("i64", "9223372036854775808"), ("bool", "1"), ("i8", "true")],
)
def test_nothing_is_rounded_or_wrapped(dtype: str, text: str) -> None:
    with pytest.raises(Exception, match=f"is not {dtype}: it has {text}"):
        read_tensor("x", text, DTYPES[dtype])


@pytest.mark.parametrize("text", ["[[1, 2], [3]]", "[[1, 2], 3]"])
@pytest.mark.parametrize("dtype", ["i64", "f32", "bool"])
def test_rows_of_different_lengths(dtype: str, text: str) -> None:
    text = text if dtype != "bool" else re.sub(r"\d", "true", text)
    with pytest.raises(click.BadParameter, match="is not rectangular: its rows differ in length"):
        read_tensor("x", text, DTYPES[dtype])


@pytest.mark.parametrize(
    ("dtype", "text", "expected"),
    [
        ("u64", "18446744073709551615", np.uint64(2**64 - 1)),
        ("i64", "[9007199254740993]", np.array([2**53 + 1])),
        ("bool", "[true, false]", np.array([True, False])),
        ("f16", "[1, 1e9, NaN]", np.array([1, np.inf, np.nan], np.float16)),
        ("f32", "[]", np.zeros(0, np.float32)),
        ("bf16", "1.5", np.array(1.5, ml_dtypes.bfloat16)),
        ("f8e4m3", "[1.0625, 1e9]", np.array([1, 448], ml_dtypes.float8_e4m3fn)),
        ("f8e5m2", "[[-1e9]]", np.array([[-57344]], ml_dtypes.float8_e5m2)),
    ],
)
def test_spelled_tensors(dtype: str, text: str, expected: np.ndarray) -> None:
    made = read_tensor("x", text, DTYPES[dtype])
    assert made.dtype == DTYPES[dtype].numpy
    np.testing.assert_array_equal(made, expected)


def test_summaries_are_json(cli: Cli, double_so: Path) -> None:
    done = cli("run", "--json", double_so, "--input", "x=[[NaN, Infinity]]")
    assert done.json["y"]["first"] == ["nan", "inf"]  # json has no such numbers
    assert done.json["y"]["max"] == "nan"
    assert "NaN" not in done.out and "Infinity" not in done.out
    assert summary(np.array([2**63 - 1]))["first"] == [2**63 - 1]
    assert summary(np.array([True])) == {
        "dtype": "bool",
        "shape": [1],
        "min": True,
        "max": True,
        "mean": 1.0,
        "first": [True],
    }
    assert summary(np.zeros((0, 3), np.int8)) == {"dtype": "i8", "shape": [0, 3]}


@pytest.mark.parametrize("name", ["bf16", "f8e4m3", "f8e5m2"])
def test_floats_that_numpy_has_none_of_go_through_files(cli: Cli, tmp_path: Path, name: str) -> None:
    artifact = tmp_path / "b.so"
    text = f"model b(x: {name}[2]) -> y: {name}[2] {{ return cast(2 * cast(x, f32), {name}) }}"
    nacre.compile(text, artifact, opt_level=0)
    np.save(tmp_path / "x.npy", np.array([1, 1.5], DTYPES[name].numpy))
    assert cli("run", "--json", artifact, f"--input=x={tmp_path / 'x.npy'}", "--output", tmp_path).code == 0
    done = cli("run", "--json", artifact, f"--input=x={tmp_path / 'y.npy'}")
    assert done.json["y"] | {"mean": 0} == {
        "dtype": name,
        "shape": [2],
        "min": 4.0,
        "max": 6.0,
        "mean": 0,
        "first": [4.0, 6.0],
    }


def test_several_entries(cli: Cli, tmp_path: Path) -> None:
    artifact = tmp_path / "two.so"
    text = "model one(x: i32[2]) -> i32[2] { return x + 1 }\nmodel two(x: i32[2]) -> i32[2] { return x + 2 }\n"
    nacre.compile(text, artifact, opt_level=0)
    done = cli("run", "--json", artifact, "--input=x=[1, 2]")
    assert done.code == 2 and "the model has the entries one, two" in done.err
    done = cli("run", "--json", artifact, "--input=x=[1, 2]", "--entry", "three")
    assert done.code == 2 and "the model has the entries one, two" in done.err
    done = cli("run", "--json", artifact, "--input=x=[1, 2]", "--entry", "two")
    assert done.json["result"]["first"] == [3, 4]


@pytest.mark.parametrize("name", ["none.so", "text.so", "."])
def test_files_that_are_no_artifact(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.so").write_text("text")
    assert cli("run", "--json", name).code == 1
    assert cli("inspect", "--json", name).code == 1


def test_external_weights_elsewhere(cli: Cli, scaled: Path) -> None:
    artifact = scaled.with_suffix(".so")
    nacre.compile(scaled, artifact, placement="external", opt_level=0)
    beside = artifact.with_name("scaled.so.safetensors")
    moved = beside.rename(scaled.parent / "moved.safetensors")
    done = cli("run", "--json", artifact, "--input=x=[[1, 1]]")
    assert done.code == 1 and "scaled.so.safetensors" in done.err
    done = cli("run", "--json", artifact, "--input=x=[[1, 1]]", "--weights", moved)
    assert done.json["result"]["first"] == [2, 3]
    # What an artifact says of itself does not need its weights.
    assert cli("inspect", "--json", artifact).json["weights"]["placement"] == "external"


def test_on_a_terminal(double_so: Path) -> None:
    done = on_terminal("run", double_so, "--input", "x=[[NaN, NaN], [1, 2]]")
    assert done.code == 0
    assert "y" in done.out and "float32 [2, 2]" in done.out
    assert "[[nan nan]" in done.out  # not taken for markup
    assert "{" not in done.out


@pytest.mark.usefixtures("unchecked")
def test_text_is_compiled_once(cli: Cli, double: Path, cache: Path) -> None:
    first = cli("run", "--json", double, "--input=x=[[1, 2]]")
    assert first.code == 0, first.err
    (artifact,) = cache.glob("*.so")
    before = artifact.stat()
    assert cli("run", "--json", double, "--input=x=[[1, 2]]").out == first.out
    (again,) = cache.glob("*.so")
    assert again == artifact
    assert (again.stat().st_ino, again.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_cache_that_cannot_be_written(cli: Cli, double: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NACRE_CACHE", str(double / "below-a-file"))
    done = cli("run", "--json", double, "--input=x=[[1, 2]]")
    assert done.code == 1
    assert "cannot write into the cache" in done.err and "set NACRE_CACHE to another folder" in done.err


def test_two_texts_of_one_name(cli: Cli, tmp_path: Path) -> None:
    for folder, factor in (("a", 2), ("b", 3)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "m.nacre").write_text(DOUBLE.replace("x + x", f"x * {factor}"))
    for folder, factor in (("a", 2), ("b", 3)):
        done = cli("run", "--json", tmp_path / folder / "m.nacre", "--input=x=[[1, 1]]", "-O0")
        assert done.json["y"]["first"] == [factor, factor]
