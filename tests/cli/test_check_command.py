"""`nacre check`: several files, their checkpoints, and diagnostics as JSON."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cli_harness import SCALED, Cli
from nacre.compiler.pipeline import Build
from safetensors.numpy import save_file

BLOCKS = "block Half(x: f32[N]) -> f32[N] {\n  return x / 2\n}\ndim N in 1..4\n"
WRONG = "model m(x: f32[2]) -> f32[3] {\n  y = x + z\n  return x\n}\n"


@pytest.fixture(autouse=True)
def nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Build, "generate", None)


def test_notes_about_checkpoints(cli: Cli, scaled: Path) -> None:
    checkpoint = scaled.with_name("scale.safetensors")
    assert "note" not in cli("check", scaled).err
    more = {f"extra.{i}": np.zeros(1, np.float32) for i in range(7)}
    save_file({"scale": np.array([2, 3], np.float32), **more}, checkpoint)
    done = cli("check", scaled)
    listed = "extra.0, extra.1, extra.2, extra.3, extra.4 and 2 more"
    assert f"note: nothing reads 7 tensors of `{checkpoint}`: {listed}\n" in done.err and done.code == 0
    assert cli("check", scaled, "--json").json == []
    checkpoint.unlink()
    done = cli("check", scaled)
    assert f"note: there is no file `{checkpoint}`: the parameters are not compared with it\n" in done.err
    assert done.code == 0 and "no errors" in done.err


POLICY = """language 1

