"""`nacre serve`: the protocol, many users at once, limits, and the end of the server."""

from __future__ import annotations

import http.client
import json
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from pathlib import Path
from typing import Any, NoReturn

import nacre
import pytest

pytest.importorskip("starlette", reason="the package starlette is not installed")
pytest.importorskip("uvicorn", reason="the package uvicorn is not installed")

from nacre.compiler.tools.generate.tokens import Generator, Sampling
from nacre.compiler.tools.serve import batches, turns
from nacre.compiler.tools.serve.answers import Cut
from nacre.compiler.tools.serve.engine import Event, Finished, Job, QueueFullError, Sampled, StoppedError
from nacre.compiler.tools.serve.fields import RequestError
from nacre.compiler.tools.serve.protocol import read_order
from nacre.compiler.tools.serve.turns import Turns
from running_server import BODY, Running, expected
from talker import CONTEXT, PAGE

PROMPTS = ["the moth", "a", "what is it?", "then the them", "zz", "o. o. o.", "the", "qu"]


def test_many_users_get_the_answers_of_one_user(running: Running, talker: Path) -> None:
    alone = [expected(talker, prompt) for prompt in PROMPTS]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(2):
            found = list(pool.map(running.complete, PROMPTS))
            assert [answer["choices"][0]["text"] for answer in found] == alone
    assert len(set(alone)) > 4
    used = found[0]["usage"]
    assert used["prompt_tokens"] == len(running.vocabulary.encode(PROMPTS[0]))
    assert used["total_tokens"] == used["prompt_tokens"] + used["completion_tokens"]


def test_streams_hold_the_same_text(running: Running, talker: Path) -> None:
    body = {"model": "talker", "prompt": "the", "max_tokens": 9, "temperature": 0, "stream": True}
    status, text = running.call("/v1/completions", body | {"stream_options": {"include_usage": True}})
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert status == 200 and events.pop() == "[DONE]"
    parts = [json.loads(event) for event in events]
    usage = parts.pop()
    assert usage["choices"] == [] and usage["usage"]["completion_tokens"] <= 9
    assert "".join(part["choices"][0]["text"] for part in parts) == expected(talker, "the", 9)
    assert [part["choices"][0]["finish_reason"] for part in parts[:-1]] == [None] * (len(parts) - 1)
    assert parts[-1]["choices"][0]["finish_reason"] in ("length", "stop")


def test_a_seed_gives_the_same_text(running: Running, talker: Path) -> None:
    texts = [running.complete("a", temperature=1.0, seed=seed)["choices"][0]["text"] for seed in (1, 1, 2)]
    sampling = Sampling(temperature=1.0, top_k=0, top_p=1, min_p=0, seed=1)
    assert texts[0] == texts[1] == expected(talker, "a", 12, sampling) != texts[2]


def test_a_conversation(running: Running, talker: Path) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "the?"}]}]
    body = {"model": "talker", "messages": messages, "max_completion_tokens": 5, "temperature": 0}
    status, text = running.call("/v1/chat/completions", body)
    choice = json.loads(text)["choices"][0]
    plain = running.vocabulary.converse([{"role": "user", "content": "the?"}])
    assert status == 200 and choice["message"]["role"] == "assistant"
    assert choice["message"]["content"].strip() == expected(talker, plain, 5).strip()


SCHEMA = {
    "type": "object",
    "properties": {"the": {"enum": ["moth", "them", 7]}},
    "required": ["the"],
    "additionalProperties": False,
}


