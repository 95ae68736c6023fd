"""An index that is out of range: the call fails and says which, in compiled code and in the interpreter alike."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.artifact.link import find_linker
from nacre.compiler.checking import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.validate.inputs import made_up
from nacre.dialect.interpreter import IndexRangeError, Interpreter
from nacre.passes.simplify.check_indices import CheckIndices
from nacre.runtime.library import OutOfRangeError
from nacre.runtime.observe import Event, observe

TEXT = """dim B in 0..100000
dim T in 0..64
dim S in 1..64

model embedded(t: f32[10, 4], i: i64[B]) -> f32[B, 4] { return embedding(t, i) }
model taken(x: f32[T, 6], i: i32[2, B]) -> f32[T, 2, B] { return gather(x, i, axis=1) }
model indexed(x: f32[3, T], i: i64[2]) -> f32[3, 2] { return x[:, i] * 2 }
model along(x: f32[T, 3], i: i64[1, 3]) -> f32[1, 3] { return take_along_axis(x, i, axis=0) }
model pairs(x: f32[T, 6], i: i64[B, 2]) -> f32[B] { return gather_nd(x, i) }
model window(x: f32[5, 6], i: i64) -> f32[2, 6] { return dynamic_slice(x, i, cast(0, i64), sizes=[2, 6]) }
model put(x: f32[8, 2], y: f32[3, 2], i: i64) -> f32[8, 2] { return dynamic_update_slice(x, y, i, cast(0, i64)) }
model added(x: f32[T, 2], i: i64[B, 1], u: f32[B, 2]) -> f32[T, 2] { return scatter_add(x, i, u) }
model written(x: f32[T], i: i64[2, 1], u: f32[2]) -> f32[T] { return scatter_nd(x, i, u) }
model computed(x: f32[5], i: i64[B]) -> f32[B] { return x[i * 2 - 1] + 1 }
model unread(x: f32[5], i: i64[B]) -> f32[5] {
  y = x[i]
  return x
}
model both(x: f32[5], i: i64[B], k: i64[B]) -> f32[B] { return x[k] + x[i] }
model clamped(x: f32[5], i: i64[B]) -> f32[B] { return gather(x, i, mode="clamp") }
model dropped(x: f32[5], i: i64[B]) -> f32[B] { return relu(gather(x, i, mode="drop") - 1) }
model skipped(x: f32[5], i: i64[3], u: f32[3]) -> f32[5] { return scatter_add(x, i, u, mode="drop") }
model single(x: f32[10], i: i64[B]) -> f32[B] { return x[i] }
model narrow(x: f32[10], i: i32[B]) -> f32[B] { return x[i] }
model counted(i: i64[B]) -> i64[5] { return bincount(i, size=5) }
model weighed(i: i64[B], w: f32[B]) -> f32[5] { return bincount(i, w, size=5) }
model lost(x: f32[B, 3], i: i64[B], w: f32[3]) -> f32[] { return cross_entropy(x, i, w, ignore_index=-100) }
model missed(x: f32[B, 3], i: i64[B]) -> f32[] { return cross_entropy(x, i) }
model hot(i: i64[B]) -> bool[B, 4] { return one_hot(i, 4, dtype=bool, mode="error", ignored=-100) }
model boxed(x: f32[1, 1, 4, 4], b: f32[2, 4], i: i64[2]) -> f32[2, 1, 1, 1] {
  return roi_align(x, b, i, size=1, scale=1.0, samples=1)
}
model counted_up(x: f32[5, 2], i: i32[B]) -> f32[B, 2] { return embedding(x, i, mode="nonnegative") }
model paged(x: f32[5, 2], i: i32[1, B]) -> f32[1, 2 * B] { return gather_pages(x, i, mode="nonnegative") }
model ahead(x: f32[3, T], i: i64[1, T]) -> f32[1, T] {
  return take_along_axis(x, i, axis=0, mode="nonnegative")
}
model cells(x: f32[T, 6], i: i64[B, 2]) -> f32[B] { return gather_nd(x, i, mode="nonnegative") }
model summed(x: f32[4], i: i32[B], u: f32[B]) -> f32[4] { return scatter_add(x, i, u, mode="nonnegative") }
model stored(x: f32[T], i: i64[2, 1], u: f32[2]) -> f32[T] { return scatter_nd(x, i, u, mode="nonnegative") }
model fused(x: f32[9, 4], p: f32[5, 4], i: i64[2, S], k: i32[S]) -> f32[2, S, 4] {
  return layer_norm(embedding(x, i) + embedding(p, k))
}
"""
LINES = {re.match(r"model (\w+)", line)[1]: n for n, line in enumerate(TEXT.splitlines(), 1) if line[:5] == "model"}  # type: ignore[index]  # they have names


INNER = ("unread", "boxed", "ahead", "fused")
"""The models with their operator in the second line."""


def f32(*shape: int) -> np.ndarray:  # type: ignore[type-arg]  # of any shape
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)


def ids(*values: int, shape: tuple[int, ...] | None = None, dtype: type = np.int64) -> np.ndarray:  # type: ignore[type-arg]  # as above
    return np.asarray(values, dtype).reshape((len(values),) if shape is None else shape)


FAR = ids(*[0] * 70_000, 12, *[3] * 20_000, -13)
CASES = [
    ("embedded", (f32(10, 4), ids(0, 9, 10)), "`embedding`", "index 10 is out of range for an axis of size 10 (elem"),
    ("embedded", (f32(10, 4), ids(-10, -11, 99)), "`embedding`", "index -11 is out of range for an axis of size 10 (e"),
    ("embedded", (f32(10, 4), FAR), "`embedding`", "index 12 is out of range for an axis of size 10 (element 70000"),
    ("taken", (f32(3, 6), ids(0, 5, -6, 1 << 30, shape=(2, 2), dtype=np.int32)), "`gather`", "1073741824 is out of r"),
    ("taken", (f32(0, 6), ids(0, 7, shape=(2, 1), dtype=np.int32)), "`gather`", "index 7 is out of range"),
    ("indexed", (f32(3, 4), ids(3, 4)), "`gather`", "index 4 is out of range for an axis of size 4 (element 1 of"),
    ("indexed", (f32(3, 0), ids(0, 0)), "`gather`", "index 0 is out of range for an axis of size 0 (element 0 of"),
    ("along", (f32(2, 3), ids(1, -2, -3, shape=(1, 3))), "`take_along_axis`", "index -3 is out of range"),
    ("pairs", (f32(2, 6), ids(1, 5, 1, 6, shape=(2, 2))), "`gather_nd`", "index 6 is out of range for an axis of"),
    ("pairs", (f32(2, 6), ids(1, 5, 2, 6, shape=(2, 2))), "`gather_nd`", "index 2 is out of range for an axis of"),
    ("window", (f32(5, 6), ids(4, shape=())), "`dynamic_slice`", "a window of 2 that starts at 4 is out of"),
    ("window", (f32(5, 6), ids(-1, shape=())), "`dynamic_slice`", "a window of 2 that starts at -1 is out of range"),
    ("put", (f32(8, 2), f32(3, 2), ids(6, shape=())), "`dynamic_update_slice`", "a window of 3 that starts at 6 is"),
    ("added", (f32(4, 2), ids(0, 4, shape=(2, 1)), f32(2, 2)), "`scatter_add`", "index 4 is out of range"),
    ("written", (f32(4), ids(3, -5, shape=(2, 1)), f32(2)), "`scatter_nd`", "index -5 is out of range"),
    ("computed", (f32(5), ids(1, 3, 2)), "`gather`", "index 5 is out of range for an axis of size 5 (element 1 of"),
    ("unread", (f32(5), ids(5)), "`gather`", "index 5 is out of range"),
    ("both", (f32(5), ids(9), ids(8)), "`gather`", "index 8 is out of range"),
    ("counted", (ids(0, 4, 5),), "`bincount`", "index 5 is out of range for an axis of size 5 (element 2 of the ind"),
    ("weighed", (ids(-5, 1, 4, -6), f32(4)), "`bincount`", "index -6 is out of range"),
    ("lost", (f32(3, 3), ids(-100, 2, 3), f32(3)), "`cross_entropy`", "index 3 is out of range for an axis of size 3"),
    ("missed", (f32(2, 3), ids(0, -1)), "`cross_entropy`", "index -1 is out of range for an axis of size 3 (element 1"),
    ("hot", (ids(3, 4),), "`one_hot`", "index 4 is out of range for an axis of size 4 (element 1 of the indices)"),
    ("hot", (ids(-100, 0, -1),), "`one_hot`", "index -1 is out of range for an axis of size 4 (element 2"),
    ("boxed", (f32(1, 1, 4, 4), f32(2, 4), ids(0, 1)), "`roi_align`", "index 1 is out of range for an axis of size 1"),
    ("counted_up", (f32(5, 2), ids(4, 0, -1, dtype=np.int32)), "`embedding`", "index -1 is out of range for an axis o"),
    ("counted_up", (f32(5, 2), ids(1, -1 << 31, 7, dtype=np.int32)), "`embedding`", "index -2147483648 is out of rang"),
    ("counted_up", (f32(5, 2), ids(4, 5, -1, dtype=np.int32)), "`embedding`", "index 5 is out of range for an axis of"),
    ("paged", (f32(5, 2), ids(4, -5, 9, shape=(1, 3), dtype=np.int32)), "`gather_pages`", "index -5 is out of range f"),
    ("ahead", (f32(3, 2), ids(2, -3, shape=(1, 2))), "`take_along_axis`", "index -3 is out of range for an axis of"),
    ("cells", (f32(2, 6), ids(1, 5, 1, -1, shape=(2, 2))), "`gather_nd`", "index -1 is out of range for an axis of si"),
    ("summed", (f32(4), ids(3, -2, dtype=np.int32), f32(2)), "`scatter_add`", "index -2 is out of range for an axis o"),
    ("stored", (f32(4), ids(3, -4, shape=(2, 1)), f32(2)), "`scatter_nd`", "index -4 is out of range for an axis of s"),
    ("fused", (f32(9, 4), f32(5, 4), ids(0, 9, shape=(2, 1)), ids(5, dtype=np.int32)), "`embedding`", "index 9 is o"),
    ("fused", (f32(9, 4), f32(5, 4), ids(0, 8, shape=(2, 1)), ids(-6, dtype=np.int32)), "`embedding`", "index -6 is"),
]  # fmt: skip
GOOD = [
    ("embedded", (f32(10, 4), ids(0, -10, 9)), f32(10, 4)[[0, 0, 9]]),
    ("embedded", (f32(10, 4), ids()), np.empty((0, 4))),
    ("window", (f32(5, 6), ids(-2, shape=())), f32(5, 6)[3:]),
    ("added", (f32(0, 2), ids(shape=(0, 1)), f32(0, 2)), np.empty((0, 2))),
    ("clamped", (f32(5), ids(-9, 9, 2)), [1, 5, 3]),
    ("dropped", (f32(5), ids(-6, 5, 2, -1)), [0, 0, 2, 4]),
    ("counted_up", (f32(5, 2), ids(4, 0, dtype=np.int32)), f32(5, 2)[[4, 0]]),
    ("stored", (f32(4), ids(3, 3, shape=(2, 1)), f32(2)), [1, 2, 3, 2]),
    ("hot", (ids(3, -100, 0),), np.eye(5)[[3, 4, 0], :4]),
    ("skipped", (f32(5), ids(-6, 4, 5), f32(3)), [1, 2, 3, 4, 7]),
]


@pytest.fixture(scope="module", params=[0, 2])
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("indices") / f"indices{request.param}.so"
    Build(read_model(TEXT), Options(level=request.param)).run(path)
    return path


def test_compiled(artifact: Path) -> None:
    for threads in (1, 2):
        model = nacre.load(artifact, threads=threads)
        for name, inputs, operator, words in CASES:
            with pytest.raises(OutOfRangeError) as caught:
                model.entries[name](*inputs)
            message = str(caught.value)
            assert isinstance(caught.value, nacre.NacreError)
            assert message.startswith(f"{operator} at model.nacre:{LINES[name] + (name in INNER)}:"), message
            assert words in message, message
        for name, inputs, expected in GOOD:
            assert np.array_equal(model.entries[name](*inputs), np.asarray(expected, np.float32)), name


def test_observed(artifact: Path) -> None:
    model = nacre.load(artifact)
    seen: list[Event] = []
    with observe(model, seen.append):
        for name, inputs, _, words in CASES:
            seen.clear()
            with pytest.raises(OutOfRangeError, match=re.escape(words)):
                model.entries[name](*inputs)
            assert seen, name
        for name, inputs, expected in GOOD:
            assert np.array_equal(model.entries[name](*inputs), np.asarray(expected, np.float32)), name


DEFERRED = {"embedded", "computed", "both", "single", "narrow", "counted", "weighed", "boxed", "fused"}
"""The models whose kernels watch the indices at -O2."""


def test_deferred() -> None:
    build = Build(read_model(TEXT), Options(level=2))
    checks = {f.name: [n for n in f.body if n.op == "check_indices"] for f in build.optimize().functions}
    late = {name for name, found in checks.items() if any(n.attribute("deferred") for n in found)}
    assert late == DEFERRED


@pytest.mark.parametrize("name", ["single", "narrow", "embedded"])
def test_every_position(artifact: Path, name: str) -> None:
    """Vectors and the lanes behind them: an index out of range anywhere fails the call, and lanes that are not computed
    raise no alarm."""
    for threads in (1, 2):
        model = nacre.load(artifact, threads=threads)
        entry = model.entries[name]
        x = f32(10, 4) if name == "embedded" else f32(10)
        for count in (1, 7, 9, 33, 70):
            good = np.resize(np.asarray([9, -10, 3, -1, 0], np.int32 if name == "narrow" else np.int64), count)
            assert np.array_equal(entry(x, good), x[good])
            for place in range(count):
                bad = good.copy()
                bad[place:] = np.where(np.arange(count - place) % 2, -11, 10)
                # The alarm is that of any lane behind the place, or that of its own lane.
                alone = good.copy()
                alone[place] = 10
                for given in (bad, alone):
                    with pytest.raises(OutOfRangeError, match=rf"index 10 is .*element {place} of"):
                        entry(x, given)
        with observed_calls(model) as calls:
            entry(x, good)
            quiet = len(calls)
            with pytest.raises(OutOfRangeError):
                entry(x, bad)
        # The check runs after an alarm only.
        assert (quiet, len(calls)) == ((1, 3) if "indices2" in artifact.name else (2, 3))


@contextmanager
def observed_calls(model: nacre.Model) -> Iterator[list[str]]:
    seen: list[str] = []
    with observe(model, lambda event: seen.append(event.call.kernel)):
        yield seen


def test_interpreted() -> None:
    interpreter = Interpreter(read_model(TEXT).module, made_up)
    for name, inputs, operator, words in CASES:
        # In the order of the text, in which `both` reads its indices, too.
        with pytest.raises(IndexRangeError) as caught:
            interpreter.run(name, inputs)
        (diagnostic,) = caught.value.diagnostics
        assert diagnostic.span is not None and diagnostic.span.line == LINES[name] + (name in INNER)
        assert diagnostic.message.startswith(f"{operator}: ") and words in diagnostic.message, diagnostic
    for name, inputs, expected in GOOD:
        assert np.array_equal(interpreter.run(name, inputs)[0], np.asarray(expected, np.float32)), name


def test_ignored_classes_where_no_pass_decomposes() -> None:
    interpreter = Interpreter(CheckIndices().run(read_model(TEXT).module), made_up)
    (loss,) = interpreter.run("lost", (f32(3, 3), ids(-100, 2, 0), f32(3)))
    assert np.isfinite(loss)
    with pytest.raises(IndexRangeError, match="`cross_entropy`: index 3 is out of range"):
        interpreter.run("lost", (f32(3, 3), ids(-100, 2, 3), f32(3)))


PROGRAM = r"""
#include <stdio.h>
#include "indices.h"

