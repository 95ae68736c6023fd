"""Files of `torch.save` without PyTorch: the same bits, in both containers; everything but tensors is refused."""

from __future__ import annotations

import collections
import io
import os
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
import torch_damage
from nacre.compiler.weights import Checkpoint, open_checkpoint, pickle_machine
from nacre.dialect.diagnostics import DiagnosticError

torch = pytest.importorskip("torch")
OLD = {"_use_new_zipfile_serialization": False}


def bits(tensor: Any) -> bytes:
    return bytes(tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())


def saved(path: Path, value: Any, **options: Any) -> Checkpoint:
    torch.save(value, path, **options)
    return open_checkpoint(path)


def all_dtypes() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    raw = torch.randint(0, 256, (5, 8 * 3), dtype=torch.uint8, generator=generator)
    names = "float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64"
    found = {name: raw.clone().view(getattr(torch, name)) for name in (*names.split(), "float8_e4m3fn", "float8_e5m2")}
    return found | {"bool": raw > 100, "scalar": torch.tensor(3.5), "empty": torch.zeros(0, 3)}


@pytest.mark.parametrize("options", [{}, OLD, {"pickle_protocol": 3}, {"pickle_protocol": 5}])
def test_every_dtype_has_the_same_bits(tmp_path: Path, options: dict[str, Any]) -> None:
    tensors = all_dtypes()
    checkpoint = saved(tmp_path / "x.pth", tensors, **options)
    assert checkpoint.names() == tuple(tensors)
    for name, tensor in tensors.items():
        array = checkpoint.read(name)
        assert array.shape == tuple(tensor.shape) and array.tobytes() == bits(tensor), name
        assert checkpoint.stored_as(name) == str(tensor.dtype).removeprefix("torch.")
    # Mapped, not copied, where it is aligned: the old format puts numbers of any length before the first tensor.
    is_aligned = checkpoint.tensors["float32"].offset % 4 == 0
    assert (is_aligned or options == OLD) and isinstance(checkpoint.read("float32").base, np.ndarray) == is_aligned


@pytest.mark.parametrize("options", [{}, OLD])
def test_views_and_shared_storages(tmp_path: Path, options: dict[str, Any]) -> None:
    whole = torch.arange(24.0).reshape(4, 6)
    tensors = {
        "whole": whole,
        "turned": whole.T,
        "part": whole[1:3, ::2],
        "last": torch.nn.Parameter(whole[3]),
        "channels": torch.arange(120.0).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "other": whole.new_zeros(2)[:1].expand(1, 1),
    }
    checkpoint = saved(tmp_path / "x.pt", tensors, **options)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(checkpoint.read(name), tensor.detach().numpy(), strict=True)
    assert len({checkpoint.tensors[name].offset for name in ("whole", "last")}) == 2


def test_foreign_dtypes_have_a_name(tmp_path: Path) -> None:
    tensors = {"c": torch.zeros(2, dtype=torch.complex64), "e": torch.zeros(2, dtype=torch.float8_e8m0fnu)}
    checkpoint = saved(tmp_path / "x.pth", tensors)
    assert checkpoint.info("c") == (None, (2,)) and checkpoint.stored_as("e") == "float8_e8m0fnu"
    with pytest.raises(DiagnosticError, match=r"`c` of .* is complex64, which is not supported"):
        checkpoint.read("c")


def test_nested_names(tmp_path: Path) -> None:
    """Dicts give names with dots. Lightning keeps the parameters under `state_dict`."""
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    state = module.state_dict()
    moments = {0: {"step": torch.tensor(1.0), "exp_avg": torch.zeros(3, 2)}}
    optimizer = {"state": moments, "param_groups": [{"lr": 1e-3, "betas": (0.9, 0.999), "params": [0]}]}
    nested = saved(tmp_path / "x.pth", {"model": state, "epoch": 3, "optimizer": optimizer})
    assert {f"model.{name}" for name in state} <= set(nested.names())
    assert "optimizer.state.0.exp_avg" in nested.names()
    found = saved(
        tmp_path / "x.ckpt",
        {
            "epoch": 1,
            "pytorch-lightning_version": "2.5.0",
            "state_dict": state,
            "optimizer_states": [optimizer],
            "hyper_parameters": {"lr": 1e-3, "widths": [2, 3], "name": None},
            "loops": {"fit_loop": {"state_dict": {}}},
        },
    )
    assert found.names() == tuple(state)
    for name, tensor in state.items():
        assert found.read(name).tobytes() == bits(tensor)
    assert saved(tmp_path / "one.pt", torch.ones(2)).names() == ("tensor",)


