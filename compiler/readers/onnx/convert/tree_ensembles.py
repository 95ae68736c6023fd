"""The tree ensembles of ai.onnx.ml, as the operators that model files of trees use.

Features and sums are f32, or f64 for features in f64. A sum adds trees in the order of the file, then the base values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .....dialect.diagnostics import DiagnosticError
from .....dialect.dims import product
from .....dialect.graph import Value
from .....dialect.operator import Builder
from .....dialect.types import F32, F64
from ...trees.ensemble import Ensemble, assemble
from ...trees.graph import TreeModel, find_ranks, identity, write_leaves_of, write_raw
from ...trees.ranked import Ranked
from ...trees.tree import Numbers, Tree
from ...writing.graph_writer import GraphWriter
from ...writing.tensors import Held, Tensor, known
from ..writing.use import REQUIRED, Converters, Use
from .scores import TRANSFORMS, class_labels, count_classes, float_rows, label_of, transform
from .tree_nodes import MODES, Branch, build_tree, find_comparison

_MOST_VALUES = 1 << 27
"""The maximum number of stored leaf values, over all targets."""
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


@dataclass(frozen=True, slots=True)
class _Tables:
    """Writes tables as parameters of the graph."""

    g: GraphWriter
    ranked: Ranked | None
    label: str

    @property
    def builder(self) -> Builder:
        return self.g.builder

    def table(self, name: str, array: Numbers) -> Value:
        return self.g.value(known(array, label=f"{self.label}.{name}"))


@dataclass(frozen=True, slots=True)
class _File:
    """The trees of an ONNX node: the roots, the branches by number, and the targets and weights of each leaf. `numbers`
    maps a branch to its tree and node ids in the file, for diagnostics."""

    roots: Sequence[int]
    branches: Mapping[int, Branch]
    leaves: Sequence[Sequence[tuple[int, float]]]
    numbers: Mapping[int, tuple[int, int]]
    targets: int


def _fail(use: Use, file: _File, message: str, node: int) -> Any:
    tree, number = file.numbers.get(node, (-1, node))
    use.fail(f"has a bad tree {tree}, node {number}: {message}", code="bad-tree")


def _sum_trees(use: Use, file: _File, aggregate: str) -> tuple[Tensor, Tensor]:
    """Returns the features, and the sums, means or extremes [B, targets] without base values."""
    g, x = use.g, float_rows(use)
    dtype: Any = np.float64 if x.dtype == F64 else np.float32
    compare = find_comparison(file.branches)
    plain = all(node.mode in ("BRANCH_LEQ", "BRANCH_LT") and not node.nan_is_yes for node in file.branches.values())
    built = [
        build_tree(root, file.branches, compare, dtype, flags=not plain, fail=lambda m, n: _fail(use, file, m, n))
        for root in file.roots
    ]
    single = [{target for leaf in leaves for target, _ in file.leaves[leaf]} for _, leaves in built]
    apart = all(len(targets) == 1 for targets in single)
    elements = file.targets * (1 if apart else sum(len(leaves) for _, leaves in built))
    if elements > _MOST_VALUES:
        use.fail(
            f"has {file.targets} targets and {elements} leaf values, more than {_MOST_VALUES}", code="bad-attribute"
        )
    trees, groups = [], []
    for (tree, leaves), targets in zip(built, single, strict=True):
        values = np.zeros((len(leaves), 1 if apart else file.targets))
        for row, leaf in enumerate(leaves):
            for target, weight in file.leaves[leaf]:
                values[row, 0 if apart else target] += dtype(weight)
        trees.append(_with_values(tree, values))
        groups.append(targets.pop() if apart else 0)
    features = x.shape[1]
    if not isinstance(features, int):
        use.fail("takes features whose number is not known", code="data-dependent")
    initial = np.zeros((file.targets, 1) if apart else (1, file.targets), dtype)
    try:
        ensemble = assemble(trees, groups, initial, features=features, compare=compare, dtype=dtype)
    except DiagnosticError as error:
        use.fail(f"has a bad tree: {error.diagnostics[0].message}", code="bad-tree")
    label = use.node.outputs[-1] or use.node.name or "trees"
    model = TreeModel(ensemble, features, x.dtype, identity, identity)
    if aggregate in ("MIN", "MAX"):
        return x, _extreme(use, _Tables(g, None, label), ensemble, g.value(x), file, aggregate)
    found = write_raw(_Tables(g, find_ranks(model), label), model, g.value(x))
    total = Tensor(found.type, found)
    total = g.reshape(total, shape=(x.shape[0], file.targets))
    if aggregate == "AVERAGE" and file.roots:
        total = g.divide(total, g.like(float(len(file.roots)), total))
    return x, total


def _with_values(tree: Tree, values: Numbers) -> Tree:
    return Tree(tree.feature, tree.threshold, tree.left, tree.right, tree.flags, values, (), tree.names)


def _extreme(use: Use, tables: _Tables, ensemble: Ensemble, x: Value, file: _File, aggregate: str) -> Tensor:
    """Returns the least or greatest value over the trees."""
    g = use.g
    if file.targets != 1 or not file.roots:
        use.fail(
            f"takes the {aggregate} of several targets or of no tree, which is not supported", code="bad-attribute"
        )
    leaves = write_leaves_of(tables, ensemble, x)
    rows, _, trees = leaves.type.shape
    flat = g.reshape(Tensor(leaves.type, leaves), shape=(product((rows, trees)),))
    values = known(ensemble.tables["values"][:, 0], label=f"{tables.label}.values")
    chosen = g.reshape(g.gather(values, flat, axis=0, mode="clamp"), shape=(rows, trees))
    return getattr(g, aggregate.lower())(chosen, axis=1, keepdims=True)  # type: ignore[no-any-return]  # by name


def _numbers(use: Use, name: str, count: int | None = None) -> Sequence[Any]:
    """Returns floats of an attribute, or of the tensor that may replace it."""
    if use.has(f"{name}_as_tensor"):
        found: Sequence[Any] = use.stored(f"{name}_as_tensor").array.reshape(-1).tolist()
    else:
        found = use.floats_of(name, ()) or ()
    if count is not None and len(found) != count:
        use.fail(f"has {len(found)} `{name}`, expected {count}", code="bad-attribute")
    return found


def _ints(use: Use, name: str, count: int) -> Sequence[int]:
    found: Sequence[int] = use.ints_of(name, ()) or (0,) * count
    if len(found) != count:
        use.fail(f"has {len(found)} `{name}`, expected {count}", code="bad-attribute")
    return found


def _read_nodes(use: Use, kind: str, targets: int) -> _File:
    """Reads the nodes of versions 1 to 3, which are numbered by trees and ids."""
    modes = [m.decode() if isinstance(m, bytes) else str(m) for m in use.strings_of("nodes_modes", ()) or ()]
    count = len(modes)
    names = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids", "missing_value_tracks_true")
    tree, node, feature, yes, no, tracks = (_ints(use, f"nodes_{name}", count) for name in names)
    values = _numbers(use, "nodes_values", count)
    keys = list(zip(tree, node, strict=True))
    index_of = {key: i for i, key in enumerate(keys)}
    if len(index_of) != count:
        use.fail("has two nodes of one tree and number", code="bad-tree")
    weights = _numbers(use, f"{kind}_weights")
    leaves: list[list[tuple[int, float]]] = []
    of_leaf: dict[int, int] = {}
    for i, mode in enumerate(modes):
        if mode == "LEAF":
            of_leaf[i] = len(leaves)
            leaves.append([])
    ids = [_ints(use, f"{kind}_{name}", len(weights)) for name in ("treeids", "nodeids", "ids")]
    for t, n, target, weight in zip(*ids, weights, strict=True):
        where = of_leaf.get(index_of.get((t, n), -1))
        if where is None:
            use.fail(f"has a bad tree {t}, node {n}: it has a weight, and is not a leaf", code="bad-tree")
        if not 0 <= target < targets:
            use.fail(f"has a bad tree {t}, node {n}: its target is {target} of {targets}", code="bad-tree")
        leaves[where].append((target, float(weight)))

    def child(i: int, number: int) -> int:
        at = index_of.get((tree[i], number))
        if at is None:
            use.fail(f"has a bad tree {tree[i]}, node {node[i]}: its child {number} does not exist", code="bad-tree")
        return -1 - of_leaf[at] if at in of_leaf else at

    branches = {}
    for i, mode in enumerate(modes):
        if mode == "LEAF":
            continue
        if mode not in MODES[:-1]:
            use.fail(f"has a bad tree {tree[i]}, node {node[i]}: its mode is `{mode}`", code="bad-tree")
        branches[i] = Branch(mode, feature[i], values[i], child(i, yes[i]), child(i, no[i]), bool(tracks[i]))
    # The first node of a tree is its root.
    first = {t: i for i, t in reversed(list(enumerate(tree)))}
    roots = [-1 - of_leaf[first[t]] if first[t] in of_leaf else first[t] for t in dict.fromkeys(tree)]
    return _File(roots, branches, leaves, dict(enumerate(keys)), targets)


def _regressor(use: Use) -> Sequence[Tensor]:
    targets = use.integer("n_targets", 1)
    file = _read_nodes(use, "target", targets)
    aggregate = use.string("aggregate_function", "SUM")
    if aggregate not in _AGGREGATES:
        use.fail(f"has the aggregate `{aggregate}`, which is unknown", code="bad-attribute")
    _, total = _sum_trees(use, file, aggregate)
    total = _with_base(use, total, targets)
    return [use.g.cast(transform(use, use.string("post_transform", "NONE"), total), dtype=F32)]


def _with_base(use: Use, total: Tensor, targets: int) -> Tensor:
    base = _numbers(use, "base_values")
    if not base:
        return total
    if len(base) not in (1, targets):
        use.fail(f"has {len(base)} base values for {targets} targets", code="bad-attribute")
    return use.g.add(total, known(np.asarray(base, np.float64), total.dtype))


def _classifier(use: Use) -> Sequence[Held]:
    g, name = use.g, "classlabels_int64s"
    classes, labels = count_classes(use, name), class_labels(use, name)
    post = use.string("post_transform", "NONE")
    if classes < 2:
        use.fail(f"has {classes} classes; at least 2 are supported", code="bad-attribute")
    file = _read_nodes(use, "class", classes)
    targets = {target for leaf in file.leaves for target, _ in leaf}
    x, total = _sum_trees(use, file, "SUM")
    if classes > 2 or len(targets) > 1:
        total = _with_base(use, total, classes)
        chosen = label_of(g, labels, g.argmax(total, axis=1))
        return [chosen, g.cast(transform(use, post, total), dtype=F32)]
    # Two classes with one score: the score of the other class is the complement or the negative.
    base = _numbers(use, "base_values")
    if len(base) > 1:
        use.fail("has two base values for one score, which is not supported", code="unsupported-attribute")
    (target,) = targets or {0}
    score = g.slice(total, starts=(None, target), stops=(None, target + 1))
    score = g.add(score, g.like(float(base[0]), score)) if base else score
    positive = all(weight >= 0 for leaf in file.leaves for _, weight in leaf)
    limit = g.like(0.5 if positive else 0.0, score)
    index = g.cast(g.greater(g.reshape(score, shape=(x.shape[0],)), limit), dtype=known(np.int64(0)).dtype)
    is_share = positive and post == "NONE"
    other = g.subtract(g.like(1.0, score), score) if is_share else g.negate(score)
    pair = g.concat(other, score, axis=1)
    if post not in TRANSFORMS or post == "PROBIT":
        use.fail(f"has the transform `{post}` for one score, which is not supported", code="unsupported-attribute")
    return [label_of(g, labels, index), g.cast(transform(use, post, pair), dtype=F32)]


def _owners(roots: Sequence[int], sides: Sequence[tuple[Sequence[int], Sequence[int]]], count: int) -> list[int]:
    """Returns the tree of each node, for messages: the first one whose root reaches it, or -1."""
    owners = [-1] * count
    for tree, root in enumerate(roots):
        pending = [root]
        while pending:
            node = pending.pop()
            if 0 <= node < count and owners[node] < 0:
                owners[node] = tree
                pending += [nodes[node] for nodes, is_leaf in sides if not is_leaf[node]]
    return owners


def _ensemble(use: Use) -> Sequence[Tensor]:
    """Converts `TreeEnsemble` of version 5, whose nodes and leaves are numbered over all trees."""
    modes = use.stored("nodes_modes").array.reshape(-1).tolist()
    count = len(modes)
    values = use.stored("nodes_splits").array.reshape(-1).tolist()
    feature = _ints(use, "nodes_featureids", count)
    sides = [(_ints(use, f"nodes_{s}nodeids", count), _ints(use, f"nodes_{s}leafs", count)) for s in ("true", "false")]
    tracks = _ints(use, "nodes_missing_value_tracks_true", count)
    weights = use.stored("leaf_weights").array.reshape(-1).tolist()
    targets, ids = use.integer("n_targets", 1), _ints(use, "leaf_targetids", len(weights))
    members = use.stored("membership_values").array.reshape(-1).tolist() if use.has("membership_values") else []
    sets: list[list[float]] = [[]]
    for value in members:
        sets[-1].append(value) if value == value else sets.append([])
    if len(values) != count or not all(0 <= target < targets for target in ids):
        use.fail(f"has {len(values)} splits of {count} nodes, or a target out of range", code="bad-tree")
    roots = use.ints_of("tree_roots", REQUIRED)
    for tree, root in enumerate(roots):
        if not 0 <= root < count:
            use.fail(f"has a bad tree {tree}: its root is {root} among {count} nodes", code="bad-tree")
    owners = _owners(roots, sides, count)
    branches, following = {}, iter(sets)
    for i, mode in enumerate(modes):
        if not 0 <= mode < len(MODES):
            use.fail(f"has a bad tree {owners[i]}, node {i}: its mode is {mode}", code="bad-tree")
        children = []
        for nodes, is_leaf in sides:
            limit = len(weights) if is_leaf[i] else count
            if not 0 <= nodes[i] < limit:
                message = f"it refers to child {nodes[i]} of {limit}"
                use.fail(f"has a bad tree {owners[i]}, node {i}: {message}", code="bad-tree")
            children.append(-1 - nodes[i] if is_leaf[i] else nodes[i])
        own = tuple(next(following, ())) if MODES[mode] == "BRANCH_MEMBER" else ()
        yes, no = children
        branches[i] = Branch(MODES[mode], feature[i], values[i], yes, no, bool(tracks[i]), own)
    leaves = [[pair] for pair in zip(ids, weights, strict=True)]
    file = _File(roots, branches, leaves, {i: (owners[i], i) for i in range(count)}, targets)
    aggregate, post = use.integer("aggregate_function", 1), use.integer("post_transform", 0)
    if not 0 <= aggregate < len(_AGGREGATES) or not 0 <= post < len(TRANSFORMS):
        use.fail("has an aggregate or a transform that is unknown", code="bad-attribute")
    _, total = _sum_trees(use, file, _AGGREGATES[aggregate])
    result = transform(use, TRANSFORMS[post], total)
    wanted = use.input().dtype
    return [result if result.dtype == wanted else use.g.cast(result, dtype=wanted)]


CONVERTERS: Converters = {
    "ai.onnx.ml::TreeEnsemble": _ensemble,
    "ai.onnx.ml::TreeEnsembleClassifier": _classifier,
    "ai.onnx.ml::TreeEnsembleRegressor": _regressor,
}
