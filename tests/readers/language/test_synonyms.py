"""Names of other libraries lead to the right function, or to none."""

import re
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.readers.language.synonyms import ADVICE, FOREIGN
from nacre.compiler.readers.language.unknown import FUNCTIONS
from nacre.dialect.types import DTYPES

TEXT = "model m(x: f32[4, 4]) -> f32[4, 4] { return NAME(x) }"
USED = "model m(x: f32[4, 4]) -> f32[4, 4] {\n  use f = NAME<4>\n  return f(x)\n}"


def help_of(text: str, name: str) -> str:
    (error,) = [d for d in nacre.check(text.replace("NAME", name)) if d.severity == "error"]
    assert error.code in ("unknown-name", "unknown-attribute")
    return error.help


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("pixel_shuffle", "depth_to_space"),
        ("index_add", "scatter_add"),
        ("index_select", "gather"),
        ("LayerNorm", "layer_norm"),
        ("RMSNorm", "rms_norm"),
        ("Conv2d", "conv2d"),
        ("MaxPool2d", "max_pool2d"),
        ("reduce_mean", "mean"),
        ("unbind", "unstack"),
        ("rotary", "rotary_embedding"),
        ("segment_sum", "scatter_add"),
        ("to", "cast"),
        ("argwhere", "nonzero"),
        ("tensordot", "einsum"),
    ],
)
def test_a_synonym_names_the_function(name: str, function: str) -> None:
    assert help_of(TEXT, name) == f"did you mean `{function}`?"
    attribute = help_of(TEXT.replace("NAME(x)", "x.NAME"), name)
    assert attribute == f"functions take tensors as arguments: `{function}(x, ...)` or `x |> {function}(...)`"


@pytest.mark.parametrize("name", ["quantile", "median", "cross", "scatter_max", "segment_softmax"])
def test_a_word_without_an_operator_leads_to_none(name: str) -> None:
    assert "did you mean" not in help_of(TEXT, name)
    assert not help_of(TEXT.replace("NAME(x)", "x.NAME"), name).startswith("did you mean")


def test_a_class_is_no_block() -> None:
    assert help_of(USED, "LayerNorm") == "`layer_norm` is a function; a block declares the parameters that it takes"


@pytest.mark.parametrize("edges", [0, 1, 9])
def test_the_advice_for_groups_is_right(edges: int, tmp_path: Path) -> None:
    """The help for `scatter_max` and `segment_softmax`, against each group on its own."""
    most, e, shares = (
        help_of(TEXT, name).replace("(n)", "(5)").split("`")[part]
        for name, part in (("scatter_max", 1), ("segment_softmax", 1), ("segment_softmax", 3))
    )
    body = f"  most = {most}\n  {e}\n  return most, {shares}"
    (tmp_path / "m.nacre").write_text(
        f"dim E in 0..9\nmodel m(x: f32[E], groups: i64[E]) -> f32[5], f32[E] {{\n{body}\n}}\n"
    )
    rng = np.random.default_rng(edges)
    x, groups = rng.normal(size=edges).astype(np.float32), rng.integers(0, 5, edges)
    found, found_shares = nacre.graph.read(tmp_path / "m.nacre").run(x, groups)
    np.testing.assert_array_equal(found, [x[groups == n].max(initial=-np.inf) for n in range(5)])
    for n in set(groups):
        expected = np.exp(x[groups == n]) / np.exp(x[groups == n]).sum()
        np.testing.assert_allclose(found_shares[groups == n], expected, rtol=1e-5)


X, Y, SQUARE = (np.random.default_rng(n).uniform(0.1, 0.9, s) for n, s in enumerate([(3, 4), (3, 4), (4, 4)]))
A, B = X[:, :2], X[:, 2:]
STEP = 2 * np.pi * np.arange(4) / 4
FORMULAS = {
    "glu": A / (1 + np.exp(-B)),
    "swiglu": A / (1 + np.exp(-A)) * B,
    "lerp": X + 0.3 * (Y - X),
    "logit": np.log(X / (1 - X)),
    "addcmul": X + 2 * SQUARE[0] * SQUARE[1],
    "inner": np.sum(X * Y, axis=-1),
    "cosine_similarity": np.sum(X * Y, -1) / np.linalg.norm(X, axis=-1) / np.linalg.norm(Y, axis=-1),
    "cdist": np.linalg.norm(X[:, None] - Y[None], axis=-1),
    "hann": np.hanning(5)[:4],
    "hamming": np.hamming(5)[:4],
    "huber": np.mean((X - Y) ** 2 / 2),
    "fftshift": np.fft.fftshift(X, axes=1),
    "trace": np.trace(SQUARE),
    "diag": np.diag(SQUARE),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_an_advised_formula_is_right(name: str) -> None:
    first, *rest = re.findall(r"`([^`]+)`", ADVICE[name])
    lines, formula = (f"  {first}\n", rest[0]) if " = " in first else ("", first)
    for word, value in (("weight", "0.3"), ("value", "2.0"), ("axis", "axis=1"), ("n", "4")):
        formula = re.sub(rf"\b{word}\b(?!=)", value, formula)
    if name in ("trace", "diag"):
        formula = formula.replace("x[", "a[")
    a, b = ("a[0]", "a[1]") if name == "addcmul" else ("a", "b")
    formula = formula if a == "a" else re.sub(r"\bb\b", b, re.sub(r"\ba\b", a, formula))
    expected = np.asarray(FORMULAS[name])
    shape = f"f32[{', '.join(map(str, expected.shape))}]"
    signature = f"x: f32[3, 4], y: f32[3, 4], {'c' if lines else 'a'}: f32[4, 4]"
    text = f"model m({signature}) -> {shape} {{\n{lines}  return {formula}\n}}"
    found = nacre.graph.read(text).run(*(each.astype(np.float32) for each in (X, Y, SQUARE)))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_every_synonym_is_a_word_of_the_language() -> None:
    known = {*FUNCTIONS, *DTYPES, "true", "false", "None"}
    assert {word: meant for word, meant in FOREIGN.items() if meant not in known} == {}
    assert not FOREIGN.keys() & ADVICE.keys()


def test_a_module_before_a_function() -> None:
    assert help_of(TEXT, "torch.softmax") == "functions are called without a module, as in `softmax(x)`"
