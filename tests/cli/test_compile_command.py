"""`nacre compile`: every emit kind, all or no files, and the errors."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
from pathlib import Path

import nacre
import numpy as np
import pytest
from cli_harness import DIGITS, Cli, leftovers, nacre_process
from nacre.compiler.artifact.json_descriptions import describe_artifact
from nacre.compiler.artifact.spec import ArtifactSpec, LevelSpec
from nacre.compiler.outputs import EMIT_KINDS
from nacre.compiler.pipeline import Build
from nacre.passes.pass_list import run_pipeline_text
from safetensors.numpy import save_file


@pytest.mark.parametrize("form", ["llvm", "asm"])
def test_texts_of_modules_have_no_code_for_gpus(cli: Cli, scaled: Path, form: str) -> None:
    path = scaled.parent / "s.txt"
    done = cli("compile", scaled, "--target", "cuda:sm_80", "--emit", form, "-o", path)
    assert done.code == 2 and not path.exists()
    message = f"`--emit {form}` writes code for CPUs only; for `cuda:sm_80`, use `nacre dump --stage assembly`"
    assert message in " ".join(done.err.split())
    done = cli("compile", scaled, "--target", "native,cuda:sm_80", "--emit", form, "-o", path)
    assert done.code == 0 and path.stat().st_size > 0
    assert message in " ".join(done.err.split())


def test_every_form(cli: Cli, scaled: Path) -> None:
    folder = scaled.parent / "out"
    folder.mkdir()
    done = cli("compile", scaled, "-o", folder / "s.so", "--json", *(f"--emit={form}" for form in EMIT_KINDS))
    assert done.code == 0, done.err
    names = {w["form"]: Path(w["path"]).name for w in done.json["written"]}
    assert names == {
        "so": "s.so",
        "graph": "s.graph",
        "mlir": "s.mlir",
        "llvm": "s.ll",
        "asm": "s.s",
        "obj": "s.o",
        "header": "s.h",
        "python": "s_loader.py",
    }
    assert sorted(p.name for p in folder.iterdir()) == sorted(names.values())
    for written in done.json["written"]:
        assert Path(written["path"]).stat().st_size == written["bytes"] > 0
    assert done.json["seconds"]["kernels"] > 0
    # Each is what it says that it is.
    graph = (folder / "s.graph").read_text()
    assert run_pipeline_text(graph, "") == graph
    assert "linalg." in (folder / "s.mlir").read_text()
    assert "define " in (folder / "s.ll").read_text()
    assert ".text" in (folder / "s.s").read_text()
    assert (folder / "s.o").read_bytes()[:4] == b"\x7fELF"
    x = np.array([[1, 2]], np.float32)
    np.testing.assert_array_equal(nacre.load(folder / "s.so")(x), [[2, 6]])
    program = "import numpy, s_loader; print(s_loader.scaled(numpy.array([[1, 2]], 'f4')).tolist())"
    loaded = subprocess.run(["python3", "-c", program], cwd=folder, capture_output=True, text=True)
    if "No module named 'numpy'" not in loaded.stderr:
        assert loaded.stdout == "[[2.0, 6.0]]\n", loaded.stderr
    (folder / "c.c").write_text('#include "s.h"\nint main(void) { return sizeof(nacre_call) == 0; }\n')
    subprocess.run([os.environ.get("CC", "cc"), "-fsyntax-only", "-Wall", "-Werror", folder / "c.c"], check=True)


def test_one_form_goes_where_output_says(cli: Cli, double: Path) -> None:
    done = cli("compile", double, "--emit", "graph", "-o", double.parent / "anything.txt")
    assert done.code == 0
    assert (double.parent / "anything.txt").read_text().startswith("module double\n")
    assert done.err.startswith("wrote ")
    assert sorted(p.name for p in double.parent.iterdir()) == ["anything.txt", "double.nacre"]


def test_default_output_paths(cli: Cli, double: Path) -> None:
    assert cli("compile", double, "--emit", "graph").code == 0
    assert (double.parent / "double.graph").exists()


def test_text_forms_need_no_checkpoint(cli: Cli, scaled: Path) -> None:
    (scaled.parent / "scale.safetensors").unlink()
    assert cli("compile", scaled, "--emit", "graph").code == 0
    assert cli("compile", scaled).code == 1


def test_time_is_a_table(cli: Cli, double: Path) -> None:
    done = cli("compile", double, "--time", "--emit", "graph")
    assert done.code == 0
    assert "passes" in done.err


def test_external_weights(cli: Cli, scaled: Path) -> None:
    assert cli("compile", scaled, "--weights", "external").code == 0
    assert sorted(p.suffix for p in scaled.parent.glob("scaled.*")) == [".nacre", ".safetensors", ".so"]
    np.testing.assert_array_equal(nacre.load(scaled.with_suffix(".so"))(np.ones((1, 2), np.float32)), [[2, 3]])


def test_same_bytes_from_two_folders(cli: Cli, scaled: Path, tmp_path: Path) -> None:
    """Neither the folder nor the time nor the way in which the path is spelled gets into an artifact."""
    found = []
    for name in ("a", "b/c"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        for file in ("scaled.nacre", "scale.safetensors"):
            (folder / file).write_bytes((scaled.parent / file).read_bytes())
        assert cli("compile", folder / "scaled.nacre", *(f"--emit={form}" for form in EMIT_KINDS)).code == 0
        found.append({p.name: p.read_bytes() for p in folder.iterdir()})
    assert found[0].keys() == found[1].keys()
    assert [n for n in found[0] if found[0][n] != found[1][n]] == []


def test_warnings_are_printed(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "m.nacre"
    path.write_text("model m(x: f32[2]) -> f32[2] {\n  unused = x * 2\n  return x\n}\n")
    for command in (["check", path], ["compile", path, "--emit", "graph"], ["dump", path, "--stage", "dce"]):
        done = cli(*command)
        assert done.code == 0
        assert "warning[unused-name]" in done.err and "2 |   unused = x * 2\n" in done.err


# --- what cannot be done ---


def broken_checkpoint(folder: Path) -> None:
    (folder / "scale.safetensors").write_bytes(b"\xff" * 40)


def short_checkpoint(folder: Path) -> None:
    data = (folder / "scale.safetensors").read_bytes()
    (folder / "scale.safetensors").write_bytes(data[:-4])


def wrong_shape(folder: Path) -> None:
    save_file({"scale": np.zeros(3, np.float32)}, folder / "scale.safetensors")


def wrong_name(folder: Path) -> None:
    save_file({"scales": np.zeros(2, np.float32)}, folder / "scale.safetensors")


def wrong_dtype(folder: Path) -> None:
    save_file({"scale": np.zeros(2, np.int32)}, folder / "scale.safetensors")


def no_checkpoint(folder: Path) -> None:
    (folder / "scale.safetensors").unlink()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (no_checkpoint, "does not exist"),
        (broken_checkpoint, "checkpoint-broken"),
        (short_checkpoint, "checkpoint-broken"),
        (wrong_shape, "must be f32[2] in the checkpoint, not f32[3]"),
        (wrong_name, "the closest keys are `scales`"),
        (wrong_dtype, "and the stored dtype cannot be converted to it"),
    ],
)
def test_checkpoints_that_do_not_fit(cli: Cli, scaled: Path, spoil: object, message: str) -> None:
    (scaled.parent / "scaled.so").write_text("the one before")
    assert callable(spoil)
    spoil(scaled.parent)
    done = cli("compile", scaled)
    assert done.code == 1
    assert message in done.err
    assert (scaled.parent / "scaled.so").read_text() == "the one before"
    assert leftovers(scaled.parent) == []


def test_missing_files(cli: Cli, tmp_path: Path) -> None:
    done = cli("compile", tmp_path / "none.nacre")
    assert done.code == 1 and "none.nacre` cannot be read: no such file" in done.err
    (tmp_path / "m.nacre").write_text('config "config.json" as c\nmodel m(x: f32[c.n]) -> f32[c.n] { return x }\n')
    done = cli("compile", tmp_path / "m.nacre")
    assert done.code == 1 and 'there is no file "config.json"' in done.err
    done = cli("compile", tmp_path / "m.nacre", "--checkpoint", tmp_path / "nowhere")
    assert done.code == 1 and "nowhere` cannot be read" in done.err
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "config.json").write_text('{"n": 3}')
    done = cli("compile", tmp_path / "m.nacre", "--checkpoint", tmp_path / "checkpoint", "--emit", "graph")
    assert done.code == 0, done.err
    assert "f32[3]" in (tmp_path / "m.graph").read_text()


@pytest.mark.parametrize("output", ["none/d.so", "double.nacre/d.so", "folder", "/dev/null"])
def test_outputs_that_cannot_be(cli: Cli, double: Path, monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    """The error comes before compilation, and a device stays one."""
    monkeypatch.setattr(Build, "generate", None)
    (double.parent / "folder").mkdir()
    before = sorted(double.parent.iterdir())
    done = cli("compile", double, "-o", output if output.startswith("/") else double.parent / output)
    assert done.code == 1
    assert "error[cannot-write]: cannot write" in done.err
    assert sorted(double.parent.iterdir()) == before
    assert Path("/dev/null").is_char_device()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_without_permission(cli: Cli, double: Path) -> None:
    folder = double.parent / "kept"
    folder.mkdir(mode=0o500)
    done = cli("compile", double, "-o", folder / "d.so")
    assert done.code == 1 and "no permission to write to the folder" in done.err


def test_link_failure_leaves_the_artifact_and_no_form(cli: Cli, double: Path) -> None:
    output = double.parent / "double.so"
    output.write_text("the one before")
    done = cli("compile", double, "--cc", "false", "--emit", "so", "--emit", "graph", "--emit", "header")
    assert done.code == 1
    assert "error[link-failed]" in done.err
    assert output.read_text() == "the one before"
    assert sorted(p.name for p in double.parent.iterdir()) == ["double.nacre", "double.so"]


def test_no_compiler(cli: Cli, double: Path) -> None:
    done = cli("compile", double, "--cc", "no-such-compiler")
    assert done.code == 1
    assert "`no-such-compiler`" in done.err and "= help: install a C compiler" in done.err


@pytest.mark.parametrize("limit", [64, 20_000])
def test_full_disk(double: Path, limit: int) -> None:
    """A file may not grow beyond the limit: first no form can be written, then the linker cannot write the library."""
    output = double.parent / "double.so"
    output.write_text("the one before")
    form = ["--emit", "graph", "-o", str(output)] if limit < 1000 else []
    done = nacre_process(
        "compile", double, *form, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    )
    assert done.code == 1, done
    assert "file too large" in done.err or "error[link-failed]" in done.err
    assert output.read_text() == "the one before"
    assert leftovers(double.parent) == []


def test_links_stay_links(cli: Cli, double: Path) -> None:
    (double.parent / "real").mkdir()
    link = double.parent / "link.graph"
    link.symlink_to("real/target.graph")
    assert cli("compile", double, "--emit", "graph", "-o", link).code == 0
    assert link.is_symlink()
    assert (double.parent / "real" / "target.graph").read_text().startswith("module")
    assert leftovers(double.parent / "real") == []


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("pentagon", "unknown CPU `pentagon`"),
        ("x86-64+wings", "unknown CPU feature `wings`"),
        ("i486", "not a 64-bit CPU"),
    ],
)
def test_unknown_cpu_is_a_fault_of_the_input(cli: Cli, double: Path, target: str, message: str) -> None:
    done = cli("compile", double, "--target", target)
    assert done.code == 1
    assert "error[unknown-target]" in done.err and message in done.err
    assert not double.with_suffix(".so").exists()


def test_passes_that_leave_a_loop(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "m.nacre"
    path.write_text("model m(x: f32[2]) -> f32[2] {\n  repeat i in 0..3 { x = x + x }\n  return x\n}\n")
    done = cli("compile", path, "--passes", "cse")
    assert done.code == 1
    assert "error[repeat-left]" in done.err and "unroll-repeat" in done.err


def test_json_is_alone_on_standard_output(cli: Cli, double: Path) -> None:
    done = cli("compile", double, "--json", "--emit", "graph", "--dump-after", "cse")
    assert json.loads(done.out)["written"][0]["form"] == "graph"
    assert "after cse" in done.err


@pytest.mark.usefixtures("unchecked")
def test_the_contents_of_the_cache_do_not_change_artifacts(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a cold cache and a warm one, without any, in one child and in many, and with texts beside."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("NACRE_CACHE", str(cache))
    made: list[bytes] = []

    def compile(*arguments: str) -> None:
        done = cli("compile", DIGITS / "digits.nacre", "-o", tmp_path / "d.so", "--target", "x86-64-v3", *arguments)
        assert done.code == 0, done.err
        made.append((tmp_path / "d.so").read_bytes())

    compile()
    kept = {path.name: path.stat().st_ino for path in (cache / "objects").iterdir()}
    assert len(kept) > 10
    compile()
    assert {path.name: path.stat().st_ino for path in (cache / "objects").iterdir()} == kept
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    compile("--no-cache")
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setenv("NACRE_NO_CACHE", "1")
    compile("--emit", "so", "--emit", "asm")
    assert made == made[:1] * 4
    assert {path.name: path.stat().st_ino for path in (cache / "objects").iterdir()} == kept


def test_several_levels(cli: Cli, double: Path) -> None:
    done = cli("compile", double, "--target", "x86-64-v3,x86-64-v2", "--emit", "so", "--emit", "asm", "--emit", "obj")
    assert done.code == 0, done.err
    levels = cli("inspect", "--json", double.with_suffix(".so")).json["target"]["levels"]
    assert [level["name"] for level in levels] == ["x86-64-v3", "x86-64-v2"]
    text = double.with_suffix(".s").read_text()
    assert "nacre_entry_double_x86_64_v3:" in text and "nacre_entry_double_x86_64_v2:" in text
    assert double.with_suffix(".o").read_bytes().startswith(b"\x7fELF")
    done = cli("compile", double, "--target", "native,x86-64-v2")
    assert done.code == 1 and "only CPU variants can share an artifact" in done.err


@pytest.mark.parametrize("name", ["native", "aarch64-linux-gnu"])
def test_kernels_without_vector_code_are_reported(cli: Cli, double: Path, tmp_path: Path, name: str) -> None:
    assert cli("compile", double, "--emit", "asm", "-o", tmp_path / "x.s", "--dump-dir", tmp_path / "stages").code == 0
    (kernels,) = (tmp_path / "stages").glob("*-linalg.mlir")
    # No operator needs such a body, so it is written into the text of a kernel.
    loop = """
    %more = arith.constant false
    %last = scf.while (%now = \\2) : (f32) -> f32 {
      scf.condition(%more) %now : f32
    } do {
    ^bb0(%next: f32):
      scf.yield %next : f32
    }
    linalg.yield %last : f32"""
    text, count = re.subn(r"(\s*)linalg\.yield (%\w+) : f32", loop, kernels.read_text())
    assert count == 1
    kernels.write_text(text)
    target = ("--from", "linalg", "--emit", "asm", "-o", tmp_path / "loops.s", "--target", name)  # needs no linker
    done = cli("compile", kernels, *target)
    assert done.code == 0, done.err
    assert f"warning[untiled-kernels]: 1 kernel is plain loops for {name}" in done.err
    assert "`scf.while` in a body; `nacre compile -v` lists every kernel" in done.err
    assert f"plain loops for {name}: `scf.while` in a body" in cli("compile", kernels, *target, "-v").err
    (kernel,) = cli("compile", kernels, *target, "--json").json["functions"][0]["kernels"]
    assert kernel["untiled"] == [{"target": name, "reason": "`scf.while` in a body"}]
    done = cli("compile", double, "--emit", "asm", "-o", tmp_path / "double.s")
    assert "untiled" not in done.err


def test_an_artifact_says_which_kernels_are_plain_loops() -> None:
    level = LevelSpec("generic", untiled=(("f", "no words for it"),))
    (described,) = describe_artifact(ArtifactSpec("m", (), levels=(level,)))["target"]["levels"]
    assert described["untiled"] == [{"kernel": "f", "reason": "no words for it"}]


def test_constants_that_grow_are_listed(cli: Cli, tmp_path: Path) -> None:
    angles = "reshape(cast(iota(64), f32), [64, 1]) * cast(iota(64), f32)"
    model = tmp_path / "cosines.nacre"
    model.write_text(f"model f(x: f32[64, 64]) -> f32[64, 64] {{\n  return x + cos({angles}) * 2\n}}\n")
    done = cli("compile", model, "--json", "-v")
    (constant,) = done.json["constants"]
    assert constant["bytes"] == 64 * 64 * 4 and constant["source_bytes"] <= 1024
    assert constant["at"].startswith("cosines.nacre:2:")
    assert re.search(r"the constant of `\w+` at \S+:2:\d+ takes 16.4 kB, made of \d+ B", done.err)
    model.write_text("model f(x: f32[64, 64]) -> f32[64, 64] { return x * (2 + 3) }\n")
    assert cli("compile", model, "--json").json["constants"] == []


def test_the_default_output_hides_no_python_module(cli: Cli, tmp_path: Path) -> None:
    text = "model m(x: f32[2]) -> f32[2] { return x }\n"
    for name, expected in (("json", "json_model.so"), ("beside", "beside_model.so"), ("own_name", "own_name.so")):
        (tmp_path / f"{name}.nacre").write_text(text)
        (tmp_path / "beside.py").write_text("")
        for _ in range(2):  # the library of the first time is no module
            assert cli("compile", str(tmp_path / f"{name}.nacre")).code == 0
        assert sorted(path.name for path in tmp_path.glob(f"{name}*.so")) == [expected]
