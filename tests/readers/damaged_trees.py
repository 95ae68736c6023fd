"""Damaged files of classic models: every one is read, or refused by a diagnostic; nothing else may happen.

    python tests/readers/damaged_trees.py lightgbm --count 10000 --seed 1
    python tests/readers/damaged_trees.py xgboost-values --count 1000

The kinds with `-values` keep the form of the file and change what is in it: values, keys and lists of JSON and of the
schema of skops, numbers and lines of text, elements of ONNX attributes. The others change bytes. `damaged_files.py`
describes the limits.
"""

from __future__ import annotations

import io
import json
import random
import re
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import skops.io
from damaged_files import HERE, KINDS, Kind, damaged_bytes, damaged_config, main, read_as
from onnx import TensorProto, helper
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC


def _files(pattern: str) -> Callable[[], Sequence[bytes]]:
    return lambda: [path.read_bytes() for path in sorted((HERE / "trees" / "data").glob(pattern))]


def _nested() -> Sequence[bytes]:
    stored = np.load(HERE / "trees" / "data" / "objectives.npz")
    return [stored[f"catboost-{name}/file.cbm"].tobytes() for name in ("depthwise", "lossguide_classes")]


def _records(pattern: str) -> Callable[[], Sequence[Any]]:
    return lambda: [json.loads(data) for data in _files(pattern)()]


def _read_record(record: Any, folder: Path) -> object:
    return read_as(".json")(json.dumps(record).encode(), folder)


_WORDS = (b"-1", b"0", b"1", b"2", b"7", b"99", b"2147483648", b"1e400", b"-1e-320", b"nan", b"inf", b"", b"x", b"1.5")


