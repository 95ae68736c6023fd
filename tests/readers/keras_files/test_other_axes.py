"""Layers whose axes stand in another order: channels first, and the biases of einsums."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nacre.compiler.readers.table import read_file
from nacre.dialect.interpreter import Interpreter

h5py = pytest.importorskip("h5py")
pytestmark = pytest.mark.usefixtures("forked")


def run(path: Path, layer: Mapping[str, Any], weights: Sequence[Any], x: Any) -> Any:
    """Returns the result of a model of one layer."""
    given = {"class_name": "InputLayer", "config": {"name": "x", "batch_input_shape": [None, *x.shape[1:]]}}
    config = {"class_name": "Sequential", "config": {"name": "s", "layers": [given, layer]}}
    name = layer["config"]["name"]
    with h5py.File(path, "w") as file:
        file.attrs["model_config"], file.attrs["keras_version"] = json.dumps(config), "2.15.0"
        group = file.create_group("model_weights").create_group(name)
        group.attrs["weight_names"] = [f"w{number}" for number in range(len(weights))]
        for number, weight in enumerate(weights):
            group.create_dataset(f"w{number}", data=weight)
    source = read_file(path)
    (stored,) = source.weights.values()
    (found,) = Interpreter(source.module, lambda p: stored.read(p.key)).run(source.module.functions[0], [x])  # type: ignore[union-attr]  # a file has weights
    return found


CONV: dict[str, Any] = {"filters": 5, "padding": "same", "use_bias": True}
LAYERS: Mapping[str, tuple[str, dict[str, Any], Sequence[tuple[int, ...]], int]] = {
    "conv 1": ("Conv1D", {**CONV, "kernel_size": [3]}, [(3, 4, 5), (5,)], 1),
    "conv 2": ("Conv2D", {**CONV, "kernel_size": [3, 2], "strides": [2, 1]}, [(3, 2, 4, 5), (5,)], 2),
    "conv 3": ("Conv3D", {**CONV, "kernel_size": [3, 2, 1]}, [(3, 2, 1, 4, 5), (5,)], 3),
    "grouped": ("Conv2D", {**CONV, "filters": 6, "kernel_size": [3, 2], "groups": 2}, [(3, 2, 2, 6), (6,)], 2),
    "depthwise": (
        "DepthwiseConv2D",
        {"kernel_size": [3, 2], "depth_multiplier": 2, "use_bias": True},
        [(3, 2, 4, 2), (8,)],
        2,
    ),
    "separable": (
        "SeparableConv2D",
        {**CONV, "kernel_size": [3, 2], "depth_multiplier": 2},
        [(3, 2, 4, 2), (1, 1, 8, 5), (5,)],
        2,
    ),
    "transposed 2": ("Conv2DTranspose", {**CONV, "kernel_size": [3, 2], "strides": [2, 1]}, [(3, 2, 5, 4), (5,)], 2),
    "transposed 3": ("Conv3DTranspose", {**CONV, "kernel_size": [3, 2, 1]}, [(3, 2, 1, 5, 4), (5,)], 3),
    "max": ("MaxPooling2D", {"pool_size": [2, 3], "strides": [1, 2]}, [], 2),
    "average": ("AveragePooling2D", {"pool_size": [2, 3], "padding": "same"}, [], 2),
    "up": ("UpSampling2D", {"size": [2, 3]}, [], 2),
    "up between": ("UpSampling2D", {"size": [2, 3], "interpolation": "bilinear"}, [], 2),
    "pad": ("ZeroPadding2D", {"padding": [[1, 2], [0, 3]]}, [], 2),
    "crop": ("Cropping2D", {"cropping": [[1, 0], [2, 1]]}, [], 2),
    "global": ("GlobalMaxPooling2D", {"keepdims": True}, [], 2),
}


@pytest.mark.parametrize("name", LAYERS)
def test_channels_first_agrees_with_channels_last(name: str, tmp_path: Path) -> None:
    kind, config, shapes, rank = LAYERS[name]
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, *(7, 6, 5)[:rank], 4)).astype(np.float32)
    weights = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    results = []
    for order, given in (("channels_last", x), ("channels_first", np.moveaxis(x, -1, 1))):
        layer = {"class_name": kind, "config": {"name": "layer", **config, "data_format": order}}
        results.append(run(tmp_path / f"{order}.h5", layer, weights, np.ascontiguousarray(given)))
    np.testing.assert_allclose(np.moveaxis(results[1], 1, -1), results[0], rtol=1e-5, atol=1e-5)


def test_channels_first_are_flattened_like_channels_last(tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((2, 3, 3, 3)).astype(np.float32)
    layer = {"class_name": "Flatten", "config": {"name": "layer", "data_format": "channels_first"}}
    np.testing.assert_array_equal(run(tmp_path / "m.h5", layer, [], x), np.moveaxis(x, 1, -1).reshape(2, -1))


@pytest.mark.parametrize(
    ("equation", "axes", "kernel", "bias", "shape"),
    [
        ("abc,cde->abde", "ed", (5, 3, 3), (3, 3), (4, 5)),
        ("abc,cde->abed", "de", (5, 2, 3), (3, 2), (4, 5)),
        ("abcd,dbe->eacb", "bec", (5, 3, 3), (3, 1, 4, 3), (3, 4, 5)),
        ("...bc,cd->...bd", "bd", (5, 7), (4, 7), (3, 4, 5)),
        ("ab...,bc->ac...", "c", (4, 7), (7, 1, 1), (4, 5, 3)),
        ("ab,bc->ac", "c", (4, 7), (7,), (4,)),
    ],
)
def test_biases_have_the_axes_of_the_result(
    equation: str, axes: str, kernel: tuple[int, ...], bias: tuple[int, ...], shape: tuple[int, ...], tmp_path: Path
) -> None:
    rng = np.random.default_rng(2)
    x, w, added = (rng.standard_normal(s).astype(np.float32) for s in ((2, *shape), kernel, bias))
    layer = {"class_name": "EinsumDense", "config": {"name": "layer", "equation": equation, "bias_axes": axes}}
    found = run(tmp_path / "einsum.h5", layer, [w, added], x)
    np.testing.assert_allclose(found, np.einsum(equation, x, w) + added, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("axis", [1, 2, 3, -1])
def test_groups_of_channels_on_any_axis(tmp_path: Path, axis: int) -> None:
    """Two groups of four channels: the normalization of each group of each image alone."""
    rng = np.random.default_rng(5)
    shape = [3, 5, 6, 7]
    shape[axis] = 4
    x = rng.normal(size=shape).astype(np.float32)
    scale, shift = rng.normal(size=(2, 4)).astype(np.float32)
    config = {"name": "g", "groups": 2, "axis": axis, "epsilon": 1e-3}
    found = run(tmp_path / "m.h5", {"class_name": "GroupNormalization", "config": config}, [scale, shift], x)
    last = np.moveaxis(x, axis, -1)
    grouped = last.reshape(*last.shape[:-1], 2, 2).astype(np.float64)
    centred = grouped - grouped.mean((1, 2, 4), keepdims=True)
    normal = centred / np.sqrt(np.square(centred).mean((1, 2, 4), keepdims=True) + 1e-3)
    expected = np.moveaxis(normal.reshape(last.shape) * scale + shift, -1, axis)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
