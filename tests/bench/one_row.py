"""Measures calls of one row through C interfaces: `python tests/bench/one_row.py`, with the `bench` extra and g++.

500 trees of depth 6 and 10 on 28 features. Nacre is called with `nacre_api.call`, LightGBM with the interface that its
page calls the fastest for one row, and CatBoost as the C++ code that it exports, compiled with `-O3 -march=native`.
`--lleaves` names a Python that has lleaves, a peer too. A C loop calls each with 512 rows in turn; each figure is the
least thread CPU time of 200 calls, in microseconds, and the peers take turns. Nacre's sums must have the bits of the
library.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm
import nacre
import numpy as np
from tree_models import FEATURES, lleaves_code, train_catboost, train_lightgbm

ROWS, CALLS, ROUNDS = 512, 200, 40
CXX = ("g++", "-O3", "-march=native", "-shared", "-fPIC", "-std=c++14")
TIMER = """
#include <time.h>
#include <vector>
#include "abi.h"
static double now() { timespec t; clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
template <class F> static double each(long count, long calls, F call) {
    double start = now();
    for (long i = 0; i < calls; i++) call(i % count);
    return (now() - start) / calls;
}
static const nacre_api *api; static nacre_session *session; static nacre_call given;
static int64_t dims[8]; static const void *inputs[1]; static void *outputs[1];
extern "C" int bind_nacre(const nacre_api *(*get)(uint32_t), const int64_t *shape, int dtype, double *out,
                          void *space, long bytes) {
    nacre_options options = {}; options.bytes = sizeof options; options.threads = 1;
    api = get(1);
    if (!api || api->session_create(&options, &session)) return 1;
    nacre_tensor x = {out, shape, nullptr, dtype, 2};
    int32_t entry = api->find_entry("raw");
    if (api->bind(entry, &x, 1, dims) || api->workspace_bytes(entry, dims) > bytes) return 1;
    outputs[0] = out;
    given = {session, entry, inputs, outputs, dims, space, bytes};
    return 0;
}
extern "C" double time_nacre(const char *rows, long stride, long count, long calls) {
    return each(count, calls, [&](long i) { inputs[0] = rows + i * stride; api->call(&given); });
}
extern "C" double time_lightgbm(int (*f)(void *, const void *, int64_t *, double *), void *config, const double *rows,
                                long width, long count, long calls) {
    int64_t length; double out;
    return each(count, calls, [&](long i) { f(config, rows + i * width, &length, &out); });
}
extern "C" double time_lleaves(void (*f)(const double *, double *, int, int), const double *rows, long width,
                               long count, long calls) {
    double out;
    return each(count, calls, [&](long i) { f(rows + i * width, &out, 0, 1); });
}
extern "C" double time_catboost(double (*f)(const std::vector<float> &), const float *rows, long width, long count,
                                long calls) {
    std::vector<std::vector<float>> each_row;
    for (long i = 0; i < count; i++) each_row.emplace_back(rows + i * width, rows + (i + 1) * width);
    volatile double sum = 0;
    return each(count, calls, [&](long i) { sum = sum + f(each_row[i]); });
}
"""
Timed = Callable[[], float]


def build_timer(folder: Path) -> Path:
    """Returns the compiled timer; its static variables hold one model, so each model has a copy."""
    (folder / "timer.cpp").write_text(TIMER)
    runtime = Path(__file__).resolve().parents[2] / "runtime"
    subprocess.run([*CXX, f"-I{runtime}", str(folder / "timer.cpp"), "-o", str(folder / "timer.so")], check=True)
    return folder / "timer.so"


def time_nacre(folder: Path, model: Path, rows: Any, wanted: Any) -> Timed:
    timer = ctypes.CDLL(str(build_timer(folder)))
    timer.time_nacre.restype = ctypes.c_double
    compiled = nacre.compile(model, model.with_suffix(".so"), threads=1)
    np.testing.assert_array_equal(np.stack([compiled.entries["raw"](row[None])[0] for row in rows]), wanted)
    library = ctypes.CDLL(str(model.with_suffix(".so")))
    shape, out, space = (ctypes.c_int64 * 2)(1, FEATURES), np.zeros(1), np.zeros(1 << 16, np.uint8)
    start = (space.ctypes.data + 63) // 64 * 64
    dtype = 12 if rows.dtype == np.float32 else 13
    get = ctypes.cast(library.nacre_get_api, ctypes.c_void_p)
    data, at = ctypes.c_void_p(out.ctypes.data), ctypes.c_void_p(start)
    assert timer.bind_nacre(get, shape, dtype, data, at, ctypes.c_long((1 << 16) - 64)) == 0, model
    keep = (library, shape, out, space, rows)

    def run() -> float:
        x = keep[-1]
        counts = map(ctypes.c_long, (x.strides[0], ROWS, CALLS))
        return float(timer.time_nacre(ctypes.c_void_p(x.ctypes.data), *counts))

    return run


def peer(timer: Any, name: str, function: Any, *before: Any, rows: Any) -> Timed:
    call = getattr(timer, name)
    call.restype = ctypes.c_double
    counts = [ctypes.c_long(n) for n in (FEATURES, ROWS, CALLS)]
    arguments = (ctypes.cast(function, ctypes.c_void_p), *before, ctypes.c_void_p(rows.ctypes.data), *counts)
    return lambda: float(call(*arguments))


def models(folder: Path, depth: int, lleaves: Path | None, rows: Any) -> tuple[dict[str, Timed], list[Any]]:
    """Returns the timed calls by name, and the objects that must live as long as they."""
    timer = ctypes.CDLL(str(build_timer(folder)))
    light, path = train_lightgbm(folder, depth)
    own = folder / f"own_{depth}_light"
    own.mkdir(exist_ok=True)
    found = {"LightGBM model: Nacre": time_nacre(own, path, rows, light.predict(rows, raw_score=True))}
    library, config = lightgbm.basic._LIB, ctypes.c_void_p()
    width = ctypes.c_int32(FEATURES)
    begin = library.LGBM_BoosterPredictForMatSingleRowFastInit
    assert not begin(light._handle, 1, 0, -1, 1, width, ctypes.c_char_p(b"num_threads=1"), ctypes.byref(config))
    fast = library.LGBM_BoosterPredictForMatSingleRowFast
    found["LightGBM model: LightGBM"] = peer(timer, "time_lightgbm", fast, config, rows=rows)
    code = None
    if lleaves is not None:
        code, _ = lleaves_code(lleaves, path)
        found["LightGBM model: lleaves"] = peer(timer, "time_lleaves", code, rows=rows)
    short = rows.astype(np.float32)
    cat, path = train_catboost(folder, depth)
    own = folder / f"own_{depth}_cat"
    own.mkdir(exist_ok=True)
    found["CatBoost model: Nacre"] = time_nacre(own, path, short, cat.predict(short))
    cat.save_model(str(folder / f"cat_{depth}.cpp"), format="cpp")
    subprocess.run([*CXX, str(folder / f"cat_{depth}.cpp"), "-o", str(folder / f"exported_{depth}.so")], check=True)
    exported = ctypes.CDLL(str(folder / f"exported_{depth}.so"))
    function = exported._Z18ApplyCatboostModelRKSt6vectorIfSaIfEE
    found["CatBoost model: exported C++"] = peer(timer, "time_catboost", function, rows=short)
    return found, [light, config, code, short, exported]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depths", type=int, nargs="+", default=(6, 10))
    parser.add_argument("--folder", type=Path, help="keep the trained models in this folder, or use those there")
    parser.add_argument("--lleaves", type=Path, help="the Python of an environment with lleaves and llvmlite < 0.45")
    options, rng = parser.parse_args(), np.random.default_rng(1)
    rows = rng.normal(size=(ROWS, FEATURES)).astype(np.float32).astype(np.float64)
    with tempfile.TemporaryDirectory() as name:
        for depth in options.depths:
            runs, _kept = models(options.folder or Path(name), depth, options.lleaves, rows)
            best = dict.fromkeys(runs, float("inf"))
            for _ in range(ROUNDS):
                for each, run in runs.items():
                    best[each] = min(best[each], run())
            for each, seconds in best.items():
                print(f"| {depth} | {each} | {seconds * 1e6:.2f} us |", flush=True)


if __name__ == "__main__":
    main()
