"""Measures 500 trees of depth 6 and 10 on 28 features beside other libraries: `python tests/bench/trees.py`.

LightGBM, XGBoost and CatBoost train the models, which Nacre compiles from their files. Their own prediction is a peer,
and so are, for ordinary trees, oneDAL, treelite, lleaves and ONNX Runtime, if they are installed. All run in one thread
of this process, and calls alternate. Each figure is the least CPU time of a call, so that interruptions are excluded.
Nacre's sums must have the bits of the library that trained the model. A call includes its Python interface, which
dominates for one row. `--threads` compares two threads of Nacre with one, by elapsed time.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import catboost
import lightgbm
import nacre
import numpy as np
import xgboost
from nacre.compiler.readers.trees.lightgbm import read_text

TREES, FEATURES, TRAINED, ROWS = 500, 28, 6000, 10_000
DEPTHS = (6, 10)
ROUNDS = 8
Call = Callable[[Any], Any]


def grow(folder: Path, depth: int, x: Any, y: Any) -> Iterator[tuple[str, Path, Any, dict[str, Call]]]:
    """Yields the name of each library, its model file, the dtype of features, and the predictions by library."""
    options = {"objective": "regression", "num_leaves": 1 << depth, "max_depth": depth, "min_data_in_leaf": 1}
    light = lightgbm.train({**options, "verbose": -1, "num_threads": 1}, lightgbm.Dataset(x, y), TREES)
    path = folder / f"light_{depth}.txt"
    light.save_model(path)
    native = {"LightGBM": lambda rows: light.predict(rows, raw_score=True, num_threads=1)}
    yield "LightGBM", path, np.float64, {**native, **dict(peers_of_lightgbm(light, path))}
    extreme = xgboost.train({"max_depth": depth, "nthread": 1}, xgboost.DMatrix(x, y), TREES)
    path = folder / f"extreme_{depth}.ubj"
    extreme.save_model(path)
    peers = {"XGBoost": lambda rows: extreme.inplace_predict(rows, predict_type="margin")}
    if is_installed("daal4py"):
        converted = importlib.import_module("daal4py.mb").convert_model(extreme)
        peers["oneDAL"] = converted.predict
    yield "XGBoost", path, np.float32, peers
    options = {"depth": depth, "iterations": TREES, "verbose": 0, "thread_count": 1, "allow_writing_files": False}
    cat = catboost.CatBoostRegressor(**options).fit(x, y)
    path = folder / f"cat_{depth}.cbm"
    cat.save_model(str(path))
    yield "CatBoost", path, np.float32, {"CatBoost": lambda rows: cat.predict(rows, thread_count=1)}


def is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def peers_of_lightgbm(booster: Any, path: Path) -> Iterator[tuple[str, Call]]:
    if is_installed("daal4py"):
        importlib.import_module("daal4py").daalinit(1)
        yield "oneDAL", importlib.import_module("daal4py.mb").convert_model(booster).predict
    if is_installed("treelite"):
        treelite = importlib.import_module("treelite")
        loaded = treelite.frontend.load_lightgbm_model(str(path))
        yield "treelite", lambda rows: treelite.gtil.predict(loaded, rows, nthread=1, pred_margin=True)
    if is_installed("lleaves"):
        compiled = importlib.import_module("lleaves").Model(model_file=str(path))
        start = time.perf_counter()
        compiled.compile(raw_score=True)
        print(f"lleaves compiled for {time.perf_counter() - start:.0f} s")
        yield "lleaves", lambda rows: compiled.predict(rows, n_jobs=1)
    if is_installed("onnx") and is_installed("onnxruntime"):
        yield "ONNX Runtime", onnx_session(path)


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


def measure(calls: dict[str, Callable[[], Any]], rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    """Returns the least time of each call, in seconds."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            start = clock()
            call()
            best[name] = min(best[name], clock() - start)
    return best


def compare(folder: Path, depth: int, x: Any, y: Any, rng: np.random.Generator) -> None:
    for library, path, dtype, peers in grow(folder, depth, x, y):
        start = time.process_time()
        raw = nacre.compile(path, path.with_suffix(".so"), threads=1).entries["raw"]
        size = path.with_suffix(".so").stat().st_size / 1e6
        print(
            f"{library}, depth {depth}: compiled in {time.process_time() - start:.1f} s of this process, {size:.1f} MB"
        )
        for count in (1, ROWS):
            rows = rng.normal(size=(count, FEATURES)).astype(dtype)
            assert np.array_equal(raw(rows), np.reshape(peers[library](rows), -1)), (library, depth)
            calls = {name: lambda r=rows, p=p: p(r) for name, p in {"Nacre": raw, **peers}.items()}
            best = measure(calls, ROUNDS if count > 1 else 40 * ROUNDS, time.process_time)
            for name, seconds in best.items():
                shown = f"| {library} | {depth} | {count} | {name} | {seconds / count * 1e6:.3f} "
                print(f"{shown}| {count / seconds / 1e3:.0f} | {seconds / best['Nacre']:.2f} |", flush=True)


def scale(folder: Path, x: Any, y: Any, rng: np.random.Generator) -> None:
    for library, path, dtype, _ in grow(folder, 6, x, y):
        rows = rng.normal(size=(ROWS, FEATURES)).astype(dtype)
        model = nacre.compile(path, path.with_suffix(".so"))
        two, one = (model.entries["raw"], nacre.load(path.with_suffix(".so"), threads=1).entries["raw"])
        assert np.array_equal(one(rows), two(rows)), library
        best = measure({"one": lambda r=rows, m=one: m(r), "two": lambda r=rows, m=two: m(r)}, 60, time.perf_counter)
        print(f"{library}: {best['one'] / best['two']:.2f} times as fast on all threads as on one", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", action="store_true")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(TRAINED, FEATURES))
    y = x[:, 0] * x[:, 1] + np.sin(3 * x[:, 2]) + 0.3 * x[:, 3:10].sum(1) + rng.normal(size=TRAINED)
    with tempfile.TemporaryDirectory() as name:
        if parser.parse_args().threads:
            scale(Path(name), x, y, rng)
            return
        print("| model | depth | rows | library | us a row | thousand rows a second | time by that of Nacre |")
        print("|---|---|---|---|---|---|---|")
        for depth in DEPTHS:
            compare(Path(name), depth, x, y, rng)


if __name__ == "__main__":
    main()
