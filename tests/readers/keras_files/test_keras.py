"""Keras models against the results of Keras, which `generate_keras.py` stored; real models; and damaged files."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import nacre
import numpy as np
import pytest
from nacre.compiler.model.source import SourceModel
from nacre.compiler.readers.keras.convert import layer_names
from nacre.compiler.readers.keras.layers import decode_model
from nacre.compiler.readers.table import read_file
from nacre.compiler.tools.reference.reader_operators import KERAS
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.interpreter import Interpreter

h5py = pytest.importorskip("h5py")
DATA = os.environ.get("NACRE_TEST_DATA", "")
MODELS = np.load(Path(__file__).with_name("models.npz"))
MISSING = Path(__file__).with_name("missing.txt")
"""The layers of Keras without a converter, each with the reason, after a line with the count."""
NAMES = sorted({key.split("/")[0] for key in MODELS if "/" in key})
real = pytest.mark.skipif(not DATA, reason="NACRE_TEST_DATA names no folder with real models")
TOLERANCE = {"rtol": 2e-5, "atol": 2e-5}
"""Both sides compute in f32, with sums in another order."""


def arrays(name: str, kind: str) -> list[Any]:
    return [MODELS[key] for key in sorted(key for key in MODELS if key.startswith(f"{name}/{kind}"))]


def write(tmp_path: Path, key: str, name: str) -> Path:
    path = tmp_path / name
    path.write_bytes(MODELS[key].tobytes())
    return path


def interpret(source: SourceModel, inputs: Sequence[Any]) -> list[Any]:
    (function,) = source.module.functions
    weights = source.weights[function.name]
    return list(Interpreter(source.module, lambda p: weights.read(p.key)).run(function, inputs))  # type: ignore[union-attr]


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_models_agree_with_keras(tmp_path: Path, suffix: str) -> None:
    for name in NAMES:
        path = write(tmp_path, f"{name}/file{suffix}", f"{name}{suffix}")
        if name == "nested" and suffix == ".h5":
            with pytest.raises(DiagnosticError, match="such layers are read from"):
                read_file(path)
            continue
        found, expected = interpret(read_file(path), arrays(name, "input")), arrays(name, "output")
        assert len(found) == len(expected), name
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, **TOLERANCE, err_msg=name)


STORAGES: dict[str, tuple[Any, dict[str, Any]]] = {
    "most significant byte first": (">f4", {}),
    "f64 in compressed pieces": ("<f8", {"compression": "gzip", "chunks": True}),
    "f16": ("<f2", {}),
    "bf16 without a type": (ml_dtypes.bfloat16, {}),
    "f64, most significant byte first, with checksums": (">f8", {"fletcher32": True}),
}


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("name", STORAGES)
def test_weights_in_other_storages(tmp_path: Path, name: str) -> None:
    dtype, options = STORAGES[name]
    plain, other = (write(tmp_path, "series/file.h5", file) for file in ("plain.h5", "other.h5"))
    with h5py.File(other, "r+") as file:
        found: list[Any] = []
        file.visititems(lambda _, item: found.append(item.name) if isinstance(item, h5py.Dataset) else None)
        for place in found:
            data = file[place][()]
            assert data.dtype == np.float32
            del file[place]
            # A single number has no pieces.
            made = file.create_dataset(place, data=data.astype(dtype), **(options if data.ndim else {}))
            if dtype is ml_dtypes.bfloat16:
                made.attrs["dtype"] = "bfloat16"
    expected, source = read_file(plain), read_file(other)
    (before,), (after,) = (list(each.weights.values()) for each in (expected, source))
    for parameter in expected.module.parameters:
        wanted = before.read(parameter.key).astype(dtype).astype(np.float32)
        np.testing.assert_array_equal(after.read(parameter.key), wanted, err_msg=parameter.key)


@pytest.mark.parametrize("left", [0, 1])
def test_layers_with_too_few_weights(tmp_path: Path, left: int) -> None:
    path = tmp_path / "short.h5"
    layers = [
        {"class_name": "InputLayer", "config": {"name": "x", "batch_input_shape": [None, 3]}},
        {"class_name": "Dense", "config": {"name": "d", "units": 2, "use_bias": True}},
    ]
    with h5py.File(path, "w") as file:
        config = {"class_name": "Sequential", "config": {"name": "s", "layers": layers}}
        file.attrs["model_config"], file.attrs["keras_version"] = json.dumps(config), "2.15.0"
        group = file.create_group("model_weights").create_group("d")
        group.attrs["weight_names"] = ["d/kernel:0", "d/bias:0"][:left]
        if left:
            group.create_dataset("d/kernel:0", data=np.ones((3, 2), np.float32))
    assert outcome(path, path.read_bytes()) == "missing-weight"


def test_a_bidirectional_layer_around_a_class_without_a_name(tmp_path: Path) -> None:
    path, inner = tmp_path / "wrapped.h5", {"class_name": ["LSTM"], "config": {"units": 2}}
    layers = [
        {"class_name": "InputLayer", "config": {"name": "x", "batch_input_shape": [None, 4, 3]}},
        {"class_name": "Bidirectional", "config": {"name": "b", "layer": inner}},
    ]
    with h5py.File(path, "w") as file:
        config = {"class_name": "Sequential", "config": {"name": "s", "layers": layers}}
        file.attrs["model_config"], file.attrs["keras_version"] = json.dumps(config), "2.15.0"
        file.create_group("model_weights")
    assert outcome(path, path.read_bytes()) == "unsupported-attribute"


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("axis", [None, -1, [-1], [1]])
def test_normalization_by_stored_numbers(tmp_path: Path, axis: Any) -> None:
    """One mean for all elements, or one for each of the last axis."""
    path, shape = tmp_path / "normal.h5", () if axis is None else (3,)
    layers = [
        {"class_name": "InputLayer", "config": {"name": "x", "batch_input_shape": [None, 3]}},
        {"class_name": "Normalization", "config": {"name": "n", "axis": axis}},
    ]
    mean, variance = np.arange(1, 4, dtype=np.float32)[: shape[0] if shape else 1].reshape(shape), np.full(shape, 4.0)
    with h5py.File(path, "w") as file:
        config = {"class_name": "Sequential", "config": {"name": "s", "layers": layers}}
        file.attrs["model_config"], file.attrs["keras_version"] = json.dumps(config), "2.15.0"
        group = file.create_group("model_weights").create_group("n")
        stored = {"n/mean:0": mean, "n/variance:0": variance.astype(np.float32), "n/count:0": np.int64(7)}
        group.attrs["weight_names"] = list(stored)
        for name, array in stored.items():
            group.create_dataset(name, data=array)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(interpret(read_file(path), [x]), [(x - mean) / 2])


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("dims", [(2, 3, 1), (3, 1, 2)])
def test_axes_in_cycles(tmp_path: Path, dims: tuple[int, ...]) -> None:
    """Axis i of the result is the axis of the operand that `dims` names in its place."""
    path = tmp_path / "permuted.h5"
    layers = [
        {"class_name": "InputLayer", "config": {"name": "x", "batch_input_shape": [None, 3, 3, 3]}},
        {"class_name": "Permute", "config": {"name": "turned", "dims": list(dims)}},
    ]
    with h5py.File(path, "w") as file:
        config = {"class_name": "Sequential", "config": {"name": "s", "layers": layers}}
        file.attrs["model_config"], file.attrs["keras_version"] = json.dumps(config), "2.15.0"
    x = np.arange(54, dtype=np.float32).reshape(2, 3, 3, 3)
    source = read_file(path)
    (found,) = Interpreter(source.module, lambda _: np.zeros(0)).run(source.module.functions[0], [x])
    np.testing.assert_array_equal(found, x.transpose(0, *dims))


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("is_masked", [True, False])
def test_a_softmax_over_masked_steps_is_refused(tmp_path: Path, is_masked: bool) -> None:
    """Keras leaves masked elements out of the sums of the layer."""
    path = tmp_path / "masked.h5"
    layers = [
        {"class_name": "InputLayer", "config": {"name": "x", "batch_input_shape": [None, 3, 5]}},
        *([{"class_name": "Masking", "config": {"name": "m", "mask_value": 0.0}}] if is_masked else []),
        {"class_name": "Softmax", "config": {"name": "s", "axis": -1}},
    ]
    with h5py.File(path, "w") as file:
        config = {"class_name": "Sequential", "config": {"name": "s", "layers": layers}}
        file.attrs["model_config"], file.attrs["keras_version"] = json.dumps(config), "2.15.0"
    if is_masked:
        with pytest.raises(DiagnosticError, match="does not support operands with a mask"):
            read_file(path)
    else:
        assert read_file(path).module.functions


def test_a_compiled_model_agrees(tmp_path: Path) -> None:
    model = nacre.compile(write(tmp_path, "series/file.keras", "series.keras"), tmp_path / "series.so")
    (x,), (expected,) = arrays("series", "input"), arrays("series", "output")
    np.testing.assert_allclose(np.asarray(model(x)), expected, **TOLERANCE)
    np.testing.assert_allclose(np.asarray(model(x[:1])), expected[:1], **TOLERANCE)


def test_code_and_unknown_layers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DiagnosticError, match="layers of class `Lambda` run Python code: `lambda`"):
        read_file(write(tmp_path, "lambda", "code.keras"))
    with pytest.raises(DiagnosticError, match="layers of class `MelSpectrogram` are not supported") as error:
        read_file(write(tmp_path, "unknown", "unknown.keras"))
    assert all(name in error.value.diagnostics[0].help for name in layer_names())


PARTS = {"GRUCell", "InputLayer", "LSTMCell", "SimpleRNNCell", "StackedRNNCells"}
"""Classes that the reader knows beside the converters: inputs, and the cells of `RNN`."""


def test_the_layers_of_keras_are_read_as_listed() -> None:
    first, *lines = MISSING.read_text(encoding="utf-8").splitlines()
    listed = dict(line.split(": ", 1) for line in lines)
    assert list(listed) == sorted(listed) and all(listed.values())
    assert not (set(layer_names()) | PARTS) & set(listed)
    # Two classes are of other versions of Keras.
    known = len(layer_names()) + len(PARTS) - 2
    assert first == f"{known} of {known + len(listed)} layers of Keras 3.15 are read. Missing:"


def test_the_list_has_every_layer_of_keras() -> None:
    layers = pytest.importorskip("keras", reason="Keras is not installed").layers
    base = layers.Layer
    every = {each.__name__ for each in vars(layers).values() if isinstance(each, type) and issubclass(each, base)}
    listed = {line.partition(":")[0] for line in MISSING.read_text(encoding="utf-8").splitlines()[1:]}
    assert every - set(layer_names()) - PARTS == listed


def test_layers_that_need_each_other_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "shared/file.keras", "shared.keras")
    data = path.read_bytes()
    # The first operand of both calls becomes the result of the shared layer.
    cyclic = data.replace(b'"keras_history": ["left", 0, 0]', b'"keras_history": ["add", 0,  0]')
    assert outcome(path, cyclic) == "bad-keras"


def outcome(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    try:
        read_file(path)
    except DiagnosticError as error:
        return error.diagnostics[0].code
    return "read"


@pytest.mark.usefixtures("forked")
def test_damaged_files_are_diagnostics(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for suffix in (".keras", ".h5"):
        data = MODELS[f"normalized/file{suffix}"].tobytes()
        path = tmp_path / f"damaged{suffix}"
        assert {outcome(path, data[: len(data) * part // 5]) for part in range(5)} == {"bad-keras"}
        for _ in range(6):
            damaged = bytearray(data)
            for place in random.integers(0, len(data), 20):
                damaged[place] = random.integers(0, 256)
            outcome(path, bytes(damaged))


def test_configurations_of_another_form_are_diagnostics() -> None:

    plain = {"class_name": "Dense", "config": {"name": "d", "units": 2, "batch_input_shape": [None, 3]}}
    sound = {"class_name": "Sequential", "config": {"name": "s", "layers": [plain]}}
    assert [layer.kind for layer in decode_model(sound, "f").layers] == ["InputLayer", "Dense"]
    wrong: list[Any] = [None, [], {}, 3, "x", [[1]], {"layers": 4}, {"layers": [3]}, {"layers": [{"class_name": 3}]}]
    for each in wrong:
        for kind in ("Sequential", "Functional", "Subclass"):
            with pytest.raises(DiagnosticError):
                decode_model({"class_name": kind, "config": each}, "f")


def test_the_page_lists_the_supported_names() -> None:
    """After a change: `python -m nacre.compiler.tools.reference.reader_operators`."""
    assert KERAS.path.read_text(encoding="utf-8") == KERAS.current()


@real
def test_real_models_agree(tmp_path: Path) -> None:
    folder = Path(DATA) / "keras"
    stored = np.load(folder / "mnist_cnn_io.npz")
    model = nacre.compile(folder / "mnist_cnn.h5", tmp_path / "cnn.so")
    images = np.load(Path(DATA) / "training" / "mnist_5k.npz")
    found = np.asarray(model((stored["images"][..., None] / 255).astype(np.float32)))
    np.testing.assert_allclose(found, stored["h5_probabilities"], rtol=0, atol=2e-6)  # up to 1, after f32 sums
    labels = np.concatenate(
        [
            np.asarray(model((part[..., None] / 255).astype(np.float32))).argmax(axis=1)
            for part in np.split(images["images"], 50)
        ]
    )
    assert (labels == images["labels"]).sum() == 4964  # 99.28 %
    stored = np.load(folder / "mnist_mlp_io.npz")
    model = nacre.compile(folder / "mnist_mlp.keras", tmp_path / "mlp.so")
    found = np.asarray(model((stored["images"] / 255).astype(np.float32)))
    np.testing.assert_allclose(found, stored["probabilities"], rtol=0, atol=2e-6)
