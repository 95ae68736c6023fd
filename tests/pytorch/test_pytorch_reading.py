"""`nacre.from_torch` keeps names, dims and states of a program, and reports errors."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.cli.main import run
from nacre.compiler.readers.table import read_file
from nacre.compiler.tools.reference.reader_operators import PYTORCH
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.printer import print_module

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn  # noqa: E402  # after the check that PyTorch is there


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)
        self.again = self.inner
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.inner(x) * self.scale
        return {"y": y, "rest": torch.relu(y).sum(-1)}


BATCH = torch.export.Dim("batch", min=2, max=9)


def small(**options: object) -> nacre.compiler.model.source.SourceModel:
    torch.manual_seed(0)
    return nacre.from_torch(Small().eval(), (torch.randn(3, 4),), dynamic_shapes={"x": {0: BATCH}}, **options)


def test_names_and_ranges_are_kept() -> None:
    module = small(name="net").module
    (function,) = module.functions
    assert (function.name, function.result_names) == ("net", ("y", "rest"))
    assert [str(dim) for dim in module.dims] == ["dim batch in 2..9"]
    assert sorted(p.name for p in module.parameters) == ["inner.bias", "inner.weight", "scale"]
    assert {node.scope for node in function.body if node.op == "matmul"} == {"inner"}


def test_a_file_is_compiled_and_imported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    module, x = Small().eval(), torch.randn(5, 4)
    exported = torch.export.export(module, (x,), dynamic_shapes={"x": {0: BATCH}})
    torch.export.save(exported, tmp_path / "small.pt2")
    expected = module(x)["y"].detach().numpy()
    assert run(["import", str(tmp_path / "small.pt2"), "-o", str(tmp_path / "small.nacre")]) == 0
    capfd.readouterr()
    assert "inner.weight" in (tmp_path / "small.nacre").read_text()
    for path in (tmp_path / "small.pt2", tmp_path / "small.nacre"):
        np.testing.assert_allclose(nacre.compile(path, tmp_path / "small.so")(x)[0], expected, rtol=0, atol=1e-6)
    from_program = nacre.from_torch(exported, name="small")
    assert print_module(from_program.module).count("matmul") == 1


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.full((3,), 2.0))
        self.register_buffer("calls", torch.tensor(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total += x
        self.calls += 1
        return self.total * self.calls


def test_a_written_buffer_is_a_state(tmp_path: Path) -> None:
    model = nacre.compile(nacre.from_torch(Counting(), (torch.zeros(3),)), tmp_path / "counting.so")
    session, twin = model.session(), Counting()
    for step in range(3):
        x = torch.full((3,), float(step))
        np.testing.assert_array_equal(session(x), twin(x).numpy())


def test_batch_norm_in_training_updates_its_statistics(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, x = nn.BatchNorm2d(3).train(), torch.randn(4, 3, 5, 2)
    model = nacre.compile(nacre.from_torch(module, (x,)), tmp_path / "norm.so")
    session = model.session()
    for _ in range(2):
        np.testing.assert_allclose(session(x), module(x).detach().numpy(), rtol=0, atol=1e-5)
    np.testing.assert_allclose(session.states["running_var"], module.running_var.numpy(), rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.bool])
def test_weights_of_every_dtype_keep_their_bits(dtype: torch.dtype) -> None:
    """Also those that lie by column, and those without elements; the numbers of f64 are no f32."""
    numbers = (torch.arange(5001, dtype=torch.float64) % 7 - 3) / (3 if dtype.is_floating_point else 1)

    class Held(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("held", numbers.to(dtype).reshape(3, 1667).T)
            self.register_buffer("none", torch.zeros(0, 3, dtype=dtype))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([self.held, x, self.none])

    source = nacre.from_torch(Held(), (torch.zeros(2, 3, dtype=dtype),))
    weights = source.weights["Held"]
    result = Interpreter(source.module, lambda p: weights.read(p.key)).run("Held", [np.zeros((2, 3), _numpy(source))])
    assert result[0][:-2].astype(np.float64).tolist() == Held().held.to(torch.float64).tolist()


def _numpy(source: nacre.compiler.model.source.SourceModel) -> np.dtype:
    return source.module.functions[0].arguments[0].type.dtype.numpy


def test_sizes_that_follow_from_dims_stay_symbolic() -> None:
    class Halves(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            half = x.shape[0] // 2
            return torch.cat([x[half:], x[:half]]).reshape(2, -1) * x.shape[0]

    length = torch.export.Dim("n", min=1, max=20)
    source = nacre.from_torch(Halves(), (torch.zeros(4),), dynamic_shapes={"x": {0: 2 * length}})
    run_ = Interpreter(source.module, lambda p: None)
    x = np.arange(10, dtype=np.float32)
    np.testing.assert_array_equal(run_.run("Halves", [x])[0], Halves()(torch.from_numpy(x)).numpy())


# --- errors ---


def test_all_unsupported_operators_are_reported_at_once() -> None:
    class Strange(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.qr(x)[0] + torch.special.i0(x) + torch.special.i0(x + 1)

    with pytest.raises(DiagnosticError) as caught:
        nacre.from_torch(Strange(), (torch.randn(3, 3),))
    messages = [d.message for d in caught.value.diagnostics]
    assert {d.code for d in caught.value.diagnostics} == {"unsupported-operator"}
    assert any("`linalg_qr.default`" in m for m in messages)
    assert any("`i0.default` is not supported; nodes: `special_i0`, `special_i0_1`" in m or "i0" in m for m in messages)
    assert len(messages) == 2


@pytest.mark.parametrize(
    ("module", "code"),
    [
        (lambda x: x[x > 0].sum(), "data-dependent"),
        (lambda x: torch.nn.functional.dropout(x, 0.5, True), "random-numbers"),
        (lambda x: x.add_(1), "writes-argument"),
        (lambda x: x * 1j, "unsupported-dtype"),
        (lambda x: x if x.sum() > 0 else -x, "not-exportable"),
    ],
)
def test_a_refusal_names_its_cause(module: object, code: str) -> None:
    class Wrapped(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return module(x)  # type: ignore[operator]  # a function

    with pytest.raises(DiagnosticError) as caught:
        nacre.from_torch(Wrapped(), (torch.randn(3),))
    assert caught.value.diagnostics[0].code == code


def test_example_arguments_are_a_tuple() -> None:
    with pytest.raises(DiagnosticError) as caught:
        nacre.from_torch(nn.Linear(4, 4), torch.ones(2, 4))  # type: ignore[arg-type]  # as a caller without types may
    [found] = caught.value.diagnostics
    assert (found.code, found.message) == (
        "not-exportable",
        "`args` must be a tuple of example arguments, not a Tensor",
    )
    assert "(x,)" in found.help


def test_pickles_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    torch.save(nn.Linear(2, 2), tmp_path / "net.pt")
    torch.save({"a": torch.ones(2)}, tmp_path / "net.pt2")
    for name in ("net.pt", "net.pt2"):
        with pytest.raises(DiagnosticError) as caught:
            read_file(tmp_path / name)
        assert caught.value.diagnostics[0].code == "refused-pickle"
    assert run(["check", str(tmp_path / "net.pt")]) == 1
    assert "refused-pickle" in capfd.readouterr().err


def rewritten(path: Path, change: Callable[[str, bytes], bytes]) -> None:
    """Changes entries of an archive."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in entries.items():
            archive.writestr(name, change(name, data))


