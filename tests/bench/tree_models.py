"""The models of `trees.py` and `one_row.py`: 500 trees on 28 features, trained once for a folder.

lleaves 1.3 needs an llvmlite before 0.45, so it compiles in a process of its own: `lleaves_code` runs the Python of
another environment, which has lleaves, and links the object file that lleaves leaves in its cache. `tl2cgen_code`
writes the model as C code by treelite and TL2cgen, and compiles it with `gcc`.
"""

from __future__ import annotations

import ctypes
import importlib
import resource
import subprocess
from pathlib import Path
from typing import Any

import catboost
import lightgbm
import numpy as np
import xgboost

TREES, FEATURES, TRAINED = 500, 28, 6000
_COMPILE = """
import sys, time
import lleaves
model = lleaves.Model(model_file=sys.argv[1])
start = time.process_time()
model.compile(cache=sys.argv[2], raw_score=True)
print(time.process_time() - start)
"""


def training_set() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(TRAINED, FEATURES))
    y = x[:, 0] * x[:, 1] + np.sin(3 * x[:, 2]) + 0.3 * x[:, 3:10].sum(1) + rng.normal(size=TRAINED)
    return x, y


def train_lightgbm(folder: Path, depth: int) -> tuple[Any, Path]:
    path = folder / f"light_{depth}.txt"
    if not path.exists():
        options = {"objective": "regression", "num_leaves": 1 << depth, "max_depth": depth, "min_data_in_leaf": 1}
        x, y = training_set()
        lightgbm.train({**options, "verbose": -1, "num_threads": 1}, lightgbm.Dataset(x, y), TREES).save_model(path)
    return lightgbm.Booster(model_file=str(path)), path


def train_xgboost(folder: Path, depth: int) -> tuple[Any, Path]:
    path = folder / f"extreme_{depth}.ubj"
    if not path.exists():
        xgboost.train({"max_depth": depth, "nthread": 1}, xgboost.DMatrix(*training_set()), TREES).save_model(path)
    booster = xgboost.Booster(model_file=str(path))
    booster.set_param({"nthread": 1})
    return booster, path


def train_catboost(folder: Path, depth: int) -> tuple[Any, Path]:
    path = folder / f"cat_{depth}.cbm"
    if not path.exists():
        options = {"depth": depth, "iterations": TREES, "verbose": 0, "thread_count": 1, "allow_writing_files": False}
        catboost.CatBoostRegressor(**options).fit(*training_set()).save_model(str(path))
    return catboost.CatBoostRegressor().load_model(str(path)), path


def lleaves_code(python: Path, path: Path) -> tuple[Any, float | None]:
    """Returns the function that lleaves compiled, and the CPU seconds that it took; None if the code was there."""
    cache, library, seconds = path.with_suffix(".lleaves.o"), path.with_suffix(".lleaves.so"), None
    if not cache.exists():
        command = [str(python), "-c", _COMPILE, str(path), str(cache)]
        seconds = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    subprocess.run(["cc", "-shared", "-o", str(library), str(cache), "-lm"], check=True)
    return ctypes.CDLL(str(library)).forest_root, seconds


def tl2cgen_code(path: Path) -> tuple[Any, float | None]:
    """Returns the predictor that TL2cgen compiled, on one thread, and the CPU seconds of the compiler; None if the
    library was there."""
    tl2cgen, treelite = importlib.import_module("tl2cgen"), importlib.import_module("treelite")
    library, seconds = path.with_suffix(".tl2cgen.so"), None
    if not library.exists():
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        model = treelite.frontend.load_lightgbm_model(str(path))
        tl2cgen.export_lib(model, toolchain="gcc", libpath=str(library), params={"parallel_comp": 32})
        seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    return tl2cgen.Predictor(str(library), nthread=1), seconds
