"""`nacre serve` with models of plain tensors: the protocol KServe v2, raw and with the client of Triton."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from nacre.compiler.base.environment import CHECK_PASSES

pytest.importorskip("starlette", reason="the package starlette is not installed")
pytest.importorskip("uvicorn", reason="the package uvicorn is not installed")

from nacre.compiler.tools.serve.calls import Calls
from nacre.compiler.tools.serve.fields import RequestError
from nacre.compiler.tools.serve.kserve import TensorServer, served_entries
from nacre.compiler.tools.serve.tensors import read_inputs
from nacre.runtime.arguments import Argument
from running_server import ServerThread

TEXT = """language 1
dim B in 0..64
model both(x: f32[B, 3], scale: f64, keep: bool[B], ids: i8[2]) -> y: f32[B, 3], half: f16[2], total: i64 {
  return where(keep[:, None], x * cast(scale, f32), 0), cast(ids, f16) / 2, sum(cast(ids, i64))
}
model picked(x: f32[4], at: i32[B]) -> y: f32[B] { return log(x[at]) }
model counted(step: i64) -> i64 {
  state n: i64
  n = n + step
  return n + 0
}
"""
BODY = 3000


class Running(ServerThread):
    def __init__(self, path: Path) -> None:
        entries = served_entries(nacre.load(path), "m")
        assert set(entries) == {"m.both", "m.picked"}
        super().__init__(TensorServer(entries, Calls(2, 8, BODY)).application())

    def call(self, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any, bytes]:
        """Returns the status, the JSON and the bytes behind it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        content = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        connection.request("GET" if body is None else "POST", path, content, headers or {})
        response = connection.getresponse()
        found = response.read()
        connection.close()
        length = int(response.headers.get("inference-header-content-length", len(found)))
        return response.status, json.loads(found[:length]), found[length:]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("tensors") / "m.so"
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv(CHECK_PASSES, raising=False)
        nacre.compile(TEXT, path)
    started = Running(path)
    yield started
    started.stop()


def _input(name: str, shape: list[int], datatype: str, data: Any) -> dict[str, Any]:
    return {"name": name, "shape": shape, "datatype": datatype, "data": data}


GOOD = [
    _input("x", [2, 3], "FP32", [[1, 2, 3], [4, 5, 6.5]]),
    _input("scale", [], "FP64", [2]),
    _input("keep", [2], "BOOL", [True, False]),
    _input("ids", [2], "INT8", [-3, 127]),
]


def test_numbers_as_json(running: Running) -> None:
    status, found, _ = running.call("/v2/models/m.both/infer", {"id": "seven", "inputs": GOOD})
    assert status == 200
    assert found["id"] == "seven" and found["model_name"] == "m.both"
    assert found["outputs"] == [
        {"name": "y", "datatype": "FP32", "shape": [2, 3], "data": [2, 4, 6, 0, 0, 0]},
        {"name": "half", "datatype": "FP16", "shape": [2], "data": [-1.5, 63.5]},
        {"name": "total", "datatype": "INT64", "shape": [], "data": [124]},
    ]


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_numbers_as_bytes(running: Running, rows: int) -> None:
    x = np.arange(rows * 3, dtype="<f4").reshape(rows, 3)
    inputs: list[dict[str, Any]] = [
        {"name": "keep", "shape": [rows], "datatype": "BOOL", "parameters": {"binary_data_size": rows}},
        *GOOD[1:2],
        {"name": "x", "shape": [rows, 3], "datatype": "FP32", "parameters": {"binary_data_size": 12 * rows}},
        *GOOD[3:],
    ]
    outputs = [{"name": "total"}, {"name": "y", "parameters": {"binary_data": True}}]
    head = json.dumps({"inputs": inputs, "outputs": outputs}).encode()
    content = head + b"\x01" * rows + x.tobytes()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    status, found, rest = running.call("/v2/models/m.both/versions/1/infer", content, headers)
    assert status == 200, found
    y, total = found["outputs"]
    assert total["data"] == [124] and y["parameters"] == {"binary_data_size": 12 * rows}
    assert np.array_equal(np.frombuffer(rest, "<f4").reshape(rows, 3), x * 2)


def test_metadata(running: Running) -> None:
    assert running.call("/v2")[1]["extensions"] == ["binary_tensor_data"]
    assert running.call("/v2/health/ready")[0] == 200
    assert running.call("/v2/models/m.both/ready")[1] == {"ready": True}
    found = running.call("/v2/models/m.both")[1]
    assert found["inputs"][0] == {"name": "x", "datatype": "FP32", "shape": [-1, 3]}
    assert [output["datatype"] for output in found["outputs"]] == ["FP32", "FP16", "INT64"]


