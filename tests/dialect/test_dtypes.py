"""The records of the dtypes against independent statements of the same facts, and the tables that repeat them."""

import pickle
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from nacre.compiler.artifact.header import _bits_of
from nacre.compiler.codegen.isa.instruction import WIDTHS
from nacre.compiler.codegen.tiler import dots, folds
from nacre.compiler.codegen.tiler.text import element_bytes
from nacre.compiler.lower import packing
from nacre.compiler.model.policy import SCHEMES, SHORT_FORMS
from nacre.compiler.readers.language.shapes import _ALIASES
from nacre.compiler.weights.safetensors_file import name_of
from nacre.dialect.ops.support.accumulate import FACTORS
from nacre.dialect.types import ANY, BLOCKED, BOOL, F32, FLOATS, I32, STORAGE, DType
from nacre.runtime import arguments

ROOT = Path(__file__).parents[2]
RUNTIME = ROOT / "runtime"

with_dtype = pytest.mark.parametrize("dtype", ANY, ids=str)
with_float = pytest.mark.parametrize("dtype", [*FLOATS, *STORAGE], ids=str)


def test_numbers_of_the_abi() -> None:
    numbers = {dtype.name: dtype.number for dtype in ANY}
    assert sorted(numbers.values()) == list(range(1, len(ANY) + 1))
    assert numbers == arguments.DTYPE_CODES
    enum = dict(re.findall(r"NACRE_([A-Z]+\d+\w*|BOOL) = (\d+)", (RUNTIME / "abi.h").read_text(encoding="utf-8")))
    assert {name.upper(): str(number) for name, number in numbers.items()} == enum
    page = (RUNTIME / "ABI.md").read_text(encoding="utf-8")
    assert dict(re.findall(r"\| `(\w+)` \| (\d+) (?=\|)", page)) == {
        name: str(number) for name, number in numbers.items()
    }


def test_table_of_the_runtime() -> None:
    text = (RUNTIME / "check.c").read_text(encoding="utf-8")
    table = re.findall(r'\{"(\w+)", (\d)\}', text[: text.index("dtype_count")])
    assert table == [("unknown", "0"), *((d.name, str(d.bytes)) for d in sorted(ANY, key=lambda d: d.number))]


@with_dtype
def test_numpy_counterpart_in_the_loader(dtype: DType) -> None:
    if dtype.name in arguments._OTHERS:
        name, bits = arguments._OTHERS[dtype.name]
        assert dtype.numpy.name == name and dtype.numpy == np.dtype(getattr(ml_dtypes, name))
        assert np.dtype(bits).itemsize == dtype.bytes
    else:
        assert np.dtype(arguments._NUMPY[dtype.name]) == dtype.numpy


@with_dtype
def test_names(dtype: DType) -> None:
    sizes = {"float": 4, "double": 8}
    size = sizes.get(dtype.c_name) or int(re.findall(r"^u?int(\d+)_t$", dtype.c_name)[0]) // 8
    assert size == dtype.bytes
    has_c_type = dtype.is_integer or dtype.c_name in sizes
    assert bool(_bits_of(dtype)) != has_c_type
    assert element_bytes(dtype.mlir) == dtype.bytes
    if not dtype.is_storage:
        assert WIDTHS[dtype.mlir] == dtype.bits
    # The format of safetensors spells 8-bit floats with an underscore.
    assert re.fullmatch(r"BOOL|[IUF]\d+|BF16|F8_E\dM\d\w*", name_of(dtype))
    assert _ALIASES[dtype.numpy.name] == dtype.name


@with_float
def test_formats(dtype: DType) -> None:
    format, limits = dtype.float_format, ml_dtypes.finfo(dtype.numpy)
    assert format.largest == float(limits.max) and dtype.epsilon == float(limits.eps)
    assert 2.0 ** (1 - format.bias) == float(limits.smallest_normal)
    with np.errstate(over="ignore"):
        infinity = np.asarray(np.inf).astype(dtype.numpy)
    assert bool(np.isinf(infinity.astype(np.float64))) != format.finite
    if not format.finite:
        assert int(infinity.view(f"u{dtype.bytes}")) == format.infinity_bits
        assert np.isnan(np.array(format.nan_bits, f"u{dtype.bytes}").view(dtype.numpy).astype(np.float64))


@with_float
def test_samples(dtype: DType) -> None:
    # One is denormal, one is huge, and all are finite numbers.
    stored = np.asarray(dtype.samples).astype(dtype.numpy).astype(np.float64)
    size = np.abs(stored)
    normal = 2.0 ** (1 - dtype.float_format.bias)
    assert np.isfinite(stored).all() and size.min() > 0
    assert size.min() < normal and size.max() > dtype.float_format.largest**0.5 and 1 in stored


@with_dtype
def test_sums_hold_products_exactly(dtype: DType) -> None:
    for wide in dtype.sums_in:
        digits = dtype.float_format.digits if dtype.is_float else dtype.bits
        assert 2 * digits <= (wide.float_format.digits if wide.is_float else wide.bits - 1)
        assert dtype in FACTORS[wide] and dtype in packing.FACTORS[wide]
        assert packing.GROUPS[wide, dtype] == dtype.group
    assert dtype.is_short == (dtype.bits == 8 or dtype.is_half)
    assert dtype.group == {"i8": 4, "u8": 4, "bf16": 2}.get(dtype.name, 1)
    assert dots.SIZES.get(dtype.mlir, 1) == dtype.group or dtype in (*STORAGE, BOOL)


def test_tables_of_sums() -> None:
    assert list(FACTORS) == [I32, F32]
    assert [str(d) for d in FACTORS[I32]] == ["i8", "u8"]
    assert [str(d) for d in FACTORS[F32]] == ["f16", "bf16", "f32", "i8", *map(str, STORAGE)]


def test_literals_of_folds() -> None:
    assert folds._INFINITIES == {"f16": "0x7C00", "bf16": "0x7F80", "f32": "0x7F800000", "f64": "0x7FF0000000000000"}
    assert folds._MINUS == {"f16": "0xFC00", "bf16": "0xFF80", "f32": "0xFF800000", "f64": "0xFFF0000000000000"}
    assert folds._NANS == {"f16": "0x7E00", "bf16": "0x7FC0", "f32": "0x7FC00000", "f64": "0x7FF8000000000000"}
    assert folds._LEAST["i8"] == "-128" and folds._LEAST["i64"] == str(-(2**63))


def test_policies_name_schemes() -> None:
    for policy in SHORT_FORMS.values():
        for rule in policy.rules:
            assert rule.subject is not None and rule.scheme in SCHEMES[rule.subject]
    assert {dtype.name for dtype in STORAGE} <= {scheme.dtype for scheme in SCHEMES["weights"]}


def test_a_dtype_that_another_process_sends_is_the_same() -> None:
    for dtype in (*ANY, *BLOCKED):
        assert pickle.loads(pickle.dumps(dtype)) is dtype
