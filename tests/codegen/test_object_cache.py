"""Kernels are compiled once, in whatever model they stand; how they were made, or when, changes nothing of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import nacre
import pytest
from nacre.compiler.base import store
from nacre.compiler.base.store import Store, remove_old
from nacre.compiler.codegen import objects
from nacre.compiler.codegen.objects import CodeOptions, generate_objects
from nacre.compiler.codegen.workers import object_cache
from nacre.compiler.codegen.workers.child import Children, Source
from nacre.compiler.codegen.workers.job import Job, Report
from nacre.compiler.codegen.workers.object_cache import ObjectCache
from nacre.compiler.lower.lowered import Lowered
from nacre.compiler.lower.module import lower_module
from nacre.compiler.lower.parts import KernelPart
from nacre.compiler.targets.target import Target
from nacre.dialect.diagnostics import Span
from nacre.dialect.dims import Symbol
from nacre.dialect.graph import Function, Module, Value
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import F32, TensorType

T = Symbol("T", 1, 512)
NACRE = Path(nacre.__file__).resolve()
QUICK = CodeOptions((Target(cpu="x86-64-v3"),), level=1, quick=True)
OBJECTS = 4
"""The objects of a program with one kernel: its own, the entry, the entry's observed copy, and the launcher."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NACRE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "objects"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The jobs of the children: kernels by their symbols, entries and launchers by their first symbols."""
    given: list[str] = []
    run = Children.run

    def watch(self: Children, sources: Sequence[Source], *rest: object) -> None:
        given.extend(source.kernel or source.job.keep[0] for source in sources)
        run(self, sources, *rest)  # type: ignore[arg-type]  # handed on as it came

    monkeypatch.setattr(Children, "run", watch)
    yield given


def lowered(*ops: str, name: str = "f", span: Span | None = None) -> Lowered:
    """A function that applies elementwise operators one after the other, each in a kernel of its own."""
    x = Value("x", TensorType(F32, (T.size, 8)))
    b = Builder(OPERATORS, "t", span=span)
    y = x
    for op in ops:
        (y,) = b.apply(op, (y,), {})
    return lower_module(Module("m", (T,), (), (Function(name, (x,), tuple(b.nodes), (y,), ("y",)),)))


def test_cached_objects_are_not_compiled_again(compiled: list[str]) -> None:
    _, cold = generate_objects(lowered("exp", "tanh", "exp"), QUICK)
    assert sorted(name.split("_")[0] for name in compiled) == ["exp", "nacre", "nacre", "observed", "tanh"]
    compiled.clear()
    _, warm = generate_objects(lowered("exp", "tanh", "exp"), QUICK)
    assert compiled == [] and warm == cold
    # The launcher of kernels with as many dims and tensors is there already.
    generate_objects(lowered("tanh", "sqrt", name="another"), QUICK)
    assert sorted(name.split("_")[0] for name in compiled) == ["nacre", "observed", "sqrt"]


def test_where_it_was_written_makes_no_difference(compiled: list[str]) -> None:
    _, first = generate_objects(lowered("exp", span=Span("a.nacre", 1, 2, 1, 3)), QUICK)
    compiled.clear()
    _, second = generate_objects(lowered("exp", span=Span("b.nacre", 7, 2, 7, 3)), QUICK)
    assert compiled == [] and first == second


