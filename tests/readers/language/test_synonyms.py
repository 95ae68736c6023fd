"""Names of other libraries lead to the right function, or to none."""

from pathlib import Path

import nacre
import numpy as np
import pytest

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
