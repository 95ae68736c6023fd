"""PyTorch's samples of its operators, through the reader, -O2 and calls of artifacts.

    python tests/pytorch/aten_suite.py                       all operators, all dtypes, up to 4 samples of each
    python tests/pytorch/aten_suite.py --only 'add|nn.functional.*' --dtypes float32,int64 --most 50

The samples are those of `op_db`. A sample counts if all of its operators have
converters or are decomposed. The exit code is 1 if a result is wrong or a build fails.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
import types
import unittest
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from op_runs import Outcome, run_samples
from op_samples import TESTED, Sample, samples_of

FAILURES = ("wrong", "crash")


def operators(pattern: str) -> Iterator[Any]:
    """Returns PyTorch's records of its operators. Their module imports `expecttest` for a base class of test cases,
    which samples do not use: an empty class stands for it where the package is missing."""
    if "expecttest" not in sys.modules and importlib.util.find_spec("expecttest") is None:
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]  # an attribute of the new module
        sys.modules["expecttest"] = stand_in
    op_db = importlib.import_module("torch.testing._internal.common_methods_invocations").op_db
    return (info for info in op_db if re.fullmatch(pattern, info.name))


def all_samples(pattern: str, dtypes: Sequence[torch.dtype], most: int) -> Iterator[Sample]:
    for info in operators(pattern):
        for dtype in dtypes:
            if info.supports_dtype(dtype, "cpu"):
                yield from samples_of(info, dtype, most)


def report(outcomes: Sequence[Outcome]) -> int:
    """Prints the outcomes; returns 1 if there is a failure."""
    for outcome in outcomes:
        if outcome.kind in FAILURES:
            print(f"{outcome.kind}: {outcome.sample.name} {outcome.sample.dtype}: {outcome.reason}")
    kinds = Counter(outcome.kind for outcome in outcomes)
    tested = {name for outcome in outcomes if outcome.kind == "pass" for name in outcome.sample.overloads}
    print(", ".join(f"{kind}: {count}" for kind, count in kinds.most_common()), f"overloads: {len(tested)}")
    return int(any(kinds[kind] for kind in FAILURES))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=".*", help="a pattern for the names of operators")
    parser.add_argument("--dtypes", default=",".join(str(d).removeprefix("torch.") for d in TESTED))
    parser.add_argument("--most", type=int, default=4, help="the most samples of an operator and dtype")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    dtypes = [getattr(torch, name) for name in given.dtypes.split(",")]
    return report(run_samples(list(all_samples(given.only, dtypes, given.most))))


if __name__ == "__main__":
    sys.exit(main())
