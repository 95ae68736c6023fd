"""`nacre graph`: one file, of the form that its name says; faults before any work."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cli_harness import DIGITS, Cli, leftovers
from nacre.compiler.artifact.graphs import read_graphs
from nacre.compiler.cli.main import run
from safetensors.numpy import load_file

MODEL = DIGITS / "digits.nacre"


@pytest.mark.parametrize(
    ("name", "start"), [("d.html", "<!doctype html>"), ("d.svg", "<svg xmlns"), ("d.dot", 'digraph "digits"')]
)
def test_writes_the_form_of_the_name(cli: Cli, tmp_path: Path, name: str, start: str) -> None:
    path = tmp_path / name
    done = cli("graph", MODEL, "-o", path)
    assert done.code == 0, done.err
    assert path.read_text(encoding="utf-8").startswith(start)
    assert f"wrote {path} (" in done.err and done.out == ""
    assert leftovers(tmp_path) == []


def test_writes_a_page_beside_the_model(cli: Cli, double: Path) -> None:
    assert cli("graph", double).code == 0
    assert double.with_suffix(".html").read_text().startswith("<!doctype html>")


def test_needs_no_weights(cli: Cli, scaled: Path) -> None:
    (scaled.parent / "scale.safetensors").unlink()
    assert cli("graph", scaled, "-o", scaled.parent / "s.svg").code == 0


def test_stage_and_depth(cli: Cli, tmp_path: Path) -> None:
    texts = []
    for options in (["--stage", "graph"], ["--stage", "fuse"], ["--stage", "fuse", "--depth", "3"], ["-O", "0"]):
        assert cli("graph", MODEL, "-o", tmp_path / "d.dot", *options).code == 0
        texts.append((tmp_path / "d.dot").read_text())
    first, fused, deep, unoptimized = texts
    assert "conv2d + add + relu" not in first and "conv2d + add + relu" in fused
    assert fused.count("subgraph") < deep.count("subgraph")
    assert "conv2d + add + relu" not in unoptimized


def test_strict_passes_are_those_of_strict(cli: Cli, tmp_path: Path) -> None:
    assert cli("graph", MODEL, "-o", tmp_path / "d.html", "--strict").code == 0
    assert "winograd" not in (tmp_path / "d.html").read_text().split('"stages":')[1].split('"grids"')[0]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-o", "d.png"], "`d.png` must end with one of .html, .svg, .dot"),
        (["-o", "d.html", "--stage", "fuze"], "there is no pass `fuze`; there are graph, inline-custom, decompose"),
        (["-o", "d.html", "--at", "Q=3"], "there is no dim `Q`"),
        (["-o", "d.html", "--at", "B=0"], "`B` cannot be 0"),
        (["-o", "d.html", "--depth", "-1"], "--depth"),
    ],
)
def test_wrong_command_lines(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = cli("graph", MODEL, *arguments)
    assert done.code == 2 and says in done.err
    assert list(tmp_path.iterdir()) == []


def test_errors_of_the_model_are_reported(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "wrong.nacre"
    path.write_text("model f(x: f32[2]) -> f32[3] { return x }\n")
    done = cli("graph", path, "-o", tmp_path / "wrong.html")
    assert done.code == 1 and "error[" in done.err
    assert not (tmp_path / "wrong.html").exists()


def test_times_of_a_profile(cli: Cli, digits_so: Path, tmp_path: Path) -> None:
    """What `nacre profile` writes is understood, and nearly all of its time is that of nodes."""
    path = tmp_path / "profile.json"
    done = cli(
        "profile", "--json", digits_so, "--at", "B=3", "--threads", "1", "--seconds", "0.01", "--peak", "1000,100"
    )
    path.write_text(done.out)
    seconds = sum(kernel["seconds"] for kernel in done.json["kernels"])
    assert cli("graph", MODEL, "-o", tmp_path / "d.html", "--profile", path).code == 0
    page = (tmp_path / "d.html").read_text(encoding="utf-8")
    (text,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    data = json.loads(text)
    assert data["dims"] == {"B": 3} and data["first"] == len(data["stages"]) - 1
    assert sum(data["profile"]["nodes"].values()) == pytest.approx(seconds, rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["-o", "d.svg", "--profile", "none.json"], 2, "a profile can only be shown in an .html file"),
        (["-o", "d.html", "--profile", "none.json", "--at", "B=1"], 2, "the profile determines the dims"),
        (["-o", "d.html", "--profile", "none.json"], 1, "no such file or directory"),
    ],
)
def test_profiles_that_cannot_be_shown(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = cli("graph", MODEL, *arguments)
    assert done.code == code and says in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there(cli: Cli, tmp_path: Path) -> None:
    done = cli("graph", MODEL, "-o", tmp_path / "none" / "d.html")
    assert done.code == 1 and "cannot-write" in done.err


@pytest.mark.parametrize(("name", "code"), [("d.html", 1), ("d.svg", 1), ("d.dot", 0)])
def test_without_the_layout_solver(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "nacre.compiler.base.packages.find_spec", lambda name: None if name == "igraph" else found(name)
    )
    done = cli("graph", MODEL, "-o", tmp_path / name)
    assert done.code == code and (tmp_path / name).exists() == (code == 0)
    if code:
        assert "error[missing-package]" in done.err and "nacre[graph]" in done.err


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("artifact") / "digits.so"
    assert run(["compile", str(MODEL), "-o", str(path)]) == 0
    return path


@pytest.mark.parametrize("stage", ["graph", "compiled"])
def test_an_artifact_is_drawn_as_its_model(cli: Cli, tmp_path: Path, artifact: Path, stage: str) -> None:
    first, second = tmp_path / "model.dot", tmp_path / "artifact.dot"
    assert cli("graph", MODEL, "-o", first, *(["--stage", stage] if stage == "graph" else [])).code == 0
    assert cli("graph", artifact, "-o", second, "--stage", stage).code == 0
    assert second.read_text() == first.read_text()


def test_the_page_of_an_artifact_has_its_weights(cli: Cli, tmp_path: Path, artifact: Path) -> None:
    stripped = shutil.copy(artifact, tmp_path / "stripped.so")
    if shutil.which("strip"):
        subprocess.run(["strip", stripped], check=True)
    assert cli("graph", stripped, "-o", tmp_path / "d.html", "--at", "B=3").code == 0
    page = (tmp_path / "d.html").read_text()
    (text,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    data = json.loads(text)
    assert [stage["name"] for stage in data["stages"]] == ["graph", "compiled"]
    assert data["dims"] == {"B": 3} and data["options"] == "-O2"
    bias = load_file(DIGITS / "digits.safetensors")["answer.bias"]
    assert data["weights"]["answer.bias"]["mean"] == pytest.approx(bias.mean())
    assert data["weights"]["answer.weight.folded"]["counted"] >= 320


def test_artifacts_that_cannot_be_drawn(cli: Cli, tmp_path: Path, artifact: Path) -> None:
    bare, damaged = tmp_path / "bare.so", tmp_path / "damaged.so"
    assert cli("compile", MODEL, "-o", bare, "--no-graphs").code == 0
    assert bare.stat().st_size < artifact.stat().st_size
    graphs = read_graphs(artifact)
    assert graphs is not None and "module digits" in graphs.written and read_graphs(bare) is None
    data = artifact.read_bytes()
    packed = data.rindex(b"\x78\xda")
    damaged.write_bytes(data[: packed + 40] + bytes(16) + data[packed + 56 :])
    for name in ("bare.so", "damaged.so"):
        done = cli("graph", tmp_path / name)
        assert done.code == 1 and "error[no-graph]" in done.err, (name, done.err)
    refused = cli("graph", artifact, "--strict")
    assert refused.code == 2 and "--strict is for model files" in refused.err
