"""Samples: how files are cut into calls, and what is wrong with files that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nacre.compiler.model.samples import open_samples
from nacre.dialect.diagnostics import DiagnosticError


def argument(name: str, dtype: str, *shape: int | str) -> dict[str, Any]:
    return {"name": name, "type": f"{dtype}{list(shape)}", "dtype": dtype, "shape": list(shape)}


def entry(*arguments: dict[str, Any]) -> dict[str, Any]:
    dims = [{"name": name, "low": 1, "high": high, "multiple": 1} for name, high in (("B", 4), ("T", None))]
    return {"name": "main", "arguments": list(arguments), "dims": dims}


IMAGE = entry(argument("image", "f32", "B", 3))
RNG = np.random.default_rng(0)


def save(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def test_first_axis_is_cut_into_calls_that_the_dim_allows(tmp_path: Path) -> None:
    images, labels = RNG.normal(size=(10, 3)).astype("float32"), np.arange(10)
    samples = open_samples(save(tmp_path / "x.npz", image=images, labels=labels), IMAGE)
    batches = list(samples)
    assert [b.count for b in batches] == [4, 4, 2] and (samples.count, samples.calls) == (10, 3)
    np.testing.assert_array_equal(np.concatenate([b.inputs[0] for b in batches]), images)
    assert [list(b.labels) for b in batches if b.labels is not None] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [b.count for b in open_samples(tmp_path / "x.npz", IMAGE, most=3)] == [3, 3, 3, 1]
    assert len(list(samples)) == 3  # read again from the beginning


@pytest.mark.parametrize(
    ("count", "low", "high", "multiple", "sizes"),
    [
        (40, 33, 64, 1, [40]),  # more than 32, since the dim is at least 33
        (70, 33, 64, 1, [35, 35]),
        (40, 2, 64, 1, [32, 8]),
        (33, 2, 64, 1, [16, 17]),  # a last call of one sample would be too small
        (65, 33, None, 1, [65]),
        (48, 8, 64, 8, [32, 16]),
        (72, 24, 64, 8, [24, 24, 24]),
        (40, 32, 40, 8, [40]),
        (65, 50, 64, 1, None),
        (20, 33, 64, 1, None),
        (36, 8, 64, 8, None),
    ],
)
def test_calls_have_sizes_that_the_dim_allows(
    count: int, low: int, high: int | None, multiple: int, sizes: list[int] | None, tmp_path: Path
) -> None:
    dims = [{"name": "B", "low": low, "high": high, "multiple": multiple}]
    images = np.arange(3 * count, dtype="f4").reshape(count, 3)
    path = save(tmp_path / "x.npz", image=images)
    if sizes is None:
        with pytest.raises(DiagnosticError, match="cannot be divided into calls of `image`, a f32"):
            open_samples(path, {**IMAGE, "dims": dims})
        return
    samples = open_samples(path, {**IMAGE, "dims": dims})
    batches = list(samples)
    assert [b.count for b in batches] == sizes and samples.calls == len(sizes)
    np.testing.assert_array_equal(np.concatenate([b.inputs[0] for b in batches]), images)


def test_an_axis_in_front_counts_calls(tmp_path: Path) -> None:
    described = entry(argument("x", "f32", "T", 2), argument("scale", "f32"))
    x, scale = RNG.normal(size=(3, 5, 2)).astype("float32"), np.array([1, 2, 3], "float32")
    batches = list(open_samples(save(tmp_path / "x.npz", x=x, scale=scale), described))
    assert [(b.count, b.inputs[0].shape, float(b.inputs[1])) for b in batches] == [(1, (5, 2), n) for n in (1, 2, 3)]


def test_first_sizes_that_are_fixed_are_cut_and_those_that_differ_are_one_call(tmp_path: Path) -> None:
    fixed = entry(argument("x", "f32", 2, 3))
    assert [b.inputs[0].shape for b in open_samples(save(tmp_path / "a.npz", x=np.ones((6, 3), "f4")), fixed)] == [
        (2, 3)
    ] * 3
    unlike = entry(argument("x", "f32", "B", 3), argument("y", "f32", "T"))
    (batch,) = open_samples(save(tmp_path / "b.npz", x=np.ones((3, 3), "f4"), y=np.ones(7, "f4")), unlike)
    assert [x.shape for x in batch.inputs] == [(3, 3), (7,)]


def test_folders_hold_files_of_samples_or_of_arguments(tmp_path: Path) -> None:
    for name, folder in (("x", tmp_path / "several"), ("image", tmp_path / "single")):
        folder.mkdir()
        if name == "x":
            for number in (2, 1):
                save(folder / f"{number}.npz", image=np.full((number, 3), number, "float32"))
        else:
            np.save(folder / "image.npy", np.ones((5, 3), "float32"))
    assert [b.inputs[0][0, 0] for b in open_samples(tmp_path / "several", IMAGE)] == [1, 2]
    assert open_samples(tmp_path / "several", IMAGE).count == 3
    assert open_samples(tmp_path / "single", IMAGE).count == 5


def test_dtypes_are_converted_where_nothing_is_lost(tmp_path: Path) -> None:
    (batch,) = open_samples(save(tmp_path / "a.npz", image=np.arange(6, dtype="uint8").reshape(2, 3)), IMAGE)
    assert batch.inputs[0].dtype == np.float32 and batch.inputs[0][1, 2] == 5
    ids = entry(argument("ids", "i32", "B"))
    (batch,) = open_samples(save(tmp_path / "b.npz", ids=np.array([1, 2])), ids)
    assert batch.inputs[0].dtype == np.int32


@pytest.mark.parametrize(
    ("arrays", "code", "words"),
    [
        ({"pixels": np.ones((2, 3), "f4")}, "sample-missing", "no array for `image`"),
        ({"image": np.ones(3, "f4")}, "sample-shape", "[3]"),
        ({"image": np.ones((0, 3), "f4")}, "sample-shape", "no sample"),
        ({"image": np.ones((2, 3), "f4"), "labels": np.ones(3, "i8")}, "sample-labels", "i64[3]"),
        ({"image": np.ones((2, 3), "f4"), "labels": np.ones(2, "f4")}, "sample-labels", "f32[2]"),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path: Path, arrays: dict[str, Any], code: str, words: str) -> None:
    with pytest.raises(DiagnosticError) as caught:
        open_samples(save(tmp_path / "x.npz", **arrays), IMAGE)
    (fault,) = caught.value.diagnostics
    assert fault.code == code and words in fault.message


@pytest.mark.parametrize(("array", "words"), [(np.ones(2, "f4"), "floats"), (np.array([1, 2**40]), "do not fit")])
def test_numbers_that_a_dtype_cannot_hold_are_refused(tmp_path: Path, array: Any, words: str) -> None:
    samples = open_samples(save(tmp_path / "x.npz", ids=array), entry(argument("ids", "i32", "B")))
    with pytest.raises(DiagnosticError, match=words):
        list(samples)


def test_unequal_counts_and_mixed_folders_are_refused(tmp_path: Path) -> None:
    two = entry(argument("x", "f32", "B"), argument("y", "f32", "B"))
    save(tmp_path / "x.npz", x=np.ones((2, 4), "f4"), y=np.ones((3, 4), "f4"))
    with pytest.raises(DiagnosticError, match="2 of `x`, 3 of `y`"):
        open_samples(tmp_path / "x.npz", two)
    np.save(tmp_path / "y.npy", np.ones(3))
    with pytest.raises(DiagnosticError, match="both"):
        open_samples(tmp_path, two)
