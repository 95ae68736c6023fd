"""Tables of trees that lead outside of memory or around in a circle: the call fails and names the tree and the node.

Every call checks tables that are arguments, and the first call of a session those that are weights. Arguments lie
between inaccessible pages, in a process of their own, so that an access outside of a table would end the process.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.artifact.link import find_linker
from nacre.compiler.checking import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.dialect.interpreter import IndexRangeError, Interpreter
from nacre.dialect.ops.support.tree_cases import broken_tables
from nacre.dialect.types import Array
from nacre.runtime.library import OutOfRangeError
from nacre.runtime.observe import observe

NAMES = ("feature", "threshold", "children", "flags", "sets", "bounds", "roots", "depths")
FEATURES, LEAVES = 3, 5
SHAPES = {"feature": "[3]", "threshold": "[3]", "children": "[3, 2]", "flags": "[3]", "sets": "[2]", "bounds": "[3]"}
SHAPES |= {"roots": "[1, 3]", "depths": "[1, 3]", "values": "[5, 1]", "initial": "[1, 1]"}
TYPES = {n: f"{'f64' if n in ('threshold', 'values', 'initial') else 'i32'}{shape}" for n, shape in SHAPES.items()}
ARGUMENTS = ", ".join(f"{n}: {type}" for n, type in TYPES.items())
TABLES = ", ".join(NAMES)
TEXT = f"""language 1
dim B in 0..64
model sums(x: f64[B, 3], {ARGUMENTS}) -> total: f64[B, 1, 1] {{
  return tree_ensemble(x, {TABLES}, values, initial, routing="categories")
}}
model places(x: f64[B, 3], {ARGUMENTS}) -> leaves: i32[B, 1, 3] {{
  return tree_leaves(x, {TABLES}, routing="categories") + cast(sum(values) * 0 + sum(initial) * 0, i32)
}}
model levels(x: f64[3, B], feature: i32[2, 2], border: f64[2, 2]) -> leaves: i32[2, B] {{
  return oblivious_leaves(x, feature, border)
}}
"""
PARAMETERS = "\n".join(f"  param {n}: {type}" for n, type in TYPES.items())
STORED = f"""language 1
dim B in 0..64
model stored(x: f64[B, 3]) -> total: f64[B, 1, 1] {{
  weights "trees.npz"
{PARAMETERS}
  param square: i32[2, 2]
  param border: f64[2, 2]
  found = cast(sum(oblivious_leaves(x.T, square, border), axis=0), f64)
  return tree_ensemble(x, {TABLES}, values, initial, routing="categories") + found[:, None, None]
}}
model few(x: f64[B, 3]) -> total: f64[B, 1, 1] {{
  weights "trees.npz"
{PARAMETERS}
  total = if sum(x) > 0 {{
    tree_ensemble(x, {TABLES}, values, initial, routing="categories")
  }} else {{ (x[:, :1, None]) }}
  return total
}}
"""
WORDS = [
    *("tree 0, node 1: feature 3 is out of range for 3 features", "tree 1, node 2: feature -1 is out"),
    *("tree 0, node 0: feature -2147483648 is out", "node 2: feature 2147483647 is out"),
    *("tree 0, node 0: child 3 is out of range for 3 nodes", "node 0: child 2147483647 is out of range for 3"),
    *("tree 0, node 0: child 0 does not follow its parent, one of 3 nodes", "node 2: child 1 does not follow its"),
    *("node 1: leaf 5 is out of range for 5 leaves", "node 1: leaf 2147483647 is out of range for 5"),
    *("tree 2: leaf 5 is out of range for 5 leaves", "tree 0: root 3 is out of range for 3 nodes"),
    *("tree 1: root 2147483647 is out", "tree 0: depth 1 does not suffice for paths of 2 steps"),
    *("tree 1: depth 0 does not suffice for paths of 1 steps", "tree 2: depth 4 is out of range for 3 nodes"),
    *("tree 0: depth 2147483647 is out", "tree 0: depth -1 does not suffice for paths of 2"),
    *(
        "node 1: set -1 is out of range for 2 sets",
        "node 2: set 2 is out of range for 2",
        "set 1099511627776 is out of",
    ),
    *("node 1: bound -1 of its set is out of range for 2 words", "node 2: bound 3 of its set is out of range for 2"),
]
ROWS = np.asarray([[0.0, 1.0, -2.0], [np.nan, np.inf, 1e300], [0.25, 33.0, 0.0]])


def whole() -> dict[str, Array]:
    tables = next(broken_tables())[0]
    tables[0][1] = 2
    further = {"values": np.arange(5.0)[:, None], "initial": np.zeros((1, 1))}
    return {**{name: tables[n] for n, name in enumerate(NAMES)}, **further}


def wrong() -> Iterator[tuple[dict[str, Array], str]]:
    """Yields tables and the words of their error; `sums` knows the number of leaves, `places` does not."""
    found = list(broken_tables())[: len(WORDS)]
    for (tables, *_), words in zip(found, WORDS, strict=True):
        yield whole() | {name: tables[n] for n, name in enumerate(NAMES)}, words


def build(text: str, path: Path, level: int, weights: dict[str, Array] | None = None, placement: str = "") -> Path:
    model = read_model(text, weights=weights)
    Build(model, Options(level=level, **({"weights": placement} if placement else {}))).run(path)
    return path


@pytest.fixture(scope="module", params=[0, 2])
def called(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(TEXT, tmp_path_factory.mktemp("tables") / "tables.so", request.param)


def test_arguments(called: Path) -> None:
    """Every call checks its tables, also after one that was refused."""
    model, expected = nacre.load(called), Interpreter(read_model(TEXT).module, lambda _: np.zeros(0))
    good = list(whole().values())
    for entry in ("sums", "places"):
        line = 4 if entry == "sums" else 7
        (right,) = expected.run(entry, [ROWS, *good])
        for tables, words in wrong():
            if entry == "places" and " leaf " in words:
                continue
            given = [ROWS, *tables.values()]
            operator = "tree_ensemble" if entry == "sums" else "tree_leaves"
            with pytest.raises(OutOfRangeError, match=re.escape(words)) as caught:
                model.entries[entry](*given)
            assert str(caught.value).startswith(f"`{operator}` at model.nacre:{line}:"), caught.value
            with pytest.raises(IndexRangeError) as refused:
                expected.run(entry, given)
            (diagnostic,) = refused.value.diagnostics
            assert diagnostic.message.removeprefix(f"`{operator}`: ") == str(caught.value).split(": ", 1)[1]
            assert np.array_equal(model.entries[entry](ROWS, *good), right)


def test_a_nan_in_thresholds(called: Path) -> None:
    """NaN is above no feature; as the number of a set it counts as 0."""
    model, expected = nacre.load(called), Interpreter(read_model(TEXT).module, lambda _: np.zeros(0))
    tables = whole()
    tables["threshold"] = np.full(3, np.nan)
    given = [ROWS, *tables.values()]
    for entry in ("sums", "places"):
        assert np.array_equal(model.entries[entry](*given), expected.run(entry, given)[0])


def test_levels(called: Path) -> None:
    """Indices of features count from the end if they are negative, as everywhere."""
    model, expected = nacre.load(called), Interpreter(read_model(TEXT).module, lambda _: np.zeros(0))
    border = np.asarray([[0.0, 1.0], [-3.0, np.nan]])
    good = np.asarray([[0, 2], [-3, -1]], np.int32)
    given = [ROWS.T.copy(), good, border]
    assert np.array_equal(model.entries["levels"](*given), expected.run("levels", given)[0])
    for index in (3, -4, (1 << 31) - 1, -1 << 31):
        given[1] = np.where([[False, False], [True, False]], np.int32(index), good).astype(np.int32)
        with pytest.raises(OutOfRangeError, match=rf"`oblivious_leaves` at .*: index {index} is .* size 3 \(element 2"):
            model.entries["levels"](*given)


GUARDED = """
import sys
import numpy as np
import nacre
from nacre.compiler.validate.guarded_memory import Memory
from nacre.runtime.library import OutOfRangeError
model = nacre.load(sys.argv[1], threads=1)
data = np.load(sys.argv[2])
refused = 0
for number in range(int(data["count"])):
    given = [data[f"{number}_{i}"] for i in range(11)]
    for at_end in (False, True):
        memory = Memory({str(i): a.nbytes for i, a in enumerate(given)}, at_end=at_end, alignments={})
        for place, array in zip(memory.buffers.values(), given):
            place.data[:] = array.reshape(-1).view(np.uint8)
        memory.freeze()
        placed = [p.data.view(a.dtype).reshape(a.shape) for p, a in zip(memory.buffers.values(), given)]
        for entry in ("sums", "places"):
            try:
                model.entries[entry](*placed)
            except OutOfRangeError:
                refused += 1
