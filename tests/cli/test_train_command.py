"""`nacre train`: progress, checkpoints, exact resumption, a loss that is not finite, wrong samples."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
from collections.abc import Sequence
from pathlib import Path

import nacre
import numpy as np
import pytest
from cli_harness import Cli
from nacre.compiler.base import packages
from nacre.compiler.cli import train as cli_train
from nacre.compiler.tools import training_logs
from nacre.compiler.tools.train import Progress
from safetensors.numpy import load_file, save_file

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


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("built") / "line.so"
    nacre.compile(MODEL, path)
    return path


@pytest.fixture
def folder(tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with samples, the text of the model, and its artifact."""
    (tmp_path / "line.nacre").write_text(MODEL)
    shutil.copy(built, tmp_path)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((77, 3)).astype(np.float32)
    y = x @ np.array([[1, 2], [0, -1], [0.5, 0]], np.float32)
    np.savez(tmp_path / "data.npz", x=x, y=y)
    np.savez(tmp_path / "short.npz", x=x, y=y[:5])
    monkeypatch.chdir(tmp_path)
    return tmp_path


OPTIONS = ("--data", "data.npz", "--input", "lr=0.05", "--batch", "16")
TRAIN = ("train", "line.so", *OPTIONS)
FROM_TEXT = ("train", "line.nacre", *OPTIONS)


def test_a_resumed_run_computes_the_same_bits(folder: Path, cli: Cli) -> None:
    whole = cli(*FROM_TEXT, "--epochs", "6", "-o", "whole.safetensors", "--log", "whole.csv").out
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


