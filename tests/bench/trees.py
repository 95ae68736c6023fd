"""Measures 500 trees of depth 6 and 10 on 28 features beside other libraries: `python tests/bench/trees.py`.

LightGBM, XGBoost and CatBoost train the models, which Nacre compiles from their files. Their own prediction is a peer,
and so are, for ordinary trees, oneDAL, treelite and ONNX Runtime, if they are installed. `--lleaves` names a Python
that has lleaves, and `--tl2cgen` compiles the code that TL2cgen writes for treelite; both are peers too. All run in one
thread of this process, and calls alternate. Each figure is the least CPU time of a call, so that interruptions are
excluded. Nacre's sums must have the bits of the library that trained the model. A call includes its Python interface,
which dominates for one row. `--threads` compares calls of Nacre on one and on two threads: the elapsed times, and the
CPU time of each thread, in which other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import importlib.util
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import nacre
import numpy as np
from measure import Contender, Plan, interleave
from nacre.compiler.readers.trees.lightgbm import read_text
from tree_models import FEATURES, lleaves_code, tl2cgen_code, train_catboost, train_lightgbm, train_xgboost

ROWS = 10_000
DEPTHS = (6, 10)
PLANS = {1: Plan(20, 0.002), ROWS: Plan(8, 0)}
"""By the number of rows. Calls with one row follow one another in a slot, so that the trees are in the cache."""
PLAN_OF_THREADS = Plan(60, 0)
Call = Callable[[Any], Any]


def grow(
    folder: Path, depth: int, lleaves: Path | None, tl2cgen: bool = False
) -> Iterator[tuple[str, Path, Any, dict[str, Call]]]:
    """Yields the name of each library, its model file, the dtype of features, and the predictions by library."""
    light, path = train_lightgbm(folder, depth)
    native = {"LightGBM": lambda rows: light.predict(rows, raw_score=True, num_threads=1)}
    yield "LightGBM", path, np.float64, {**native, **dict(peers_of_lightgbm(light, path, lleaves, tl2cgen))}
    extreme, path = train_xgboost(folder, depth)
    peers = {"XGBoost": lambda rows: extreme.inplace_predict(rows, predict_type="margin")}
    if is_installed("daal4py"):
        peers["oneDAL"] = importlib.import_module("daal4py.mb").convert_model(extreme).predict
    yield "XGBoost", path, np.float32, peers
    cat, path = train_catboost(folder, depth)
    yield "CatBoost", path, np.float32, {"CatBoost": lambda rows: cat.predict(rows, thread_count=1)}


def is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def peers_of_lightgbm(booster: Any, path: Path, lleaves: Path | None, tl2cgen: bool) -> Iterator[tuple[str, Call]]:
    if is_installed("daal4py"):
        importlib.import_module("daal4py").daalinit(1)
        yield "oneDAL", importlib.import_module("daal4py.mb").convert_model(booster).predict
    if is_installed("treelite"):
        treelite = importlib.import_module("treelite")
        loaded = treelite.frontend.load_lightgbm_model(str(path))
        yield "treelite (GTIL)", lambda rows: treelite.gtil.predict(loaded, rows, nthread=1, pred_margin=True)
    if tl2cgen:
        predictor, seconds = tl2cgen_code(path)
        if seconds is not None:
            print(f"TL2cgen's code compiled for {seconds:.0f} s of CPU time", flush=True)
        matrix = importlib.import_module("tl2cgen").DMatrix
        yield "treelite, compiled", lambda rows: predictor.predict(matrix(rows), pred_margin=True)
    if lleaves is not None:
        code, seconds = lleaves_code(lleaves, path)
        if seconds is not None:
            print(f"lleaves compiled for {seconds:.0f} s of CPU time", flush=True)
        yield "lleaves", partial(run_lleaves, code)
    if is_installed("onnx") and is_installed("onnxruntime"):
        yield "ONNX Runtime", onnx_session(path)


def run_lleaves(code: Any, rows: Any) -> Any:
    made = np.empty(len(rows))
    code(ctypes.c_void_p(rows.ctypes.data), ctypes.c_void_p(made.ctypes.data), 0, len(rows))
    return made


def onnx_session(path: Path) -> Call:
    """Returns the trees of a LightGBM file as one `TreeEnsembleRegressor`, whose features and sums are f32."""
    onnx, runtime = importlib.import_module("onnx"), importlib.import_module("onnxruntime")
    tables = read_text(path.read_text(), str(path)).ensemble.tables
    lists: dict[str, list[Any]] = {name: [] for name in ("tree", "id", "feature", "value", "mode", "yes", "no")}
    leaves: dict[str, list[Any]] = {"tree": [], "id": [], "value": []}
    for tree, root in enumerate(tables["roots"][0]):
        pending, count = [(int(root), 0)], 1
        while pending:
            node, number = pending.pop()
            row = [0, 0.0, "LEAF", 0, 0]
            if node < 0:
                for name, value in (("tree", tree), ("id", number), ("value", tables["values"][-1 - node, 0])):
                    leaves[name].append(value)
            else:
                row = [int(tables["feature"][node]), tables["threshold"][node], "BRANCH_LEQ", count, count + 1]
                pending += [(int(child), count + i) for i, child in enumerate(tables["children"][node])]
                count += 2
            for name, value in zip(lists, (tree, number, *row), strict=True):
                lists[name].append(value)
    node = onnx.helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_treeids=lists["tree"],
        nodes_nodeids=lists["id"],
        nodes_featureids=lists["feature"],
        nodes_values=lists["value"],
        nodes_modes=lists["mode"],
        nodes_truenodeids=lists["yes"],
        nodes_falsenodeids=lists["no"],
        target_treeids=leaves["tree"],
        target_nodeids=leaves["id"],
        target_ids=[0] * len(leaves["id"]),
        target_weights=leaves["value"],
    )
    float32 = onnx.TensorProto.FLOAT
    x, y = (onnx.helper.make_tensor_value_info(n, float32, ["B", w]) for n, w in (("x", FEATURES), ("y", 1)))
    opsets = [onnx.helper.make_opsetid("ai.onnx.ml", 3), onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "trees", [x], [y]), opset_imports=opsets, ir_version=9
    )
    settings = runtime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    session = runtime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    return lambda rows: session.run(None, {"x": rows.astype(np.float32)})[0]


def least_times(calls: dict[str, Callable[[], Any]], plan: Plan, clock: Callable[[], float]) -> dict[str, float]:
    """Returns the least time of each call, in seconds."""
    contenders = [Contender(name, call, list).timed_by(clock) for name, call in calls.items()]
    return interleave(contenders, plan).least()


def least_shares(call: Callable[[], Any], plan: Plan) -> list[float]:
    """Returns the CPU time of each of two threads in the call whose busier thread took the least time."""
    shares: list[list[float]] = []

    def busiest(seconds: Iterable[float]) -> float:
        shares.append(list(seconds)[:2])
        return max(shares[-1])

    interleave([Contender("two", call, list).timed_by_threads(busiest)], plan)
    return min(shares, key=max)


def compare(
    folder: Path, depth: int, lleaves: Path | None, tl2cgen: bool, target: str, rng: np.random.Generator
) -> None:
    for library, path, dtype, peers in grow(folder, depth, lleaves, tl2cgen):
        start = time.process_time()
        raw = nacre.compile(path, path.with_suffix(".so"), target=target, threads=1).entries["raw"]
        size = path.with_suffix(".so").stat().st_size / 1e6
        print(
            f"{library}, depth {depth}: compiled in {time.process_time() - start:.1f} s of this process, {size:.1f} MB"
        )
        for count, plan in PLANS.items():
            rows = rng.normal(size=(count, FEATURES)).astype(dtype)
            assert np.array_equal(raw(rows), np.reshape(peers[library](rows), -1)), (library, depth)
            calls = {name: partial(predict, rows) for name, predict in {"Nacre": raw, **peers}.items()}
            best = least_times(calls, plan, time.process_time)
            for name, seconds in best.items():
                shown = f"| {library} | {depth} | {count} | {name} | {seconds / count * 1e6:.3f} "
                print(f"{shown}| {count / seconds / 1e3:.0f} | {seconds / best['Nacre']:.2f} |", flush=True)


def scale(folder: Path, depths: Sequence[int], rng: np.random.Generator) -> None:
    """Prints the least elapsed times of calls on one and two threads by turns, and the CPU time of each thread."""
    for depth in depths:
        for library, path, dtype, _ in grow(folder, depth, None):
            rows = rng.normal(size=(ROWS, FEATURES)).astype(dtype)
            one = nacre.compile(path, path.with_suffix(".so"), threads=1).entries["raw"]
            two = nacre.load(path.with_suffix(".so"), threads=2).entries["raw"]
            assert np.array_equal(one(rows), two(rows)), library
            calls = {"one": partial(one, rows), "two": partial(two, rows)}
            best = least_times({"one": calls["one"]}, PLAN_OF_THREADS, time.thread_time)["one"]
            shares = least_shares(calls["two"], PLAN_OF_THREADS)
            elapsed = least_times(calls, PLAN_OF_THREADS, time.perf_counter)
            shown = " and ".join(f"{share * 1e3:.2f}" for share in shares)
            both = f"{elapsed['one'] * 1e3:.2f} | {elapsed['two'] * 1e3:.2f} | {elapsed['one'] / elapsed['two']:.2f}"
            ratio = best / max(shares)
            print(f"| {library} | {depth} | {both} | {best * 1e3:.2f} | {shown} | {ratio:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depths", type=int, nargs="+", default=DEPTHS)
    parser.add_argument("--threads", action="store_true", help="compare two threads with one")
    parser.add_argument("--folder", type=Path, help="keep the trained models in this folder, or use those there")
    parser.add_argument("--lleaves", type=Path, help="the Python of an environment with lleaves and llvmlite < 0.45")
    parser.add_argument("--tl2cgen", action="store_true", help="compile the C code of TL2cgen, which takes minutes")
    parser.add_argument("--target", default="native", help="the target of Nacre's code")
    options, rng = parser.parse_args(), np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = options.folder or Path(name)
        if options.threads:
            print("| model | depth | one thread, ms | two threads, ms | ratio | CPU of one, ms | of two, ms | ratio |")
            print("|---|---|---|---|---|---|---|---|")
            scale(folder, options.depths, rng)
            return
        print("| model | depth | rows | library | us a row | thousand rows a second | time by that of Nacre |")
        print("|---|---|---|---|---|---|---|")
        for depth in options.depths:
            compare(folder, depth, options.lleaves, options.tl2cgen, options.target, rng)


if __name__ == "__main__":
    main()