def test_answers_have_the_form_of_their_request(running: Running, talker: Path) -> None:
    """Beside others that have none."""
    pytest.importorskip("llguidance", reason="the package llguidance is not installed")
    wanted = {"type": "json_schema", "json_schema": {"name": "moths", "schema": SCHEMA}}
    given = {"response_format": wanted, "max_tokens": 40, "temperature": 1.5}
    with ThreadPoolExecutor(6) as pool:
        formed = [pool.submit(running.complete, "a", seed=seed, **given) for seed in range(4)]
        plain = [pool.submit(running.complete, prompt) for prompt in PROMPTS[:3]]
        found = [answer.result()["choices"][0] for answer in formed]
        assert [answer.result()["choices"][0]["text"] for answer in plain] == [expected(talker, p) for p in PROMPTS[:3]]
    assert {choice["finish_reason"] for choice in found} == {"stop"}
    assert all(json.loads(choice["text"])["the"] in ("moth", "them", 7) for choice in found)
    # The last token of the answer completes it.
    exact = running.complete("a", seed=0, **(given | {"max_tokens": 40}))["usage"]["completion_tokens"]
    assert running.complete("a", seed=0, **(given | {"max_tokens": exact}))["choices"][0]["finish_reason"] == "stop"
    assert running.complete("a", seed=0, **(given | {"max_tokens": 3}))["choices"][0]["finish_reason"] == "length"
    messages = [{"role": "user", "content": "the?"}]
    body = {"model": "talker", "messages": messages, "max_tokens": 2, "response_format": {"type": "json_object"}}
    status, text = running.call("/v1/chat/completions", body)
    assert status == 200 and json.loads(text)["choices"][0]["message"]["content"].startswith("{")


def test_texts_end_before_a_stop(running: Running, talker: Path) -> None:
    texts = {prompt: expected(talker, prompt) for prompt in PROMPTS}
    prompt = max(texts, key=lambda prompt: len(texts[prompt]))
    whole = texts[prompt]
    stop = whole[3:5]
    assert len(stop) == 2
    found = running.complete(prompt, stop=[stop, "never"])["choices"][0]
    assert found["text"] == whole[: whole.index(stop)] and found["finish_reason"] == "stop"


def test_stops_over_several_pieces() -> None:
    for size in (1, 2, 3, 7):
        cut, text, shown = Cut(("abcd", "xy")), "ababcab abcx abce abcdef", ""
        for start in range(0, len(text), size):
            shown += cut.push(text[start : start + size])
            if cut.is_done:
                break
        assert cut.is_done and shown == "ababcab abcx abce "
    cut = Cut(("ab",))
    assert (cut.push("xa"), cut.rest(), cut.is_done) == ("x", "a", False)


def test_a_prefix_is_computed_once(running: Running) -> None:
    before = running.engine.counters.reused_tokens
    ids = [1, *range(262, 280)]
    first, again = (running.complete(ids, max_tokens=1) for _ in range(2))
    assert first["choices"] == again["choices"]
    # Pages are found whole.
    most = len(ids) - 1
    expected = most if isinstance(running.engine, Turns) else most // PAGE * PAGE
    assert running.engine.counters.reused_tokens >= before + expected


