"""Writes the entries of a model of trees: `main` predicts, `raw` returns the sums, `leaves` the leaf of each tree.

All entries take `features` [B, F] and share the tables, which are parameters named `trees.*`. A model with categorical
features also takes `categories` i32[B, C], the hashes of their text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from functools import partial
from typing import Protocol

import numpy as np

from ....dialect.dims import Symbol, multiply, static_size
from ....dialect.graph import Constant, Function, Module, Node, Parameter, Region, Value
from ....dialect.lazy_dataclass import dataclass
from ....dialect.operator import Builder
from ....dialect.ops import OPERATORS
from ....dialect.ops.feature_ranks import ROWS
from ....dialect.ops.ranked_rows import by_subtrees
from ....dialect.ops.support.trees import TABLES
from ....dialect.types import I32, I64, DType, TensorType, dtype_of
from ....dialect.verifier import verify
from ...model.source import SourceModel, WeightSource
from ...weights import open_arrays
from .categories import Columns
from .ensemble import Ensemble
from .levels import Levels
from .linear import Linear
from .parts import UNSIGNED, Part
from .ranked import Ranked, rank_ensemble, rank_levels
from .tree import Numbers

FEW_ROWS, FEW_ROWS_OF_RANKS, FEW_ROWS_OF_DEEP_TREES = 3, 8, 16
"""Calls with fewer rows walk from node to node, since a block of ranks costs the same for one row as for all of its
rows. The limits are for trees without ranks, for trees on ranks, and for trees on ranks that are deeper than the
complete levels."""
MAIN, RAW, LEAVES = "main", "raw", "leaves"
_MOST_PLAIN: ContextVar[int] = ContextVar("the most nodes of an ensemble that `plain_ensembles` keeps as one operator")
Link = Callable[[Builder, Value], Value]
"""`link(b, raw) -> prediction` writes a link function; `raw` is [B] or [B, outputs]."""


@dataclass(frozen=True, slots=True)
class TreeModel:
    """A model of trees: its ensemble, the dtype and the number of its features, and the functions that are applied to
    its sums.

    finish: the last steps of the sums, such as a scale, whose result is `raw`. link: the prediction from `raw`.
    """

    ensemble: Ensemble
    features: int
    dtype: DType
    finish: Link
    link: Link
    levels: Levels | None = None
    """The tables of oblivious trees; None if the ensemble has other trees."""
    linear: Linear | None = None
    """The linear models in the leaves, if there are any."""
    columns: Columns | None = None
    """The columns that the trees read, if these are computed from features and categories. `features` then counts the
    numerical features."""


class TableWriter(Protocol):
    """Writes tables as parameters. `ranked` has the tables on ranks, if the ensemble supports them."""

    @property
    def ranked(self) -> Ranked | None: ...

    @property
    def builder(self) -> Builder: ...

    def table(self, name: str, array: Numbers) -> Value: ...


@dataclass
class _Writer:
    """The parameters of all entries, and the nodes of the current one."""

    ranked: Ranked | None
    builder: Builder = field(default_factory=lambda: Builder(OPERATORS))
    parameters: dict[str, Parameter] = field(default_factory=dict)
    arrays: dict[str, Numbers] = field(default_factory=dict)

    def table(self, name: str, array: Numbers) -> Value:
        type = TensorType(dtype_of(array), array.shape)
        path = f"trees.{name}"
        self.parameters[path], self.arrays[path] = Parameter(path, type), array
        value = self.builder.fresh(type)
        self.builder.nodes.append(Node("parameter", (), (value,), (("name", path),)))
        return value


def write_model(model: TreeModel, file: str, weights: WeightSource | None, sources: Mapping[str, str]) -> SourceModel:
    """Returns the model with its three entries."""
    writer, rows = _Writer(find_ranks(model)), Symbol("B")
    built = ((MAIN, _main, "prediction"), (RAW, write_raw, "raw"), (LEAVES, _leaves, "leaves"))
    functions = []
    for name, build, result in built:
        writer.builder = Builder(OPERATORS)
        features = Value("features", TensorType(model.dtype, (rows.size, model.features)))
        arguments, columns, read = [features], model.columns, features
        if columns is not None:
            categories = Value("categories", TensorType(I32, (rows.size, columns.categorical)))
            arguments.append(categories)
            read = columns.write(writer.builder, features, categories, writer.table)
        value = build(writer, model, read)
        functions.append(Function(name, tuple(arguments), tuple(writer.builder.nodes), (value,), (result,)))
    module = Module(MAIN, (rows,), tuple(writer.parameters.values()), tuple(functions))
    verify(module)
    stored = open_arrays(writer.arrays) if weights is None else weights
    return SourceModel(module, file, {function.name: stored for function in functions}, sources=sources)


@contextmanager
def plain_ensembles(most: int) -> Iterator[None]:
    """A context in which readers write each ensemble of up to `most` nodes as one `tree_ensemble`, in place of the
    faster operators on ranks. The sums are bitwise the same."""
    token = _MOST_PLAIN.set(most)
    try:
        yield
    finally:
        _MOST_PLAIN.reset(token)


def _is_plain(model: TreeModel) -> bool:
    return len(model.ensemble.tables["feature"]) <= _MOST_PLAIN.get(-1)


def find_ranks(model: TreeModel) -> Ranked | None:
    if model.linear is not None or _is_plain(model):
        return None
    if model.levels is None:
        return rank_ensemble(model.ensemble)
    return rank_levels(model.levels, model.ensemble.tables["initial"][0])


def _main(writer: _Writer, model: TreeModel, features: Value) -> Value:
    return model.link(writer.builder, write_raw(writer, model, features))


def write_raw(writer: TableWriter, model: TreeModel, features: Value) -> Value:
    b, levels, ranked = writer.builder, model.levels, writer.ranked
    if model.linear is not None:
        return model.finish(b, _sums_of_models(writer, model, features, model.linear))
    many: Callable[[TableWriter, TreeModel, Value], Value]
    if ranked is not None and ranked.in_blocks:
        many = partial(_sums_of_ranks, ranked=ranked)
    elif levels is not None and not _is_plain(model):
        many = _sums_of_levels
    else:
        return model.finish(b, _sums(writer, model, features))
    few, least = _sums, FEW_ROWS
    if ranked is not None:
        few = partial(_sums_of_ranked_rows, ranked=ranked)
        least = FEW_ROWS_OF_DEEP_TREES if any(part.steps for part in ranked.parts) else FEW_ROWS_OF_RANKS
    rows = features.type.shape[0]
    if isinstance(rows, int):
        return model.finish(b, (few if rows < least else many)(writer, model, features))
    are_few = b.less(b.apply("size_value", (), {"size": rows})[0], b.scalar(least, I64))
    regions = tuple(_region(b, partial(f, writer, model, features)) for f in (few, many))
    (result,) = outputs = (b.fresh(regions[0].results[0].type),)
    b.nodes.append(Node("if", (are_few,), outputs, (), regions))
    return model.finish(b, result)


def _write_columns(writer: TableWriter, ranked: Ranked) -> list[Value]:
    columns = ranked.columns
    tables = (("thresholds", columns.thresholds), ("feature", columns.feature), ("flags", columns.flags))
    return [writer.table(f"columns.{name}", table) for name, table in tables]


def _sums_of_ranked_rows(writer: TableWriter, model: TreeModel, features: Value, ranked: Ranked) -> Value:
    b, described = writer.builder, _write_columns(writer, ranked)
    unsigned = UNSIGNED[ranked.columns.dtype]
    ranks = b.row_ranks(features, *described, compare=ranked.compare, dtype=unsigned)
    rows, groups = features.type.shape[0], len(ranked.initial)
    if ranked.shape == "levels":
        return _oblivious_sums(writer, model, ranks, ranked)
    start = b.reshape(writer.table("ranked.initial", ranked.initial), shape=(1, groups))
    total = b.broadcast_to(start, shape=(rows, groups))
    for number, part in enumerate(ranked.parts):
        column, border = part.in_rows(ranked.columns.dtype)
        tables = writer.table(f"rows{number}.column", column), writer.table(f"rows{number}.border", border)
        _, _, first, nodes, values = _write_part(writer, number, part)
        if nodes.type.rank == 3 and part.steps:
            nodes = writer.table(f"rows{number}.nodes", by_subtrees(part.nodes, part.steps))
        total = b.ranked_rows(ranks, *tables, first, nodes, values, total, steps=part.steps)
    return b.reshape(total, shape=(rows,)) if groups == 1 else total


def _oblivious_sums(writer: TableWriter, model: TreeModel, ranks: Value, ranked: Ranked) -> Value:
    """Returns the sums of oblivious trees for few rows."""
    b, (part,), masks = writer.builder, ranked.parts, ranked.masks()
    column, border = part.in_rows(ranked.columns.dtype)
    if masks is not None:
        leaves = b.leaf_indices_by_masks(ranks, writer.table("rows.masks", masks))
    else:
        tables = writer.table("rows.column", column[0]), writer.table("rows.border", border[0])
        leaves = b.leaf_indices_by_borders(ranks, *tables)
    if ranked.in_blocks:
        values = _write_part(writer, 0, part)[-1]
    else:
        assert model.levels is not None, model
        values = writer.table("levels.values", model.levels.values)
    _, trees, levels = column.shape
    start = b.scalar(float(ranked.initial[0]), values.type.dtype)
    return b.add_leaf_values(leaves, b.reshape(values, shape=(trees, 1 << levels)), start)


def _write_part(writer: TableWriter, number: int, part: Part) -> list[Value]:
    names = ("column", "border", "first", "nodes", "values")
    return [writer.table(f"ranked{number}.{name}", getattr(part, name)) for name in names]


def _sums_of_ranks(writer: TableWriter, model: TreeModel, features: Value, ranked: Ranked) -> Value:
    b, columns = writer.builder, ranked.columns
    described = _write_columns(writer, ranked)
    ranks = b.feature_ranks(features, *described, compare=ranked.compare, dtype=columns.dtype)
    groups = len(ranked.initial)
    start = b.reshape(writer.table("ranked.initial", ranked.initial), shape=(1, groups, 1))
    total = b.broadcast_to(start, shape=(ranks.type.shape[0], groups, ROWS))
    for number, part in enumerate(ranked.parts):
        operands = _write_part(writer, number, part)
        total = b.ranked_trees(ranks, *operands, total, shape=ranked.shape, steps=part.steps)
    blocks, _, rows = total.type.shape
    count = multiply(blocks, rows)
    turned = b.transpose(total, axes=(0, 2, 1)) if groups != 1 else total
    flat = b.reshape(turned, shape=(count,) if groups == 1 else (count, groups))
    sizes = (features.type.shape[0], *flat.type.shape[1:])
    return b.slice(flat, starts=(0,) * len(sizes), stops=sizes)


def _region(b: Builder, write: Callable[[], Value]) -> Region:
    outer, b.nodes = b.nodes, []
    result = write()
    nodes, b.nodes = b.nodes, outer
    return Region((), tuple(nodes), (result,))


def _sums_of_levels(writer: TableWriter, model: TreeModel, features: Value) -> Value:
    b, levels = writer.builder, model.levels
    assert levels is not None, model
    feature, border = writer.table("levels.feature", levels.feature), writer.table("levels.border", levels.border)
    leaves = levels.write_leaves(b, features, feature, border)
    initial = writer.table("levels.initial", model.ensemble.tables["initial"][0])
    total = b.tree_sum(writer.table("levels.values", levels.values), leaves, initial)
    return b.reshape(total, shape=total.type.shape[:1]) if levels.values.shape[2] == 1 else total


def _sums(writer: TableWriter, model: TreeModel, features: Value) -> Value:
    b, tables = writer.builder, model.ensemble.tables
    operands = [writer.table(name, table) for name, table in tables.items()]
    total = b.tree_ensemble(features, *operands, **model.ensemble.attributes)
    rows, groups, width = total.type.shape
    shape = (rows,) if groups == width == 1 else (rows, tables["initial"].size)
    return b.reshape(total, shape=shape)


def write_leaves_of(writer: TableWriter, ensemble: Ensemble, features: Value) -> Value:
    operands = [writer.table(name, table) for name, table in list(ensemble.tables.items())[: len(TABLES)]]
    return writer.builder.tree_leaves(features, *operands, **ensemble.attributes)


def _sums_of_models(writer: TableWriter, model: TreeModel, features: Value, linear: Linear) -> Value:
    b, ensemble = writer.builder, model.ensemble
    leaves = write_leaves_of(writer, ensemble, features)
    operands = [writer.table(f"linear.{name}", table) for name, table in linear.tables.items()]
    initial = writer.table("linear.initial", ensemble.tables["initial"][:, 0])
    total = b.linear_tree_sum(features, leaves, *operands, initial)
    rows, groups = total.type.shape
    return b.reshape(total, shape=(rows,)) if groups == 1 else total


def _leaves(writer: _Writer, model: TreeModel, features: Value) -> Value:
    """Writes the index of the leaf of each tree, in the order of the file, in which trees of several groups
    alternate."""
    b, ensemble = writer.builder, model.ensemble
    found = write_leaves_of(writer, ensemble, features)
    first = b.apply("constant", (), {"value": Constant(ensemble.first_leaves.astype(np.int32))})[0]
    own = b.transpose(b.subtract(found, first), axes=(0, 2, 1))
    rows, trees, groups = own.type.shape
    flat = b.reshape(own, shape=(rows, static_size(trees) * static_size(groups)))
    if len(set(ensemble.counts)) == 1:
        return flat
    kept = [
        t * len(ensemble.counts) + g
        for t in range(max(ensemble.counts))
        for g, n in enumerate(ensemble.counts)
        if t < n
    ]
    index = b.apply("constant", (), {"value": Constant(np.asarray(kept, np.int64))})[0]
    return b.gather(flat, index, axis=1, mode="clamp")


def identity(b: Builder, x: Value) -> Value:
    return x
