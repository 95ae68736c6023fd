"""Artifacts around kernels written in C, for the tests of everything but code generation."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
from nacre.compiler.artifact.assemble import Placement, build_artifact
from nacre.compiler.artifact.link import RUNTIME_FOLDER
from nacre.compiler.artifact.spec import ArgumentSpec, ArtifactSpec, Constraint, EntrySpec, place_weights
from nacre.dialect.dims import Size, Symbol
from nacre.dialect.types import BF16, BOOL, F8E4M3, F8E5M2, F32, I64, U8, DType, TensorType

CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
STRICT = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-Wpedantic")

B, T = Symbol("B", 1, 64), Symbol("T", 0, 512)
G = Symbol("G", 8, 64, 8)
M, N, S = Symbol("M"), Symbol("N", 1), Symbol("S", 0)
TABLE = np.arange(15, dtype=np.float32).reshape(5, 3)


def argument(name: str, dtype: DType, *shape: Size) -> ArgumentSpec:
    return ArgumentSpec(name, TensorType(dtype, shape))


def entry(
    name: str,
    arguments: list[ArgumentSpec],
    results: list[ArgumentSpec],
    dims: tuple[Symbol, ...] = (),
    workspace: Size = 0,
    constraints: tuple[Constraint, ...] = (),
    doc: str = "",
) -> EntrySpec:
    return EntrySpec(name, f"nacre_entry_{name}", tuple(arguments), tuple(results), dims, workspace, constraints, doc)


ADD = entry(
    "add",
    [argument("x", F32, B.size, T.size), argument("y", F32, B.size, T.size)],
    [argument("sum", F32, B.size, T.size)],
    (B, T),
    4 * B.size * T.size,
    doc="The sum of two arrays.",
)
ENTRIES = (
    ADD,
    entry("embed", [argument("ids", I64, B.size, T.size)], [argument("rows", F32, B.size, T.size, 3)], (B, T)),
    entry(
        "split",
        [argument("x", F32, 2 * T.size + 1)],
        [argument("head", F32, T.size), argument("tail", F32, T.size + 1)],
        (T,),
    ),
    entry(
        "flat",
        [argument("x", F32, B.size * T.size), argument("b", F32, B.size)],
        [argument("y", F32, B.size, T.size)],
        (B, T),
    ),
    entry("groups", [argument("x", U8, G.size)], [argument("y", U8, G.size)], (G,)),
    entry(
        "pair",
        [argument("x", F32, M.size), argument("y", F32, N.size)],
        [argument("code", I64)],
        (M, N),
        constraints=(Constraint(M.size, "multiple-of", N.size), Constraint(M.size, ">=", N.size + 1)),
    ),
    entry("scalar", [argument("x", F32), argument("n", I64), argument("positive", BOOL)], [argument("y", F32)]),
    entry("constant", [], [argument("y", F32)]),
    entry("half", [argument("x", BF16, S.size)], [argument("y", BF16, S.size)], (S,)),
    entry("finite", [argument("x", F8E4M3, S.size)], [argument("y", F8E4M3, S.size)], (S,)),
    entry("upper", [argument("x", F8E5M2, S.size)], [argument("y", F8E5M2, S.size)], (S,)),
    entry("cube", [argument("x", U8, S.size)], [argument("y", U8, S.size, S.size, S.size)], (S,)),
    entry("rows", [argument("x", F32, S.size, 64)], [argument("y", F32, S.size, 64)], (S,)),
    entry("wait", [argument("x", F32, 1)], [argument("y", F32, 1)], (), 64),
)


@cache
def kernels() -> bytes:
    assert CC
    with tempfile.TemporaryDirectory() as folder:
        flags = ["-D_DEFAULT_SOURCE", "-O2", "-fPIC", f"-I{RUNTIME_FOLDER}", *STRICT]
        source = Path(__file__).with_name("kernels.c")
        subprocess.run([CC, *flags, "-c", str(source), "-o", f"{folder}/kernels.o"], check=True)
        return Path(folder, "kernels.o").read_bytes()


def zoo(name: str = "zoo", entries: tuple[EntrySpec, ...] = ENTRIES, first: float = 7) -> ArtifactSpec:
    """Every entry; its first weight is what the entry `constant` returns."""
    weights = place_weights(
        [
            ("first", TensorType(F32), np.array(first, np.float32)),
            ("table", TensorType(F32, (5, 3)), TABLE),
        ]
    )
    return ArtifactSpec(name, entries, weights, "x86_64-linux-gnu", "0.1.0", "abc", {"opt_level": 2})


def build(spec: ArtifactSpec, output: Path, weights: Placement = "embedded") -> Path:
    return build_artifact(spec, [kernels()], output, weights=weights)
