"""`nacre quantize`: the policy that it writes keeps the budget, and an interrupted search ends as one that was not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cli_harness import DIGITS, Cli, leftovers
from nacre.compiler.readers.language.format import format_source
from nacre.compiler.tools.quantize.findings import Findings
from nacre.compiler.tools.quantize.trials import Trials
from saving import save_npz

MODEL = """language 1

dim B in 1..64

block Dense<inputs, outputs>(x: f32[B, inputs]) -> f32[B, outputs] {
  param weight: f32[outputs, inputs]
  return x @ weight.T
}

model classify(x: f32[B, 32]) -> y: f32[B, 10] {
  weights "weights.npz"
  use layer[2] = Dense<32, 32>
  use last = Dense<32, 10>
  repeat i in 0..2 { x = relu(layer[i](x)) }
  return softmax(last(x))
}
"""
SHAPES = {"layer.0.weight": (32, 32), "layer.1.weight": (32, 32), "last.weight": (10, 32)}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    rng = np.random.default_rng(5)
    arrays = {name: rng.normal(size=shape).astype("float32") / 4 for name, shape in SHAPES.items()}
    save_npz(tmp_path / "weights.npz", arrays)
    np.savez(tmp_path / "data.npz", x=rng.normal(size=(200, 32)).astype("float32"))
    (tmp_path / "model.nacre").write_text(MODEL)
    return tmp_path / "model.nacre"


def command(model: Path, *more: str) -> tuple[str | Path, ...]:
    return ("quantize", model, "--data", model.parent / "data.npz", "--estimate", "--choices", "bf16", *more)


def builds(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    made: list[object] = []
    build: Callable[..., object] = Trials._build
    monkeypatch.setattr(Trials, "_build", lambda trials, policy: (made.append(policy), build(trials, policy))[1])
    return made


def test_policy_keeps_the_budget_and_is_read_back(cli: Cli, model: Path) -> None:
    done = cli(*command(model, "--budget", "snr >= 52", "--json"))
    assert done.code == 0, done.err
    policy = model.with_suffix(".policy.nacre")
    text = policy.read_text()
    assert format_source(text) == text and not leftovers(model.parent)
    chosen = {layer["layer"]: layer["choice"] for layer in done.json["layers"]}
    assert set(chosen) == set(SHAPES) and set(chosen.values()) == {"bf16", "f32"}
    assert done.json["seconds"] < done.json["seconds_in_f32"]
    checked = ("accuracy", model, "--precision", policy, "--data", model.parent / "data.npz", "--require")
    assert cli(*checked, "snr >= 52").code == 0
    # All in bf16 would not keep it.
    assert cli("accuracy", model, "--precision", "bf16", *checked[4:], "snr >= 52").code == 1
    alone = done.json["layers"][-1]["alone"]["bf16"]
    assert 0 < alone["rms_error"] < 0.1 and alone["estimated"] and f"{alone['rms_error']:.2e} rms" in text


def test_a_loose_budget_takes_all_layers_under_one_rule(cli: Cli, model: Path) -> None:
    done = cli(*command(model, "--budget", "mean cosine >= 0.9"))
    assert done.code == 0 and "3 in bf16" in done.out, done.err
    assert 'weights "layer.*.weight" to bf16  # 2 layers' in model.with_suffix(".policy.nacre").read_text()


def test_an_interrupted_search_goes_on_and_ends_the_same(
    cli: Cli, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, path = ("--budget", "snr >= 52"), model.with_suffix(".policy.nacre")
    made = builds(monkeypatch)
    assert cli(*command(model, *wanted)).code == 0
    text, whole = path.read_text(), len(made)
    for left in model.parent.glob("*policy.nacre*"):
        left.unlink()
    made.clear()
    save, count = Findings._save, [0]

    def interrupted(findings: Findings) -> None:
        save(findings)
        count[0] += 1
        if count[0] == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Findings, "_save", interrupted)
        assert cli(*command(model, *wanted)).code == 130
    assert not path.exists()
    assert cli(*command(model, *wanted)).code == 0
    assert path.read_text() == text
    # Nothing but f32 is built twice.
    assert len(made) == whole + 1


def test_another_budget_needs_no_layer_again_and_another_model_all(
    cli: Cli, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = builds(monkeypatch)
    assert cli(*command(model, "--budget", "snr >= 52")).code == 0
    first = len(made)
    assert cli(*command(model, "--budget", "error <= 1")).code == 0
    assert len(made) == first + 1  # f32; all layers together were tried before
    model.write_text(MODEL.replace("relu", "tanh"))
    made.clear()
    assert cli(*command(model, "--budget", "error <= 1")).code == 0
    assert len(made) >= 1 + len(SHAPES)


@pytest.mark.parametrize(("choice", "rule"), [("int8-static", "i8 static"), ("int4-fitted", "q4[block 32] fitted")])
def test_choices_that_need_samples_name_them_in_the_policy(cli: Cli, model: Path, choice: str, rule: str) -> None:
    """Relative to the policy, which lies elsewhere here; the model that it makes is the one that was tried."""
    (model.parent / "found").mkdir()
    policy = model.parent / "found" / "policy.nacre"
    # One sample in a call: weights of fewer bits are faster where reading them takes the time.
    more = ("--choices", choice, "--batch", "1", "--json", "-o", str(policy))
    done = cli(*command(model, "--budget", "cosine >= 0.9", *more))
    assert done.code == 0, done.err
    assert {layer["choice"] for layer in done.json["layers"]} == {choice}
    text = policy.read_text()
    assert f"to {rule}" in text and 'calibrate on file "../data.npz" by mse' in text and format_source(text) == text
    figures = cli("accuracy", model, "--precision", policy, *command(model)[2:4], "--batch", "1", "--json").json
    assert figures["results"][0]["least_cosine"] == pytest.approx(done.json["figures"]["cosine"], abs=1e-6)


def test_times_are_measured_where_they_are_not_estimated(cli: Cli, model: Path) -> None:
    done = cli(*(part for part in command(model, "--budget", "snr >= 20", "--json") if part != "--estimate"))
    assert done.code == 0, done.err
    assert 0 < done.json["seconds"] <= done.json["seconds_in_f32"]
    assert all(0 < layer["seconds_in_f32"] < done.json["seconds_in_f32"] for layer in done.json["layers"])


def test_digits_keep_their_classes(cli: Cli, tmp_path: Path) -> None:
    with np.load(DIGITS / "test_images.npz") as file:
        np.savez(tmp_path / "data.npz", image=file["images"], labels=file["labels"])
    found = tmp_path / "digits.nacre"
    searched = ("--data", tmp_path / "data.npz", "--budget", "top1 drop <= 0.3%", "--choices", "bf16", "--estimate")
    done = cli("quantize", DIGITS / "digits.nacre", "-o", found, *searched)
    assert done.code == 0 and "5 in bf16; top1 drop 0%" in done.out, done.err
    assert 'weights "strokes.weight" to bf16' in found.read_text()


def test_wrong_commands_and_data_are_refused_before_the_work(cli: Cli, model: Path) -> None:
    assert cli(*command(model, "--budget", "loss <= 1")).code == 2
    done = cli(*command(model, "--budget", "error <= 1", "--choices", "bf17"))
    assert done.code == 2 and "there is no precision `bf17`" in done.err
    assert cli(*command(model, "--budget", "error <= 1", "-o", str(model))).code == 2
    done = cli("quantize", model, "--data", model.parent / "none.npz", "--budget", "error <= 1")
    assert done.code == 1 and "none.npz" in done.err
    done = cli(*command(model, "--budget", "error <= -1"))
    assert done.code == 1 and "error[budget-out-of-reach]" in done.err
    assert not model.with_suffix(".policy.nacre").exists()
