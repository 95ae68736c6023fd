"""`nacre train`: progress, checkpoints, exact resumption, a loss that is not finite, wrong samples."""

from __future__ import annotations

import json
from pathlib import Path

import nacre
import numpy as np
import pytest
from cli_harness import Cli
from nacre.compiler.base import packages
from nacre.compiler.tools import training_logs
from nacre.compiler.tools.train import Progress
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
    logs = ("--log", "log.jsonl", "--picture", "losses.svg", "--schedule", "lr=linear")
    output = cli(*TRAIN, "--epochs", "2", "--validate", "data.npz", "--validation", "error", *logs).out
    shown = float(output.split("epoch 2/2")[1].split("error ")[1].split()[0])
    data, kept = np.load("data.npz"), load_file("line.safetensors")
    assert {"net.weight", "net.bias", "adamw.net.weight.direction.mean"} <= set(kept)
    expected = np.mean((data["x"] @ kept["net.weight"].T + kept["net.bias"] - data["y"]) ** 2)
    assert shown == pytest.approx(expected, rel=1e-4)
    lines = [json.loads(line) for line in Path("log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == list(range(1, 11))
    assert [(line["step"], line["epoch"]) for line in lines if "error" in line] == [(5, 1), (10, 2)]
    assert lines[-1]["error"] == pytest.approx(shown, rel=1e-4) and lines[-2]["lr"] == pytest.approx(0.005)
    picture = Path("losses.svg").read_text()
    assert "loss, mean of an epoch" in picture and "error, validation" in picture
    model = nacre.compile("line.nacre", "line.so", weights="line.safetensors")
    session = model.session()
    found = np.mean([float(session.error(data["x"][i : i + 7], data["y"][i : i + 7])) for i in range(0, 77, 7)])
    assert found == pytest.approx(expected, rel=1e-4)
    assert "error" in dir(session) and not hasattr(session, "train")


def test_floats_are_taken_as_integers_only_without_a_change(folder: Path, cli: Cli) -> None:
    head = MODEL.split("train step")[0]
    entry = """train step(x: f32[B, 3], label: i64[B], lr: f32) -> loss: f32 {
  use net = Net
  loss = cross_entropy(net(x), label)
  minimize loss with adamw(lr=lr)
}
"""
    Path("classes.nacre").write_text(head + entry)
    x, label = np.load("data.npz")["x"], np.arange(77) % 2
    np.savez("whole.npz", x=x, label=label.astype(np.float32))
    np.savez("half.npz", x=x, label=np.where(np.arange(77) == 5, 0.5, label))
    np.savez("integers.npz", x=x, label=label.astype(np.uint8))
    train = ("train", "classes.nacre", "--input", "lr=0.05", "--data")
    whole, integers = (
        cli(*train, "whole.npz", "-o", "a.safetensors"),
        cli(*train, "integers.npz", "-o", "b.safetensors"),
    )
    assert "`label` of `whole.npz` is converted from f32 to i64" in whole.out, whole.err
    assert "converted" not in integers.out
    assert Path("a.safetensors").read_bytes() == Path("b.safetensors").read_bytes()
    refused = cli(*train, "half.npz")
    shown = " ".join(refused.err.split())
    assert refused.code == 1 and "`label` of `half.npz` is 0.5 at [5], no value of i64" in shown
    np.save("lr.npy", np.array(label, np.float64) + 0.25)
    refused = cli("train", "classes.nacre", "--data", "whole.npz", "--input", "lr=0.05", "--input", "label=lr.npy")
    assert refused.code == 1 and "`label` of --input is 0.25 at [0], no value of i64" in " ".join(refused.err.split())


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


def test_samples_that_are_not_finite_are_named(folder: Path, cli: Cli) -> None:
    with np.load("data.npz") as file:
        x, y = file["x"], file["y"]
    x[5, 1] = np.nan
    np.savez("nan.npz", x=x, y=y)
    result = cli("train", "line.nacre", "--data", "nan.npz", "--input", "lr=0.05", "--epochs", "1")
    shown = " ".join(result.err.split())
    assert result.code == 1 and "the samples of `x` contain a NaN or an infinity" in shown and "rate" not in shown


def test_a_loss_that_is_not_finite_ends_the_run(folder: Path, cli: Cli) -> None:
    """The logarithm of the mask is infinite in every step, and `exp` overflows once the weights are large."""
    masked = "y = log(where(x[:, :2] > 9, 1.0, 0.0))\n  return exp(x @ weight.T + bias) + where(x[:, :2] > 9, y, 0.0)"
    text = MODEL.replace("return x @ weight.T + bias", masked)
    Path("line.nacre").write_text(text)
    line = 1 + text[: text.index("exp(x @")].count("\n")
    result = cli("train", "line.nacre", "--data", "data.npz", "--input", "lr=40", "--epochs", "9")
    assert result.code == 1
    assert "error[not-finite]: `loss` is" in result.err and "after step" in result.err
    shown = " ".join(result.err.split())
    assert "`exp` in `net` is the first operator that computes an infinity from finite numbers, in step" in shown
    assert f"line.nacre:{line}:" in shown


def test_a_missing_package_is_named_before_the_build(folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    for option, package in (("tensorboard", "tensorboard"), ("wandb", "wandb")):
        result = cli(*TRAIN, f"--{option}", "logs.svg")
        assert result.code == 1 and f"--{option} needs the package `{package}`" in result.err
    assert "pictures need matplotlib" in cli(*TRAIN, "--picture", "losses.svg").err
    assert "there is no folder `none`" in cli(*TRAIN, "--picture", "none/losses.svg").err
    assert "there is no folder `none`" in cli(*TRAIN, "--log", "none/losses.csv").err
    assert "pictures cannot be written as" in cli(*TRAIN, "--picture", "losses.gif").err


def _write_log(opener: training_logs.Opener) -> None:
    with training_logs.open_logs([opener]) as logs:
        for number in (1, 2):
            progress = Progress(1, number, 2, 1 / number, 1 / number, 0.1, 0.0, {"lr": 0.5})
            logs[0].step("loss", progress)
        logs[0].epoch(progress, {"error": 0.25})


def test_event_files_of_tensorboard(tmp_path: Path) -> None:
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    _write_log(training_logs.tensorboard_log(tmp_path))
    events = reading.EventAccumulator(str(tmp_path))
    events.Reload()
    found = {
        tag: [(e.step, float(e.tensor_proto.float_val[0])) for e in events.Tensors(tag)]
        for tag in events.Tags()["tensors"]
    }
    assert found == {"loss": [(1, 1.0), (2, 0.5)], "lr": [(1, 0.5), (2, 0.5)], "error": [(2, 0.25)]}


def test_a_run_of_wandb_is_kept_offline(tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb")
    _write_log(training_logs.wandb_log(tmp_path, "line"))
    wandb.teardown()  # the service writes the rest of the file, as at the end of a process
    (file,) = tmp_path.rglob("run-*.wandb")
    content = file.read_bytes()
    assert all(key in content for key in (b"loss", b"error", b"lr"))


def test_wrong_paths_are_reported_before_the_model_is_compiled(folder: Path, cli: Cli) -> None:
    (folder / "wrong.nacre").write_text("model m(")
    for options, message in (
        (("--data", "none.npz"), "there is no file `none.npz`"),
        (("--data", "data.npz", "--validate", "none.npz", "--validation", "error"), "there is no file `none.npz`"),
        (("--data", "data.npz", "--output", "none/line.safetensors"), "there is no folder `none`"),
    ):
        result = cli("train", "wrong.nacre", *options)
        assert result.code == 1 and message in result.err and "syntax" not in result.err, result.err


def test_a_model_without_a_training_step(folder: Path, cli: Cli) -> None:
    (folder / "double.nacre").write_text("model double(x: f32[2]) -> f32[2] { return x * 2 }")
    result = cli("train", "double.nacre", "--data", "data.npz")
    assert result.code == 2 and "no training step: its entries are double" in " ".join(result.err.split())


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