def test_a_model_takes_weights_of_a_file(tmp_path: Path) -> None:
    layer = torch.nn.Linear(4, 2)
    torch.save({"state_dict": {f"net.{k}": v for k, v in layer.state_dict().items()}}, tmp_path / "net.ckpt")
    (tmp_path / "net.nacre").write_text(
        'model f(x: f32[3, 4]) -> f32[3, 2] {\n  weights "net.ckpt" prefix "net."\n'
        "  param weight: f32[2, 4]\n  param bias: f32[2]\n  return x @ weight.T + bias\n}\n"
    )
    x = torch.randn(3, 4)
    found = nacre.compile(tmp_path / "net.nacre", tmp_path / "net.so", opt_level=0)(x.numpy())
    np.testing.assert_allclose(found, layer(x).detach().numpy(), atol=1e-6)


def test_shards_of_a_folder(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(2)}, tmp_path / "pytorch_model-1.bin")
    torch.save({"b": torch.zeros(3)}, tmp_path / "pytorch_model-2.bin")
    torch.save({"c": torch.zeros(3)}, tmp_path / "training_args.bin")
    (tmp_path / "pytorch_model.bin.index.json").write_text(
        '{"weight_map": {"a": "pytorch_model-1.bin", "b": "pytorch_model-2.bin"}}'
    )
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.names() == ("a", "b") and checkpoint.read("a").tolist() == [1, 1]


class Command:
    """A pickle of this class would run a command when Python reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("options", [{}, OLD, {"pickle_protocol": 4}])
def test_no_code_runs(tmp_path: Path, options: dict[str, Any]) -> None:
    refused(tmp_path, {"x": torch.ones(1), "y": Command(tmp_path / "ran")}, f"{os.name}.system", **options)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("protocol", [2, 4])
def test_values_of_numpy_beside_tensors(tmp_path: Path, protocol: int) -> None:
    """Scalars are numbers, which are no tensors; arrays are tensors."""
    scalars = [np.float64(0.5), np.float32(2), np.float16(3), np.int64(-7), np.uint8(200), np.bool_(True)]
    arrays = {
        "turned": np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
        "swapped": np.array([1.5, -2.0], ">f4"),
        "empty": np.zeros((0, 3), np.bool_),
    }
    value = {"best": scalars, "arrays": arrays, "x": torch.ones(2)}
    checkpoint = saved(tmp_path / "x.pth", value, pickle_protocol=protocol)
    assert set(checkpoint.names()) == {*(f"arrays.{name}" for name in arrays), "x"}
    for name, array in arrays.items():
        found = checkpoint.read(f"arrays.{name}")
        np.testing.assert_array_equal(found, array.astype(array.dtype.newbyteorder("=")), strict=True)
    with pytest.raises(DiagnosticError, match="of NumPy is none of"):
        saved(tmp_path / "y.pth", {"day": np.datetime64("2020-01-01"), "x": torch.ones(2)})


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (torch.nn.Linear(1, 1), "torch.nn.modules.linear.Linear"),
        ({"x": torch.eye(2).to_sparse()}, "torch._utils._rebuild_sparse_tensor"),
        ({"x": collections.Counter()}, "collections.Counter"),
    ],
)
def test_other_classes_are_named(tmp_path: Path, value: object, name: str) -> None:
    refused(tmp_path, value, name)


def refused(folder: Path, value: object, name: str, **options: Any) -> None:
    torch.save(value, folder / "x.pth", **options)
    with pytest.raises(DiagnosticError) as caught:
        open_checkpoint(folder / "x.pth")
    (found,) = caught.value.diagnostics
    assert found.code == "refused-pickle" and f"`{name}`" in found.message and "state_dict" in found.help


def archive(pickled: bytes, storages: dict[str, bytes], **others: bytes) -> bytes:
    """A zip archive as `torch.save` writes it."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as file:
        file.writestr("x/data.pkl", pickled)
        for key, data in storages.items():
            file.writestr(f"x/data/{key}", data)
        for key, data in others.items():
            file.writestr(f"x/{key}", data)
    return target.getvalue()