print(refused)
"""


def test_no_access_outside_of_tables(called: Path, tmp_path: Path) -> None:
    """Random numbers in the tables, each between inaccessible pages: a call is refused or reads what it may."""
    rng, arrays = np.random.default_rng(3), {}
    trials = [tables for tables, _ in wrong()]
    for _ in range(150):
        tables = whole()
        name = NAMES[rng.integers(len(NAMES))]
        choices = [-(1 << 31), -7, -6, -1, 0, 1, 2, 3, 9, (1 << 31) - 1]
        if name == "threshold":
            choices = [np.nan, np.inf, -np.inf, -1.0, 1e300, 1.0]
        at = tuple(rng.integers(size) for size in tables[name].shape)
        tables[name][at] = rng.choice(choices)
        trials.append(tables)
    for number, tables in enumerate(trials):
        arrays |= {f"{number}_{i}": array for i, array in enumerate([ROWS, *tables.values()])}
    np.savez(tmp_path / "trials.npz", count=len(trials), **arrays)
    done = subprocess.run(
        [sys.executable, "-c", GUARDED, called, tmp_path / "trials.npz"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert 4 * len(WORDS) - 6 < int(done.stdout) < 4 * len(trials)


SQUARE = {"square": np.asarray([[0, 2], [1, 1]], np.int32), "border": np.zeros((2, 2))}


def test_weights_of_a_build(tmp_path: Path) -> None:
    for tables, words in [pair for n, pair in enumerate(wrong()) if n in (3, 6, 13)]:
        model = nacre.load(build(STORED, tmp_path / "stored.so", 2, {**tables, **SQUARE}))
        for _ in range(2):
            with pytest.raises(OutOfRangeError, match=re.escape(words)):
                model.entries["stored"](ROWS)


def replaced(file: Path, name: str, array: Array) -> bytes:
    """Returns the bytes of a weights file with other data for one tensor, under the same header."""
    whole_file = file.read_bytes()
    length = int.from_bytes(whole_file[:8], "little")
    header = json.loads(whole_file[8 : 8 + length])
    first, end = header[name]["data_offsets"]
    data = array.tobytes()
    assert len(data) == end - first
    start = 8 + length + first
    return whole_file[:start] + data + whole_file[start + len(data) :]


PROGRAM = r"""
#include <stdio.h>
#include "stored.h"

