"""`nacre train`: progress, checkpoints, exact resumption, a loss that is not finite, wrong samples."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from cli_harness import Cli
from safetensors.numpy import load_file

MODEL = """language 1
import "library/losses.nacre"
dim B in 1..64

block Net(x: f32[B, 3]) -> f32[B, 2] {
  param weight: f32[2, 3] = random_normal((2, 3), seed)
  param bias: f32[2] = 0.0
  return x @ weight.T + bias
}

train step(x: f32[B, 3], y: f32[B, 2], lr: f32) -> loss: f32 {
  use net = Net
  loss = mse(net(x), y)
  minimize loss with adamw(lr=lr)
}

model error(x: f32[B, 3], y: f32[B, 2]) -> f32 {
  use net = Net
  return mse(net(x), y)
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "line.nacre").write_text(MODEL)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((77, 3)).astype(np.float32)
    y = x @ np.array([[1, 2], [0, -1], [0.5, 0]], np.float32)
    np.savez(tmp_path / "data.npz", x=x, y=y)
    np.savez(tmp_path / "short.npz", x=x, y=y[:5])
    monkeypatch.chdir(tmp_path)
    return tmp_path


TRAIN = ("train", "line.nacre", "--data", "data.npz", "--input", "lr=0.05", "--batch", "16")


def test_a_resumed_run_computes_the_same_bits(folder: Path, cli: Cli) -> None:
    whole = cli(*TRAIN, "--epochs", "6", "-o", "whole.safetensors", "--log", "whole.csv").out
    assert "memory of a step: " in whole and "states: 0.0 MiB" in whole
    assert whole.count("epoch") == 6 and "wrote whole.safetensors" in whole
    cli(*TRAIN, "--epochs", "2", "-o", "part.safetensors", "--log", "part.csv")
    first = Path("part.safetensors").read_bytes()
    resumed = cli(*TRAIN, "--epochs", "6", "-o", "part.safetensors", "--resume", "--log", "part.csv").out
    assert "resumed part.safetensors after step 10 of 30" in resumed and resumed.count("epoch") == 4
    assert Path("whole.safetensors").read_bytes() == Path("part.safetensors").read_bytes() != first
    assert Path("whole.csv").read_text() == Path("part.csv").read_text()
    losses = [float(line.split(",")[1]) for line in Path("whole.csv").read_text().splitlines()]
    assert len(losses) == 30 and losses[-1] < losses[0] / 2
    # Another seed visits the samples in another order.
    cli(*TRAIN, "--epochs", "6", "-o", "other.safetensors", "--seed", "1")
    assert Path("other.safetensors").read_bytes() != Path("whole.safetensors").read_bytes()
    refused = cli(*TRAIN, "--epochs", "6", "-o", "other.safetensors", "--resume")
    assert refused.code == 1 and "was written by a run with seed = 1" in refused.err


def test_validation_and_the_checkpoint_as_weights(folder: Path, cli: Cli) -> None:
    output = cli(*TRAIN, "--epochs", "2", "--validate", "data.npz", "--validation", "error").out
    shown = float(output.split("epoch 2/2")[1].split("error ")[1].split()[0])
    data, kept = np.load("data.npz"), load_file("line.safetensors")
    assert {"net.weight", "net.bias", "adamw.net.weight.direction.mean"} <= set(kept)
    expected = np.mean((data["x"] @ kept["net.weight"].T + kept["net.bias"] - data["y"]) ** 2)
    assert shown == pytest.approx(expected, rel=1e-4)
    model = nacre.compile("line.nacre", "line.so", weights="line.safetensors")
    session = model.session()
    found = np.mean([float(session.error(data["x"][i : i + 7], data["y"][i : i + 7])) for i in range(0, 77, 7)])
    assert found == pytest.approx(expected, rel=1e-4)
    assert "error" in dir(session) and not hasattr(session, "train")


def test_scheduled_rates(folder: Path, cli: Cli) -> None:
    """A rate that falls to 0 moves parameters less and less; resuming needs the same number of epochs."""
    kept = []
    for kind in ("linear", "cosine"):
        options = ("--epochs", "4", "--schedule", f"lr={kind}", "-o", f"{kind}.safetensors")
        assert cli(*TRAIN, *options).code == 0
        kept.append(load_file(f"{kind}.safetensors")["net.weight"])
        assert cli(*TRAIN, *options, "--warm-up", "3", "--threads", "1").code == 0
        kept.append(load_file(f"{kind}.safetensors")["net.weight"])
    assert len({a.tobytes() for a in kept}) == 4
    refused = cli(*TRAIN, "--epochs", "5", "--schedule", "lr=linear", "-o", "linear.safetensors", "--resume")
    assert refused.code == 1 and "was written by a run with" in refused.err


def test_a_loss_that_is_not_finite_ends_the_run(folder: Path, cli: Cli) -> None:
    result = cli(*TRAIN[:4], "--input", "lr=1e30", "--epochs", "9")
    assert result.code == 1
    assert "error[not-finite]: `loss` is" in result.err and "after step" in result.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--data", "data.npz"), "has no array `lr`"),
        (("--data", "short.npz", "--input", "lr=1"), "different numbers of samples: 77 of `x`, 5 of `y`"),
        (("--data", "data.npz", "--input", "rate=1"), "takes x, y, lr, not `rate`"),
        (("--data", "data.npz", "--input", "lr=1", "--schedule", "lr=square"), "`square` is none of"),
        (("--data", "data.npz", "--input", "lr=1", "--entry", "stop"), "has the entries step, error"),
        (("--data", "data.npz", "--input", "lr=1", "--validate", "data.npz"), "belong together"),
    ],
)
def test_wrong_options(folder: Path, cli: Cli, options: tuple[str, ...], message: str) -> None:
    result = cli("train", "line.nacre", *options)
    assert result.code in (1, 2) and message in result.err, result.err
