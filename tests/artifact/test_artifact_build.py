"""What is in the file: two symbols, two libraries at most, aligned weights, the same bytes every time."""

import hashlib
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from c_models import ADD, CC, STRICT, TABLE, B, T, argument, build, entry, kernels, zoo
from nacre.compiler.artifact.assemble import Placement, build_artifact, weights_path
from nacre.compiler.artifact.dim_bindings import bind_dims, check_artifact
from nacre.compiler.artifact.link import RUNTIME_FOLDER, find_linker
from nacre.compiler.artifact.spec import ArtifactSpec, WeightSpec, place_weights
from nacre.compiler.targets.system import LINUX, WASI
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.dims import Symbol, maximum
from nacre.dialect.types import F32, TensorType
from nacre.runtime.library import read_note
from nacre.runtime.loader import load


def readelf(*arguments: str) -> str:
    return subprocess.run(["readelf", "-W", *arguments], check=True, capture_output=True, text=True).stdout


def test_needs_libc_and_libm_alone(zoo_file: Path) -> None:
    needed = [
        line.split("[")[1].rstrip("]") for line in readelf("-d", str(zoo_file)).splitlines() if "(NEEDED)" in line
    ]
    # The kernels call powf. Threads are a library of their own in an old glibc.
    assert sorted(set(needed) - {"libpthread.so.0"}) == ["libc.so.6", "libm.so.6"]


def test_exports_the_table_and_its_alias_alone(zoo_file: Path) -> None:
    rows = [line.split() for line in readelf("--dyn-syms", str(zoo_file)).splitlines()]
    defined = sorted(row[7] for row in rows if len(row) > 7 and row[0][:-1].isdigit() and row[6] != "UND")
    assert defined == ["nacre_get_api", "nacre_get_api_zoo"]


def test_weights_are_aligned_and_read_only(zoo_file: Path) -> None:
    row = next(line for line in readelf("-S", str(zoo_file)).splitlines() if ".nacre.weights" in line)
    fields = row.split("]")[1].split()
    address, offset, size, flags, alignment = fields[2], fields[3], fields[4], fields[6], fields[-1]
    assert (int(address, 16) % 4096, int(offset, 16) % 4096, int(size, 16)) == (0, 0, 128)
    assert (flags, alignment) == ("A", "4096")
    stack = next(line for line in readelf("-l", str(zoo_file)).splitlines() if "GNU_STACK" in line)
    assert "RWE" not in stack


def test_no_function_of_the_runtime_has_the_name_of_an_entry() -> None:
    """The entry `at` is the function `nacre_entry_at`: the prefix belongs to entries."""
    sources = [*RUNTIME_FOLDER.glob("**/*.c"), *RUNTIME_FOLDER.glob("**/*.h")]
    texts = [path.read_text() for path in sources]
    assert len(texts) > 20 and "nacre_find_entry" in "".join(texts)
    assert [name for text in texts for name in re.findall(r"\bnacre_entry_\w+", text)] == []


@pytest.mark.parametrize("placement", ["embedded", "external"])
def test_same_bytes_in_another_folder(tmp_path: Path, placement: Placement) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b with a space").mkdir()
    first = build(zoo(), tmp_path / "a" / "one.so", placement)
    second = build(zoo(), tmp_path / "b with a space" / "two.so", placement)
    assert first.read_bytes() == second.read_bytes()
    if placement == "external":
        assert weights_path(first).read_bytes() == weights_path(second).read_bytes()
    for path in (first, second):
        leaked = [word for word in (os.fsencode(tmp_path), b"/tmp/") if word in path.read_bytes()]
        assert not leaked
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == sorted(
        ["one.so", "two.so"] + (["one.so.safetensors", "two.so.safetensors"] if placement == "external" else [])
    )


def test_the_hash_changes_with_the_weights_and_the_code(tmp_path: Path) -> None:
    a = build(zoo(), tmp_path / "a.so")
    b = build(zoo(first=8), tmp_path / "b.so")
    c = build_artifact(zoo(), [kernels(), _empty_object(tmp_path)], tmp_path / "c.so")
    assert len({read_note(path).hash for path in (a, b, c)}) == 3


def _empty_object(folder: Path) -> bytes:
    (folder / "empty.c").write_text("")
    subprocess.run([*find_linker().command, "-c", "empty.c"], cwd=folder, check=True)
    return (folder / "empty.o").read_bytes()


