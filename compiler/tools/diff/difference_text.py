"""Formats a comparison as text and as JSON data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ....dialect.types import dtype_of
from ....dialect.wrapping import counted
from ...base.text_tables import Column, table_lines
from ...comparison.capture import Point
from .builds import Build
from .compare import BINS, Comparison, PointDifference

_SHORT = 24
"""The longest value that is shown in the table of facts."""
_BEYOND = f">{BINS[-1]}"
_HEADS = ("0", *(f"<={most}" for most in BINS[1:]), _BEYOND)


def format_comparison(comparison: Comparison, names: tuple[str, str], builds: Sequence[Build]) -> str:
    """Formats a comparison. `names` are the names of the two sides. Equal points are counted, not shown."""
    differing = [p for p in comparison.points if p.differs]
    beyond = sum(p.diverges for p in differing)
    lines = [
        f"A  {names[0]}",
        f"B  {names[1]}",
        f"{counted(len(comparison.points), 'value')} in both: {len(comparison.points) - len(differing)} the same, "
        f"{len(differing) - beyond} within rounding errors, {beyond} beyond",
    ]
    lines += [
        f"{len(only)} only in {side}, {', '.join(only[:3])}{', ...' if len(only) > 3 else ''}"
        for side, only in (("A", comparison.only_a), ("B", comparison.only_b))
        if only
    ]
    if comparison.apart:
        more = ", ..." if len(comparison.apart) > 3 else ""
        lines.append(
            f"{counted(len(comparison.apart), 'parameter')} not compared: {', '.join(comparison.apart[:3])}{more}"
        )
    if comparison.note:
        lines.append(comparison.note)
    if differing:
        lines += ["", *_table(list(_rows(differing)), names=2)]
    for what, found in (("difference", comparison.first), ("divergence", comparison.divergence)):
        if found is not None:
            lines += ["", f"first {what}: {_location(found)}", f"  {_detail(found)}", f"  {_kernels(found)}"]
    if len(builds) == 2:
        lines += ["", *_format_facts(*builds)]
    return "\n".join(line.rstrip() for line in lines)


def _table(rows: Sequence[Sequence[str]], names: int = 1) -> list[str]:
    """Aligns columns; the first row is the heading, and the first columns are names."""
    columns = [Column(title, is_name=number < names) for number, title in enumerate(rows[0])]
    return [line for lines in table_lines(columns, rows[1:]) for line in lines]


def _rows(differing: Sequence[PointDifference]) -> Iterator[tuple[str, ...]]:
    yield ("point", "type", "largest", "mean", "allowed", "", "ulp:", *_HEADS)
    for point in differing:
        mark = "!" if point.diverges else ""
        if point.errors is None:
            yield (point.a.name, _mismatch(point), "", "", "", mark, "", *("" for _ in _HEADS))
            continue
        errors = (point.errors.largest, point.errors.mean, point.allowed)
        counts = [str(count) if count else "." for count in point.histogram] or ["" for _ in _HEADS]
        yield (point.a.name, _type(point.a), *(f"{e:.2g}" for e in errors), mark, "", *counts)


def _type(point: Point) -> str:
    return f"{dtype_of(point.array)}{list(point.array.shape)}"


def _mismatch(point: PointDifference) -> str:
    """Returns the types of both sides, or the fact that one fails; its message stands below the table."""
    return "failed" if point.a.failure or point.b.failure else f"{_type(point.a)} and {_type(point.b)}"


def _location(point: PointDifference) -> str:
    at = point.a.at or point.b.at
    return f"{point.a.name}{f' at {at}' if at else ''}"


def _detail(point: PointDifference) -> str:
    if point.errors is None:
        return point.mismatch
    index = point.errors.index
    a, b = (side.array[index].item() for side in (point.a, point.b))
    return (
        f"A has {a!r} and B {b!r} at {list(index)}: {point.errors.largest:.3g} apart, {point.allowed:.3g} are allowed; "
        f"{point.errors.different} of {point.errors.size} elements differ"
    )


def _kernels(point: PointDifference) -> str:
    kernels = (("A", point.a.kernel), ("B", point.b.kernel))
    return ", ".join(f"{side}: {kernel}" for side, kernel in kernels if kernel) or "in no kernel"


def _format_facts(a: Build, b: Build) -> Iterator[str]:
    """Yields a table of the facts of both builds; a long value, such as a hash, has a separate line."""
    rows = list(_facts(a, b))
    yield from _table([row for row in rows if max(map(len, row)) <= _SHORT])
    for name, x, y, differs in rows:
        if max(len(x), len(y)) > _SHORT:
            yield from (f"{name} of A", f"  {x}", f"{name} of B", f"  {y}") if differs else (name, f"  {x}")


def _facts(a: Build, b: Build) -> Iterator[tuple[str, str, str, str]]:
    yield ("build", "A", "B", "")
    for name in dict.fromkeys((*a.facts, *b.facts)):
        x, y = a.facts.get(name), b.facts.get(name)
        yield (name, _fact(x), _fact(y), "" if x == y else "*")


def _fact(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "-" if value is None else str(value)


# --- data ---


def comparison_data(comparison: Comparison, names: tuple[str, str], builds: Sequence[Build]) -> dict[str, Any]:
    """Returns the comparison as JSON data; a number that JSON lacks becomes text."""
    divergence, first = comparison.divergence, comparison.first
    return {
        "a": names[0],
        "b": names[1],
        "diverges": divergence is not None,
        "first_difference": None if first is None else first.a.name,
        "first_divergence": None if divergence is None else divergence.a.name,
        "points": [_point_data(p) for p in comparison.points],
        "only_a": list(comparison.only_a),
        "only_b": list(comparison.only_b),
        "parameters_not_compared": list(comparison.apart),
        "note": comparison.note,
        "builds": [dict(build.facts) for build in builds],
    }


def _point_data(point: PointDifference) -> dict[str, Any]:
    data: dict[str, Any] = {
        "point": point.a.name,
        "at": point.a.at or point.b.at or None,
        "kernels": [point.a.kernel or None, point.b.kernel or None],
        "types": [_type(point.a), _type(point.b)],
        "diverges": point.diverges,
    }
    if point.errors is None:
        data["mismatch"] = point.mismatch
    else:
        errors: Mapping[str, float] = {
            "largest": point.errors.largest,
            "mean": point.errors.mean,
            "allowed": point.allowed,
            "ulps": point.errors.ulps,
        }
        data |= {name: value if math.isfinite(value) else str(value) for name, value in errors.items()}
        data |= {"different": point.errors.different, "elements": point.errors.size, "index": list(point.errors.index)}
        data["histogram"] = dict(zip(_HEADS, point.histogram, strict=False))
    return data