BAD: dict[str, tuple[str, Any, int, str]] = {
    "no json": ("completions", b"{", 400, "the body is not JSON"),
    "deep": ("completions", b"[" * 3000, 400, "the body is not JSON"),
    "list": ("completions", [], 400, "not a JSON object"),
    "half a character": ("completions", {"model": "\ud800"}, 400, "texts that are not Unicode"),
    "no model": ("completions", {"prompt": "a"}, 400, "`model` is not a text"),
    "other model": ("completions", {"model": "gpt-4", "prompt": "a"}, 404, "there is no model `gpt-4`"),
    "no prompt": ("completions", {"model": "talker"}, 400, "`prompt` is neither"),
    "no prompts": ("completions", {"model": "talker", "prompt": []}, 400, "`prompt` is neither"),
    "mixed prompts": ("completions", {"model": "talker", "prompt": ["a", 1]}, 400, "`prompt` is neither"),
    "token": ("completions", {"model": "talker", "prompt": [1, 99999]}, 400, "token 99999 is not among"),
    "negative": ("completions", {"model": "talker", "prompt": [-1]}, 400, "token -1 is not among"),
    "long": ("completions", {"model": "talker", "prompt": [5] * CONTEXT}, 400, "a session holds 48"),
    "large": ("completions", {"model": "talker", "prompt": "a" * BODY}, 413, "larger than 4000 bytes"),
    "tokens": ("completions", {"model": "talker", "prompt": "a", "max_tokens": 0}, 400, "`max_tokens` is not"),
    "hot": ("completions", {"model": "talker", "prompt": "a", "temperature": -1}, 400, "`temperature` is not"),
    "text": ("completions", {"model": "talker", "prompt": "a", "top_p": "1"}, 400, "`top_p` is not"),
    "n": ("completions", {"model": "talker", "prompt": "a", "n": 129}, 400, "`n` is not an integer from 1 to 128"),
    "many": ("completions", {"model": "talker", "prompt": ["a"] * 65, "n": 2}, 400, "more than 128 answers"),
    "best of": ("completions", {"model": "talker", "prompt": "a", "best_of": 2}, 400, "`best_of` is not `n`"),
    "suffix": ("completions", {"model": "talker", "prompt": "a", "suffix": "b"}, 400, "`suffix` is not supported"),
    "suffix type": ("completions", {"model": "talker", "prompt": "a", "suffix": 1}, 400, "`suffix` is not a text"),
    "suffix and echo": (
        "completions",
        {"model": "talker", "prompt": "a", "suffix": "b", "echo": True},
        400,
        "`suffix` and `echo` exclude each other",
    ),
    "logprobs": (
        "completions",
        {"model": "talker", "prompt": "a", "logprobs": 21},
        400,
        "`logprobs` is not an integer",
    ),
    "no tokens": ("completions", {"model": "talker", "prompt": "a", "max_tokens": 0}, 400, "`max_tokens` is not"),
    "bias": ("completions", {"model": "talker", "prompt": "a", "logit_bias": {"a": 1}}, 400, "`logit_bias` is not"),
    "large bias": (
        "completions",
        {"model": "talker", "prompt": "a", "logit_bias": {"5": 101}},
        400,
        "from -100 to 100",
    ),
    "biased token": ("completions", {"model": "talker", "prompt": "a", "logit_bias": {"99999": 1}}, 400, "token 99999"),
    "top logprobs": (
        "chat/completions",
        {"model": "talker", "messages": [{"role": "user", "content": "a"}], "top_logprobs": 2},
        400,
        "`top_logprobs` needs `logprobs`",
    ),
    "stop": ("completions", {"model": "talker", "prompt": "a", "stop": [1]}, 400, "`stop` is neither"),
    "format": (
        "completions",
        {"model": "talker", "prompt": "a", "response_format": {"type": "json_schema"}},
        400,
        "`response_format` has none of the types",
    ),
    "schema": (
        "completions",
        {
            "model": "talker",
            "prompt": "a",
            "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "foo"}}},
        },
        400,
        "the JSON schema is not valid",
    ),
    "schema without an end": (
        "completions",
        {
            "model": "talker",
            "prompt": "a",
            "response_format": {"type": "json_schema", "json_schema": {"schema": {"$ref": "#"}}},
        },
        400,
        "the JSON schema is not valid",
    ),
    "messages": ("chat/completions", {"model": "talker", "messages": []}, 400, "`messages` is not"),
    "message": ("chat/completions", {"model": "talker", "messages": [{"role": "user"}]}, 400, "`messages[0]`"),
    "role": (
        "chat/completions",
        {"model": "talker", "messages": [{"role": "forbidden", "content": ""}]},
        400,
        "no such role",
    ),
    "tools": (
        "chat/completions",
        {
            "model": "talker",
            "messages": [{"role": "user", "content": "a"}],
            "tools": [{"type": "function", "function": {"name": "f"}}],
        },
        400,
        "does not describe tools",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_requests(running: Running, name: str) -> None:
    path, body, status, message = BAD[name]
    found, text = running.call(f"/v1/{path}", body)
    assert (found, message in json.loads(text)["error"]["message"]) == (status, True), text
    assert running.complete("a", max_tokens=1)["choices"]


NUMBERS = {
    "temperature": (0, 100, 1e-3),
    "top_p": (1e-6, 1, 1e-9),
    "min_p": (0, 1, 1e-9),
    "repetition_penalty": (1e-6, 100, 1e-9),
    "top_k": (0, (1 << 31) - 1, 1),
    "seed": (-(1 << 31), (1 << 31) - 1, 1),
    "max_tokens": (1, (1 << 31) - 1, 1),
    "presence_penalty": (-2, 2, 1e-9),
    "frequency_penalty": (-2, 2, 1e-9),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_a_request_at_their_bounds(name: str) -> None:
    low, high, step = NUMBERS[name]
    body = {"model": "talker", "prompt": "a"}
    for value in (low, high):
        order = read_order(body | {name: value}, "talker", is_chat=False)
        assert order.count == value if name == "max_tokens" else value in astuple(order.sampling)
    for value in (low - step, high + step, 10**400, -(10**400), float("nan"), float("inf"), "1", True, [1]):
        with pytest.raises(RequestError, match=f"`{name}` is not "):
            read_order(body | {name: value}, "talker", is_chat=False)


def test_a_prompt_is_computed_in_parts(talker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any length, also a multiple of the greatest part."""
    monkeypatch.setattr(turns, "PART", 4)
    engine = Turns(nacre.load(talker), slots=1, capacity=CONTEXT, queue=1, end=frozenset(), lookup=0)
    for length in range(1, 14):
        # No prompt begins as an earlier one, whose tokens would be kept.
        ids = [262 + length, *range(262, 261 + length)]
        found: queue.Queue[Event] = queue.Queue()
        engine.submit(Job(ids, 5, Sampling(temperature=0), found.put))
        drawn = [found.get(timeout=120) for _ in range(6)]
        alone = Generator(nacre.load(talker), CONTEXT).generate(ids, 5, Sampling(temperature=0), frozenset())
        assert drawn[:5] == [Sampled(token) for token in alone], length
        assert drawn[5] == Finished("length")
    engine.stop()


def test_an_answer_fills_the_session(running: Running) -> None:
    found = [running.complete(prompt, max_tokens=1000) for prompt in PROMPTS]
    full = [answer["usage"] for answer in found if answer["choices"][0]["finish_reason"] == "length"]
    assert full
    assert all(used["completion_tokens"] == CONTEXT - used["prompt_tokens"] for used in full)


def test_a_session_begins_anew_after_an_error(talker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that was interrupted may have left tokens in the cache."""
    append = Generator.append

    def interrupted(self: Generator, ids: Sequence[int]) -> Any:
        known = len(self.ids)
        append(self, ids)
        del self.ids[known:]
        raise RuntimeError("out of luck")

    engine = Turns(nacre.load(talker), slots=1, capacity=CONTEXT, queue=1, end=frozenset(), lookup=0)
    found: queue.Queue[Event] = queue.Queue()
    ids, sampling = [1, 262, 263], Sampling(temperature=0)
    with monkeypatch.context() as patched:
        patched.setattr(Generator, "append", interrupted)
        engine.submit(Job([1, 270, 271, 272], 5, sampling, found.put))
        assert isinstance(found.get(timeout=120), RuntimeError)
    engine.submit(Job(ids, 5, sampling, found.put))
    drawn = [found.get(timeout=120) for _ in range(5)]
    alone = Generator(nacre.load(talker), CONTEXT).generate(ids, 5, sampling, frozenset())
    assert drawn == [Sampled(token) for token in alone]
    engine.stop()


def test_other_pages(running: Running) -> None:
    assert json.loads(running.call("/v1/models", method="GET")[1])["data"][0]["id"] == "talker"
    assert running.call("/health", method="GET") == (200, '{"status":"ok"}')
    assert running.call("/nothing", method="GET")[0] == 404
    assert running.call("/v1/completions", method="GET")[0] == 405
    metrics = running.call("/metrics", method="GET")[1]
    values = dict(line.split(" ") for line in metrics.splitlines() if not line.startswith("#"))
    assert int(values["nacre_generated_tokens_total"]) > 0 and values["nacre_requests_running"] == "0"


def test_a_client_that_leaves_frees_its_slot(running: Running) -> None:
    before = running.engine.counters.cancelled
    body = json.dumps({"model": "talker", "prompt": "a", "max_tokens": 40, "stream": True, "seed": 5}).encode()
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", running.port)) as client:
            head = f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
            client.recv(20)
    deadline = time.monotonic() + 120
    while running.engine.running and time.monotonic() < deadline:
        time.sleep(0.02)
    assert running.engine.running == 0 and running.engine.counters.cancelled >= before
    assert running.complete("a", max_tokens=1)["choices"]


def test_a_full_queue_and_the_end(talker: Path) -> None:
    model = nacre.load(talker)
    engine = Turns(model, slots=1, capacity=CONTEXT, queue=1, end=frozenset(), lookup=0)
    gate, ends = threading.Event(), []
    jobs = [
        Job([1, 262], 40, Sampling(temperature=0), lambda event: (gate.wait(120), ends.append(event))) for _ in "abc"
    ]
    engine.submit(jobs[0])
    while not engine.running:
        time.sleep(0.01)
    engine.submit(jobs[1])
    with pytest.raises(QueueFullError):
        engine.submit(jobs[2])
    assert (engine.running, engine.waiting, engine.counters.refused) == (1, 1, 1)
    stopping = threading.Thread(target=engine.stop)
    stopping.start()
    while engine.is_alive:
        time.sleep(0.01)
    gate.set()
    stopping.join(120)
    assert sum(isinstance(event, StoppedError) for event in ends) == 2
    with pytest.raises(StoppedError):
        engine.submit(jobs[2])


def test_a_request_that_fails_has_an_answer(running: Running, talker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> NoReturn:
        raise RuntimeError("out of luck")

    body = {"model": "talker", "prompt": "the", "max_tokens": 4, "temperature": 0}
    with monkeypatch.context() as patched:
        patched.setattr(Generator, "generate", fail)
        patched.setattr(batches, "choose", fail)
        status, text = running.call("/v1/completions", body)
        assert status == 500 and "out of luck" in json.loads(text)["error"]["message"]
        _, text = running.call("/v1/completions", body | {"stream": True})
        assert "out of luck" in text
    assert running.complete("the", max_tokens=9)["choices"][0]["text"] == expected(talker, "the", 9)


def test_steps_take_turns(talker: Path) -> None:
    """Two long answers end within one token of each other, and the queue is served in order."""
    engine = Turns(nacre.load(talker), slots=2, capacity=CONTEXT, queue=8, end=frozenset(), lookup=0)
    order: list[str] = []
    done = threading.Event()

    def job(name: str, count: int) -> Job:
        def emit(event: object) -> None:
            order.append(name)
            if len(order) == 3 * 21:
                done.set()

        return Job([1, 262], count, Sampling(temperature=0), emit)

    for name in "abc":
        engine.submit(job(name, 20))
    assert done.wait(60)
    engine.stop()
    both = [name for name in order if name in "ab"]
    assert all(abs(both[:n].count("a") - both[:n].count("b")) <= 2 for n in range(len(both)))
    assert order[-1] == "c" and order.index("c") > 30


def test_the_command_ends_cleanly(talker: Path) -> None:
    command = [sys.executable, "-m", "nacre.compiler.cli.main", "serve", str(talker), "--port", "0", "--slots", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        port = next(int(found[1]) for line in lines if (found := re.search(r"http://127\.0\.0\.1:(\d+)", line)))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/v1/models")
        assert json.loads(connection.getresponse().read())["data"][0]["id"] == "talker"
        connection.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert "Traceback" not in "".join(lines)


def test_a_port_in_use(talker: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        command = [sys.executable, "-m", "nacre.compiler.cli.main", "serve", str(talker), "--port"]
        done = subprocess.run([*command, str(used.getsockname()[1])], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "address already in use" in done.stderr and "Traceback" not in done.stderr
