"""Changed graphs run, compile, and are written as text that can be read again."""

from pathlib import Path

import nacre
import numpy as np
import pytest
from example_graphs import LOOP, branch, loop
from test_edits import weights

SAMPLES = Path(__file__).parents[3] / "samples"
X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(3, 16)


def test_compiled_graph_agrees_with_the_interpreter(tmp_path: Path) -> None:
    graph = loop()
    graph = graph.replace(graph.find("gelu"), lambda b, x: b.relu(x))
    expected = graph.run(X, weights=weights(), float64=True)
    assert expected.dtype == np.float64
    for model in (
        graph.compile(weights=weights()),
        graph.compile(tmp_path / "m.so", weights=weights(), opt_level=0),
    ):
        np.testing.assert_allclose(model(X), expected, atol=1e-6)
    assert (tmp_path / "m.so").exists()


def test_optimized_graph_compiles(tmp_path: Path) -> None:
    plain, optimized = loop(), nacre.graph.read(LOOP, level=2)
    expected = plain.run(X, weights=weights())
    np.testing.assert_allclose(optimized.run(X, weights=weights()), expected, atol=1e-6)
    np.testing.assert_allclose(optimized.compile(weights=weights())(X), expected, atol=1e-6)


def test_weights_of_the_model_are_found() -> None:
    graph = nacre.graph.read(SAMPLES / "digits" / "digits.nacre")
    with np.load(SAMPLES / "digits" / "test_images.npz") as data:
        images = data["images"][:2].astype(np.float32)
    expected = nacre.compile(SAMPLES / "digits" / "digits.nacre")(images)
    np.testing.assert_allclose(graph.run(images), expected, atol=1e-6)
    np.testing.assert_allclose(graph.compile()(images), expected, atol=1e-6)


def test_saved_model_finds_its_weights_from_where_it_lies(tmp_path: Path) -> None:
    graph = nacre.graph.read(SAMPLES / "digits" / "digits.nacre")
    graph = graph.replace(graph.find("relu"), lambda b, x: b.gelu(x))
    graph.save(tmp_path / "smooth.nacre")
    assert not nacre.check(tmp_path / "smooth.nacre")
    assert '  weights "../' in (tmp_path / "smooth.nacre").read_text()
    images = np.ones((1, 8, 8), np.float32)
    np.testing.assert_array_equal(nacre.graph.read(tmp_path / "smooth.nacre").run(images), graph.run(images))
    graph.save(tmp_path / "smooth.graph")
    again = nacre.graph.read(tmp_path / "smooth.graph", weights=SAMPLES / "digits" / "digits.safetensors")
    np.testing.assert_array_equal(again.run(images), graph.run(images))


def test_text_of_a_changed_loop_reads_back(tmp_path: Path) -> None:
    graph = loop()
    graph = graph.replace(graph.find("gelu"), lambda b, x: b.gelu(x, approximate="tanh"))
    graph.save(tmp_path / "m.nacre")
    again = nacre.graph.read(tmp_path / "m.nacre")
    np.testing.assert_array_equal(again.run(X, weights=weights()), graph.run(X, weights=weights()))
    assert sorted(n.op for n in again) == sorted(n.op for n in graph)


def test_nothing_is_half_written(tmp_path: Path) -> None:
    big = nacre.graph.read("language 1\nmodel f(x: f32[70000]) -> f32[70000] { return x + cast(iota(70000), f32) }")
    folded = big.apply("fold-constants{growth=1000000}")
    with pytest.raises(nacre.DiagnosticError, match="not-expressible"):
        folded.save(tmp_path / "m.nacre")
    with pytest.raises(ValueError, match=r"`m\.txt`"):
        folded.save(tmp_path / "m.txt")
    assert not list(tmp_path.iterdir())


def test_faults_of_a_call() -> None:
    with pytest.raises(TypeError, match="takes 2 arrays, not 1"):
        branch().run(X)
    with pytest.raises(nacre.DiagnosticError, match="no-weights"):
        loop().run(X)
    with pytest.raises(nacre.DiagnosticError, match="missing-tensor"):
        loop().run(X, weights={})
    with pytest.raises(ValueError, match="opt_level"):
        branch().compile(opt_level=9)
