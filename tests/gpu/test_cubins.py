"""Machine code beside PTX: artifacts have it where ptxas is installed, and devices that run it load it.

No CPU runs machine code of a GPU: the fake driver checks that a cubin is for its device, and runs the PTX of the cubin.
"""

from __future__ import annotations

import gc
from pathlib import Path

import nacre
import numpy as np
import pytest
from assembler import find_cubins, find_ptxas, kernels_in, ptx_of
from fake_driver import Machine
from nacre.compiler.api import read_model
from nacre.compiler.base.cuda_tools import find_cuda_tool
from nacre.compiler.cache import cached_path
from nacre.compiler.cli.main import run
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.ptxas import find_assembler
from nacre.compiler.targets.target import parse_targets

MODEL = """language 1
dim B in 0..64
model m(x: f32[B, 8]) -> f32[B, 8] { return relu(x) + x }
"""
NO_BINARY, INVALID_IMAGE = 209, 200


@pytest.fixture(autouse=True)
def with_cubins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests leave machine code out, and so spare the time of ptxas."""
    monkeypatch.delenv("NACRE_NO_CUBIN")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cubins")


def build(path: Path, target: str = "cuda:sm_80") -> Path:
    if not path.exists():
        Build(read_model(MODEL), Options(targets=parse_targets(target))).run(path)
    return path


def release() -> int:
    """The major version of ptxas."""
    find_ptxas()
    (target,) = parse_targets("cuda")
    found = find_assembler(target)
    assert found is not None
    return found.release


def assert_right(path: Path) -> None:
    x = np.random.default_rng(1).normal(size=(5, 8)).astype(np.float32)
    model = nacre.load(path, device="cuda")
    np.testing.assert_array_equal(np.asarray(model(x)), np.maximum(x, 0) + x)


@pytest.mark.parametrize(
    ("target", "capability", "behind", "cubins"),
    [
        ("cuda:sm_80", 80, 0, 1),
        ("cuda:sm_80", 80, -1, 1),
        ("cuda:sm_80", 89, 0, 1),
        ("cuda:sm_80", 80, 1, 0),
        ("cuda:sm_80", 87, 0, 0),
        ("cuda:sm_80", 90, 0, 0),
        ("cuda:sm_90a", 90, 0, 1),
        ("native,cuda:sm_80,cuda:sm_90a", 90, 0, 1),
        ("native,cuda:sm_80,cuda:sm_90a", 86, 0, 1),
    ],
)
def test_device_loads_machine_code_where_it_fits(
    machine: Machine, folder: Path, target: str, capability: int, behind: int, cubins: int
) -> None:
    """A driver of an older major version than ptxas, another major capability, and Tegra compile the PTX."""
    version = 1000 * (release() - behind)
    path = build(folder / f"{target.replace(':', '_').replace(',', '_')}.so", target)
    machine.reset(capability=capability, version=version)
    assert machine.know_cubins(path) == target.count("cuda")
    assert_right(path)
    assert int(machine.library.fake_cubins()) == cubins
    assert machine.log.count("cuModuleLoadDataEx") == 1 and not machine.error


def test_device_that_refuses_the_architecture_gets_ptx(machine: Machine, folder: Path) -> None:
    path = build(folder / "cuda_sm_80.so")
    machine.reset(version=1000 * release())
    machine.know_cubins(path)
    machine.fail("cuModuleLoadDataEx", 1, NO_BINARY)
    assert_right(path)
    assert machine.log.count("cuModuleLoadDataEx") == 2 and int(machine.library.fake_cubins()) == 0


def test_broken_machine_code_is_an_error(machine: Machine, folder: Path) -> None:
    """It is not hidden by the PTX beside it. The driver knows none of the changed bytes."""
    path = folder / "broken.so"
    code = build(folder / "cuda_sm_80.so").read_bytes()
    machine.reset(version=1000 * release())
    machine.know_cubins(folder / "cuda_sm_80.so")
    (cubin,) = find_cubins(code)
    path.write_bytes(code.replace(cubin, cubin[:64] + bytes(len(cubin) - 64)))
    with pytest.raises(nacre.NacreError, match=r"could not load the machine code of `.*device kernel image is invalid"):
        nacre.load(path, device="cuda")
    gc.collect()
    assert machine.log.count("cuModuleLoadDataEx") == 1
    assert machine.left == 0 and machine.library.fake_depth() == 0


def test_machine_code_has_the_kernels_of_the_ptx(folder: Path) -> None:
    find_ptxas()
    path = build(folder / "cuda_sm_80.so")
    (cubin,), (text,) = find_cubins(path.read_bytes()), ptx_of(path)
    (kernel,) = kernels_in(cubin)
    assert f".entry {kernel}(" in text


def test_builds_are_reproducible_and_know_their_assembler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of ptxas shares no objects and no cached artifacts, another path of the same version does."""
    ptxas = find_ptxas()

    def made(name: str, program: str | None) -> tuple[bytes, Path]:
        if program is not None:
            path = tmp_path / f"{name}.sh"
            path.write_text(f"#!/bin/sh\n{program}\n")
            path.chmod(0o755)
            monkeypatch.setenv("NACRE_PTXAS", str(path))
        made = Build(read_model(MODEL), Options(targets=parse_targets("cuda")))
        made.run(tmp_path / f"{name}.so")
        return (tmp_path / f"{name}.so").read_bytes(), cached_path(made)

    monkeypatch.setenv("NACRE_CACHE", str(tmp_path / "cache"))
    first = made("first", None)
    assert made("same", f'exec {ptxas} "$@"') == first
    monkeypatch.setenv("NACRE_CACHE", str(tmp_path / "fresh"))
    assert made("fresh", f'exec {ptxas} "$@"')[0] == first[0]
    monkeypatch.setenv("NACRE_CACHE", str(tmp_path / "cache"))
    older = (
        f'[ "$1" = --version ] && echo "release 12.1, V12.1.5" && exit; echo kept >{tmp_path}/ran; exec {ptxas} "$@"'
    )
    code, path = made("older", older)
    assert path != first[1] and b'"cubins":{"cuda:sm_80":"12.1.5"}' in code and (tmp_path / "ran").exists()
    _, path = made("unaware", f"""[ "$1" != --help ] || exit 0; exec {ptxas} "$@" """)
    assert path not in (first[1], made("older", older)[1])
    assert find_cubins((tmp_path / "unaware.so").read_bytes()) == []


