"""The cache of compiled models: the path of a model in it, damage, and many processes at once."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import nacre
import numpy as np
import pytest
from cli_harness import DOUBLE, command_line
from nacre.compiler import cache as module
from nacre.compiler.cache import cache_folder, cached_path
from nacre.compiler.checking import read_model
from nacre.compiler.dumps.kernel_texts import Part
from nacre.compiler.lower.parts import KernelPart
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.quantization.choose import in_precision
from nacre.compiler.targets.target import Target
from nacre.compiler.weights.memory import open_arrays
from safetensors.numpy import save_file

SOURCE = """import "blocks.nacre"
config "config.json" as c

model main(x: f32[2]) -> f32[2] {
  weights "w.safetensors"
  use scale = Scale<c.width>
  return scale(x)
}

budget main { parameters <= 2 }
"""
BLOCKS = "block Scale<n>(x: f32[n]) -> f32[n] {\n  param weight: f32[n]\n  return x * weight\n}\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "main.nacre").write_text(SOURCE)
    (tmp_path / "blocks.nacre").write_text(BLOCKS)
    (tmp_path / "config.json").write_text('{"width": 2, "name": "x"}')
    save_file({"scale.weight": np.ones(2, np.float32)}, tmp_path / "w.safetensors")
    return tmp_path / "main.nacre"


def path_of(source: Path, options: Options | None = None) -> Path:
    return cached_path(Build(read_model(source), options or Options()))


def edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return change


def rewrite_checkpoint(folder: Path) -> None:
    save_file({"scale.weight": np.full(2, 2, np.float32)}, folder / "w.safetensors")


def touch_checkpoint(folder: Path) -> None:
    os.utime(folder / "w.safetensors", (1, 1))


@pytest.mark.parametrize(
    "change",
    [
        edit("main.nacre", "scale(x)", "scale(x) + 1"),
        edit("main.nacre", "model main", "model other(x: f32[2]) -> f32[2] { return x }\nmodel main"),
        edit("blocks.nacre", "x * weight", "x / weight"),
        edit("main.nacre", "<= 2 }", "<= 1 }"),
        edit("main.nacre", "model main", "# a comment\n\nmodel main"),  # an artifact tells its lines
        rewrite_checkpoint,
        touch_checkpoint,
        lambda folder: (folder / "main.nacre").rename(folder / "other.nacre"),
    ],
)
def test_inputs_that_change_the_path(source: Path, change: Callable[[Path], object]) -> None:
    before = path_of(source)
    change(source.parent)
    now = next(p for p in (source, source.with_name("other.nacre")) if p.exists())
    assert path_of(now) != before


def test_configuration_changes_the_path(source: Path) -> None:
    source.write_text(SOURCE.replace("x: f32[2]) -> f32[2]", "x: f32[c.width]) -> f32[c.width]"))
    before = path_of(source)
    (source.parent / "config.json").write_text('{"width": 3}')
    save_file({"scale.weight": np.ones(3, np.float32)}, source.parent / "w.safetensors")
    assert path_of(source) != before


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: None,
        edit("main.nacre", "scale(x)", "scale(x)  # a comment"),
        edit("config.json", '"x"', '"y"'),
        lambda folder: (folder / "result.so").write_text("compiled beside the checkpoint"),
        lambda folder: os.utime(folder / "main.nacre", (1, 1)),
    ],
)
def test_inputs_that_do_not_change_the_path(source: Path, change: Callable[[Path], object]) -> None:
    before = path_of(source)
    change(source.parent)
    assert path_of(source) == before


def test_options_change_the_path(source: Path) -> None:
    default = Options()
    options = [
        default,
        replace(default, level=1),
        replace(default, targets=(Target("x86-64-v3"),)),
        replace(default, weights="external"),
        replace(default, passes="dce"),
    ]
    assert len({path_of(source, o) for o in options}) == len(options)
    assert path_of(source, replace(default, timeout=1)) == path_of(source)


def test_precision_changes_the_path(source: Path) -> None:
    """The policy alone: the artifact records it, also where the graph that it gives is the same."""
    model = read_model(source)
    assert cached_path(Build(replace(model, precision="bf16"))) != cached_path(Build(model))


def test_exchanged_checkpoints_change_the_path(tmp_path: Path) -> None:
    """Two models that read two files: the same files, exchanged, are other weights."""
    two = 'model {} (x: f32[2]) -> f32[2] {{\n  weights "{}.npz"\n  param {}: f32[2]\n  return x * {}\n}}\n'
    for number, name in enumerate("ab", 1):
        np.savez(tmp_path / f"{name}.npz", v=np.full(2, number, np.float32), w=np.full(2, number, np.float32))
    paths, results = [], []
    for first, second in ("ab", "ba"):
        (tmp_path / "m.nacre").write_text(two.format("f", first, "v", "v") + two.format("g", second, "w", "w"))
        paths.append(path_of(tmp_path / "m.nacre"))
        model = read_model(tmp_path / "m.nacre")
        arrays = {name: dict(np.load(tmp_path / f"{file}.npz")) for name, file in (("f", first), ("g", second))}
        in_memory = replace(model, weights={name: open_arrays(array) for name, array in arrays.items()})
        results.append(cached_path(Build(in_memory, Options())))
    assert len({*paths, *results}) == 4


def test_weights_in_memory_change_the_path() -> None:
    """Each part of an array alone: its name, dtype, shape, bytes, and the sign of a zero."""
    source = "model m(x: f32[2]) -> f32[2] {{\n  param w: {}\n  return x * w{}\n}}\n"

    def found(array: np.ndarray, text: str = source.format("f32[2]", "")) -> Path:  # type: ignore[type-arg]  # of any dtype
        return cached_path(Build(read_model(text, {"w": array, "unread": np.zeros(1)}), Options()))

    ones = np.asarray([1, 0], np.float32)
    zero = np.asarray([1, -0.0], np.float32)
    assert found(ones) == found(ones.copy()) == found(np.asarray([1, 9, 0, 9], np.float32)[::2])
    others = [
        found(ones),
        found(zero),
        found(ones[::-1]),
        found(ones.astype(np.float64)),
        found(ones.astype(np.float16)),
    ]
    others += [found(ones[:, None], source.format("f32[2, 1]", "[:, 0]"))]
    others += [found(ones[None], source.format("f32[1, 2]", "[0]"))]
    assert len(set(others)) == len(others)


def test_required_accuracy_changes_the_path(source: Path) -> None:
    """An artifact was accepted for one file of samples and one limit."""
    np.savez(source.with_name("samples.npz"), x=np.ones((3, 2), np.float32))
    policy = 'quantize main {{ weights "*" to bf16; require error <= {} on file "{}" }}'

    def found(limit: float, file: str = "samples.npz") -> Path:
        text = policy.format(limit, source.with_name(file))
        return cached_path(Build(in_precision(read_model(source), text), Options()))

    first = found(0.5)
    assert found(0.5) == first != found(0.25)
    os.utime(source.with_name("samples.npz"), (1, 1))
    assert found(0.5) != first


def test_texts_of_kernels_change_the_path(source: Path) -> None:
    model = read_model(source)
    text = Part("a text", "f", ("multiply",), ("map",), (KernelPart((True, True), ()),))
    chosen: list[dict[str, Part]] = [
        {},
        {"f": text},
        {"g": text},
        {"f": text, "g": text},
        {"f": replace(text, text="another text")},
        {"f": replace(text, symbol="g")},
        {"f": replace(text, nodes=())},
        {"f": replace(text, schedules=("rows",))},
        {"f": replace(text, functions=(KernelPart((True, False), ()),))},
        {"f": replace(text, functions=(KernelPart((True, True), ((1, 0),)),))},
        {"f": replace(text, kind="entries")},
    ]
    assert len({cached_path(Build(model, kernels=kernels)) for kernels in chosen}) == len(chosen)
    turned = {"g": text, "f": text}
    assert cached_path(Build(model, kernels=turned)) == cached_path(Build(model, kernels=chosen[3]))


def test_another_compiler_changes_the_path(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path_of(source)
    monkeypatch.setattr(module, "identify_compiler", lambda: "another version")
    assert path_of(source) != before


def test_a_path_spelled_otherwise_is_the_same(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(source.parent)
    assert path_of(Path("main.nacre")) == path_of(source)


def test_a_missing_checkpoint_is_an_error(source: Path) -> None:
    (source.parent / "w.safetensors").unlink()
    with pytest.raises(nacre.DiagnosticError, match="does not exist"):
        path_of(source)


def test_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NACRE_CACHE", "chosen")
    assert cache_folder() == Path("chosen")
    monkeypatch.delenv("NACRE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "xdg")
    assert cache_folder() == Path("xdg/nacre")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: Path("somebody"))
    assert cache_folder() == Path("somebody/.cache/nacre")

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(nacre.DiagnosticError, match="NACRE_CACHE"):
        cache_folder()


@pytest.mark.usefixtures("unchecked")
def test_a_hit_generates_no_code(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = nacre.compile(DOUBLE, opt_level=0)
    monkeypatch.setattr(Build, "run", None)
    assert nacre.compile(DOUBLE, opt_level=0).path == model.path
    assert Path(model.path).parent == cache
    Path(model.path).chmod(0o775)  # others may have written it
    with pytest.raises(TypeError):
        nacre.compile(DOUBLE, opt_level=0)


@pytest.mark.parametrize("content", [b"", b"garbage", "half"])
def test_damaged_files_are_made_again(cache: Path, double_so: Path, content: bytes | str) -> None:
    build = Build(read_model(DOUBLE), Options(level=0))
    path = cached_path(build)
    whole = double_so.read_bytes()
    path.write_bytes(content if isinstance(content, bytes) else whole[: len(whole) // 2])
    model = nacre.compile(DOUBLE, opt_level=0)
    assert Path(model.path) == path
    np.testing.assert_array_equal(model(np.ones((1, 2), np.float32)), [[2, 2]])
    assert sorted(p.name for p in cache.iterdir()) == sorted([path.name, "objects"])


def test_many_processes_at_once(double: Path, cache: Path) -> None:
    command = command_line("run", double, "--input=x=[[1, 2]]", "-O0")
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [p.communicate(timeout=120) for p in processes]
    assert [p.returncode for p in processes] == [0, 0], answers
    assert len({out for out, _ in answers}) == 1
    assert sorted(p.suffix for p in cache.iterdir()) == ["", ".so"]
