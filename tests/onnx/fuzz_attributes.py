"""Odd values of attributes: every operator with every attribute is read, or refused by a diagnostic.

    python tests/onnx/fuzz_attributes.py                 all operators
    python tests/onnx/fuzz_attributes.py --only 'Pool'   some of them

The models are the smallest backend tests of each operator. One attribute at a time is removed, gets a value of another
kind, or an odd value of its own kind: zero, negative, huge, too few or too many elements. Files that can be read are
verified; none is compiled.
"""

from __future__ import annotations

import argparse
import re
import resource
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator

import onnx
from backend_cases import all_cases
from fuzz import SLOWEST, read_mutant
from onnx import AttributeProto, defs, helper

MEMORY = 8 << 30
"""The address space of the process, in bytes."""
_HUGE = (1 << 63) - 1
_INTEGERS = (0, -1, -7, 3, 1 << 31, 1 << 40, _HUGE, -(1 << 63))
_LISTS = ([], [0], [-1], [1], [0, 0], [-1, -1], [2, 2, 2, 2, 2], [1 << 31, 1 << 31], [_HUGE], [-(1 << 63), 0])
_NUMBERS = (0.0, -1.0, 1e38, -1e38, float("nan"), float("inf"))
_WORDS = ("", "nothing", "é", "\x00")
_KINDS = AttributeProto
ODD = {
    _KINDS.INT: _INTEGERS,
    _KINDS.INTS: _LISTS,
    _KINDS.FLOAT: _NUMBERS,
    _KINDS.FLOATS: ([0.0], [-1.0, float("nan")], [1e38, float("inf"), 0.0]),
    _KINDS.STRING: _WORDS,
    _KINDS.STRINGS: ([""], ["nothing"], ["a", "a", "a"]),
}
"""Odd values by the kind of attribute."""


def smallest_models(only: str = "", variants: int = 2) -> dict[str, list[onnx.ModelProto]]:
    """Returns the smallest tests of one node for each operator, without its expanded forms."""
    found: dict[str, list[onnx.ModelProto]] = {}
    for case in all_cases():
        if not case.name.startswith("node/"):
            continue
        model = case.case.model
        if model is None or len(model.graph.node) != 1:
            continue
        node = model.graph.node[0]
        name = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        if re.search(only, name):
            found.setdefault(name, []).append(model)
    # Those with the most attributes come first: they say which parts of a converter run.
    order = {name: sorted(models, key=lambda m: (-len(m.graph.node[0].attribute), m.ByteSize())) for name, models in
             found.items()}  # fmt: skip
    return {name: models[:variants] for name, models in sorted(order.items())}


def odd_models(model: onnx.ModelProto) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Yields models with one odd attribute each, and the name of the change."""
    node = model.graph.node[0]
    versions = {each.domain: each.version for each in model.opset_import}
    kinds = {each.name: each.type for each in node.attribute}
    try:
        schema = defs.get_schema(node.op_type, versions.get(node.domain, 1), node.domain)
        kinds |= {name: int(getattr(each.type, "value", each.type)) for name, each in schema.attributes.items()}
    except defs.SchemaError:
        pass
    for name, kind in kinds.items():
        yield f"{name} missing", _changed(model, name, None)
        others = [value for other, values in ODD.items() if other != kind for value in values[:1] if value != []]
        for value in (*ODD.get(kind, ()), *others):
            made = _attribute(name, kind, value)
            yield f"{name}={value!r}", _changed(model, name, made)


def _attribute(name: str, kind: int, value: object) -> AttributeProto:
    if value == [] and kind == AttributeProto.INTS:
        return AttributeProto(name=name, type=AttributeProto.INTS)
    return helper.make_attribute(name, value)  # type: ignore[arg-type]


def _changed(model: onnx.ModelProto, name: str, made: AttributeProto | None) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    node = copy.graph.node[0]
    kept = [each for each in node.attribute if each.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, made] if made is not None else kept)
    return copy


def check(models: Iterable[onnx.ModelProto], codes: Counter[str]) -> Iterator[tuple[str, str]]:
    """Reads all changes of models; yields those that end otherwise than with a diagnostic, with the cause."""
    for model in models:
        for change, made in odd_models(model):
            start = time.thread_time()
            try:
                codes[read_mutant(made.SerializeToString())] += 1
            except Exception:
                yield change, traceback.format_exc()
            if time.thread_time() - start > SLOWEST:
                yield change, f"more than {SLOWEST:g} s"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", default="", help="regular expression that the name of an operator must contain")
    chosen = options.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    codes: Counter[str] = Counter()
    failed = 0
    for name, models in smallest_models(chosen.only).items():
        for change, cause in check(models, codes):
            failed += 1
            print(f"{name}: {change}\n{cause}", flush=True)
    print(codes.most_common())
    print(f"{failed} of {failed + sum(codes.values())} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