def damaged_numbers(data: bytes, rng: random.Random) -> bytes:
    """Returns a text with some numbers replaced or removed, or with some lines removed or exchanged."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        places = [match.span() for match in re.finditer(rb"-?\b[0-9][0-9.e+-]*", data)]
        if rng.randrange(4) and places:
            start, end = rng.choice(places)
            data = data[:start] + rng.choice(_WORDS) + data[end:]
            continue
        lines = data.split(b"\n")
        first, second = rng.randrange(len(lines)), rng.randrange(len(lines))
        if rng.randrange(2):
            lines[first], lines[second] = lines[second], lines[first]
        else:
            del lines[first]
        data = b"\n".join(lines)
    return data


def _pmml() -> Sequence[bytes]:
    sys.path.append(str(HERE / "pmml"))
    found, make = [], import_module("test_random_pmml").Writer
    for seed in range(6):
        writer = make(seed, classes=seed % 2 == 1)
        method = "average" if seed % 2 else "sum"
        text = writer.file(writer.tree() if seed < 2 else writer.mining(method, [writer.tree(), writer.tree()]))
        found.append(text.replace("<", "\n<").lstrip().encode())
    return found


def _skops() -> Sequence[bytes]:
    x = np.random.default_rng(0).normal(size=(60, 4))
    y, labels = x[:, 0] + x[:, 1] ** 2, np.digitize(x[:, 2], [-0.5, 0.5])
    made = (
        RandomForestClassifier(3, max_depth=3, random_state=0).fit(x, labels),
        HistGradientBoostingRegressor(max_iter=3, max_depth=3, min_samples_leaf=5).fit(x, y),
        GradientBoostingClassifier(n_estimators=3, max_depth=2).fit(x, labels),
        IsolationForest(n_estimators=3, random_state=0).fit(x),
        make_pipeline(StandardScaler(), SVC()).fit(x, labels),
        make_pipeline(PCA(2), LogisticRegression()).fit(x, labels),
        KMeans(3, n_init=1, random_state=0).fit(x),
    )
    return [skops.io.dumps(each) for each in made]


def _skops_parts() -> Sequence[Mapping[str, bytes]]:
    parts = []
    for data in _skops():
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            parts.append({name: archive.read(name) for name in archive.namelist()})
    return parts


def _damaged_parts(parts: Mapping[str, bytes], rng: random.Random) -> bytes:
    """Returns an archive with a changed schema, and sometimes a changed array."""
    changed = dict(parts)
    changed["schema.json"] = json.dumps(damaged_config(json.loads(parts["schema.json"]), rng)).encode()
    if rng.randrange(3) == 0:
        name = rng.choice(sorted(changed))
        changed[name] = damaged_bytes(changed[name], rng)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in changed.items():
            archive.writestr(name, data)
    return stream.getvalue()


def _tree_attributes() -> Sequence[Mapping[str, Any]]:
    nodes = {
        "nodes_treeids": [0, 0, 0, 1, 1, 1, 1, 1],
        "nodes_nodeids": [0, 1, 2, 0, 1, 2, 3, 4],
        "nodes_featureids": [0, 0, 0, 2, 1, 0, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_LT", "BRANCH_LEQ", "LEAF", "LEAF", "LEAF"],
        "nodes_values": [0.5, 0, 0, -1.0, 2.5, 0, 0, 0],
        "nodes_truenodeids": [1, 0, 0, 1, 3, 0, 0, 0],
        "nodes_falsenodeids": [2, 0, 0, 2, 4, 0, 0, 0],
        "nodes_missing_value_tracks_true": [1, 0, 0, 0, 1, 0, 0, 0],
    }
    ids = {"treeids": [0, 0, 1, 1, 1], "nodeids": [1, 2, 2, 3, 4], "weights": [1.0, -1.0, 0.5, 2.0, 3.0]}
    own = {
        "TreeEnsembleRegressor": ("target", [0, 0, 0, 0, 0], {"n_targets": 1, "aggregate_function": "SUM"}),
        "TreeEnsembleClassifier": ("class", [0, 1, 2, 0, 1], {"classlabels_int64s": [4, 5, 6]}),
    }
    return [
        {"": kind, **nodes, **{f"{name}_{key}": value for key, value in {**ids, "ids": targets}.items()}, **more}
        for kind, (name, targets, more) in own.items()
    ]


_CHANGES = (1, 1, 2, 4)
_NUMBERS: Mapping[type, Sequence[Any]] = {
    int: (-1, 0, 1, 2, 3, 4, 99, 1 << 31, 1 << 62, -(1 << 62)),
    float: (0.0, -1.5, float("nan"), float("inf"), 1e-45, 3e38),
    str: ("", "LEAF", "BRANCH_LEQ", "BRANCH_EQ", "SUM", "AVERAGE", "x"),
}


def _damaged_attributes(attributes: Mapping[str, Any], rng: random.Random) -> bytes:
    changed = {name: list(v) if isinstance(v, list) else v for name, v in attributes.items()}
    operator = changed.pop("")
    for _ in range(rng.choice(_CHANGES)):
        name = rng.choice(sorted(changed))
        value = changed[name]
        kind = type(value[0] if isinstance(value, list) else value)
        if not isinstance(value, list):
            changed[name] = rng.choice(_NUMBERS[kind])
        elif rng.randrange(3) and value:
            value[rng.randrange(len(value))] = rng.choice(_NUMBERS[kind])
        elif rng.randrange(2):
            value.append(rng.choice(_NUMBERS[kind]))
        elif len(value) > 1:
            del value[rng.randrange(len(value))]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    if operator == "TreeEnsembleClassifier":
        outputs.insert(0, helper.make_tensor_value_info("label", TensorProto.INT64, None))
    node = helper.make_node(operator, ["x"], [v.name for v in outputs], domain="ai.onnx.ml", **changed)
    rows = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])
    graph = helper.make_graph([node], "g", [rows], outputs)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return bytes(helper.make_model(graph, opset_imports=opsets).SerializeToString())


class _Unchanged(random.Random):
    """Chooses no damage: the number of changes is 0."""

    def choice(self, seq: Any) -> Any:
        return 0 if seq is _CHANGES else super().choice(seq)


def _onnx() -> Sequence[bytes]:
    return [_damaged_attributes(each, _Unchanged()) for each in _tree_attributes()]


KINDS.clear()
KINDS.update(
    {
        "lightgbm": Kind(_files("*.txt"), damaged_bytes, read_as(".txt")),
        "lightgbm-values": Kind(_files("*.txt"), damaged_numbers, read_as(".txt")),
        "xgboost": Kind(_files("xgb_*.json"), damaged_bytes, read_as(".json")),
        "xgboost-values": Kind(_records("xgb_*.json"), damaged_config, _read_record),
        "ubjson": Kind(_files("*.ubj"), damaged_bytes, read_as(".ubj")),
        "catboost": Kind(_files("*.cbm"), damaged_bytes, read_as(".cbm")),
        "catboost-values": Kind(_records("cat_*.json"), damaged_config, _read_record),
        "catboost-nodes": Kind(_nested, damaged_bytes, read_as(".cbm")),
        "onnx": Kind(_onnx, damaged_bytes, read_as(".onnx")),
        "onnx-values": Kind(_tree_attributes, _damaged_attributes, read_as(".onnx")),
        "pmml": Kind(_pmml, damaged_bytes, read_as(".pmml")),
        "pmml-values": Kind(_pmml, damaged_numbers, read_as(".pmml")),
        "skops": Kind(_skops, damaged_bytes, read_as(".skops")),
        "skops-values": Kind(_skops_parts, _damaged_parts, read_as(".skops")),
    }
)

if __name__ == "__main__":
    sys.exit(main())
