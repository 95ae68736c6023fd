"""`nacre.compile` issues what `nacre compile` prints as `nacre.NacreWarning`."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.cli.main import run
from nacre.compiler.codegen.objects import Program, Untiled
from saving import save_npz

MODEL = """language 1
model net(x: f32[1, 32, 28, 28]) -> f32[1, 32, 28, 28] {
  weights "weights.npz"
  param weight: f32[32, 32, 3, 3]
  return conv2d(x, weight, padding=1)
}
"""
"""In i8 it is no faster than in f32; in f32 the transform of the weight takes 111 kB more than the weight."""
PLAIN = "model double(x: f32[3]) -> f32[3] { return x + x }\n"
SIZE = "weights take 148 kB, 4.01 times the 36.9 kB of the parameters: 111 kB for the transforms of 1 weight"


@pytest.fixture
def path(tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NACRE_CACHE", str(empty_cache))
    save_npz(tmp_path / "weights.npz", {"weight": np.ones((32, 32, 3, 3), np.float32)})
    (tmp_path / "net.nacre").write_text(MODEL)
    return tmp_path / "net.nacre"


def compile_it(path: Path, precision: str | None) -> list[str]:
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        nacre.compile(path, precision=precision)
    assert {warning.category for warning in issued} <= {nacre.NacreWarning}
    assert {warning.filename for warning in issued} <= {__file__}, "they are issued at the call"
    return [str(warning.message) for warning in issued]


def reported(capfd: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """Returns the messages of a compilation, in one line: `nacre` breaks lines."""
    assert run(["compile", *map(str, arguments)]) == 0
    return in_one_line(capfd.readouterr().err)


def in_one_line(text: str) -> str:
    return " ".join(text.split())


def test_warnings_are_those_of_the_command_line(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    err = reported(capfd, path, "--precision", "int8")
    issued = compile_it(path, "int8")
    assert issued[0].startswith("warning[precision-not-faster]: 1 convolution of `net`")
    assert [text for text in issued if in_one_line(text) not in err] == []
    assert compile_it(path, "int8") == issued, "a model from the cache is as slow"


def test_growing_weights_cause_a_warning(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    err = reported(capfd, path)
    (text,) = compile_it(path, None)
    assert text.startswith(SIZE) and in_one_line(text) in err


@pytest.fixture
def no_vector_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiler writes vector code for the kernels of all operators, so that one is declared to have none."""

    def untiled(program: Program) -> tuple[Untiled, ...]:
        return tuple(Untiled(s, t, "no words for it") for t, kernels in program.kernels.items() for s in kernels)

    monkeypatch.setattr(Program, "untiled", property(untiled))


@pytest.mark.usefixtures("no_vector_code")
def test_kernels_without_vector_code_cause_a_warning(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path.write_text(PLAIN)
    err = reported(capfd, path)
    (text,) = issued = compile_it(path, None)
    assert text.startswith("warning[untiled-kernels]: 1 kernel is plain loops for native") and in_one_line(text) in err
    assert compile_it(path, None) == issued


@pytest.mark.usefixtures("no_vector_code")
def test_they_can_be_errors(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", nacre.NacreWarning)
        with pytest.raises(nacre.NacreWarning, match="untiled-kernels"):
            nacre.compile(PLAIN)


def test_the_category_is_known_without_the_compiler() -> None:
    code = "import sys, nacre; nacre.NacreWarning; nacre.load; print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not [module for module in shown if module.startswith("nacre.compiler")]
