"""Checkpoints that are damaged give one diagnostic that says how, whatever the damage."""

import io
import json
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest
from nacre.compiler.weights import open_checkpoint
from nacre.dialect.diagnostics import DiagnosticError


def safetensors_bytes(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def tensor(start: int, end: int, dtype: str = "U8", shape: object = None) -> dict[str, object]:
    return {"dtype": dtype, "shape": [end - start] if shape is None else shape, "data_offsets": [start, end]}


BROKEN = {
    "short": (b"\0\0\0", "it has 3 bytes, fewer than the length of a header"),
    "long header": (safetensors_bytes({}, length=99), "its header is said to have 99 bytes, the file has 10"),
    "huge header": (safetensors_bytes({}, length=1 << 63), "its header is said to have 9223372036854775808 bytes"),
    "not json": (safetensors_bytes(b"{x"), "the header is not JSON: Expecting property name"),
    "not utf-8": (safetensors_bytes(b'{"\xff": 1}'), "the header is not UTF-8"),
    "not an object": (safetensors_bytes([1]), "the header is not a JSON object"),
    "deep": (safetensors_bytes(b"[" * 100_000), "the header is nested too deeply"),
    "twice": (safetensors_bytes(b'{"x": {}, "x": {}}'), "`x` occurs twice"),
    "no description": (safetensors_bytes({"x": 1}), "tensor `x` is not described by an object"),
    "no dtype": (safetensors_bytes({"x": {}}), "tensor `x` has no dtype"),
    "negative size": (safetensors_bytes({"x": tensor(0, 0, shape=[-1])}), "shape of tensor `x` is not a list of sizes"),
    "boolean size": (safetensors_bytes({"x": tensor(0, 1, shape=[True])}, b"1"), "shape of tensor `x` is not a list"),
    "one offset": (safetensors_bytes({"x": {"dtype": "U8", "shape": [], "data_offsets": [0]}}), "are not two offsets"),
    "outside": (safetensors_bytes({"x": tensor(0, 8)}, b"1234"), "the offsets 0..8, outside the data of 4 bytes"),
    "backwards": (safetensors_bytes({"x": tensor(4, 0, shape=[])}, b"1234"), "the offsets 4..0, outside"),
    "wrong size": (
        safetensors_bytes({"x": tensor(0, 4, "F32", [2])}, b"1234"),
        "`x` is F32 [2], 8 bytes, but takes up 4",
    ),
    "overlap": (
        safetensors_bytes({"x": tensor(0, 4), "y": tensor(2, 6)}, b"123456"),
        "tensor `y` overlaps tensor `x`",
    ),
    "gap": (
        safetensors_bytes({"x": tensor(0, 2), "y": tensor(3, 4)}, b"1234"),
        "1 bytes before tensor `y` belong to no",
    ),
    "rest": (safetensors_bytes({"x": tensor(0, 2)}, b"1234"), "the tensors end at 2 of 4 bytes of data"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_safetensors(tmp_path: Path, name: str) -> None:
    data, message = BROKEN[name]
    file = tmp_path / "x.safetensors"
    file.write_bytes(data)
    with pytest.raises(DiagnosticError) as caught:
        open_checkpoint(file)
    assert [d.code for d in caught.value.diagnostics] == ["checkpoint-broken"]
    assert message in caught.value.diagnostics[0].message


def fails(path: Path, code: str, message: str) -> None:
    with pytest.raises(DiagnosticError) as caught:
        open_checkpoint(path)
    assert [d.code for d in caught.value.diagnostics] == [code]
    assert message in str(caught.value)


def test_paths_that_are_no_checkpoint(tmp_path: Path) -> None:
    fails(tmp_path / "none.npz", "checkpoint-missing", "does not exist")
    fails(Path("a\0b.npz"), "checkpoint-missing", "")  # the words depend on the version of Python
    fails(tmp_path, "checkpoint-unknown", "has no checkpoint")
    (tmp_path / "notes.txt").write_text("x")
    fails(tmp_path / "notes.txt", "checkpoint-unknown", "no known suffix")
    (tmp_path / "weights.pkl").write_bytes(b"x")
    fails(tmp_path, "checkpoint-unknown", "pickled weights only")
    fails(tmp_path / "weights.pkl", "checkpoint-unknown", "convert them to safetensors")
    for name in ("a.npz", "b.npz"):
        np.savez(tmp_path / name, x=np.zeros(1))
    fails(tmp_path, "checkpoint-unknown", "has several checkpoints: `a.npz`, `b.npz`")


@pytest.mark.parametrize(
    ("index", "code", "message"),
    [
        ({}, "checkpoint-broken", "it has no `weight_map`"),
        ({"weight_map": {"x": 1}}, "checkpoint-broken", "the weight_map of `x` is not a file name"),
        (
            {"weight_map": {"x": "../a"}},
            "checkpoint-broken",
            "the shard `../a` of `x` is not a file of the same folder",
        ),
        ({"weight_map": {"x": "gone.safetensors"}}, "checkpoint-missing", "gone.safetensors` is missing"),
        (
            {"weight_map": {"y": "one.safetensors"}},
            "checkpoint-broken",
            "`y` is in `one.safetensors`, which does not contain it",
        ),
    ],
)
def test_broken_index(tmp_path: Path, index: object, code: str, message: str) -> None:
    (tmp_path / "one.safetensors").write_bytes(safetensors_bytes({"x": tensor(0, 2)}, b"12"))
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    fails(tmp_path, code, message)


def test_broken_numpy_files(tmp_path: Path) -> None:
    whole = io.BytesIO()
    np.save(whole, np.arange(10))
    file = tmp_path / "x.npy"
    for cut, message in ((0, "EOF"), (4, "EOF"), (40, "EOF"), (150, "it has 150 bytes, its header asks for 208")):
        file.write_bytes(whole.getvalue()[:cut])
        fails(file, "checkpoint-broken", message)
    file.write_bytes(whole.getvalue().replace(b"(10,)", b"(-1,)"))
    fails(file, "checkpoint-broken", "negative size")
    archive = tmp_path / "x.npz"
    archive.write_bytes(b"PK")
    fails(archive, "checkpoint-broken", "not a zip file")
    with zipfile.ZipFile(archive, "w") as target:
        target.writestr("x.npy", whole.getvalue()[:-8])
    fails(archive, "checkpoint-broken", "`x.npy`: its header describes more data")


def test_objects_are_not_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    checkpoint = open_checkpoint(tmp_path / "x.npy")
    assert checkpoint.info("x") == (None, (1,))
    with pytest.raises(DiagnosticError, match="is object, which is not supported"):
        checkpoint.read("x")


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".safetensors"])
@pytest.mark.parametrize("compressed", [False, True])
def test_random_damage_never_raises_anything_else(tmp_path: Path, suffix: str, compressed: bool) -> None:
    whole = io.BytesIO()
    if suffix == ".npz":
        (np.savez_compressed if compressed else np.savez)(whole, x=np.arange(40), y=np.ones((2, 3)))
    elif suffix == ".npy":
        np.save(whole, np.arange(40))
    else:
        whole.write(safetensors_bytes({"x": tensor(0, 4), "y": tensor(4, 12, "F32", [2])}, bytes(12)))
    chance = random.Random(suffix)
    file = tmp_path / f"x{suffix}"
    outcomes = set()
    for _ in range(300):
        data = bytearray(whole.getvalue())
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        file.write_bytes(data[: chance.randint(1, len(data))] if chance.random() < 0.2 else data)
        try:
            checkpoint = open_checkpoint(file)
            for name in checkpoint.names():
                checkpoint.read(name)
            outcomes.add("fine")
        except DiagnosticError as error:
            outcomes.add(error.diagnostics[0].code)
    assert {"fine", "checkpoint-broken"} <= outcomes