@pytest.mark.parametrize("count", [1, 2, 5])
def test_batches_make_no_difference(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ops = ("exp", "tanh", "sqrt", "floor", "erf")
    expected = [generate_objects(lowered(op), replace(QUICK, cache=False))[1][0] for op in ops]
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    monkeypatch.setattr(objects, "_KERNELS_PER_CHILD", 1)
    _, together = generate_objects(lowered(*reversed(ops)), QUICK)
    assert list(together[: len(ops)]) == expected[::-1]


def test_reports_are_kept_too(compiled: list[str]) -> None:
    x = Value("x", TensorType(F32, (T.size, 8)))
    b = Builder(OPERATORS, "t")
    y = b.softmax(x, axis=-1)
    source = lower_module(Module("m", (T,), (), (Function("f", (x,), tuple(b.nodes), (y,), ("y",)),)))
    cold, _ = generate_objects(source, QUICK)
    warm, _ = generate_objects(source, QUICK)
    assert len(compiled) == OBJECTS and cold.kernels != {}
    assert [c.report for c in warm.kernels[QUICK.targets[0]].values()] == [
        c.report for c in cold.kernels[QUICK.targets[0]].values()
    ]
    assert warm.entries == cold.entries


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:-1], lambda data: data + b"x"])
def test_damaged_files_are_made_again(damage: Callable[[bytes], bytes], folder: Path, compiled: list[str]) -> None:
    _, cold = generate_objects(lowered("exp"), QUICK)
    for path in folder.iterdir():
        path.write_bytes(damage(path.read_bytes()))
    compiled.clear()
    _, again = generate_objects(lowered("exp"), QUICK)
    assert again == cold and len(compiled) == OBJECTS