def test_commands_tell_about_machine_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    find_ptxas()
    (tmp_path / "m.nacre").write_text(MODEL)
    path = str(tmp_path / "m.so")
    for options, expected in (([], "PTX and machine code of ptxas "), (["--no-cubin"], "PTX, without machine code")):
        assert run(["compile", str(tmp_path / "m.nacre"), "--target", "cuda", "-o", path, *options]) == 0
        assert f"cuda:sm_80: {expected}" in capsys.readouterr().err
        assert bool(find_cubins(Path(path).read_bytes())) == (not options)
        assert run(["inspect", path]) == 0
        assert f"  cuda:sm_80: {expected}" in capsys.readouterr().out


def test_faulty_ptx_and_assemblers_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """PTX that a person has changed is an error of the input, as is a program that is no assembler."""
    find_ptxas()
    model, dump, out = tmp_path / "m.nacre", tmp_path / "m.s", tmp_path / "m.so"
    model.write_text(MODEL)
    assert run(["dump", str(model), "--target", "cuda", "--stage", "assembly"]) == 0
    text = capsys.readouterr().out
    dump.write_text(text.replace("ld.param.b64", "ld.param.b65", 1))
    assert "ld.param.b65" in dump.read_text()
    assert run(["compile", "--from", "assembly", str(dump), "--target", "cuda", "-o", str(out)]) == 1
    assert "ptxas refuses the code" in capsys.readouterr().err and not out.exists()
    for program, reason in (("/nowhere/ptxas", "No such file"), ("/bin/true", "does not tell its version")):
        monkeypatch.setenv("NACRE_PTXAS", program)
        assert run(["compile", str(model), "--target", "cuda", "-o", str(out)]) == 1
        said = " ".join(capsys.readouterr().err.split())
        assert f"`{program}` does not run as CUDA's assembler: " in said and reason in said
    assert not out.exists()


def test_the_most_demanding_code_comes_first() -> None:
    """A device takes the first code that it runs, whatever the order of a command."""
    named = [target.name for target in parse_targets("cuda:sm_80,native,cuda:sm_90,cuda,cuda:sm_90a")]
    assert named == ["native", "cuda:sm_90a", "cuda:sm_90", "cuda:sm_80"]


def test_tools_are_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the path first, then in CUDA_HOME; a variable of its own overrides both."""
    for name in ("path", "home/bin"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "ptxas").write_text("#!/bin/sh\n")
        (tmp_path / name / "ptxas").chmod(0o755)
    monkeypatch.delenv("NACRE_PTXAS", raising=False)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    assert find_cuda_tool("ptxas") == str(tmp_path / "path" / "ptxas")
    monkeypatch.setenv("PATH", "")
    assert find_cuda_tool("ptxas") == str(tmp_path / "home" / "bin" / "ptxas")
    monkeypatch.setenv("NACRE_PTXAS", "/other")
    assert find_cuda_tool("ptxas") == "/other"
