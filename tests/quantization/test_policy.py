"""What policies say of places in a graph, and how they print."""

from __future__ import annotations

from pathlib import Path

import pytest
from nacre.compiler.model.policy import (
    F32,
    SCHEMES,
    SHORT_FORMS,
    Calibration,
    Policy,
    Requirement,
    Rule,
    Scheme,
    keep,
    short_form,
)
from nacre.passes.selection import EVERYTHING, Selector

QUERY = "encoder.layer.0.query.weight"


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("encoder.*", QUERY, True),
        ("encoder", QUERY, True),
        ("encoder.layer.*.query", QUERY, True),
        ("*.weight", QUERY, True),
        ("*", QUERY, True),
        ("enc", QUERY, False),
        ("layer.0", QUERY, False),
        ("encoder.layer.1*", QUERY, False),
        ("encoder.layer.?", QUERY, False),
        ("encoder.layer.[0]", QUERY, False),
        ("e.c*", "exc", False),
    ],
)
def test_patterns_match_whole_paths_and_their_contents(pattern: str, path: str, matches: bool) -> None:
    assert Selector(pattern).matches("matmul", ["other", path]) == matches


@pytest.mark.parametrize(
    ("selector", "operator", "matches"),
    [
        ("matmul", "matmul", True),
        ("matmul", "einsum", True),
        ("einsum", "matmul", False),
        ("convolution", "conv_transpose2d", True),
        ("conv2d", "conv1d", False),
        ("table", "embedding", True),
    ],
)
def test_operators_are_selected_by_class_or_name(selector: str, operator: str, matches: bool) -> None:
    assert Selector(operator=selector).matches(operator, [QUERY]) == matches


def test_later_rules_win() -> None:
    i8, bf16 = Scheme("i8"), Scheme("bf16")
    policy = Policy(
        (Rule("weights", EVERYTHING, i8), keep(Selector("encoder")), Rule("weights", Selector(QUERY), bf16))
    )
    assert policy.scheme("weights", "matmul", [QUERY]) == bf16
    assert policy.scheme("weights", "matmul", ["encoder.layer.0.key.weight"]) == F32
    assert policy.scheme("weights", "matmul", ["answer.weight"]) == i8
    assert policy.scheme("activations", "matmul", ["answer.weight"]) == F32


def test_a_policy_prints_as_a_person_writes_it() -> None:
    policy = Policy(
        (
            Rule("weights", Selector("encoder.*"), Scheme("q8[block 32]")),
            Rule("activations", Selector(operator="matmul"), Scheme("i8", "static")),
            keep(Selector("embeddings.*")),
        ),
        Calibration(Path("calibration.npz"), "percentile", 99.9),
        (Requirement("error", 1e-2, Path("test.npz")),),
        "embed",
    )
    assert str(policy).splitlines() == [
        "quantize embed {",
        '  weights "encoder.*" to q8[block 32]',
        "  activations matmul to i8 static",
        '  keep "embeddings.*"',
        '  calibrate on file "calibration.npz" by percentile 99.9',
        '  require error <= 0.01 on file "test.npz"',
        "}",
    ]


def test_a_short_form_may_differ_between_decoding_and_other_models() -> None:
    for model, wanted in (("decode", "i8 dynamic"), ("decode_rows", "i8 dynamic"), ("prefill", "bf16"), ("m", "bf16")):
        policy = short_form("a8bf16", model)
        assert policy.model == model and str(policy.scheme("activations", "matmul", ["w"])) == wanted
        assert policy.scheme("weights", "matmul", ["w"]) == F32
    assert short_form("int4", "decode").rules == SHORT_FORMS["int4"].rules


def test_short_forms_use_schemes_that_there_are() -> None:
    for name, policy in SHORT_FORMS.items():
        for rule in policy.rules:
            assert rule.subject is not None and rule.scheme in SCHEMES[rule.subject], (name, rule)