def test_it_can_be_switched_off(folder: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    generate_objects(lowered("exp"), replace(QUICK, cache=False))
    assert not folder.exists()
    monkeypatch.setenv("NACRE_NO_CACHE", "1")
    generate_objects(lowered("exp"), QUICK)
    assert not folder.exists() and len(compiled) == 2 * OBJECTS


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_dumps_see_every_kernel(tmp_path: Path, compiled: list[str]) -> None:
    _, objects = generate_objects(lowered("exp"), QUICK)
    compiled.clear()
    _, dumped = generate_objects(lowered("exp"), QUICK, tmp_path / "dump")
    assert len(compiled) == OBJECTS and len(texts(tmp_path / "dump")) >= 6
    compiled.clear()
    _, again = generate_objects(lowered("exp"), QUICK, tmp_path / "again")
    assert compiled == [] and texts(tmp_path / "again") == texts(tmp_path / "dump")
    assert objects == dumped == again


def test_dumps_show_the_whole_source(tmp_path: Path, compiled: list[str]) -> None:
    """A dump has the names of its nodes and its function, which no object depends on."""
    for name in ("f", "another"):
        compiled.clear()
        generate_objects(lowered("exp", name=name), QUICK, tmp_path / name)
        assert compiled
    generate_objects(lowered("exp", name="another"), replace(QUICK, cache=False), tmp_path / "new")
    assert texts(tmp_path / "new") == texts(tmp_path / "another") != texts(tmp_path / "f")


def test_damaged_dumps_are_made_again(tmp_path: Path, folder: Path, compiled: list[str]) -> None:
    generate_objects(lowered("exp"), QUICK, tmp_path / "dump")
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    compiled.clear()
    generate_objects(lowered("exp"), QUICK, tmp_path / "again")
    assert len(compiled) == OBJECTS and texts(tmp_path / "again") == texts(tmp_path / "dump")


def test_a_folder_that_cannot_be_written_is_done_without(folder: Path, compiled: list[str]) -> None:
    folder.parent.mkdir()
    folder.write_text("a file")
    for _ in range(2):
        generate_objects(lowered("exp"), QUICK)
    assert len(compiled) == 2 * OBJECTS and folder.read_text() == "a file"


def test_the_inputs_of_a_cache_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, job = ObjectCache(folder), Job(2, "x86-64-v3", "", "", ("f",), "loops")
    changed = (
        replace(job, level=3),
        replace(job, cpu="x86-64-v4"),
        replace(job, cpu="native"),
        replace(job, triple="aarch64-linux-gnu"),
        replace(job, features="+fma"),
        replace(job, keep=("g",)),
        replace(job, route="tiled"),
        replace(job, visible=True),
        replace(job, dump=("tiled",)),
        replace(job, dump=("tiled", "llvm-ir")),
    )
    keys = [cache.key("text", job), cache.key("another text", job), *(cache.key("text", other) for other in changed)]
    monkeypatch.setattr(object_cache, "identify_host", lambda: "another CPU")
    keys.append(cache.key("text", replace(job, cpu="native")))
    assert cache.key("text", job) == keys[0]
    monkeypatch.setattr(object_cache, "_generator", lambda: "another version")
    keys.append(cache.key("text", job))
    assert len(set(keys)) == len(keys)


def test_all_that_runs_in_children_is_part_of_the_generator() -> None:
    workers = "import nacre.compiler.codegen.workers.kernel_worker, nacre.compiler.codegen.workers.entry_worker"
    show = "[print(m.__file__) for n, m in sys.modules.items() if n.startswith('nacre') and m.__file__]"
    done = subprocess.run([sys.executable, "-c", f"{workers}, sys; {show}"], capture_output=True, text=True, check=True)
    loaded = {Path(line).resolve() for line in done.stdout.splitlines()}
    known = {path.resolve() for path in object_cache.generator_sources()}
    assert len(loaded) > 20
    assert {path for path in loaded - known if path.read_text().count("\n") > 1} - {NACRE} == set()


def test_many_at_once(folder: Path) -> None:
    """Whoever reads finds all of it or nothing."""
    report = Report((KernelPart((True, False), ((1, 0),)),), ("tile",), "a reason")

    def work(number: int) -> None:
        cache = ObjectCache(folder)
        for i in range(50):
            key = f"{i % 5}"
            cache.put(key, key.encode() * 10000, report, {"tiled.mlir": key})
            found = cache.get(f"{(i + number) % 5}")
            name = f"{(i + number) % 5}"
            assert found is None or found == (name.encode() * 10000, report, {"tiled.mlir": name})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert sorted(p.name for p in folder.iterdir()) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_files_that_others_may_write_are_not_read(mode: int, folder: Path) -> None:
    kept = Store(folder)
    kept.put("key", b"code")
    assert kept.get("key") == b"code"
    (folder / "key").chmod(mode)
    assert kept.get("key") is None


def test_files_of_this_user_and_of_the_administrator_are_trusted() -> None:
    for user, trusted in ((os.geteuid(), True), (0, True), (os.geteuid() + 1, False)):
        assert store.is_trusted(os.stat_result((0o100644, 0, 0, 1, user, 0, 0, 0, 0, 0))) == trusted


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a file of another user; the test above covers others")
def test_files_of_other_users_are_not_read(folder: Path) -> None:
    kept = Store(folder)
    kept.put("key", b"code")
    os.chown(folder / "key", 65534, -1)
    assert kept.get("key") is None


def test_a_file_that_cannot_be_written_leaves_nothing(folder: Path) -> None:
    (folder / "key").mkdir(parents=True)  # a file cannot replace a folder
    Store(folder).put("key", b"code")
    assert [p.name for p in folder.iterdir()] == ["key"]


def test_the_oldest_objects_are_removed_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Store(folder)
    for number in range(5):
        kept.put(f"{number}", bytes(1000))
        os.utime(folder / f"{number}", (1000 + number, 1000 + number))
    remove_old(folder, 1003 + store.MAXIMUM_AGE)
    assert sorted(p.name for p in folder.iterdir()) == ["3", "4"]
    monkeypatch.setattr(store, "MAXIMUM_BYTES", 1500)
    assert kept.get("3") == bytes(1000)
    remove_old(folder, 1004.0)
    assert [p.name for p in folder.iterdir()] == ["3"], "what was asked for lately stays"


def test_pruning_happens_once_a_day(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Store(folder)
    kept.put("old", b"1")
    os.utime(folder / "old", (1, 1))
    kept.prune()
    assert not (folder / "old").exists()
    kept.put("old", b"1")
    os.utime(folder / "old", (1, 1))
    kept.prune()
    assert (folder / "old").exists()
    monkeypatch.setattr(store, "PRUNED_EVERY", 0.0)
    kept.prune()
    assert not (folder / "old").exists()
