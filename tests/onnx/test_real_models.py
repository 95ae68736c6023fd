"""Real ONNX models against stored outputs and ONNX Runtime.

They lie in the folder that NACRE_TEST_DATA names. Tolerances are a few times the error that was measured, and bound the
greatest difference of an element.
"""

from __future__ import annotations

import os
import wave
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from nacre.compiler.cli.main import run

DATA = Path(os.environ.get("NACRE_TEST_DATA", ""))
pytestmark = [
    pytest.mark.skipif(
        "NACRE_TEST_DATA" not in os.environ, reason="NACRE_TEST_DATA, the folder of real models, is not set"
    ),
    # The numbers are compared here; interpreting a whole network to check each pass takes minutes.
    pytest.mark.usefixtures("unchecked"),
]

Arrays = Sequence[np.ndarray[Any, Any]]
Compile = Callable[[str], nacre.Model]


@pytest.fixture
def compiled(tmp_path: Path) -> Compile:
    """Compiles a model from the text that `nacre import` writes of its file."""

    def compile_model(name: str) -> nacre.Model:
        path = DATA / name
        if not path.exists():
            pytest.skip(f"`{path}` does not exist")
        text = tmp_path / "model.nacre"
        assert run(["import", str(path), "-o", str(text)]) == 0
        return nacre.compile(text, tmp_path / "model.so")

    return compile_model


def runtime_outputs(name: str, inputs: Mapping[str, Any]) -> Arrays:
    """The results of ONNX Runtime."""
    runtime = pytest.importorskip("onnxruntime", reason="the package onnxruntime, the reference, is not installed")
    runtime.set_default_logger_severity(4)
    return runtime.InferenceSession(DATA / name, providers=["CPUExecutionProvider"]).run(None, inputs)


def as_list(made: Any) -> Arrays:
    return list(made) if isinstance(made, tuple) else [made]


def greatest_error(actual: Arrays, expected: Arrays) -> float:
    assert len(actual) == len(expected)
    errors = []
    for a, e in zip(actual, expected, strict=True):
        assert a.dtype == e.dtype and a.shape == e.shape
        errors.append(float(np.abs(a.astype(np.float64) - e).max()))
    return max(errors)


def images(shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    """Smooth random pictures: noise of two scales, in the range of pixels."""
    rng = np.random.default_rng(seed)
    coarse = rng.uniform(0, 255, (*shape[:2], shape[2] // 20, shape[3] // 20))
    wide = np.repeat(np.repeat(coarse, 20, 2), 20, 3)
    return (0.8 * wide + 0.2 * rng.uniform(0, 255, shape)).astype(np.float32)


def samples(name: str) -> tuple[np.ndarray[Any, Any], int]:
    """The sound of a file in -1..1, and its rate."""
    with wave.open(str(DATA / name)) as file:
        data = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        return data.astype(np.float32) / 32768, file.getframerate()


@pytest.mark.parametrize("name", ["version-RFB-320", "version-slim-320"])
def test_ultraface(name: str, compiled: Compile) -> None:
    file = f"ultraface/{name}.onnx"
    x = (images((1, 3, 240, 320)) - 127) / 128
    assert greatest_error(as_list(compiled(file)(x)), runtime_outputs(file, {"input": x})) <= 1e-6


def test_yunet(compiled: Compile) -> None:
    file = "yunet/yunet_n_320_320.onnx"
    x = images((1, 3, 320, 320))
    assert greatest_error(as_list(compiled(file)(x)), runtime_outputs(file, {"input": x})) <= 1e-5


def test_a_file_and_its_text_compute_the_same(compiled: Compile, tmp_path: Path) -> None:
    name = "wonnx/opt-mnist.onnx"
    x = np.random.default_rng(0).random((1, 1, 28, 28), np.float32)
    np.testing.assert_array_equal(compiled(name)(x), nacre.compile(DATA / name, tmp_path / "file.so")(x))


def test_mnist(compiled: Compile) -> None:
    file = "wonnx/opt-mnist.onnx"
    model = compiled(file)
    with np.load(DATA / "training" / "mnist_5k.npz") as digits:
        images = digits[digits.files[0]]
    pictures = images.reshape(-1, 1, 1, 28, 28)[::250].astype(np.float32) * np.float32(0.37)
    for x in pictures:
        assert greatest_error(as_list(model(x)), runtime_outputs(file, {"Input3": x})) <= 1e-3


def test_bidirectional_lstm_over_bytes(compiled: Compile) -> None:
    model = compiled("tract/byte_sb_bidi_lstm.onnx")
    with np.load(DATA / "tract" / "byte_sb_bidi_lstm_io.npz") as file:
        stored = dict(file)
    assert greatest_error([model(stored["input"])], [stored["Add_26"]]) <= 1e-5
    # Any batch and any length.
    for shape in ((1, 1), (3, 17)):
        x = np.random.default_rng(1).integers(0, 256, shape).astype(np.uint8)
        assert greatest_error([model(x)], runtime_outputs("tract/byte_sb_bidi_lstm.onnx", {"input": x})) <= 1e-5


def test_quantized_lstm_with_a_scan(compiled: Compile) -> None:
    model = compiled("tract/qlstm_3-2-3_T3_S1.onnx")
    with np.load(DATA / "tract" / "qlstm_3-2-3_T3_S1_io.npz") as file:
        stored = dict(file)
    assert greatest_error([model(stored["input"])], [stored["output"]]) <= 1e-6


def test_voice_activity_over_speech(compiled: Compile) -> None:
    """200 steps of 32 ms; the state and the last 64 samples of each step go into the next."""
    file = "silero_vad/silero_vad.onnx"
    model = compiled(file)
    runtime = pytest.importorskip("onnxruntime", reason="the package onnxruntime, the reference, is not installed")
    runtime.set_default_logger_severity(4)
    session = runtime.InferenceSession(DATA / file, providers=["CPUExecutionProvider"])
    sound, rate = samples("wake_word/jfk.wav")
    context = np.zeros((1, 64), np.float32)
    ours = theirs = np.zeros((2, 1, 128), np.float32)
    worst, spoken = 0.0, 0
    for step in range(200):
        part = sound[None, step * 512 : (step + 1) * 512]
        x = np.concatenate([context, part], 1)
        context = part[:, -64:]
        inputs = {"input": x, "state": theirs, "sr": np.array(rate, np.int64)}
        probability, ours = model(x, ours, np.array(rate, np.int64))
        expected, theirs = session.run(None, inputs)
        worst = max(worst, greatest_error([probability, ours], [expected, theirs]))
        spoken += bool(expected[0, 0] > 0.5)
    assert worst <= 1e-4
    assert 50 < spoken < 200


def test_music_transcription(compiled: Compile) -> None:
    """Windows of a recording, of which each is two seconds at 22 050 Hz."""
    file = "basic_pitch/nmp.onnx"
    model = compiled(file)
    sound, _ = samples("basic_pitch/vocadito_10.wav")
    half = (sound[: len(sound) // 2 * 2 : 2] + sound[1::2]) / 2
    windows = np.stack([half[start : start + 43844] for start in (0, 36164, 72328)])[:, :, None]
    inputs = {"serving_default_input_2:0": windows}
    assert greatest_error(as_list(model(windows)), runtime_outputs(file, inputs)) <= 1e-4
    assert greatest_error(as_list(model(windows[:1])), [each[:1] for each in as_list(model(windows))]) == 0