def view(count: int, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], storage: str = "0") -> bytes:
    """Opcodes of one tensor of f32."""

    def number(n: int) -> bytes:
        return b"\x8a\x09" + n.to_bytes(9, "little", signed=True)

    def row(numbers: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(map(number, numbers)) + b"t"

    key = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text(storage) + text("cpu") + number(count) + b"tQ"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + key + number(offset) + row(shape) + row(strides) + b"\x89}tR"


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def entry(*tensors: bytes) -> bytes:
    return b"\x80\x02}(" + b"".join(text(f"t{i}") + tensor for i, tensor in enumerate(tensors)) + b"u."


GOOD = entry(view(4, 0, (2, 2), (2, 1)))
SIXTEEN = {"0": bytes(16)}
HUGE = 1 << 61
BROKEN = {
    "empty": (b"", "it is empty"),
    "not a file of torch": (b"hello world", "opcode 0x68|object 101 is used before"),
    "another pickle": (pickle.dumps(1, 2) * 3, "does not begin as a file of `torch.save`"),
    "no pickle": (archive(GOOD, SIXTEEN).replace(b"data.pkl", b"data.pkk"), "holds 0 pickles"),
    "no storage": (archive(GOOD, {}), "lacks the storage `0`"),
    "short storage": (archive(GOOD, {"0": bytes(15)}), "`0` has 15 bytes, and 16 are expected"),
    "byte order": (archive(GOOD, SIXTEEN, byteorder=b"middle"), "neither little nor big"),
    "no end": (archive(GOOD[:-1], SIXTEEN), "ends at byte .*, within an object"),
    "outside": (archive(entry(view(4, 1, (2, 2), (2, 1))), SIXTEEN), "ends at byte 20 of a storage of 16"),
    "huge": (archive(entry(view(4, 0, (HUGE,), (1,))), SIXTEEN), "ends at byte 9223372036854775808 of a storage"),
    "huge storage": (archive(entry(view(HUGE, 0, (2,), (1,))), SIXTEEN), "has 16 bytes, and 9223372036854775808"),
    "overlapping elements": (archive(entry(view(4, 0, (HUGE, 2), (0, 1))), SIXTEEN), "elements of a tensor overlap"),
    "negative": (archive(entry(view(4, 0, (-1, 2), (2, 1))), SIXTEEN), "not a tuple of sizes"),
    "negative offset": (archive(entry(view(4, -1, (2,), (1,))), SIXTEEN), "offset or the strides"),
    "two sizes": (archive(entry(view(4, 0, (2,), (1,)), view(3, 0, (1,), (1,))), SIXTEEN), "has two sizes"),
    "contains itself": (archive(b"\x80\x02}q\x00X\x01\x00\x00\x00ah\x00s.", {}), "`a` contains itself"),
    "tuples of tuples": (archive(b"\x80\x02)" + b"q\x00h\x00\x86" * 40 + b".", {}), "nested too deeply|more than"),
    "no tensors": (archive(b"\x80\x02}.", {}), "it holds no tensors"),
    "no mark": (archive(b"\x80\x02t.", {}), "there is no mark"),
    "empty stack": (archive(b"\x80\x02.", {}), "the stack is empty"),
    "entry of a list": (archive(b"\x80\x02]K\x01K\x02s.", {}), "a dict is expected at byte 7, not a list"),
    "key": (archive(b"\x80\x02})K\x02s.", {}), "the key of an entry is a tuple"),
    "protocol": (archive(b"\x80\x01}.", {}), "protocol 1 is not one of 2 to 5"),
    "text": (archive(b"\x80\x02X\x01\x00\x00\x00\xff.", {}), "not UTF-8"),
    "call": (archive(b"\x80\x02K\x01)R.", {}), "a int is called"),
    "arguments": (archive(b"\x80\x02ctorch\nSize\n)R.", {}), "`torch.Size` is called with 0 wrong arguments"),
    "long": (archive(b"\x80\x02" + b"N0" * 2, {}), "opcode 0x30 at byte 3"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files(tmp_path: Path, name: str) -> None:
    data, message = BROKEN[name]
    (tmp_path / "x.pth").write_bytes(data)
    with pytest.raises(DiagnosticError, match=message) as caught:
        open_checkpoint(tmp_path / "x.pth")
    assert [found.code for found in caught.value.diagnostics] == ["checkpoint-broken"]


def test_the_hand_made_file_is_whole(tmp_path: Path) -> None:
    """The files of `BROKEN` differ from this one in their faults alone. Its byte order is big."""
    (tmp_path / "x.pth").write_bytes(archive(GOOD, {"0": np.arange(4, dtype=">f4").tobytes()}, byteorder=b"big"))
    np.testing.assert_array_equal(open_checkpoint(tmp_path / "x.pth").read("t0"), [[0, 1], [2, 3]])


def test_storages_that_overlap(tmp_path: Path) -> None:
    """Two entries of the archive's directory that name the same bytes."""
    data = archive(entry(view(4, 0, (4,), (1,)), view(4, 0, (4,), (1,), "1")), SIXTEEN | {"1": bytes(16)})
    first, second = (data.index(f"x/data/{key}".encode()) - 30 for key in "01")
    at = data.rindex(b"PK\x01\x02", 0, data.rindex(b"x/data/1"))
    assert struct.unpack("<I", data[at + 42 : at + 46]) == (second,)
    (tmp_path / "x.pth").write_bytes(data[: at + 42] + struct.pack("<I", first) + data[at + 46 :])
    with pytest.raises(DiagnosticError, match="storages `0` and `1` overlap"):
        open_checkpoint(tmp_path / "x.pth")


def test_the_number_of_opcodes_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickle_machine, "MOST_OPCODES", 500)
    (tmp_path / "x.pth").write_bytes(archive(b"\x80\x02" + b"N" * 500 + b".", {}))
    with pytest.raises(DiagnosticError, match="more than 500 opcodes"):
        open_checkpoint(tmp_path / "x.pth")


def test_a_sample_of_damaged_files(tmp_path: Path) -> None:
    codes, errors = torch_damage.read_damaged(tmp_path, seed=0, count=120)
    assert not errors, errors[0]
    assert codes["read"] and codes["checkpoint-broken"] and codes["refused-pickle"]