def test_the_runtime_compiles_without_a_warning(tmp_path: Path) -> None:
    compilers = [
        name for name in ("gcc", "clang") if subprocess.run(["which", name], capture_output=True).returncode == 0
    ]
    for compiler in compilers:
        for stem in sorted({*LINUX.runtime, *WASI.runtime}):
            command = [
                compiler,
                *STRICT,
                "-O2",
                "-fPIC",
                "-c",
                str(RUNTIME_FOLDER / f"{stem}.c"),
                "-o",
                str(tmp_path / "x.o"),
            ]
            subprocess.run(command, check=True)
    assert compilers


def test_the_description(tmp_path: Path) -> None:
    model = load(build(zoo(entries=(ADD,)), tmp_path / "x.so"))
    described = model.describe()
    note = read_note(tmp_path / "x.so")
    assert described.pop("hash") == note.hash
    array = {"type": "f32[B, T]", "dtype": "f32", "shape": ["B", "T"]}
    blob = np.float32(7).tobytes().ljust(64, b"\0") + TABLE.tobytes().ljust(64, b"\0")
    assert described == {
        "format": "nacre",
        "abi": 1,
        "name": "zoo",
        "compiler": "0.1.0",
        "source_hash": "abc",
        "target": {"triple": "x86_64-linux-gnu", "levels": [{"name": "any", "cpu": "", "features": []}]},
        "options": {"opt_level": 2},
        "entries": [
            {
                "name": "add",
                "doc": "The sum of two arrays.",
                "arguments": [{"name": "x", **array}, {"name": "y", **array}],
                "results": [{"name": "sum", **array}],
                "dims": [
                    {"name": "B", "low": 1, "high": 64, "multiple": 1},
                    {"name": "T", "low": 0, "high": 512, "multiple": 1},
                ],
                "constraints": [],
                "workspace": "4*B*T",
            }
        ],
        "weights": {
            "placement": "embedded",
            "bytes": 128,
            "hash": hashlib.sha256(blob).hexdigest(),
            "tensors": [
                {"name": "first", "type": "f32", "dtype": "f32", "shape": [], "offset": 0},
                {"name": "table", "type": "f32[5, 3]", "dtype": "f32", "shape": [5, 3], "offset": 64},
            ],
        },
    }


def test_external_weights_are_a_safetensors_file(tmp_path: Path) -> None:
    path = build(zoo(), tmp_path / "zoo.so", "external")
    data = weights_path(path).read_bytes()
    tensors = safetensors.numpy.load(data)
    assert np.array_equal(tensors["table"], TABLE)
    assert tensors["first"] == 7
    length = int.from_bytes(data[:8], "little")
    assert (8 + length) % 64 == 0
    metadata = json.loads(data[8 : 8 + length])["__metadata__"]
    assert metadata["sha256"] == hashlib.sha256(data[8 + length :]).hexdigest()
    assert load(path).entries["constant"]() == 7


def test_weights_in_any_layout_are_written_row_major(tmp_path: Path) -> None:
    big = np.arange(1 << 21, dtype=np.float32).reshape(1 << 10, 1 << 11).T  # more than one chunk
    weights = place_weights([("w", TensorType(F32, big.shape), big)])
    path = build(ArtifactSpec("x", (ADD,), weights), tmp_path / "x.so", "external")
    assert np.array_equal(safetensors.numpy.load_file(weights_path(path))["w"], big)


def test_an_artifact_without_weights(tmp_path: Path) -> None:
    for placement in ("embedded", "external"):
        path = build(ArtifactSpec("x", (ADD,)), tmp_path / "x.so", placement)
        assert not weights_path(path).exists()
        x = np.ones((1, 2), np.float32)
        assert np.array_equal(load(path)(x, x), x + x)


def refused(spec: ArtifactSpec, output: Path, code: str, message: str, **options: object) -> None:
    with pytest.raises(DiagnosticError) as caught:
        build_artifact(spec, [kernels()], output, **options)  # type: ignore[arg-type]
    assert [d.code for d in caught.value.diagnostics] == [code]
    assert message in str(caught.value)
    assert not output.exists()