int main(void) {
    const nacre_api *api = nacre_get_api(1);
    nacre_session *session = NULL;
    if (api->session_create(NULL, &session) || api->session_reserve(session, 1 << 16)) return 2;
    float table[40] = {0}, rows[8];
    int64_t ids[2] = {3, -12};
    nacre_status status = m_embedded(session, 2, table, ids, rows, NULL, 0);
    printf("%d %s\n", (int)status, api->last_error());
    ids[1] = 4;
    printf("%d\n", (int)m_embedded(session, 2, table, ids, rows, NULL, 0));
    api->session_destroy(session);
    return status == NACRE_OUT_OF_RANGE ? 0 : 1;
}
"""


def test_in_c(tmp_path: Path) -> None:
    """The status and the message of the header's wrapper; the session's workspace is free again."""
    (tmp_path / "m.nacre").write_text("\n".join(TEXT.splitlines()[:5]))
    options = ["-O0", "-o", "indices.so", "--emit", "so", "--emit", "header"]
    done = subprocess.run(["nacre", "compile", "m.nacre", *options], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (tmp_path / "main.c").write_text(PROGRAM)
    done = find_linker().run(
        ["-O1", "-Wall", "-Werror", "-o", "main", "main.c", "indices.so", "-Wl,-rpath,."], tmp_path
    )
    assert done.returncode == 0, done.stderr
    done = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True)
    message = "`embedding` at m.nacre:5:64: index -12 is out of range for an axis of size 10 (element 1 of the indices)"
    assert (done.returncode, done.stdout) == (0, f"6 {message}\n0\n")


def test_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "m.nacre").write_text("model f(x: f32[3], i: i64[2]) -> f32[2] { return x[i] }\n")
    command = ["nacre", "run", "-O0", "m.nacre", "--input", "x=[1, 2, 3]", "--input", "i=[0, 3]"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "`gather` at m.nacre:1:50: index 3 is out of range" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


TOO_LARGE = """dim T in 1..100000
dim S in 1..100000
model power(x: f32[T]) -> i64 { return cast(T*T*T*T, i64) + cast(sum(x), i64) }
model less(x: f32[T]) -> i64 { return cast(T*T*T*T - 1, i64) }
model shared(x: f32[T]) -> i64 { return cast(T*T*T*T // 1152921504606846977, i64) }
model product(x: f32[T], y: f32[S]) -> i64 { return cast(T*T*T*T - S*T*T*T, i64) }
"""


def test_sizes_that_are_too_large(tmp_path: Path) -> None:
    model = nacre.compile(TOO_LARGE, tmp_path / "m.so", opt_level=0)
    power, less, shared, product = (model.entries[name] for name in ("power", "less", "shared", "product"))
    constraints = [entry["constraints"] for entry in model.describe()["entries"]]
    whole = "T*T*T*T to be below 2^63"
    assert constraints[:3] == [[whole], ["T*T*T*T - 1 to be below 2^63"], [whole]], constraints
    x, long = np.zeros(1000, np.float32), np.zeros(65536, np.float32)
    assert [power(x), less(x), shared(x), product(x, x[:999])] == [10**12, 10**12 - 1, 0, 10**9]
    assert shared(np.zeros(40000, np.float32)) == 2
    for entry in (power, less, shared):
        with pytest.raises(nacre.NacreError, match=r"needs T\*T\*T\*T.* to be below 2\^63, .* `T` = 65536"):
            entry(long)
    with pytest.raises(nacre.NacreError, match=r"to be below 2\^63, .* `T` = 65536"):
        product(long, x)
