"""Measures 500 trees of depth 6 and 10 on 28 features beside the libraries: `python tests/bench/trees.py`.

Every library runs in one thread of this process with its own model file, which Nacre compiles. Calls alternate. Each
figure is the least thread time of a call, so that interruptions are excluded. Sums must have the same bits. A call of
a library includes its Python interface, which dominates for one row.
"""

from __future__ import annotations

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

TREES, FEATURES, TRAINED, ROWS = 500, 28, 6000, 10_000
DEPTHS = (6, 10)
ROUNDS = 8
Call = Callable[[Any], Any]


def grow(folder: Path, depth: int, x: Any, y: Any) -> Iterator[tuple[str, Path, Any, Call]]:
    """Yields the name, the model file, the dtype and the prediction of each library."""
    options = {"objective": "regression", "num_leaves": 1 << depth, "max_depth": depth, "min_data_in_leaf": 1}
    light = lightgbm.train({**options, "verbose": -1, "num_threads": 1}, lightgbm.Dataset(x, y), TREES)
    path = folder / f"light_{depth}.txt"
    light.save_model(path)
    yield "LightGBM", path, np.float64, lambda rows: light.predict(rows, raw_score=True, num_threads=1)
    extreme = xgboost.train({"max_depth": depth, "nthread": 1}, xgboost.DMatrix(x, y), TREES)
    path = folder / f"extreme_{depth}.ubj"
    extreme.save_model(path)
    yield "XGBoost", path, np.float32, lambda rows: extreme.inplace_predict(rows, predict_type="margin")
    options = {"depth": depth, "iterations": TREES, "verbose": 0, "thread_count": 1, "allow_writing_files": False}
    cat = catboost.CatBoostRegressor(**options).fit(x, y)
    path = folder / f"cat_{depth}.cbm"
    cat.save_model(str(path))
    yield "CatBoost", path, np.float32, lambda rows: cat.predict(rows, thread_count=1)


def measure(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Returns the least thread time of each call, in seconds."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.thread_time()
            call()
            best[name] = min(best[name], time.thread_time() - start)
    return best


def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(TRAINED, FEATURES))
    y = x[:, 0] * x[:, 1] + np.sin(3 * x[:, 2]) + 0.3 * x[:, 3:10].sum(1) + rng.normal(size=TRAINED)
    print("| library | depth | rows | library, us a row | Nacre, us a row | ratio |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        for depth in DEPTHS:
            for library, path, dtype, predict in grow(Path(name), depth, x, y):
                raw = nacre.compile(path, path.with_suffix(".so"), threads=1).entries["raw"]
                for count in (1, ROWS):
                    rows = rng.normal(size=(count, FEATURES)).astype(dtype)
                    assert np.array_equal(raw(rows), np.reshape(predict(rows), -1)), (library, depth)
                    calls = {"theirs": lambda r=rows, p=predict: p(r), "ours": lambda r=rows, p=raw: p(r)}
                    best = measure(calls, ROUNDS if count > 1 else 40 * ROUNDS)
                    theirs, ours = (best[k] / count * 1e6 for k in ("theirs", "ours"))
                    print(
                        f"| {library} | {depth} | {count} | {theirs:.3f} | {ours:.3f} | {theirs / ours:.2f} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