def test_dims_that_no_call_can_bind_are_refused(tmp_path: Path) -> None:
    unseen = entry("f", [argument("x", F32, 3)], [argument("y", F32, T.size)], (T,))
    refused(
        ArtifactSpec("x", (unseen,)), tmp_path / "x.so", "unbound-dim", "dim `T` occurs in the shape of no argument"
    )
    product = entry("f", [argument("x", F32, B.size * T.size)], [], (B, T))
    faults = check_artifact(ArtifactSpec("x", (product,)))
    assert [f.message for f in faults] == [
        "entry `f`: no argument determines dim `B`: x: f32[B*T]",
        "entry `f`: no argument determines dim `T`: x: f32[B*T]",
    ]
    # B may be 0, so that B*T tells nothing of T even where B is known.
    zero = Symbol("Z", 0, 4)
    unsure = entry("f", [argument("x", F32, zero.size * T.size), argument("z", F32, zero.size)], [], (zero, T))
    assert [f.code for f in check_artifact(ArtifactSpec("x", (unsure,)))] == ["unbound-dim"]
    largest = entry("f", [argument("x", F32, maximum(B.size, T.size), B.size)], [], (B, T))
    assert [f.code for f in check_artifact(ArtifactSpec("x", (largest,)))] == ["unbound-dim"]


def test_a_dim_is_bound_by_the_plainest_axis() -> None:
    n, m = Symbol("N", 1), Symbol("M", 0, 64, 8)
    shapes = argument("x", F32, 3 * n.size + 2, B.size * n.size), argument("y", F32, n.size, m.size // 4 + 1)
    bindings, unbound = bind_dims(entry("f", [*shapes], [], (B, m, n)))
    assert not unbound
    found = [(b.dim.name, b.argument, b.axis, b.rest, b.divisor, b.factor) for b in bindings]
    assert found == [("N", 1, 0, 0, 1, 1), ("B", 0, 1, 0, n.size, 1), ("M", 1, 1, 1, 1, 4)]


def test_duplicate_names_are_refused(tmp_path: Path) -> None:
    refused(ArtifactSpec("x", (ADD, ADD)), tmp_path / "x.so", "duplicate-name", "two entries are named `add`")
    twice = entry("f", [argument("x", F32)], [argument("x", F32)])
    message = "entry `f`: two arguments or results are named `x`"
    refused(ArtifactSpec("x", (twice,)), tmp_path / "x.so", "duplicate-name", message)


def test_failures_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "x.so"
    refused(
        zoo(),
        output,
        "no-linker",
        "the C compiler `no-such-cc` that `cc` names was not found",
        find=lambda: find_linker("no-such-cc"),
    )
    refused(zoo(), output, "link-failed", "exit status 1", find=lambda: find_linker("false"))
    refused(zoo(), tmp_path / "missing" / "x.so", "cannot-write", "no such file or directory")
    broken = entry("nowhere", [], [])
    refused(ArtifactSpec("x", (broken,)), output, "link-failed", "nacre_entry_nowhere")
    monkeypatch.setenv("CC", "no-such-cc")
    refused(zoo(), output, "no-linker", "that the variable CC names was not found")
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "ziglang", None)
    if find_spec("ziglang") is None:
        refused(zoo(), output, "no-linker", "apt install gcc")
    assert not list(tmp_path.iterdir())


def test_a_previous_artifact_survives_a_failure(tmp_path: Path) -> None:
    path = build(zoo(), tmp_path / "x.so")
    before = path.read_bytes()
    with pytest.raises(DiagnosticError, match="could not link"):
        build_artifact(zoo(), [kernels()[:64]], path)
    assert path.read_bytes() == before


def test_weights_that_no_library_can_hold(tmp_path: Path) -> None:
    huge = np.broadcast_to(np.float32(0), (1 << 29,))
    spec = ArtifactSpec("x", (ADD,), (WeightSpec("w", TensorType(F32, huge.shape), 0, lambda: huge),))
    refused(spec, tmp_path / "x.so", "weights-too-large", "use external weights")


@pytest.mark.skipif(find_spec("ziglang") is None, reason="needs the package ziglang")
def test_zig_links_too(tmp_path: Path) -> None:
    cc = f"{sys.executable} -m ziglang cc"
    path = build_artifact(zoo(), [kernels()], tmp_path / "x.so", find=lambda: find_linker(cc))
    assert load(path).entries["constant"]() == 7
    test_exports_the_table_and_its_alias_alone(path)
    test_weights_are_aligned_and_read_only(path)


def test_the_compiler_of_these_tests_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    assert CC and Path(CC).name == find_linker().command[0]
