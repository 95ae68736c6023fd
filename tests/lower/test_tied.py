"""A table that rows are looked up in and that a product multiplies by is stored once, as floats and as codes."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.checking import read_model
from nacre.compiler.lower import function
from nacre.compiler.lower.packing import Packing
from nacre.compiler.lower.tied import Tied
from nacre.compiler.model.parameters import open_parameters
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.quantization.choose import in_precision
from nacre.dialect.graph import Formula, Module, Node, Parameter, Value
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.types import F32, TensorType
from saving import save_npz

MODEL = """language 1
dim T in 0..9

model main(ids: i64[T]) -> logits: f32[T, 101], again: f32[T, 101] {
  weights "weights.npz"
  param table: f32[101, 64]
  param inner: f32[64, 64]
  x = tanh(embedding(table, ids) @ inner)
  # Two products share a copy.
  return x @ table.T, relu(x) @ table.T
}

model whole(ids: i64[T]) -> rows: f32[T, 64], all: f32[101, 64], logits: f32[T, 101] {
  weights "weights.npz"
  param table: f32[101, 64]
  x = embedding(table, ids)
  # A result that is the table is copied from it as it is.
  return x, table, x @ table.T
}
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("tied"), np.random.default_rng(2)
    shapes = {"table": (101, 64), "inner": (64, 64)}
    save_npz(folder / "weights.npz", {n: (rng.standard_normal(s) / 8).astype(np.float32) for n, s in shapes.items()})
    (folder / "model.nacre").write_text(MODEL.partition("model whole")[0])
    (folder / "whole.nacre").write_text(MODEL)
    return folder / "model.nacre"


@pytest.mark.parametrize(("precision", "copies"), [("f32", 1), ("bf16", 1), ("int8", 1), ("int4", 3)])
def test_a_tied_table_is_stored_once(precision: str, copies: int, path: Path, tmp_path: Path) -> None:
    model = nacre.compile(path, tmp_path / "model.so", precision=precision)
    tensors = model.describe()["weights"]["tensors"]
    # Those that have the rows of the table and more than a number for each: codes, and scales and zeros in blocks.
    large = [t["name"] for t in tensors if t["name"].startswith("table") and np.prod(t["shape"]) >= 202]
    assert len(large) == copies, large
    source_model = in_precision(read_model(path), precision)
    interpreter = Interpreter(source_model.module, open_parameters(source_model))
    for ids in ([], [100], [0, 47, 48, 100, -1, 7]):
        expected = interpreter.run("main", [np.asarray(ids, np.int64)])
        for actual, wanted in zip(model(np.asarray(ids, np.int64)), expected, strict=True):
            # Quantized values of an activation come from a division, which may be rounded otherwise.
            bound = 1e-5 if precision != "int8" else 1e-2
            np.testing.assert_allclose(actual, wanted, rtol=0, atol=bound * max(np.abs(wanted).max(initial=0), 1e-6))


def test_a_scale_of_logits_is_not_folded_into_the_table(path: Path) -> None:
    """The scaled table would be stored beside the table. Another weight is scaled."""
    text = path.read_text().replace("@ inner", "@ inner * 0.5").replace("return x @ table.T", "return x @ table.T * 3")
    module = Build(read_model(text), Options()).optimize()
    formulas = {p.name: p.formula for p in module.parameters if p.formula is not None}
    made = {name: {node.op for node in formula.body} for name, formula in formulas.items()}
    assert "multiply" in made["inner.folded"]
    assert all("multiply" not in ops for name, ops in made.items() if name.startswith("table")), made


def test_a_table_that_is_needed_whole_is_there_whole(path: Path, tmp_path: Path) -> None:
    model = nacre.compile(path.with_name("whole.nacre"), tmp_path / "model.so")
    ids = np.array([100, 0, 48])
    with np.load(path.with_name("weights.npz")) as arrays:
        table = arrays["table"]
    rows, everything, logits = model.entries["whole"](ids)
    np.testing.assert_array_equal(rows, table[ids])
    np.testing.assert_array_equal(everything, table)
    np.testing.assert_allclose(logits, table[ids] @ table.T, rtol=0, atol=1e-5)


def test_parameters_are_indexed_once_for_all_weights(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Module] = []

    class Watched(Tied):
        def __init__(self, module: Module) -> None:
            made.append(module)
            super().__init__(module)

    monkeypatch.setattr(function, "Tied", Watched)
    build = Build(read_model(path), Options())
    build.lower(build.optimize())
    assert len(made) == 1, "three weights are packed"


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_a_packed_transpose_is_the_packed_tensor(order: tuple[int, ...]) -> None:
    """The axes of a packing are those of the stored tensor, also where they are permuted in a cycle."""
    x = Value("x", TensorType(F32, (3, 3, 3)))
    base = Parameter("w", x.type)
    read = Node("parameter", (), (x,), (("name", "w"),))
    turned = Value("y", x.type)
    transpose = Node("transpose", (x,), (turned,), (("axes", order),))
    source = Parameter("w.turned", x.type, formula=Formula((base,), (read, transpose), turned))
    data = np.arange(27, dtype=np.float32).reshape(3, 3, 3)
    for batch, summed, lane in (((), (0, 1), 2), ((0,), (2,), 1), ((), (2, 0), 1)):
        packing = Packing(batch, summed, lane, 16)
        stored = Tied(Module("m", (), (base, source), ())).stored(source, packing, source.type)
        assert stored is not None and stored.source is base
        assert np.array_equal(stored.packing(data), packing(data.transpose(order)))


def test_axes_of_size_one_are_left_out_of_a_packing() -> None:
    stored = Parameter("w", TensorType(F32, (2, 17)))
    seen = TensorType(F32, (1, 2, 1, 17))
    found = Tied(Module("m", (), (stored,), ())).stored(stored, Packing((0,), (2, 1), 3, 16), seen)
    assert found is not None and found.packing == Packing((), (0,), 1, 16)
    assert Tied(Module("m", (), (stored,), ())).stored(stored, Packing((), (1, 2), 3, 16), seen) is None
