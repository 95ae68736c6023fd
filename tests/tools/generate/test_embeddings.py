"""`nacre serve` with an encoder of text: the embeddings of OpenAI's protocol, raw and with its client."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from nacre.compiler.base.environment import CHECK_PASSES
from readers.huggingface.tiny_folders import REFERENCES, VOCABULARY, write_folder
from tokenizers import Tokenizer, models, pre_tokenizers, processors

pytest.importorskip("starlette", reason="the package starlette is not installed")
pytest.importorskip("uvicorn", reason="the package uvicorn is not installed")

from nacre.compiler.tools.serve.calls import Calls
from nacre.compiler.tools.serve.embeddings import Embeddings, embeds, make_embeddings
from nacre.compiler.tools.serve.kserve import TensorServer, served_entries
from running_server import ServerThread

TEXTS = ["a moth", "", "the longest text of all", "b", "moth a", "a moth"]
BODY = 3000


def _write_tokenizer(folder: Path) -> None:
    tokens = {token: i for i, token in enumerate(["<pad>", "<s>", "</s>", " ", *"abcdefghijklmnopqrstuvwxyz"])}
    tokenizer = Tokenizer(models.WordLevel(tokens, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    special = [("<s>", 1), ("</s>", 2)]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=special)
    tokenizer.save(str(folder / "tokenizer.json"))


class Running(ServerThread):
    def __init__(self, path: Path) -> None:
        model = nacre.load(path)
        assert embeds(model)
        calls = Calls(2, 1, BODY)
        self.made: Embeddings = make_embeddings(model, "bert", calls, 0)
        application = TensorServer(served_entries(model, "bert"), calls, self.made.routes()).application()
        super().__init__(application)

    def call(self, path: str, body: Any = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        content = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        connection.request("GET" if body is None else "POST", path, content)
        response = connection.getresponse()
        found = json.loads(response.read())
        connection.close()
        return response.status, found

    def embed(self, **body: Any) -> tuple[int, Any]:
        return self.call("/v1/embeddings", {"model": "bert"} | body)

    def alone(self, text: str) -> Any:
        """Returns the vector of one text in a call of its own."""
        ids = np.array([[1, *(3 + " abcdefghijklmnopqrstuvwxyz".index(letter) for letter in text), 2]])
        return self.made.entry(ids, np.ones_like(ids))[0]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("encoders") / "bert"
    with np.load(REFERENCES) as stored:
        described = json.loads(bytes(stored["bert/described"]))
    write_folder(folder, described["config"], described["shapes"])
    _write_tokenizer(folder)
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv(CHECK_PASSES, raising=False)
        nacre.compile(folder, folder / "bert.so")
    started = Running(folder / "bert.so")
    yield started
    started.stop()


def test_vectors_of_texts(running: Running) -> None:
    """A text has the same vector in a list, beside longer texts, as alone."""
    status, found = running.embed(input=TEXTS)
    assert status == 200, found
    assert found["object"] == "list" and found["model"] == "bert"
    tokens = sum(len(text) + 2 for text in TEXTS)
    assert found["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    assert [one["index"] for one in found["data"]] == list(range(len(TEXTS)))
    for text, one in zip(TEXTS, found["data"], strict=True):
        np.testing.assert_allclose(one["embedding"], running.alone(text), rtol=0, atol=1e-6)
    assert np.abs(np.subtract(found["data"][0]["embedding"], found["data"][3]["embedding"])).max() > 1e-3


def test_one_text_in_each_form(running: Running) -> None:
    vectors = []
    for given in ("a moth", ["a moth"], [[1, 4, 3, 16, 18, 23, 11, 2]], [1, 4, 3, 16, 18, 23, 11, 2]):
        status, found = running.embed(input=given, encoding_format="float", dimensions=32, user="someone")
        assert status == 200 and len(found["data"]) == 1, found
        vectors.append(found["data"][0]["embedding"])
    assert vectors.count(vectors[0]) == 4
    _, found = running.embed(input="a moth", encoding_format="base64")
    assert np.frombuffer(base64.b64decode(found["data"][0]["embedding"]), "<f4").tolist() == vectors[0]


def test_more_texts_than_a_call_takes(running: Running) -> None:
    texts = ["abcdefgh"[: number % 8 + 1] for number in range(100)]
    _, found = running.embed(input=texts)
    for number in (0, 7, 50, 99):
        np.testing.assert_allclose(found["data"][number]["embedding"], running.alone(texts[number]), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({}, 400, "`input` is neither"),
        ({"input": []}, 400, "`input` is neither"),
        ({"input": ["a", 3.5]}, 400, "a text of `input` is neither"),
        ({"input": "a", "model": "other"}, 404, "there is no model `other`"),
        ({"input": "a", "model": 3}, 400, "`model` is not a text"),
        ({"input": "a", "encoding_format": "hex"}, 400, "`encoding_format` is not one of float, base64"),
        ({"input": "a", "dimensions": 7}, 400, "the model gives 32 numbers"),
        ({"input": "a", "dimensions": "7"}, 400, "`dimensions` is not an integer"),
        ({"input": ["b", "a" * 99]}, 400, "text 1 has 101 tokens, and the model takes 1 to "),
        ({"input": [VOCABULARY]}, 400, "is out of range"),
        ({"input": "a" * BODY}, 413, "the body is larger than 3000 bytes"),
    ],
)
def test_bad_requests(running: Running, body: dict[str, Any], status: int, message: str) -> None:
    found, said = running.embed(**body)
    assert found == status and message in said["error"]["message"], said
    assert running.embed(input="a")[0] == 200


def test_beside_other_paths(running: Running) -> None:
    assert running.call("/v1/embeddings", b"[1]")[1]["error"]["message"] == "the body is not a JSON object"
    assert running.call("/v1/models")[1]["data"][0]["id"] == "bert"
    assert running.call("/v2/models/bert.embed")[0] == 200
    assert running.call("/v2/models/none")[1] == {"error": running.call("/v2/models/none")[1]["error"]}
    assert isinstance(running.call("/v2/models/none")[1]["error"], str)


def test_the_client_of_openai(running: Running) -> None:
    openai = pytest.importorskip("openai", reason="the package openai is not installed")
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{running.port}/v1", api_key="none", max_retries=0)
    for encoding in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"}):
        found = client.embeddings.create(model="bert", input=TEXTS, **encoding)
        vectors = [one.embedding for one in found.data]
        if "encoding_format" in encoding and encoding["encoding_format"] == "base64":
            vectors = [np.frombuffer(base64.b64decode(vector), "<f4") for vector in vectors]
        for text, vector in zip(TEXTS, vectors, strict=True):
            np.testing.assert_allclose(vector, running.alone(text), rtol=0, atol=1e-6)
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="other", input="a")
    client.close()
