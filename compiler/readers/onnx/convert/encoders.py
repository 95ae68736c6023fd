"""Encoders of categories of ai.onnx.ml: numbers and strings to numbers, strings and one-hot vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .....dialect.types import F32, I64
from ...writing.tensors import Held, Strings, Tensor, known
from ..writing.string_tensors import index_in, rows_of
from ..writing.use import REQUIRED, Converters, Use, strings_of


def _one_hot(use: Use) -> Sequence[Tensor]:
    g = use.g
    held = use.operands[0]
    if not use.integer("zeros", 1):
        use.fail("fails for unknown categories (`zeros` = 0), which is not supported", code="unsupported-attribute")
    if isinstance(held, Strings):
        categories = use.strings_of("cats_strings", REQUIRED)
        index, count = index_in(g, held, categories), len(categories)
        equal = g.equal(g.unsqueeze(index, axes=(len(held.shape),)), g.iota(shape=(count,)))
        return [g.cast(equal, dtype=F32)]
    x = use.input()
    numbers = known(np.asarray(use.ints_of("cats_int64s", REQUIRED), np.int64))
    equal = g.equal(g.unsqueeze(g.cast(x, dtype=I64), axes=(x.rank,)), numbers)
    return [g.cast(equal, dtype=F32)]


def _label_encoder(use: Use) -> Sequence[Held]:
    """Maps each element to the value of the equal key, or to the default. NaN equals NaN; of equal keys, the first one
    counts."""
    keys, values = _listed(use, "keys"), _listed(use, "values")
    if len(keys) != len(values):
        use.fail(f"has {len(keys)} keys and {len(values)} values", code="bad-attribute")
    held = use.operands[0]
    if isinstance(held, Strings) != (keys.dtype.kind == "O"):
        use.fail("takes operands of another type than its keys", code="wrong-operands")
    if isinstance(held, Strings):
        index, order = index_in(use.g, held, list(keys)), np.arange(len(keys))
    else:
        index, order = _index_of_number(use, use.input(), keys)
    return [_at(use, [*values[order].tolist(), _default(use, values.dtype)], values.dtype, index)]


def _category_mapper(use: Use) -> Sequence[Held]:
    strings, numbers = list(use.strings_of("cats_strings", REQUIRED)), np.asarray(use.ints_of("cats_int64s", REQUIRED))
    if len(strings) != len(numbers):
        use.fail(f"has {len(strings)} strings and {len(numbers)} numbers", code="bad-attribute")
    held = use.operands[0]
    if isinstance(held, Strings):
        default = use.integer("default_int64", -1)
        return [_at(use, [*numbers.tolist(), default], np.dtype(np.int64), index_in(use.g, held, strings))]
    index, order = _index_of_number(use, use.input(), numbers)
    named = [*np.array(strings, object)[order].tolist(), use.string("default_string", "_Unused")]
    return [_at(use, named, np.dtype(object), index)]


def _index_of_number(use: Use, x: Tensor, keys: Any) -> tuple[Tensor, Any]:
    """Returns the index of the equal key among the sorted keys (the number of keys if there is none), and the
    permutation that sorts the keys."""
    g = use.g
    _, first = np.unique(keys, return_index=True)
    if not len(first):
        return g.broadcast_to(known(np.int64(0)), shape=x.shape), first
    ordered = known(keys[first], x.dtype)
    index = g.searchsorted(ordered, x)
    found = g.gather(ordered, index, axis=0, mode="clamp")
    same = g.equal(found, x)
    if x.dtype.is_float:
        same = g.logical_or(same, g.logical_and(g.isnan(found), g.isnan(x)))
    return g.where(same, index, g.like(len(first), index)), first


def _at(use: Use, values: list[Any], dtype: Any, index: Tensor) -> Held:
    """Returns the values at these positions; the last value is the default."""
    if dtype.kind == "O":
        return rows_of(use.g, strings_of(values), index)
    return use.g.gather(known(np.array(values).astype(dtype)), index, axis=0, mode="clamp")


def _listed(use: Use, kind: str) -> Any:
    if kind == "keys" and use.has("classes_strings"):
        # The first version maps strings to their indices, and back.
        listed = np.array(use.strings_of("classes_strings"), object)
        return listed if isinstance(use.operands[0], Strings) else np.arange(len(listed))
    if kind == "values" and use.has("classes_strings"):
        listed = np.array(use.strings_of("classes_strings"), object)
        return np.arange(len(listed)) if isinstance(use.operands[0], Strings) else listed
    if use.has(f"{kind}_tensor"):
        return use.stored(f"{kind}_tensor").array.reshape(-1)
    if use.has(f"{kind}_strings"):
        return np.array(use.strings_of(f"{kind}_strings"), object)
    if use.has(f"{kind}_int64s"):
        return np.asarray(use.ints_of(f"{kind}_int64s"), np.int64)
    return np.asarray(use.floats_of(f"{kind}_floats", REQUIRED), np.float32)


def _default(use: Use, dtype: Any) -> Any:
    if use.has("default_tensor"):
        return use.stored("default_tensor").array.reshape(-1)[0]
    if dtype.kind == "O":
        return use.string("default_string", "_Unused")
    return use.number("default_float", -0.0) if dtype.kind == "f" else use.integer("default_int64", -1)


CONVERTERS: Converters = {
    "ai.onnx.ml::CategoryMapper": _category_mapper,
    "ai.onnx.ml::LabelEncoder": _label_encoder,
    "ai.onnx.ml::OneHotEncoder": _one_hot,
}
