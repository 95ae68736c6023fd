"""Files that are loaded: artifacts side by side, replaced ones, and what is no artifact at all."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from c_models import CC, build, zoo
from nacre.compiler.artifact.assemble import weights_path
from nacre.compiler.artifact.link import RUNTIME_FOLDER
from nacre.runtime.library import Library
from nacre.runtime.loader import ArtifactError, load


def refused(path: Path, message: str, **options: object) -> None:
    with pytest.raises(ArtifactError) as caught:
        load(path, **options)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_files_that_are_no_artifact(tmp_path: Path) -> None:
    refused(tmp_path / "none.so", "No such file or directory")
    refused(tmp_path, "Is a directory")
    text = tmp_path / "text.so"
    text.write_text("not a library " * 100)
    refused(text, "is not an artifact: it is not a shared library")
    text.write_bytes(b"")
    refused(text, "is not an artifact: it is not a shared library")
    refused(Path(sys.modules["numpy._core._multiarray_umath"].__file__ or ""), "a shared library not written by Nacre")


def test_truncated_files(zoo_file: Path, tmp_path: Path) -> None:
    whole = zoo_file.read_bytes()
    cut = tmp_path / "cut.so"
    for size in (63, 64, 200, 1000, 4096, len(whole) // 2, len(whole) - 1):
        cut.write_bytes(whole[:size])
        refused(cut, "it is not a shared library" if size < 64 else "is truncated")


def test_other_machines_and_versions(zoo_file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.so"
    data = bytearray(zoo_file.read_bytes())
    data[18:20] = (243 if data[18] != 243 else 183).to_bytes(2, sys.byteorder)
    other.write_bytes(data)
    refused(other, "is for riscv64, this machine is" if data[18] == 243 else "is for aarch64")
    data = bytearray(zoo_file.read_bytes())
    data[4] = 1
    other.write_bytes(data)
    refused(other, "is for another kind of machine")
    data = bytearray(zoo_file.read_bytes())
    note = data.index(b"Nacre\0\0\0\1\0\0\0") + 8
    data[note] = 9
    other.write_bytes(data)
    refused(other, "has version 9 of the interface, this loader takes 1")


def test_several_artifacts_in_one_process(tmp_path: Path) -> None:
    models = [load(build(zoo(f"zoo{i % 2}", first=i), tmp_path / f"{i}.so")) for i in range(4)]
    assert [float(m.entries["constant"]()) for m in models] == [0, 1, 2, 3]
    x = np.ones((1, 2), np.float32)
    assert all(np.array_equal(m.entries["add"](x, x), x + x) for m in models)


def test_functions_that_an_older_artifact_lacks(tmp_path: Path) -> None:
    assert CC
    (tmp_path / "old.c").write_text("""
        #include "abi.h"
        static const char *describe(void) { return "{}"; }
        static const struct { nacre_api api; void (*beyond)(void); } table = {
            {.version = 1, .bytes = offsetof(nacre_api, describe_calls), .describe = describe}, 0};
        const nacre_api *nacre_get_api(uint32_t version) { return version == 1 ? &table.api : 0; }
        """)
    command = [CC, "-shared", "-fPIC", "-include", "stddef.h", f"-I{RUNTIME_FOLDER}", "old.c", "-o", "old.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    functions = Library(str(tmp_path / "old.so")).functions
    assert "call" in functions and not {"describe_calls", "observe", "record"} & set(functions)


def test_a_rebuilt_artifact_is_loaded_anew(tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    models = []
    for i in range(4):
        build(zoo(first=i), path)
        models.append(load(path))
    assert [float(m.entries["constant"]()) for m in models] == [0, 1, 2, 3]
    build(zoo(first=1), path)
    assert load(path).entries["constant"]() == 1


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(zoo(), tmp_path / "x.so", "external")
    monkeypatch.chdir(tmp_path)
    model = load("x.so")
    monkeypatch.chdir("/")
    assert model.entries["constant"]() == 7


def test_external_weights(tmp_path: Path) -> None:
    path = build(zoo(), tmp_path / "x.so", "external")
    file = weights_path(path)
    moved = file.rename(tmp_path / "elsewhere")
    refused(path, f"weights file `{file}`: No such file or directory")
    assert load(path, weights=moved).entries["constant"]() == 7
    other = weights_path(build(zoo(first=8), tmp_path / "y.so", "external"))
    refused(path, "it is not the file of this artifact", weights=other)
    file.write_bytes(moved.read_bytes()[:-1])
    refused(path, "it is not the file of this artifact")
    refused(path, "not a regular file", weights=tmp_path)
    both = tmp_path / "z.so"
    os.replace(path, both)
    os.replace(moved, weights_path(both))
    assert load(both).entries["constant"]() == 7
    embedded = build(zoo(), tmp_path / "e.so")
    refused(embedded, "the artifact carries its own weights and takes no weights file", weights=other)


def test_damage_does_not_pass_for_an_artifact(zoo_file: Path, tmp_path: Path) -> None:
    """Damaged program headers, in a process of its own."""
    code = """
import random, sys
from nacre.runtime.library import ArtifactError, read_note
whole = open(sys.argv[1], "rb").read()
chance = random.Random(5)
fine = refused = 0
for _ in range(2000):
    data = bytearray(whole)
    for _ in range(chance.randint(1, 6)):
        data[chance.randrange(600)] = chance.randrange(256)
    open(sys.argv[2], "wb").write(data)
    try:
        read_note(sys.argv[2]); fine += 1
    except ArtifactError:
        refused += 1
print(fine > 0, refused > 0)
"""
    command = [sys.executable, "-c", code, str(zoo_file), str(tmp_path / "x.so")]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert shown.split() == ["True", "True"]