def _interrupt(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Ctrl-C after a step, once its line is in the log."""
    write = training_logs._Lines.step

    def step(self: training_logs._Lines, name: str, progress: Progress) -> None:
        write(self, name, progress)
        if progress.step == after:
            raise KeyboardInterrupt

    monkeypatch.setattr(training_logs._Lines, "step", step)


@pytest.mark.parametrize("log", ["csv", "jsonl"])
def test_a_run_interrupted_within_an_epoch(folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, log: str) -> None:
    """The log has steps after the checkpoint, which the resumed run repeats, and the end of a line is missing."""
    options = ("--epochs", "2", "--save-steps", "4", "--schedule", "lr=cosine", "--validate", "data.npz")
    options = (*options, "--validation", "error", "--log")
    whole = cli(*TRAIN, *options, f"whole.{log}", "-o", "whole.safetensors").out
    with monkeypatch.context() as patched:
        _interrupt(patched, after=9)
        stopped = cli(*TRAIN, *options, f"part.{log}", "-o", "part.safetensors")
    assert stopped.code == 130 and "part.safetensors holds step 8" in stopped.err
    with Path(f"part.{log}").open("a") as file:
        file.write('{"step": 10, "ep' if log == "jsonl" else "1")
    resumed = cli(*TRAIN, *options, f"part.{log}", "-o", "part.safetensors", "--resume").out
    assert "resumed part.safetensors after step 8 of 10" in resumed
    assert Path("whole.safetensors").read_bytes() == Path("part.safetensors").read_bytes()
    shown = [
        re.sub(r"  [\d.]+ (s|ms|us)  ", " ", text.split("epoch 2/2")[1].splitlines()[0]) for text in (whole, resumed)
    ]
    assert shown[0] == shown[1] and "loss" in shown[0] and "lr" in shown[0]
    lines = [re.sub(r'"seconds": [\d.]+', "", Path(f"{name}.{log}").read_text()) for name in ("whole", "part")]
    assert lines[0] == lines[1]
    assert "no steps are left" in cli(*TRAIN, *options, f"part.{log}", "-o", "part.safetensors", "--resume").out
    assert "no checkpoint new.safetensors yet" in cli(*TRAIN, "-o", "new.safetensors", "--resume").out


@pytest.mark.parametrize("progress", ["{", "[1]", '{"step": "x", "plan": {}}'])
def test_damaged_progress(folder: Path, cli: Cli, progress: str) -> None:
    save_file({"net.bias": np.zeros(2, np.float32)}, "line.safetensors", {"nacre.train": progress})
    refused = cli(*TRAIN, "--resume")
    assert refused.code == 1 and "the progress in `line.safetensors` is damaged" in " ".join(refused.err.split())


def test_a_full_disk_keeps_the_checkpoint(folder: Path, cli: Cli) -> None:
    assert cli(*TRAIN).code == 0
    kept = Path("line.safetensors").read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(kept) // 2, hard))
    try:
        failed = cli(*TRAIN, "--epochs", "2")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert failed.code == 1 and "cannot write `line.safetensors`: file too large" in failed.err, failed.err
    assert Path("line.safetensors").read_bytes() == kept and not list(folder.glob(".line*"))


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
    result = cli("train", "line.so", "--data", "nan.npz", "--input", "lr=0.05", "--epochs", "1")
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
        result = cli(*FROM_TEXT, f"--{option}", "logs.svg")
        assert result.code == 1 and f"--{option} needs the package `{package}`" in result.err
    assert "pictures need matplotlib" in cli(*FROM_TEXT, "--picture", "losses.svg").err
    assert "there is no folder `none`" in cli(*FROM_TEXT, "--picture", "none/losses.svg").err
    assert "there is no folder `none`" in cli(*FROM_TEXT, "--log", "none/losses.csv").err
    assert "pictures cannot be written as" in cli(*FROM_TEXT, "--picture", "losses.gif").err


def _write_log(opener: training_logs.Opener, steps: Sequence[int] = (1, 2), done: int = 0) -> None:
    """The loss is the reciprocal of the number of the step, and the rate that of the first one of the run."""
    with training_logs.open_logs([opener], done) as logs:
        for number in steps:
            progress = Progress(1, number, 2, 1 / number, 1 / number, 0.1, 0.0, 20.0, {"lr": 1 / steps[0]})
            logs[0].step("loss", progress)
        logs[0].epoch(progress, {"error": 0.25})
        logs[0].keep()


def test_event_files_of_tensorboard(tmp_path: Path) -> None:
    """The second run is resumed after step 2, and repeats steps of the first one, which went on."""
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    _write_log(training_logs.tensorboard_log(tmp_path), (1, 2, 4, 5))
    _write_log(training_logs.tensorboard_log(tmp_path), (4, 8), done=2)
    events = reading.EventAccumulator(str(tmp_path))
    events.Reload()
    found = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    assert found == {
        "loss": [(1, 1.0), (2, 0.5), (4, 0.25), (8, 0.125)],
        "lr": [(1, 1.0), (2, 1.0), (4, 0.25), (8, 0.25)],
        "error": [(8, 0.25)],
    }


def test_a_run_of_wandb_is_kept_offline(tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb")
    _write_log(training_logs.wandb_log(tmp_path, "line"))
    wandb.teardown()  # the service writes the rest of the file, as at the end of a process
    (file,) = tmp_path.rglob("run-*.wandb")
    content = file.read_bytes()
    assert all(key in content for key in (b"loss", b"error", b"lr"))


class _Run:
    """A run of wandb."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, float]] = []

    def log(self, values: dict[str, float], step: int) -> None:
        self.lines += [(step, values["loss"])]

    def finish(self) -> None:
        pass


def test_runs_of_wandb_hold_each_step_once(folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is interrupted after a checkpoint, and resumed. A run that ends at a NaN holds all finite losses."""
    run, options = _Run(), ("--epochs", "2", "--save-steps", "4", "--wandb", "runs", "--log", "losses.csv")
    monkeypatch.setattr(cli_train, "wandb_log", lambda path, project: lambda done: training_logs._Wandb(run))
    with monkeypatch.context() as patched:
        _interrupt(patched, after=9)
        assert cli(*TRAIN, *options).code == 130
    assert [step for step, _ in run.lines] == list(range(1, 9))
    assert cli(*TRAIN, *options, "--resume").code == 0
    assert [f"{step},{loss!r}" for step, loss in run.lines] == Path("losses.csv").read_text().splitlines()
    run.lines.clear()
    Path("line.nacre").write_text(MODEL.replace("loss = mse(net(x), y)", "loss = mean(exp(net(x) - y))"))
    failed = cli("train", "line.nacre", "--data", "data.npz", "--input", "lr=40", "--epochs", "9", *options[4:])
    assert failed.code == 1 and "error[not-finite]" in failed.err
    assert [f"{step},{loss!r}" for step, loss in run.lines] == Path("losses.csv").read_text().splitlines() != []


def test_logs_that_cannot_be_written(folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are reported before the model is compiled."""
    Path("wrong.nacre").write_text("model m(")
    Path("runs").mkdir()
    monkeypatch.setattr(packages, "find_spec", lambda name: name)
    for options, message in (
        (("--log", "runs"), "cannot write `runs`: it is a folder"),
        (("--tensorboard", "data.npz"), "cannot write `data.npz`: `data.npz` is not a folder"),
        (("--wandb", "data.npz/runs"), "is not a folder"),
    ):
        result = cli("train", "wrong.nacre", *OPTIONS, *options)
        assert result.code == 1 and message in " ".join(result.err.split()), result.err
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)  # the superuser has all permissions
    for options, message in (
        (("--log", "data.npz"), "no permission to write to the file"),
        (("--tensorboard", "runs/new"), "no permission to write to the folder"),
    ):
        result = cli("train", "wrong.nacre", *OPTIONS, *options)
        assert result.code == 1 and message in " ".join(result.err.split()), result.err


def test_wrong_paths_are_reported_before_the_model_is_compiled(folder: Path, cli: Cli) -> None:
    (folder / "wrong.nacre").write_text("model m(")
    for options, message in (
        (("--data", "none.npz"), "there is no file `none.npz`"),
        (("--data", "data.npz", "--validate", "none.npz", "--validation", "error"), "there is no file `none.npz`"),
        (("--data", "data.npz", "--output", "none/line.safetensors"), "there is no folder `none`"),
    ):
        result = cli("train", "wrong.nacre", *options)
        assert result.code == 1 and message in result.err and "syntax" not in result.err, result.err


STATIC = MODEL.replace("B, ", "16, ")
LEAST = MODEL.replace("dim B in 1..64", "dim B in 8..64")


@pytest.mark.parametrize(
    ("text", "count", "options", "message"),
    [
        (MODEL, 0, (), "`some.npz` holds no samples: `x` is empty, `y` is empty"),
        (STATIC, 5, (), "`step` takes 16 samples at once, and `some.npz` holds 5"),
        (LEAST, 33, (), "the last batch has 1 samples, which `step` does not take"),
        (MODEL, 33, ("--validate", "none.npz", "--validation", "error"), "`none.npz` holds no samples"),
        (STATIC, 33, ("--validate", "few.npz", "--validation", "error"), "16 samples at once, and `few.npz` holds 3"),
        (
            MODEL,
            33,
            ("--validate", "wide.npz", "--validation", "error"),
            "samples of `wide.npz` do not fit `error`: argument `x`: expected f32[B, 3]",
        ),
    ],
)
def test_samples_that_make_no_batch(
    folder: Path, cli: Cli, text: str, count: int, options: tuple[str, ...], message: str
) -> None:
    """They are reported before the first step."""
    for name, rows, columns in (("some", count, 3), ("none", 0, 3), ("few", 3, 3), ("wide", 33, 4)):
        np.savez(f"{name}.npz", x=np.ones((rows, columns), np.float32), y=np.ones((rows, 2), np.float32))
    Path("line.nacre").write_text(text)
    train = ("train", "line.nacre", "-O0", "--data", "some.npz", "--input", "lr=0.05", "--batch", "16")
    result = cli(*train, *options)
    assert result.code == 1 and message in " ".join(result.err.split()), result.err
    assert not Path("line.safetensors").exists()


def test_samples_that_a_pass_leaves_out(folder: Path, cli: Cli) -> None:
    """The types state the size of a batch. An array that no argument takes may be of any dtype."""
    Path("line.nacre").write_text(STATIC)
    with np.load("data.npz") as file:
        np.savez("named.npz", names=np.array(["a", "b"]), **file)
    result = cli("train", "line.nacre", "-O0", "--data", "named.npz", "--input", "lr=0.05")
    shown = " ".join(result.out.split())
    assert "each pass leaves out 13 of the 77 samples of `named.npz`" in shown, result.err
    assert "77 samples in batches of 16, 4 steps" in shown


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
    result = cli("train", "line.so", *options)
    assert result.code in (1, 2) and message in result.err, result.err
