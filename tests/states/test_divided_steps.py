"""`exchange`: a step in two entries, with the same bits; and steps of several processes, with averaged gradients."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.checking import read_model
from nacre.compiler.quantization.choose import in_precision
from nacre.dialect.graph import walk
from nacre.runtime.data_parallel import Average, DataParallel, Meeting
from safetensors.numpy import load_file

HEAD = """language 1
import "library/losses.nacre"
import "library/layers.nacre"
dim B in 1..64

block Linear<inputs, outputs>(x: f32[..., inputs]) -> f32[..., outputs] {
  param weight: f32[outputs, inputs] = random_normal((outputs, inputs), seed) / sqrt(inputs)
  param bias: f32[outputs] = 0.0
  return x @ weight.T + bias
}
"""
STEP = """
train step(x: f32[B, 5], y: f32[B, 3], lr: f32) -> loss: f32 {
  use hidden = Linear<5, 9>
  use answer = Linear<9, 3>
  use dropped = Dropout<RATE>
  loss = mse(x |> hidden |> tanh |> dropped |> answer, y)
  minimize loss with adamw(lr=lr) {
    clip 0.5
    exchange
  }
}
"""
RANDOM = np.random.default_rng(0)
X, Y = RANDOM.standard_normal((8, 5)).astype(np.float32), RANDOM.standard_normal((8, 3)).astype(np.float32)
LR = np.float32(0.05)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("divided") / "step.so"
    nacre.compile(HEAD + STEP.replace("RATE", "0"), path, opt_level=0)
    return path


def whole_curve(artifact: Path, steps: int = 4) -> tuple[list[float], nacre.Session]:
    session = nacre.load(artifact).session()
    return [float(session.step(X, Y, LR)) for _ in range(steps)], session


def test_two_calls_compute_the_bits_of_one(artifact: Path) -> None:
    losses, whole = whole_curve(artifact)
    model = nacre.load(artifact)
    assert [argument.name for argument in model.entries["step_update"].arguments] == ["lr"]
    divided = DataParallel(model.session(), lambda array: array)
    assert [divided(X, y=Y, lr=LR) for _ in range(4)] == losses
    for name, value in divided.session.states.items():
        if not name.startswith("gradients."):
            np.testing.assert_array_equal(value, whole.states[name], err_msg=name)


def in_threads(count: int, work: Callable[[int, Average], None]) -> None:
    """An engine of threads: each has a barrier where all wait for the sum."""
    barrier, given = threading.Barrier(count), [np.empty(0)] * count

    def run(rank: int) -> None:
        def average(array: np.ndarray) -> np.ndarray:
            given[rank] = array
            barrier.wait()
            mean = np.mean(given, axis=0, dtype=np.float64)
            barrier.wait()
            return mean.astype(array.dtype)

        work(rank, average)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("count", [2, 4])
def test_threads_follow_one_process(artifact: Path, count: int) -> None:
    losses, whole = whole_curve(artifact)
    sessions = [nacre.load(artifact, threads=1).session() for _ in range(count)]
    found: list[list[float]] = [[] for _ in range(count)]

    def work(rank: int, average: Average) -> None:
        step = DataParallel(sessions[rank], average)
        share = slice(rank * 8 // count, (rank + 1) * 8 // count)
        found[rank] += [step(X[share], Y[share], LR) for _ in losses]

    in_threads(count, work)
    check_curve(found, losses)
    for session in sessions:
        for name in ("hidden.weight", "answer.bias"):
            np.testing.assert_array_equal(session.states[name], sessions[0].states[name])
            np.testing.assert_allclose(session.states[name], whole.states[name], rtol=0, atol=2e-6)


def check_curve(found: list[list[float]], losses: list[float]) -> None:
    """The sums of a batch are rounded in another order: some units in the last place of f32."""
    for each in found:
        assert each == found[0]
        np.testing.assert_allclose(each, losses, rtol=2e-6)


def test_shares_of_different_sizes(artifact: Path) -> None:
    """Weighted by their numbers of samples, they follow one process; otherwise all processes raise an error."""
    losses, _ = whole_curve(artifact)
    sessions = [nacre.load(artifact, threads=1).session() for _ in range(3)]
    shares = (slice(0, 1), slice(1, 6), slice(6, 8))
    found: list[list[float]] = [[] for _ in shares]
    errors: list[str] = []

    def weighted(rank: int, average: Average) -> None:
        step = DataParallel(sessions[rank], average, samples="B")
        found[rank] += [step(X[shares[rank]], Y[shares[rank]], LR) for _ in losses]

    def unweighted(rank: int, average: Average) -> None:
        before = dict(sessions[rank].states)
        with pytest.raises(nacre.NacreError) as caught:
            DataParallel(sessions[rank], average)(X[shares[rank]], Y[shares[rank]], LR)
        errors.append(str(caught.value))
        kept = [name for name in before if name.startswith(("hidden", "adamw"))]
        assert all(np.array_equal(before[name], sessions[rank].states[name]) for name in kept)

    in_threads(3, weighted)
    check_curve(found, losses)
    in_threads(3, unweighted)
    assert sorted(text.split(":")[0] for text in errors) == ["the dim `B` differs between the processes"] * 3


def test_a_process_at_another_step(artifact: Path) -> None:
    """Such as one that an engine has started again: all raise an error, before they change parameters."""
    errors: list[str] = []

    def work(rank: int, average: Average) -> None:
        step = DataParallel(nacre.load(artifact, threads=1).session(), average)
        step.number += 5 * rank
        with pytest.raises(nacre.NacreError, match="the number of the step differs between the processes") as caught:
            step(X, Y, LR)
        errors.append(str(caught.value))

    in_threads(2, work)
    assert sorted(text.split(":")[1] for text in errors) == [" it is 0 in this one", " it is 5 in this one"]


def test_a_meeting_of_different_models() -> None:
    async def meet() -> list[object]:
        meeting = Meeting(2)
        given = (meeting.mean(np.zeros(2, np.float32)), meeting.mean(np.zeros(3, np.float32)))
        return list(await asyncio.gather(*given, return_exceptions=True))

    found = asyncio.run(meet())
    assert [str(error) for error in found] == ["the processes pass different arrays: float32[2], float32[3]"] * 2


WORKER = """
import json, os, signal, sys
import nacre, numpy as np, torch
from nacre.runtime.data_parallel import DataParallel, torch_average
artifact, meeting, rank, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=count)
data = np.load(sys.argv[5])
session = nacre.load(artifact, threads=1).session()
step = DataParallel(session, torch_average)
share = slice(rank * 8 // count, (rank + 1) * 8 // count)
take = lambda: step(data["x"][share], data["y"][share], np.float32(0.05))
losses = [take() for _ in range(4)]
session.save(f"{meeting}.{rank}.safetensors")
if rank == count - 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    take()
except nacre.NacreError as error:
    print(json.dumps([losses, str(error)]), flush=True)
# PyTorch's own threads may abort the process when the interpreter ends after the loss of a peer.
os._exit(0)
"""


@pytest.mark.parametrize("count", [2, 4])
def test_processes_of_torch_follow_one_process(artifact: Path, tmp_path: Path, count: int) -> None:
    """After four steps, the last process is killed: the others raise an error, and the checkpoints are whole."""
    pytest.importorskip("torch")
    losses, whole = whole_curve(artifact)
    np.savez(tmp_path / "data.npz", x=X, y=Y)
    command = [sys.executable, "-c", WORKER, str(artifact), str(tmp_path / "meeting")]
    started = [
        subprocess.Popen([*command, str(rank), str(count), str(tmp_path / "data.npz")], stdout=subprocess.PIPE)
        for rank in range(count)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in started]
    assert [process.returncode for process in started] == [0] * (count - 1) + [-signal.SIGKILL]
    found = [json.loads(output.splitlines()[-1]) for output in outputs[:-1]]
    check_curve([each for each, _ in found], losses)
    assert all("the average over the processes failed, so one may have ended" in error for _, error in found)
    for rank in range(count):
        for name, value in load_file(tmp_path / f"meeting.{rank}.safetensors").items():
            if not name.startswith("gradients."):
                np.testing.assert_allclose(value, whole.states[name], rtol=0, atol=2e-6, err_msg=name)


RAY = """
import json, sys
import nacre, numpy as np, ray
from nacre.runtime.data_parallel import DataParallel, ray_average, ray_meeting
artifact, data, folder = sys.argv[1:]
ray.init(
    num_cpus=1,
    include_dashboard=False,
    log_to_driver=False,
    object_store_memory=100_000_000,
    _temp_dir=folder,
)

@ray.remote(num_cpus=0)
def work(meeting, rank, count):
    step = DataParallel(nacre.load(artifact, threads=1).session(), ray_average(meeting))
    share = slice(rank * 8 // count, (rank + 1) * 8 // count)
    arrays = np.load(data)
    losses = [step(arrays["x"][share], arrays["y"][share], np.float32(0.05)) for _ in range(4)]
    if rank == count - 1:
        return losses, []
    step.average = ray_average(meeting, 0.5)  # the last process has ended
    return losses, [failure(step, arrays["x"][share], arrays["y"][share], np.float32(0.05)) for _ in range(2)]

def failure(call, *arguments):
    try:
        return str(call(*arguments))
    except nacre.NacreError as error:
        return str(error)

for count in (2, 4):
    meeting = ray_meeting(count)
    print(json.dumps(ray.get([work.remote(meeting, rank, count) for rank in range(count)])))
ray.kill(meeting)
print(failure(ray_average(meeting), np.zeros(1)))
"""


def test_processes_of_ray_follow_one_process(artifact: Path, tmp_path: Path) -> None:
    """After four steps, the last process ends, and the others raise an error after a time, and in each later call."""
    pytest.importorskip("ray")
    losses, _ = whole_curve(artifact)
    np.savez(tmp_path / "data.npz", x=X, y=Y)
    environment = {**os.environ, "HOME": str(tmp_path)}  # Ray writes a token there
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # the paths of its sockets are short
        command = [sys.executable, "-c", RAY, str(artifact), str(tmp_path / "data.npz"), folder]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[[")]
    assert [len(each) for each in found] == [2, 4]
    for each in found:
        check_curve([curve for curve, _ in each], losses)
        waited = "other processes have not come to this step in 0.5 s, so one may have ended"
        again = f"{waited}; start all processes again, with a new meeting"
        assert [errors for _, errors in each] == [*[[waited, again]] * (len(each) - 1), []]
    assert done.stdout.splitlines()[-1] == "the actor in which the processes meet has ended"


def test_states_of_the_forward_computation_change_once(tmp_path: Path) -> None:
    """Dropout counts its calls in the first entry alone."""
    session = nacre.compile(HEAD + STEP.replace("RATE", "0.5"), tmp_path / "step.so", opt_level=0).session()
    before = int(session.states["dropped.calls"])
    DataParallel(session, lambda array: array)(X, Y, LR)
    assert int(session.states["dropped.calls"]) == before + 1
    assert "dropped.calls" not in session.entries["step_update"].states


def test_errors(artifact: Path) -> None:
    other = HEAD + STEP.replace("RATE", "0") + "model step_update(x: f32[B]) -> f32[B] { return x }\n"
    assert [d.code for d in nacre.check(other)] == ["duplicate-name"]
    with pytest.raises(nacre.NacreError, match="add `exchange` to its `minimize`"):
        DataParallel(nacre.load(artifact).session(), lambda array: array, "predict")
    with pytest.raises(nacre.NacreError, match=r"entry `step` has no dim `N`: its dims are \['B'\]"):
        DataParallel(nacre.load(artifact).session(), lambda array: array, samples="N")


POLICY = """quantize step {
  weights "hidden.weight" to bf16
}
"""


@pytest.mark.parametrize("in_a_file", [False, True])
def test_the_policy_of_a_step_applies_to_its_parts(in_a_file: bool, tmp_path: Path) -> None:
    (tmp_path / "policy.nacre").write_text(POLICY)
    text = HEAD + STEP.replace("RATE", "0") + ("" if in_a_file else POLICY)
    source = in_precision(read_model(text), str(tmp_path / "policy.nacre") if in_a_file else None)
    rounded = [any(node.op == "cast" for node in walk(f.body)) for f in source.module.functions]
    assert [f.name for f in source.module.functions] == ["step", "step_gradients", "step_update"]
    assert rounded == [True, True, False]  # the update multiplies by no weight


def test_a_part_of_a_step_has_no_policy_of_its_own() -> None:
    text = HEAD + STEP.replace("RATE", "0") + POLICY.replace("step", "step_update")
    with pytest.raises(nacre.DiagnosticError, match="the policy of `step` applies to `step_update`"):
        read_model(text)