int main(int count, char **paths) {
    const nacre_api *api = nacre_get_api(1);
    for (int i = 1; i < count; i++) {
        nacre_options options = {.bytes = sizeof options, .weights = paths[i]};
        nacre_session *session = NULL;
        if (api->session_create(&options, &session) || api->session_reserve(session, 1 << 16)) return 2;
        double rows[3] = {1, 1, 1}, total[1];
        nacre_status status = trees_stored(session, 1, rows, total, NULL, 0);
        printf("%d %s\n", (int)status, status ? api->last_error() : "");
        api->session_destroy(session);
    }
    return 0;
}
"""


def test_a_replaced_file_of_weights(tmp_path: Path) -> None:
    """Other data under the same header: the call fails in Python and in C, and a session of the right file computes."""
    path = build(STORED, tmp_path / "stored.so", 2, {**whole(), **SQUARE}, "external")
    file = Path(f"{path}.safetensors")
    right = nacre.load(path)
    expected = right.entries["stored"](ROWS)
    faults = [
        ("children", np.asarray([[0, 0], [1, 1], [2, 2]], np.int32), "`tree_ensemble` at", "child 2 does not follow"),
        ("feature", np.full(3, 1 << 20, np.int32), "`tree_ensemble` at", "tree 0, node 0: feature 1048576 is out"),
        ("roots", np.full((1, 3), 1 << 30, np.int32), "`tree_ensemble` at", "tree 0: root 1073741824 is out of range"),
        ("square", np.full((2, 2), 1 << 30, np.int32), "`oblivious_leaves` at", "index 1073741824 is out of range"),
    ]
    paths = []
    for number, (name, table, operator, words) in enumerate(faults):
        paths.append(tmp_path / f"other{number}.safetensors")
        paths[-1].write_bytes(replaced(file, name, table))
        model = nacre.load(path, weights=paths[-1])
        for _ in range(2):
            with pytest.raises(OutOfRangeError, match=re.escape(words.replace("child 2", "child 0"))) as caught:
                model.entries["stored"](ROWS)
            assert str(caught.value).startswith(operator)
        assert np.array_equal(right.entries["stored"](ROWS), expected)
    # The branch that reads no tables does not fail.
    model = nacre.load(path, weights=paths[0])
    assert np.array_equal(model.entries["few"](-np.abs(ROWS[::2]))[:, 0, 0], -np.abs(ROWS[::2, 0]))
    with pytest.raises(OutOfRangeError, match="child 0 does not follow"):
        model.entries["few"](ROWS[2:])


def test_in_c(tmp_path: Path) -> None:
    np.savez(tmp_path / "trees.npz", **whole(), **SQUARE)
    (tmp_path / "trees.nacre").write_text(STORED)
    options = ["-O0", "-o", "stored.so", "--emit", "so", "--emit", "header", "--weights", "external"]
    command = ["nacre", "compile", "trees.nacre", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    file, other = tmp_path / "stored.so.safetensors", tmp_path / "other.safetensors"
    other.write_bytes(replaced(file, "children", np.full((3, 2), 1 << 30, np.int32)))
    (tmp_path / "main.c").write_text(PROGRAM)
    linked = find_linker().run(["-I", ".", "main.c", "./stored.so", "-o", "main"], tmp_path)
    assert linked.returncode == 0, linked.stderr
    done = subprocess.run(["./main", file, other, file], cwd=tmp_path, capture_output=True, text=True)
    good, bad, again = done.stdout.splitlines()
    assert good == again == "0 ", done.stdout
    assert re.match(
        r"[1-9]+ `tree_ensemble` at trees.nacre:\d+:\d+: tree 0, node 0: child 1073741824 is out of", bad
    ), bad


def test_weights_are_checked_once(tmp_path: Path) -> None:
    """The second call of a session runs one kernel less, in every branch of its own; another session checks again."""
    path = build(STORED, tmp_path / "stored.so", 2, {**whole(), **SQUARE})
    for _ in range(2):
        model = nacre.load(path, threads=1)
        for entry, rows in (("stored", ROWS), ("few", ROWS[2:])):
            counts = []
            for _ in range(3):
                seen: list[str] = []
                with observe(model, lambda event, seen=seen: seen.append(event.call.kernel)):  # type: ignore[misc]  # bound early
                    model.entries[entry](rows)
                counts.append(sum("check_trees" in kernel for kernel in seen))
            assert counts == [1, 0, 0], (entry, counts)
