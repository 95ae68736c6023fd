"""The search without a model: which layers share a rule, which steps are planned, and what a file of findings keeps."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from nacre.compiler.checking import read_model
from nacre.compiler.model.policy import SHORT_FORMS, Calibration
from nacre.compiler.quantization.apply import without_loops
from nacre.compiler.tools.quantize.findings import Findings, Measured, Tried, open_findings
from nacre.compiler.tools.quantize.layers import CHOICES, find_layers, group_layers, policy_of
from nacre.compiler.tools.quantize.precision_search import _fill, _longest, assign, plan_steps
from nacre.compiler.tools.quantize.trials import Times
from nacre.dialect.dims import evaluate

PATHS = [f"encoder.layer.{i}.{name}.weight" for i in range(3) for name in ("query", "value")] + ["head.weight"]

CALIBRATION = Calibration(Path("data.npz"), "mse")
NARROW = ("bf16", "int8", "int4")

MODEL = """language 1
dim B in 1..8
block Dense(x: f32[B, 4]) -> f32[B, 4] {
  param weight: f32[4, 4]
  return relu(x @ weight.T)
}
model main(x: f32[B, 4]) -> f32[B, 4] {
  param scale: f32[4]
  use layer[2] = Dense
  use last = Dense
  repeat i in 0..2 { x = layer[i](x) }
  scores = x @ x.mT
  return last(last(scores[:, 0:1] * scale))
}
"""


def test_layers_are_weights_wherever_they_are_multiplied() -> None:
    module = without_loops(read_model(MODEL).module)
    layers = find_layers(module, module.functions[0])
    assert [layer.path for layer in layers] == ["layer.0.weight", "layer.1.weight", "last.weight"]
    assert [layer.locations for layer in layers] == [{(scope, "5:15")} for scope in ("layer.0", "layer.1", "last")]
    b = next(iter(module.dims))
    assert [evaluate(layer.operations, {b.name: 3}) for layer in layers] == [96, 96, 192]
    assert {(layer.elements, layer.uses) for layer in layers} == {(16, 1), (16, 2)}


def test_tables_are_layers_of_weights_alone() -> None:
    text = """