quantize embed {
  weights "encoder.*" to i8
  keep "embeddings"
  require cosine >= 0.999 on file "samples.npz"
}
"""


def test_a_file_of_policies(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "embed.policy.nacre"
    (tmp_path / "samples.npz").touch()
    path.write_text(POLICY)
    assert cli("check", path).code == 0
    path.write_text(POLICY.replace("to i8", "to i9").replace("cosine", "cosinus"))
    done = cli("check", path)
    assert done.code == 1 and "cannot be stored as `i9`" in done.err and "there is no metric `cosinus`" in done.err
    path.write_text(POLICY + "model other(x: f32[2]) -> f32[2] { return x }\n")
    assert "there is no model `embed`" in cli("check", path).err


def test_several_files(cli: Cli, scaled: Path) -> None:
    wrong, blocks = scaled.with_name("wrong.nacre"), scaled.with_name("blocks.nacre")
    wrong.write_text(WRONG)
    blocks.write_text(BLOCKS)
    assert cli("check", scaled, blocks).err == "2 files: no errors\n"
    done = cli("check", scaled, wrong, blocks)
    assert done.code == 1
    assert done.out == ""
    assert f"--> {wrong}:2:11" in done.err and "2 errors" in done.err


def test_a_file_of_blocks(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "blocks.nacre"
    path.write_text(BLOCKS)
    assert cli("check", path).err == "1 file: no errors\n"
    path.write_text(BLOCKS + "block Cut<n>(x: f32[N, n]) -> f32[N, n] {\n  return x[:, 1:]\n}\n")
    note = "note: no model uses `Cut`: shapes that depend on the hyper-parameters or arguments are not checked\n"
    assert cli("check", path).err == note + "1 file: no errors\n"
    path.write_text(
        BLOCKS + "block Use(x: f32[N, 8]) -> f32[N, 8] { return Cut<8>(x) }\n" + path.read_text()[len(BLOCKS) :]
    )
    done = cli("check", path)
    assert done.code == 1 and "`Cut` must be f32[N, 8], not f32[N, 7]" in done.err and "note" not in done.err


def test_json(cli: Cli, scaled: Path) -> None:
    assert cli("check", scaled, "--json").json == []
    wrong = scaled.with_name("wrong.nacre")
    wrong.write_text(WRONG)
    done = cli("check", scaled, wrong, "--json")
    assert done.code == 1
    assert {d["severity"] for d in done.json} == {"error"}
    assert done.json[0]["span"] == {"file": str(wrong), "line": 2, "column": 11, "end_line": 2, "end_column": 12}
    assert done.err == ""


def test_faults_of_imported_files_show_their_lines(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "blocks.nacre").write_text("block B(x: f32[2]) -> f32[2] {\n  return x + nothing\n}\n")
    (tmp_path / "m.nacre").write_text(
        'import "blocks.nacre"\nmodel m(x: f32[2]) -> f32[2] {\n  use b = B\n  return b(x)\n}\n'
    )
    done = cli("check", tmp_path / "m.nacre")
    assert done.code == 1
    assert "2 |   return x + nothing\n" in done.err


@pytest.mark.parametrize(("content", "message"), [(None, "no such file"), (b"\xff\xfe", "is not UTF-8"), (b"", "")])
def test_files_that_are_no_source(cli: Cli, tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "m.nacre").write_bytes(content)
    done = cli("check", tmp_path / "m.nacre")
    assert done.code == (1 if message else 0)
    assert message in done.err


def test_folder_is_no_source(cli: Cli, tmp_path: Path) -> None:
    done = cli("check", tmp_path)
    assert done.code == 1 and "error[bad-folder]" in done.err and "is a directory without" in done.err
    assert "name a model file" in done.err


def test_folder_with_one_model_file(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "m.nacre").write_text("model m(x: f32[2]) -> f32[2] { return x }")
    done = cli("check", tmp_path)
    assert done.code == 1 and "did you mean" in done.err and "m.nacre`?" in done.err


def test_checkpoint_beside_the_model_is_checked(cli: Cli, scaled: Path) -> None:
    save_file({"scale": np.zeros(3, np.float32)}, scaled.parent / "scale.safetensors")
    done = cli("check", scaled)
    assert done.code == 1
    assert "error[tensor-shape]" in done.err and "  param scale: f32[2]\n" in done.err


def test_checkpoint_that_is_not_there_is_no_fault_of_the_source(cli: Cli, scaled: Path) -> None:
    (scaled.parent / "scale.safetensors").unlink()
    assert cli("check", scaled).code == 0


def test_broken_checkpoint(cli: Cli, scaled: Path) -> None:
    (scaled.parent / "scale.safetensors").write_bytes(b"1234567890")
    done = cli("check", scaled)
    assert done.code == 1 and "checkpoint-broken" in done.err


def test_faults_of_the_source_come_alone(cli: Cli, scaled: Path) -> None:
    (scaled.parent / "scale.safetensors").write_bytes(b"1234567890")
    scaled.write_text(SCALED.replace("x * scale", "x * scal"))
    done = cli("check", scaled)
    assert "did you mean `scale`?" in done.err and "checkpoint-broken" not in done.err


def test_checkpoint_folder(cli: Cli, tmp_path: Path) -> None:
    """Configuration and weights are found in the folder, as when compiling."""
    source, folder = tmp_path / "m.nacre", tmp_path / "bert"
    source.write_text(
        'config "config.json" as c\nmodel m(x: f32[c.width]) -> f32[c.width] {\n'
        '  weights "model.safetensors"\n  param scale: f32[c.width]\n  return x * scale\n}\n'
    )
    assert 'there is no file "config.json"' in cli("check", source).err
    folder.mkdir()
    (folder / "config.json").write_text('{"width": 2}')
    save_file({"scale": np.ones(2, np.float32)}, folder / "model.safetensors")
    done = cli("check", source, "--checkpoint", folder)
    assert done.code == 0, done.err
    (folder / "config.json").write_text('{"width": 3}')
    done = cli("check", source, "--checkpoint", folder)
    assert done.code == 1 and "must be f32[3] in the checkpoint, not f32[2]" in done.err
    done = cli("check", source, "--checkpoint", tmp_path / "none")
    assert done.code == 1 and "no such file or folder" in done.err


@pytest.mark.parametrize(
    ("stored", "code", "noted"),
    [
        ({f"other.{i}": (2,) for i in range(4)}, "missing-tensor", "3 of 3 parameters are missing"),
        ({f"w{i}": (5,) for i in range(3)}, "tensor-shape", "must be f32[2] in the checkpoint, not f32[5]"),
    ],
)
@pytest.mark.parametrize("count", [3, 6])
def test_a_wrong_checkpoint_is_one_error(
    cli: Cli, tmp_path: Path, stored: dict[str, tuple[int, ...]], code: str, noted: str, count: int
) -> None:
    """Up to four parameters of another shape are errors of their own."""
    names = [f"w{i}" for i in range(count)]
    parameters = "".join(f"  param {name}: f32[2]\n" for name in names)
    path = tmp_path / "m.nacre"
    body = f'  weights "w.safetensors"\n{parameters}  return x + {" + ".join(names)}\n'
    path.write_text(f"model m(x: f32[2]) -> f32[2] {{\n{body}}}\n")
    if code == "tensor-shape":
        stored = dict.fromkeys(names, (5,))
    save_file({name: np.zeros(shape, np.float32) for name, shape in stored.items()}, tmp_path / "w.safetensors")
    done = cli("check", path)
    assert done.err.count(f"error[{code}]") == (3 if code == "tensor-shape" and count == 3 else 1)
    assert noted.replace("3 of 3", f"{count} of {count}") in done.err
    assert ("`w1`, `w2`, `w3` and 2 more have other ones too" in done.err) == (code == "tensor-shape" and count == 6)
