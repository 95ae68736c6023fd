"""The code of typical kernels does not get worse than the figures in `figures.json`, which `--update` writes anew.

Instructions are counted in the PTX; registers need ptxas.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from committed import read_figures, write_figures
from nacre.compiler.api import read_model
from nacre.compiler.base.cuda_tools import find_cuda_tool
from nacre.compiler.budgets import Costs
from nacre.compiler.model.source import SourceModel
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.quantization.choose import in_precision
from nacre.compiler.report import usual_size
from nacre.compiler.targets.chips import CHIPS
from nacre.compiler.targets.target import parse_targets
from nacre.compiler.tools.profile.device_code import read_artifact
from nacre.compiler.tools.profile.device_model import bound_calls
from nacre.dialect.dims import evaluate
from nacre.runtime.library import open_library
from nacre.runtime.observe import read_calls

SECTION = "code"
SOURCE = """language 1
dim T in 1..4096 multiple 8
dim S in 1..4096 multiple 8

model product_f16(x: f16[T, 512], w: f16[512, 512]) -> f16[T, 512] { return x @ w }
model product_bf16(x: bf16[T, 512], w: bf16[512, 512], b: bf16[512]) -> bf16[T, 512] { return gelu(x @ w.T + b) }
model product_f32(x: f32[T, 512], w: f32[512, 512], b: f32[512]) -> f32[T, 512] { return relu(x @ w + b) }
model convolution(x: f16[1, 28, 28, 64], w: f16[3, 3, 64, 64], b: f16[64]) -> f16[1, 28, 28, 64] {
  return relu(conv2d(x, w, b, padding=1, layout="channels_last"))
}
model heads_64(q: f16[8, T, 64], k: f16[8, S, 64], v: f16[8, S, 64]) -> f16[8, T, 64] {
  return attention(q, k, v, causal=true)
}
model heads_128(q: bf16[8, T, 128], k: bf16[8, S, 128], v: bf16[8, S, 128]) -> bf16[8, T, 128] {
  return attention(q, k, v)
}
model query(q: f16[8, 1, 128], k: f16[8, S, 128], v: f16[8, S, 128]) -> f16[8, 1, 128] { return attention(q, k, v) }
model exact_64(q: f32[8, T, 64], k: f32[8, S, 64], v: f32[8, S, 64]) -> f32[8, T, 64] {
  return attention(q, k, v, causal=true)
}
model exact_128(q: f32[8, T, 128], k: f32[8, S, 128], v: f32[8, S, 128]) -> f32[8, T, 128] { return attention(q, k, v) }
model shares(x: f32[T, 1024]) -> f32[T, 1024] { return softmax(x) }
model few_f16(x: f16[8, 4096], w: f16[4096, 4096]) -> f16[8, 4096] { return x @ w }
model one_bf16(x: bf16[1, 4096], w: bf16[4096, 4096], b: bf16[4096]) -> bf16[1, 4096] { return relu(x @ w + b) }
model elements(x: f32[T, 1024], y: f32[T, 1024]) -> f32[T, 1024] { return relu(x + y) }
model bytes(x: u8[T, 512], w: i8[512, 512]) -> i32[T, 512] { return einsum("mk,nk->mn", x, w, into=i32) }
model order(x: f32[T, 1000]) -> f32[T, 1000] { return sort(x) }
model cached(q: f32[8, 4, 128], k: f32[8, 128, S], v: f32[8, S, 128], length: i64) -> f32[8, 4, 128] {
  scores = mask_after(q @ k, length, fill=-inf, mode="clamp")
  return softmax(scores) @ mask_after(v, length, axis=-2, mode="clamp")
}
model cached_half(q: f32[8, 4, 128], k: f16[8, 128, S], v: f16[8, S, 128], length: i64) -> f32[8, 4, 128] {
  scores = mask_after(q @ cast(k, f32), length, fill=-inf, mode="clamp")
  return softmax(scores) @ mask_after(cast(v, f32), length, axis=-2, mode="clamp")
}
model open_shares(x: f32[T, S]) -> f32[T, S] { return softmax(x) }
model depthwise(x: f16[1, 112, 112, 32], w: f16[3, 3, 1, 32], b: f16[32]) -> f16[1, 112, 112, 32] {
  return relu(conv2d(x, w, b, padding=1, groups=32, layout="channels_last"))
}
model depthwise_first(x: f16[8, 32, 112, 112], w: f16[32, 1, 3, 3]) -> f16[8, 32, 112, 112] {
  return conv2d(x, w, padding=1, groups=32)
}
model pool_first(x: f32[8, 64, 112, 112]) -> f32[8, 64, 56, 56] { return max_pool2d(x, 3, stride=2, padding=1) }
model chosen(m: bool[T, 1024], x: f32[T, 1024], y: f32[T, 1024]) -> f32[T, 1024] { return where(m, x, y) }
model doubles(x: f64[T, 1024], y: f64[T, 1024]) -> f64[T, 1024] { return x * 2 + y }
model rows_after(q: f16[8, T, 64], k: f16[8, S, 64], v: f16[8, S, 64], at: i64) -> f16[8, T, 64] {
  ends = at + iota((1, T), axis=1, dtype=i64) + 1
  weights = softmax(mask_after(mask_after(q @ k.mT, ends, fill=-inf, mode="clamp"), at + T, fill=-inf, mode="clamp"))
  return weights @ mask_after(v, at + T, axis=-2, mode="clamp")
}
model window_after(q: f16[8, T, 64], k: f16[8, S, 64], v: f16[8, S, 64], at: i64) -> f16[8, T, 64] {
  position = at + iota((1, T), axis=1, dtype=i64)
  start = maximum(at - 511, 0)
  scores = mask_before(q @ k.mT, maximum(position - 511, 0), fill=-inf, mode="clamp")
  scores = mask_before(mask_after(scores, position + 1, fill=-inf, mode="clamp"), start, fill=-inf, mode="clamp")
  weights = softmax(mask_after(scores, at + T, fill=-inf, mode="clamp"))
  return weights @ mask_after(mask_before(v, start, axis=-2, mode="clamp"), at + T, axis=-2, mode="clamp")
}
model total(x: f32[T, S]) -> f32[] { return sum(x) }
model bias_gradient(x: f16[T, 64]) -> f16[64] { return sum(x, axis=0) }
model running(x: f32[4, S]) -> f32[4, S] { return cumsum(x, axis=1) }
model deep_f32(x: f32[4, S], w: f32[S, 256]) -> f32[4, 256] { return x @ w }
model deep_f16(x: f16[8, S], w: f16[S, 256]) -> f16[8, 256] { return x @ w }
model turned_f32(x: f32[T, 512]) -> f32[512, T] { return x.T }
model turned_f16(x: f16[8, T, 128]) -> f16[8, 128, T] { return x.mT }
"""
WEIGHTS = """language 1
dim T in 1..4096 multiple 8
model decoded_MANY(x: f32[T, 512]) -> f32[T, 512] {
  param w: f32[512, 512]
  return x @ w.T
}
model decoded_FEW(x: f32[4, 2048]) -> f32[4, 512] {
  param long: f32[512, 2048]
  return x @ long.T
}
"""
PRECISIONS = {
    "int4": "int4",
    "int8": "int8",
    **{
        name: "".join(
            f'quantize decoded_{name}_{rows} {{ weights "*" to {format}\nactivations "*" to bf16 }}\n'
            for rows in ("many", "few")
        )
        for name, format in (("int4_bf16", "q4[block 32, zero]"), ("int8_bf16", "q8[block 32]"), ("columns_bf16", "i8"))
    },
}
"""The precisions of the models with weights, and the short form or the rules of each."""
TF32 = """language 1
dim T in 1..4096 multiple 8
model product_tf32(x: f32[T, 512], w: f32[512, 512]) -> f32[T, 512] { return x @ w }
"""
WARPGROUPS = """language 1
dim T in 1..4096 multiple 8
model tiles_f16(x: f16[T, 512], w: f16[512, 512]) -> f16[T, 512] { return x @ w }
model tiles_bf16(x: bf16[T, 512], w: bf16[2048, 512], b: bf16[2048]) -> bf16[T, 2048] { return gelu(x @ w.T + b) }
"""
MORE_INSTRUCTIONS = 1.05
"""A release of LLVM may need a few instructions more."""


LESS_SHARE = 0.97
"""The share of tensor core instructions may fall by as much."""


def measure(path: Path) -> dict[str, dict[str, Any]]:
    """Returns the figures of each entry and of its launches, in order."""
    made: dict[str, dict[str, Any]] = {}
    arrays = {"w": np.ones((512, 512), np.float32), "long": np.ones((512, 2048), np.float32)}
    np.savez(path.with_name("weights.npz"), **arrays)  # type: ignore[arg-type]  # NumPy's own stub
    made |= _measure(read_model(SOURCE), path)
    made |= _measure(in_precision(read_model(TF32), "tf32"), path)
    made |= _measure(read_model(WARPGROUPS), path, "h100", "cuda:sm_90a")
    for precision, rules in PRECISIONS.items():
        text = WEIGHTS.replace("MANY", f"{precision}_many").replace("FEW", f"{precision}_few")
        path.with_suffix(".nacre").write_text(text)
        source = read_model(path.with_suffix(".nacre"), path.with_name("weights.npz"))
        made |= _measure(in_precision(source, rules), path)
    return made


def _measure(
    source: SourceModel, path: Path, chip: str = "a100", target: str = "cuda:sm_80"
) -> dict[str, dict[str, Any]]:
    build = Build(source, Options(targets=parse_targets(target)))
    build.run(path)
    read = read_artifact(path, CHIPS[chip].architecture)
    codes = {code.name: asdict(code) for code in read}
    assert build.program is not None and build.optimized is not None
    costs = Costs(source.module, build.optimized, build.program)
    calls = read_calls(open_library(str(path)), "device")
    made: dict[str, dict[str, Any]] = {}
    for entry, function in zip(build.program.entries, build.program.lowered.functions, strict=True):
        kernels = dict.fromkeys(call.symbol for call in function.calls)
        found = [code for kernel in kernels for name, code in codes.items() if name.startswith(kernel)]
        launches = [{key: value for key, value in code.items() if key != "name"} for code in found]
        graph = source.module.function(entry.name)
        dims = {symbol.name: usual_size(symbol) for symbol in graph.symbols()}
        weights = costs.formula("weights", entry.name)
        assert weights is not None
        types = [each.type for each in (*graph.arguments, *graph.results)]
        minimum = sum(evaluate(size, dims) for size in (weights, *(type.bytes for type in types)))
        moved = sum(bound.bytes for bound in bound_calls(calls[entry.name], read, dims, CHIPS[chip]))
        made[entry.name] = {"bytes_over_minimum": round(moved / minimum, 4), "launches": launches}
    return json.loads(json.dumps(made))  # type: ignore[no-any-return]  # lists in place of tuples


def worse(now: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """Returns the figures of a launch that are worse than before."""
    found = [key for key in ("shared", "barriers") if now[key] > before[key]]
    found += ["instructions"] if now["instructions"] > MORE_INSTRUCTIONS * before["instructions"] else []
    found += ["products"] if now["products"] < before["products"] else []
    found += ["mma_share"] if now["mma_share"] < LESS_SHARE * before["mma_share"] else []
    for key in ("reads", "writes"):
        widest = [max((size for size, _ in figures[key]), default=0) for figures in (now, before)]
        count = [sum(number for _, number in figures[key]) for figures in (now, before)]
        found += [key] if widest[0] < widest[1] or count[0] > count[1] else []
    if now["registers"] is not None and before["registers"] is not None:
        found += [key for key in ("used", "spilled") if now["registers"][key] > before["registers"][key]]
    return found


def worse_entry(name: str, now: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """Returns the figures of an entry and of its launches that are worse than before. Its bytes are those of whole
    tensors at given dims, and so are equal on every machine."""
    found = [name] if now["bytes_over_minimum"] > before["bytes_over_minimum"] else []
    pairs = list(zip(now["launches"], before["launches"], strict=False))
    found += [f"{name}: {len(now['launches'])} launches"] if len(now["launches"]) > len(before["launches"]) else []
    return found + [f"{name}: {key} of launch {n}: {a} {b}" for n, (a, b) in enumerate(pairs) for key in worse(a, b)]


def test_code_is_not_worse_than_before(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    made = measure(tmp_path / "model.so")
    if request.config.getoption("--update"):
        assert find_cuda_tool("ptxas") is not None, "the figures contain registers, which ptxas counts"
        write_figures(SECTION, made)
    known = read_figures(SECTION)
    assert made.keys() == known.keys()
    assert [fault for name, entry in made.items() for fault in worse_entry(name, entry, known[name])] == []


def test_more_bytes_and_launches_are_found() -> None:
    before = read_figures(SECTION)["product_f16"]
    assert worse_entry("m", before, before) == []
    assert worse_entry("m", before | {"bytes_over_minimum": 1.01}, before) == ["m"]
    assert worse_entry("m", before | {"launches": 2 * before["launches"]}, before) == ["m: 2 launches"]


def test_hot_kernels_spill_nothing() -> None:
    launches = [launch for each in read_figures(SECTION).values() for launch in each["launches"]]
    assert [launch for launch in launches if launch["registers"]["spilled"]] == []
    assert sum(launch["products"] > 0 for launch in launches) == 20


@pytest.mark.parametrize(
    "key", ["shared", "barriers", "products", "mma_share", "reads", "used", "spilled", "instructions"]
)
def test_worse_code_is_found(key: str) -> None:
    before = read_figures(SECTION)["heads_64"]["launches"][-1]
    assert worse(before, before) == []
    now = json.loads(json.dumps(before))
    if key in ("used", "spilled"):
        now["registers"][key] += 1
    elif key == "reads":
        now["reads"] = [[2, 1]]
    else:
        now[key] = {"products": 0, "mma_share": 0.9 * now["mma_share"]}.get(key, 2 * now[key])
    assert worse(now, before) == [key]