dim B in 1..8
model main(ids: i64[B]) -> f32[B, 6] {
  param words: f32[100, 4]
  param tied: f32[6, 4]
  h = embedding(words, ids) + embedding(words, ids) + embedding(tied, ids)
  return h @ tied.T
}
"""
    module = without_loops(read_model(text).module)
    tied, words = find_layers(module, module.functions[0])
    assert (tied.path, tied.is_table, words.path, words.is_table) == ("tied", False, "words", True)
    b = next(iter(module.dims))
    assert evaluate(words.read, {b.name: 3}) == 24 and tied.read == 24
    usual = ("bf16", "int8", "int8-static", "int4a8", "q8")
    assert tied.choices(usual) == usual
    assert words.choices(usual) == ("w8", "int4", "q8")
    policy = policy_of("main", ["words"], {"words": "w8"}, CALIBRATION)
    assert [str(rule) for rule in policy.rules] == ['weights "words" to i8']


def groups(chosen: dict[str, str]) -> list[tuple[str, str, int]]:
    return [(group.pattern, group.choice, len(group.paths)) for group in group_layers(PATHS, chosen)]


def test_layers_that_differ_in_numbers_share_a_rule_if_it_speaks_of_no_other() -> None:
    assert groups(dict.fromkeys(PATHS, "int8")) == [
        ("encoder.layer.*.query.weight", "int8", 3),
        ("encoder.layer.*.value.weight", "int8", 3),
        ("head.weight", "int8", 1),
    ]
    assert groups({**dict.fromkeys(PATHS, "int8"), PATHS[2]: "bf16"})[:4] == [
        (PATHS[0], "int8", 1),
        (PATHS[4], "int8", 1),
        ("encoder.layer.*.value.weight", "int8", 3),
        (PATHS[2], "bf16", 1),
    ]


def test_a_pattern_may_reach_into_another_group_of_the_same_choice() -> None:
    paths = [f"layer.{i}.{name}.weight" for i in range(2) for name in ("first.dense", "dense")]
    both = dict.fromkeys(paths, "int8")
    patterns = [group.pattern for group in group_layers(paths, both)]
    assert patterns == ["layer.*.first.dense.weight", "layer.*.dense.weight"]
    apart = [group.pattern for group in group_layers(paths, {**both, paths[0]: "bf16", paths[2]: "bf16"})]
    assert apart == ["layer.*.first.dense.weight", paths[1], paths[3]]


def test_a_policy_says_an_assignment() -> None:
    policy = policy_of("embed", PATHS, {**dict.fromkeys(PATHS[:-1], "int8"), PATHS[0]: "w8"}, CALIBRATION)
    for path, weights, activations in (
        (PATHS[0], "i8", "f32"),
        (PATHS[1], "i8", "i8 dynamic"),
        (PATHS[6], "f32", "f32"),
    ):
        assert str(policy.scheme("weights", "matmul", [path])) == weights
        assert str(policy.scheme("activations", "matmul", [path])) == activations
    assert policy.calibration is None
    assert policy_of("embed", PATHS, {PATHS[0]: "int8-static"}, CALIBRATION).calibration == CALIBRATION


@pytest.mark.parametrize("name", ["bf16", "f16", "f8", "int8", "int4", "int4a8"])
def test_choices_are_equal_to_short_forms(name: str) -> None:
    policy = SHORT_FORMS[name]
    for subject, scheme in (("weights", CHOICES[name].weights), ("activations", CHOICES[name].activations)):
        assert policy.scheme(subject, "matmul", ["a.weight"]) == scheme  # type: ignore[arg-type]  # a literal


def random_layers(seed: int) -> tuple[dict[str, float], dict[str, dict[str, Measured]]]:
    rng = np.random.default_rng(seed)
    plain = {name: float(rng.uniform(1, 10)) for name in "abcd"}
    measured = {
        name: {
            choice: Measured(float(rng.choice([0.0, rng.exponential()])), float(rng.uniform(0.2, 1.2) * seconds), False)
            for choice in NARROW
        }
        for name, seconds in plain.items()
    }
    return plain, measured


@pytest.mark.parametrize("seed", range(20))
def test_no_assignment_is_better_than_the_steps_in_both_time_and_harm(seed: int) -> None:
    plain, measured = random_layers(seed)

    def total(chosen: dict[str, str]) -> tuple[float, float]:
        took = [measured[n][c] if c != "f32" else Measured(0.0, plain[n], False) for n, c in chosen.items()]
        return sum(m.seconds for m in took), sum(m.harm for m in took)

    steps = plan_steps(plain, measured)
    planned = [total({**dict.fromkeys(plain, "f32"), **assign(steps[:n])}) for n in range(len(steps) + 1)]
    assert [seconds for seconds, _ in planned] == sorted({seconds for seconds, _ in planned}, reverse=True)
    every = [total(dict(zip(plain, c, strict=True))) for c in itertools.product(("f32", *NARROW), repeat=4)]
    for seconds, harm in planned:
        assert not any(s < seconds - 1e-9 and h < harm - 1e-12 for s, h in every)
    assert planned[-1][0] == pytest.approx(min(seconds for seconds, _ in every))


@pytest.mark.parametrize("most", range(6))
def test_the_longest_prefix_is_found_by_halving(most: int) -> None:
    steps = plan_steps(*random_layers(1))
    tried: list[int] = []

    def holds(taken: object) -> bool:
        tried.append(len(taken))  # type: ignore[arg-type]  # a sequence
        return tried[-1] <= most

    assert _longest(steps, holds) == min(most, len(steps))
    assert tried[0] == len(steps) and len(tried) <= 1 + len(steps).bit_length()


def test_single_steps_use_the_rest_of_the_budget() -> None:
    harms = {"a": 1, "b": 5, "c": 6, "d": 7}
    measured = {name: {"bf16": Measured(harm, 1, False)} for name, harm in harms.items()}
    steps = plan_steps({"a": 9, "b": 5, "c": 4, "d": 3}, measured)
    assert [step.path for step in steps] == ["a", "b", "c", "d"]
    tried: list[list[str]] = []

    def holds(taken: object) -> bool:
        tried.append([step.path for step in taken])  # type: ignore[attr-defined]  # steps
        return "c" not in tried[-1]

    _fill(steps, 1, holds)
    assert tried == [["a", "c"], ["a", "d"]]  # b is known not to hold behind a


def test_findings_are_kept_and_belong_to_a_question(tmp_path: Path) -> None:
    path, question = tmp_path / "f.json", {"model": "x", "files": [("a", 1)]}
    findings = open_findings(path, question)
    findings.set_plain(Times(2.0, {"a": 1.0}))
    findings.add("a", "bf16", Measured(float("inf"), 0.5, True))
    findings.add_tried({"b": "f32", "a": "bf16"}, Tried({"snr": float("inf"), "top1 drop": None}, 0.1))
    again = open_findings(path, question)
    assert again == findings and again.tried({"a": "bf16", "b": "f32"}) is not None
    assert open_findings(path, {**question, "model": "y"}) == Findings({**question, "model": "y"}, path)
    path.write_text(path.read_text()[:50])
    assert open_findings(path, question).plain is None
