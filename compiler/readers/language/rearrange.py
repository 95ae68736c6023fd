"""`rearrange(x, "b t (h d) -> b h t d", h=heads)`: split, order and merge axes by name.

The pattern has names, `1`, `...` and groups in parentheses. It becomes a reshape, a transpose and a reshape; steps
that would change nothing are omitted. It neither repeats nor reduces.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ....dialect.diagnostics import Span
from ....dialect.dims import Size, divide_exactly, format_size, product
from ....dialect.graph import Value
from ....dialect.lazy_dataclass import dataclass
from .context import RANK, Context, suggest
from .operators import apply, single
from .provenance import TracedSize, size_notes, trace_axis
from .values import ERROR, Frame, Poison

_TOKEN = re.compile(r"\s*(?:(\.\.\.|…)|([A-Za-z_]\w*)|(\d+)|([()]))")
DOTS = "..."
Group = tuple[str, ...]
"""The names that form one axis; empty for an axis of size 1; `...` is the only member of its group."""


class _PatternError(Exception):
    """An error in the pattern."""


def _read_side(text: str) -> list[Group]:
    groups: list[Group] = []
    open_group: list[str] | None = None
    position, text = 0, text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _PatternError(f"`{text[position:].strip()[:1]}` is not allowed in a pattern")
        position = match.end()
        dots, name, number, bracket = match.groups()
        if bracket == "(":
            if open_group is not None:
                raise _PatternError("groups cannot be nested")
            open_group = []
        elif bracket == ")":
            if open_group is None:
                raise _PatternError("a `)` is unmatched")
            groups.append(tuple(open_group))
            open_group = None
        elif number is not None and number != "1":
            raise _PatternError(f"the only number in a pattern is 1, not {number[:20]}")
        elif dots and open_group is not None:
            raise _PatternError("`...` is not allowed in a group")
        elif open_group is not None:
            open_group += [name] if name else []
        else:
            groups.append((DOTS,) if dots else (name,) if name else ())
    if open_group is not None:
        raise _PatternError("a `(` is unmatched")
    return groups


def _names(groups: Sequence[Group]) -> list[str]:
    return [name for group in groups for name in group]


def read_pattern(pattern: str) -> tuple[list[Group], list[Group]]:
    """Parses both sides of a pattern. Raises _PatternError."""
    sides = pattern.split("->")
    if len(sides) != 2:
        raise _PatternError("a pattern has two sides with one `->` between them")
    left, right = map(_read_side, sides)
    for side in (left, right):
        names = _names(side)
        twice = [n for n in names if names.count(n) > 1]
        if twice:
            raise _PatternError(f"`{twice[0]}` occurs twice on one side")
    for first, second, where in ((left, right, "left"), (right, left, "right")):
        alone = [n for n in _names(first) if n not in _names(second)]
        if alone:
            raise _PatternError(f"`{alone[0]}` occurs only on the {where} side")
    return left, right


@dataclass(frozen=True, slots=True)
class Rearrangement:
    """One use of `rearrange`; `sizes` holds the sizes given by name, with their spans."""

    context: Context
    frame: Frame
    span: Span
    pattern: str
    pattern_span: Span

    def apply(self, x: Value, x_span: Span, sizes: Mapping[str, tuple[Size, Span]]) -> Value | Poison:
        report = self.context.reporter.error
        try:
            left, right = read_pattern(self.pattern)
        except _PatternError as error:
            return report("bad-pattern", str(error), self.pattern_span)
        for name, (_, span) in sizes.items():
            if name not in _names(left):
                help_text = suggest(name, _names(left))
                return report("bad-pattern", f"the pattern has no axis `{name}`", span, help=help_text)
        explicit = [group for group in left if group != (DOTS,)]
        rest = x.type.rank - len(explicit)
        if rest < 0 or (rest and len(explicit) == len(left)):
            axes = f"{len(explicit)} ax{'is' if len(explicit) == 1 else 'es'}"
            least = "at least " if len(explicit) < len(left) else ""
            message = f"the left side of the pattern has {least}{axes}, the tensor has {x.type.rank}"
            return report("rank-mismatch", message, x_span, f"this is {x.type}")
        # `...` becomes the remaining axes, with names that no pattern can contain.
        dots = [(f"{number}",) for number in range(rest)]
        left, right = ([g for group in side for g in (dots if group == (DOTS,) else [group])] for side in (left, right))
        known = self._solve(x, x_span, left, {name: size for name, (size, _) in sizes.items()})
        if known is ERROR:
            return ERROR
        split, ordered = _names(left), _names(right)
        if max(len(split), len(right)) > RANK:
            return report("too-large", f"a tensor has at most {RANK} axes", self.pattern_span)
        shapes = tuple(known[n] for n in split), tuple(product(known[n] for n in group) for group in right)
        order = tuple(split.index(name) for name in ordered)
        result = self._step("reshape", x, {"shape": shapes[0]}, any(len(g) != 1 for g in left))
        result = self._step("transpose", result, {"axes": order}, order != tuple(range(len(order))))
        return self._step("reshape", result, {"shape": shapes[1]}, any(len(g) != 1 for g in right))

    def _solve(
        self, x: Value, x_span: Span, groups: Sequence[Group], known: dict[str, Size]
    ) -> dict[str, Size] | Poison:
        """Returns the size of every name. At most one name of a group may be inferred from the others."""
        for axis, group in enumerate(groups):
            size = x.type.shape[axis]
            unknown = [name for name in group if name not in known]
            if len(unknown) > 1:
                message = f"the sizes of {' and '.join(f'`{n}`' for n in unknown)} are not known"
                help_text = f"give all but one of them: `rearrange(..., {unknown[0]}=...)`"
                return self.context.reporter.error("bad-pattern", message, self.pattern_span, help=help_text)
            parts = product(known[name] for name in group if name in known)
            if unknown:
                quotient = divide_exactly(size, parts)
                if quotient is None:
                    return self._undivided(x, x_span, axis, size, group, parts)
                known[unknown[0]] = quotient
            elif parts != size:
                return self._undivided(x, x_span, axis, size, group, parts)
        return known

    def _undivided(self, x: Value, x_span: Span, axis: int, size: Size, group: Group, parts: Size) -> Poison:
        shown = f"`({' '.join(group)})`" if len(group) > 1 else f"`{group[0]}`" if group else "`1`"
        if len(group) > 1:
            label = f"axis {axis} has size {format_size(size)}, not a multiple of {format_size(parts)}"
        else:
            label = f"axis {axis} has size {format_size(size)}, expected {format_size(parts)}"
        sizes = [trace_axis(self.context, self.frame, x, axis), TracedSize(parts)]
        notes = size_notes(self.context, sizes, label)
        message = f"{shown} of the pattern does not fit {x.type}"
        return self.context.reporter.error("shape-mismatch", message, x_span, label, notes=notes)

    def _step(self, name: str, x: Value | Poison, attributes: dict[str, object], needed: bool) -> Value | Poison:
        if not needed or x is ERROR:
            return x
        spans = [self.span]
        return single(apply(self.context, self.frame, name, [x], attributes, self.span, spans, symbol="rearrange"))
