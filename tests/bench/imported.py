"""Measures imported ONNX models against ONNX Runtime and OpenVINO: `python tests/bench/imported.py FOLDER`.

FOLDER has the files of MODELS. Each library runs in this process on the same inputs, with `--threads` threads. Calls
alternate, and each figure is the least processor time of a call, so that interruptions are excluded: that of the
busiest thread, which is the elapsed time if each thread has a core of its own. With several threads, a second figure is
that of all threads together. A peer that is not installed, or that cannot read a model, has no figure. Results are
compared before anything is measured. `export_minilm.py` writes `minilm/minilm.onnx`, which is left out if it is not
there.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nacre
import numpy as np
from measure import Contender, Plan, interleave

Inputs = Mapping[str, Any]
Call = Callable[[], Sequence[Any]]
ROUNDS, SLOT = 40, 0.002
KINDS: Mapping[str, Callable[[Iterable[float]], float]] = {"busiest": max, "all": sum}
"""The figures of a call: the CPU time of its busiest thread, and of all threads together."""
Times = Mapping[str, Mapping[str, float]]
"""The least seconds of a call, by kind of figure and library."""


@dataclass(frozen=True)
class Imported:
    """A model and random inputs, by their names in the file."""

    file: str
    draw: Callable[[Any], Inputs]
    tolerance: float = 1e-3
    """The greatest difference to ONNX Runtime, relative to the greatest result; both compute in f32."""


def _normal(**shapes: tuple[int, ...]) -> Callable[[Any], Inputs]:
    return lambda random: {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def _sentence(random: Any) -> Inputs:
    return {"input_ids": random.integers(0, 30_000, (1, 128)), "attention_mask": np.ones((1, 128), np.int64)}


def _silero(random: Any) -> Inputs:
    sound = random.standard_normal((1, 576), np.float32) * np.float32(0.1)
    return {"input": sound, "state": np.zeros((2, 1, 128), np.float32), "sr": np.asarray(16000, np.int64)}


MODELS = (
    Imported("ultraface/version-RFB-320.onnx", _normal(input=(1, 3, 240, 320))),
    Imported("ultraface/version-slim-320.onnx", _normal(input=(1, 3, 240, 320))),
    Imported("yunet/yunet_n_320_320.onnx", _normal(input=(1, 3, 320, 320))),
    Imported("silero_vad/silero_vad.onnx", _silero),
    Imported("basic_pitch/nmp.onnx", _normal(**{"serving_default_input_2:0": (1, 43844, 1)}), 1e-2),
    Imported("tract/byte_sb_bidi_lstm.onnx", lambda r: {"input": r.integers(0, 256, (1, 64)).astype(np.uint8)}),
    Imported("wonnx/opt-mnist.onnx", _normal(Input3=(1, 1, 28, 28)), 1e-2),
    Imported("minilm/minilm.onnx", _sentence),
)


def ours(path: Path, inputs: Inputs, folder: Path, threads: int) -> Call:
    artifact = folder / f"{path.stem}.so"
    if not artifact.exists():
        nacre.compile(path, artifact)
    model = nacre.load(artifact, threads=threads)
    given = list(inputs.values())
    return lambda: _listed(model(*given))


def _listed(made: Any) -> Sequence[Any]:
    return list(made) if isinstance(made, (tuple, list)) else [made]


def onnxruntime_call(path: Path, inputs: Inputs, threads: int) -> Call:
    runtime = import_module("onnxruntime")
    runtime.set_default_logger_severity(4)
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda: list(session.run(None, dict(inputs)))


def openvino_call(path: Path, inputs: Inputs, threads: int) -> Call:
    openvino = import_module("openvino")
    settings = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    model = openvino.Core().compile_model(str(path), "CPU", settings)
    request = model.create_infer_request()
    # Names of an input: the file's own is one of them.
    given = {port: array for port in model.inputs for name, array in inputs.items() if name in port.names}
    return lambda: list(request.infer(given, share_inputs=True, share_outputs=True).values())


PEERS: Mapping[str, Callable[[Path, Inputs, int], Call]] = {"onnxruntime": onnxruntime_call, "openvino": openvino_call}


def compare(model: Imported, data: Path, folder: Path, rounds: int, threads: int) -> Times:
    inputs = model.draw(np.random.default_rng(0))
    path = data / model.file
    calls = {"nacre": ours(path, inputs, folder, threads)}
    expected: Sequence[Any] | None = None
    for name, make in PEERS.items():
        if find_spec(name) is None:
            continue
        try:
            calls[name] = make(path, inputs, threads)
            found = calls[name]()
        except Exception as error:  # a peer that cannot read a model has no figure
            print(f"{model.file}: {name}: {str(error).splitlines()[0][:100]}")
            calls.pop(name, None)
            continue
        expected = found if name == "onnxruntime" else expected
    if expected is not None:
        for a, b in zip(calls["nacre"](), expected, strict=True):
            difference = float(np.abs(np.asarray(a, np.float64) - b).max())
            scale = max(float(np.abs(b).max()), 1.0)
            assert difference <= model.tolerance * scale, f"{model.file}: results differ by {difference}"
    times = {}
    for kind, combine in kinds(threads).items():
        contenders = [Contender(name, call, list).timed_by_threads(combine) for name, call in calls.items()]
        times[kind] = interleave(contenders, Plan(rounds, SLOT)).least()
    return times


def kinds(threads: int) -> Mapping[str, Callable[[Iterable[float]], float]]:
    return KINDS if threads > 1 else {"busiest": KINDS["busiest"]}


def table(found: Mapping[str, Times], threads: int) -> str:
    """Returns the figures as markdown: milliseconds, and the times of peers relative to ours."""
    heads = ["Nacre, ms", "ONNX Runtime", "OpenVINO"]
    names = [*heads, *(f"{head}, all threads" for head in heads)] if threads > 1 else heads
    lines = [f"| model | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for name, times in found.items():
        cells = [name]
        for kind in kinds(threads):
            own = times[kind]["nacre"]
            cells.append(f"{own * 1e3:.3f}")
            cells += [f"{times[kind][peer] / own:.2f}" if peer in times[kind] else "" for peer in PEERS]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path, help="the folder of models")
    parser.add_argument("--artifacts", type=Path, default=Path("build/imported"), help="where artifacts are kept")
    parser.add_argument("--only", default="", help="models whose file contains this text")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    given.artifacts.mkdir(parents=True, exist_ok=True)
    found = {}
    for model in MODELS:
        if given.only in model.file and (model.file != "minilm/minilm.onnx" or (given.data / model.file).exists()):
            name = Path(model.file).stem
            found[name] = compare(model, given.data, given.artifacts, given.rounds, given.threads)
            print(table({name: found[name]}, given.threads).splitlines()[-1], flush=True)
    print(table(found, given.threads))


if __name__ == "__main__":
    main()