PICK = [_input("x", [4], "FP32", [1, 2, 3, 0]), _input("at", [1], "INT32", [0])]
BAD: dict[str, tuple[Any, int, str]] = {
    "no json": (b"{", 400, "not JSON"),
    "list": ([], 400, "not a JSON object"),
    "no inputs": ({}, 400, "`inputs` is not a list"),
    "missing": ({"inputs": PICK[:1]}, 400, "the input `at` is missing"),
    "twice": ({"inputs": [*PICK, PICK[0]]}, 400, "`x` is given twice"),
    "unknown": ({"inputs": [_input("y", [1], "FP32", [1])]}, 400, "`y` is not among x, at"),
    "datatype": ({"inputs": [_input("x", [4], "FP64", [1] * 4), PICK[1]]}, 400, "FP64, not FP32"),
    "count": ({"inputs": [_input("x", [4], "FP32", [1]), PICK[1]]}, 400, "1 numbers, and its shape has 4"),
    "shape": ({"inputs": [_input("x", [5], "FP32", [1] * 5), PICK[1]]}, 400, "axis 0"),
    "axes": ({"inputs": [_input("x", [1] * 100, "FP32", [1]), PICK[1]]}, 400, "`x` has 100 axes, not 1"),
    "beyond": ({"inputs": [_input("x", [4], "FP32", [1e300] * 4), PICK[1]]}, 400, "not numbers of the datatype FP32"),
    "half a character": ({"inputs": [_input("\ud800", [1], "FP32", [1])]}, 400, "texts that are not Unicode"),
    "negative": ({"inputs": [_input("x", [-4], "FP32", [1]), PICK[1]]}, 400, "not a list of sizes"),
    "text": ({"inputs": [_input("x", [4], "FP32", ["a"] * 4), PICK[1]]}, 400, "not numbers of the datatype FP32"),
    "ragged": ({"inputs": [_input("x", [4], "FP32", [[1], [2, 3, 4]]), PICK[1]]}, 400, "not numbers"),
    "fraction": ({"inputs": [PICK[0], _input("at", [1], "INT32", [0.5])]}, 400, "not numbers of the datatype INT32"),
    "wide": ({"inputs": [PICK[0], _input("at", [1], "INT32", [1 << 40])]}, 400, "not numbers of the datatype INT32"),
    "index": ({"inputs": [PICK[0], _input("at", [1], "INT32", [4])]}, 400, "out of range"),
    "output": ({"inputs": PICK, "outputs": [{"name": "z"}]}, 400, "`z` is not among y"),
    "infinite": ({"inputs": [PICK[0], _input("at", [1], "INT32", [3])]}, 400, "ask for it as binary data"),
    "bytes": (
        {"inputs": [PICK[0], {"name": "at", "shape": [1], "datatype": "INT32", "parameters": {"binary_data_size": 4}}]},
        400,
        "that the body holds",
    ),
    "parameters": ({"inputs": PICK, "parameters": 3}, 400, "`parameters` is not an object"),
    "large": (b" " * (BODY + 1), 413, "larger than 3000 bytes"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_requests(running: Running, name: str) -> None:
    body, status, message = BAD[name]
    found, said, _ = running.call("/v2/models/m.picked/infer", body)
    assert (found, message in said["error"]) == (status, True), said
    good, answer, _ = running.call("/v2/models/m.picked/infer", {"inputs": PICK})
    assert good == 200 and answer["outputs"][0]["data"] == [0]


@pytest.mark.parametrize("length", ["-1", "5.0", "999999", "9" * 5000])
def test_a_header_that_is_not_a_length(running: Running, length: str) -> None:
    headers = {"Inference-Header-Content-Length": length}
    status, said, _ = running.call("/v2/models/m.picked/infer", {"inputs": PICK}, headers)
    assert status == 400 and "the header inference-header-content-length is" in said["error"]


def test_a_shape_beyond_addresses() -> None:
    argument = Argument("x", "f32[A, B, C]", "f32", ("A", "B", "C"))
    large = (1 << 40) - 1
    with pytest.raises(RequestError, match="the shape of `x` is too large"):
        read_inputs([argument], {"inputs": [_input("x", [0, large, large], "FP32", [])]}, b"")


def test_unknown_models(running: Running) -> None:
    for path in ("m.counted", "m", "m.both/versions/2"):
        status, said, _ = running.call(f"/v2/models/{path}/infer", {"inputs": []})
        assert status == 404 and "there are m.both, m.picked" in said["error"]


def test_the_client_of_triton(running: Running) -> None:
    triton = pytest.importorskip("tritonclient.http", reason="the package tritonclient is not installed")
    client = triton.InferenceServerClient(f"127.0.0.1:{running.port}")
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("m.both")
    assert client.get_model_metadata("m.both")["inputs"][0]["shape"] == [-1, 3]
    arrays = {
        "x": np.arange(6, dtype=np.float32).reshape(2, 3),
        "scale": np.array(3.0),
        "keep": np.array([True, True]),
        "ids": np.array([1, 2], np.int8),
    }
    names = {"x": "FP32", "scale": "FP64", "keep": "BOOL", "ids": "INT8"}
    for binary in (True, False):
        inputs = [triton.InferInput(name, list(arrays[name].shape), datatype) for name, datatype in names.items()]
        for given in inputs:
            given.set_data_from_numpy(arrays[given.name()], binary_data=binary)
        wanted = [triton.InferRequestedOutput(name, binary_data=binary) for name in ("y", "total")]
        found = client.infer("m.both", inputs, outputs=wanted)
        assert np.array_equal(found.as_numpy("y"), arrays["x"] * 3) and found.as_numpy("total") == 3
    client.close()