class Hostile:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("hostile",)


@pytest.mark.parametrize("kind", ["weight", "inputs", "operator", "size"])
def test_a_hostile_file_runs_no_code(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "net.pt2"
    module = Small().eval()
    torch.export.save(torch.export.export(module, (torch.zeros(3, 4),), dynamic_shapes={"x": {0: BATCH}}), path)
    buffer = io.BytesIO()
    torch.save(Hostile(), buffer)

    def change(name: str, data: bytes) -> bytes:
        if kind == "weight" and name.endswith("weights_config.json"):
            return data.replace(b'"use_pickle": false', b'"use_pickle": true').replace(
                b'"use_pickle":false', b'"use_pickle":true'
            )
        if kind == "weight" and "weights/weight_" in name:
            return buffer.getvalue()
        if kind == "inputs" and "sample_inputs" in name:
            return buffer.getvalue()
        if name.endswith("models/model.json") and kind == "operator":
            return data.replace(b"torch.ops.aten.relu.default", b"torch.os.mkdir")
        if name.endswith("models/model.json") and kind == "size":
            return re.sub(rb'"expr_str": ?"[^"]*"', b"\"expr_str\": \"__import__('os').mkdir('hostile')\"", data)
        return data

    rewritten(path, change)
    with pytest.raises(DiagnosticError) as caught:
        read_file(path)
    assert caught.value.diagnostics[0].code in ("refused-pickle", "refused-code")
    assert not (tmp_path / "hostile").exists()


def test_a_damaged_file_is_a_diagnostic(tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(nn.Linear(2, 2), (torch.zeros(1, 2),)), path)
    data = path.read_bytes()
    for damaged in (data[: len(data) // 2], b"", b"PK" + data[100:]):
        path.write_bytes(damaged)
        with pytest.raises(DiagnosticError) as caught:
            read_file(path)
        assert caught.value.diagnostics[0].code == "bad-pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/models/model.json", "{}")
    with pytest.raises(DiagnosticError, match="bad-pt2"):
        read_file(path)
    with pytest.raises(DiagnosticError, match="missing-file"):
        read_file(tmp_path / "none.pt2")


def test_nodes_that_contradict_each_other_are_a_diagnostic(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing but the error is printed, whether PyTorch finds it while it loads the program, or later."""
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8)), (torch.zeros(3, 4),)), path)
    whole = path.read_bytes()
    for old, new, reason in (
        (rb'"as_ints": ?\[8\]', b'"as_ints": [7]', "contradicts itself"),
        (rb'"as_ints": ?\[8\]', b'"as_ints": 7', "cannot be read"),
    ):
        path.write_bytes(whole)
        rewritten(path, lambda name, data: re.sub(old, new, data) if name.endswith("models/model.json") else data)  # noqa: B023  # called at once
        with pytest.raises(DiagnosticError, match=reason) as caught:
            read_file(path)
        assert caught.value.diagnostics[0].code == "bad-pt2"
    captured = capfd.readouterr()
    assert not captured.out and not captured.err


def test_torch_is_not_imported_unless_used() -> None:
    code = "import nacre, sys; nacre.from_torch; import nacre.compiler.readers.table; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_table_of_operators_is_current() -> None:
    page = PYTORCH.path.read_text(encoding="utf-8")
    assert page == PYTORCH.current()
