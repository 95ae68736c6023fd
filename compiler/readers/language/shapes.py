"""Declared types, and the check that a value has one.

A declared type becomes a pattern: a dtype, an optional leading `...`, and sizes. Sizes are equal when their normal
forms are; a value is never broadcast or converted to fit.
"""

from __future__ import annotations

from ....dialect.diagnostics import Span
from ....dialect.dims import Poly, Shape, Size, divide_exactly, format_size
from ....dialect.lazy_dataclass import dataclass
from ....dialect.types import BLOCK_DTYPES, BLOCK_SIZES, DTYPES, DType, TensorType
from . import syntax
from .context import ELEMENTS, RANK, Context, check_size, suggest
from .statics import demand_size
from .values import ERROR, Frame, Poison, describe, show

PLANNED = ("i4", "u4")
_IN_BLOCKS = tuple(dict.fromkeys(name.partition("[")[0] for name in BLOCK_DTYPES))
_ALIASES = {alias: dtype.name for dtype in DTYPES.values() for alias in (dtype.numpy.name, *dtype.aliases)}
"""The dtypes by their names in other libraries."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A declared type. `sizes` follow the `...` if there is one."""

    dtype: DType
    sizes: Shape
    dots: bool
    span: Span

    def __str__(self) -> str:
        shown = ["..."] * self.dots + [format_size(s) for s in self.sizes]
        return f"{self.dtype}[{', '.join(shown)}]" if shown else self.dtype.name

    def fill(self, dots: Shape | None) -> TensorType | None:
        """Returns the type with sizes for the `...`; None if they are not known."""
        if not self.dots:
            return TensorType(self.dtype, self.sizes)
        return None if dots is None else TensorType(self.dtype, (*dots, *self.sizes))


def resolve_dtype(context: Context, frame: Frame, node: syntax.Dtype) -> DType | Poison:
    report = context.reporter.error
    if node.name in PLANNED:
        return report("unsupported-dtype", f"the dtype `{node.name}` is not supported yet", node.span)
    if node.block is not None:
        return _resolve_blocks(context, frame, node)
    binding = frame.lookup(node.name)
    if binding is not None:
        if isinstance(binding.value, DType) or binding.value is ERROR:
            return binding.value
        return report("unknown-dtype", f"`{node.name}` is {describe(binding.value)}, not a dtype", node.span)
    if node.name in DTYPES:
        return DTYPES[node.name]
    if node.name in _IN_BLOCKS:
        help_text = f"`{node.name}[block 32]` has one scale for each 32 neighbours"
        return report("bad-block", f"`{node.name}` needs a block size", node.span, help=help_text)
    nearest = _ALIASES.get(node.name.lower())
    help_text = f"did you mean `{nearest}`?" if nearest else suggest(node.name, DTYPES)
    return report("unknown-dtype", f"there is no dtype `{node.name}`", node.span, help=help_text)


def _resolve_blocks(context: Context, frame: Frame, node: syntax.Dtype) -> DType | Poison:
    """Resolves `q8[block n]`: the block size is a number or a hyper-parameter."""
    report = context.reporter.error
    assert node.block is not None, node
    if node.name not in _IN_BLOCKS:
        help_text = f"dtypes with block sizes are {', '.join(_IN_BLOCKS)}"
        return report("bad-block", f"`{node.name}` has no block size", node.span, help=help_text)
    size = context.evaluate(node.block, frame)
    if size is ERROR:
        return ERROR
    found = BLOCK_DTYPES.get(f"{node.name}[block {size}{node.word and f', {node.word}'}]")
    if found is None:
        help_text = f"a block has {', '.join(map(str, BLOCK_SIZES[:-1]))} or {BLOCK_SIZES[-1]} elements"
        return report("bad-block", f"blocks cannot have the size {show(size)}", node.block.span, help=help_text)
    return found


def resolve_pattern(context: Context, frame: Frame, node: syntax.Type) -> Pattern | Poison:
    dtype = resolve_dtype(context, frame, node.dtype)
    sizes: list[Size] = []
    failed, dots = dtype is ERROR, False
    for number, dim in enumerate(node.dims):
        if isinstance(dim, syntax.Dots):
            if number:
                message = "`...` denotes leading dims: it must come first and only once"
                context.reporter.error("misplaced-dots", message, dim.span)
                failed = True
            dots = True
            continue
        size = resolve_size(context, frame, dim)
        if size is ERROR:
            failed = True
        else:
            sizes.append(size)
    if failed or dtype is ERROR:
        return ERROR
    if len(sizes) > RANK:
        return context.reporter.error("too-large", f"a tensor has at most {RANK} axes", node.span)
    elements = 1
    for size in sizes:
        elements *= size if isinstance(size, int) else 1
    if elements > ELEMENTS:
        return context.reporter.error("too-large", "a tensor of this type has too many elements", node.span)
    if dtype.is_blocked and (not sizes or divide_exactly(sizes[-1], dtype.block) is None):
        what = f"this has size {format_size(sizes[-1])}" if sizes else "there is none"
        message = f"`{dtype}` holds blocks of {dtype.block} along the last axis"
        return context.reporter.error("bad-block", message, node.span, what)
    return Pattern(dtype, tuple(sizes), dots, node.span)


def resolve_size(context: Context, frame: Frame, node: syntax.Expression) -> Size | Poison:
    size = demand_size(context, context.evaluate(node, frame), node.span)
    return ERROR if size is ERROR else check_size(context, size, node.span)


def resolve_type(context: Context, frame: Frame, node: syntax.Type, dots: Shape | None = None) -> TensorType | Poison:
    """Returns a type with all sizes given. `dots` are the sizes of a `...`, None for declarations without them."""
    pattern = resolve_pattern(context, frame, node)
    if pattern is ERROR:
        return ERROR
    if pattern.dots and dots is None:
        span = next(d.span for d in node.dims if isinstance(d, syntax.Dots))
        return context.reporter.error(
            "misplaced-dots", "`...` is only allowed in the types of a block's arguments, results and states", span
        )
    return TensorType(pattern.dtype, (*(dots or ()), *pattern.sizes) if pattern.dots else pattern.sizes)


def mismatch(pattern: Pattern, type: TensorType, dots: Shape | None) -> tuple[str, str, tuple[int, ...]] | None:
    """Explains why a value of the type does not fit: code, label, and the mismatched axes of the value. An axis of the
    pattern's own sizes counts from the last, -1; an axis of its `...` from the first, 0."""
    if pattern.dtype != type.dtype:
        return "dtype-mismatch", f"this is {type}", ()
    rank = len(pattern.sizes)
    if type.rank < rank or (type.rank > rank and not pattern.dots):
        least = "at least " if pattern.dots else ""
        return "rank-mismatch", f"this has {type.rank} {_axes(type.rank)}, expected {least}{rank}", ()
    for axis in range(-1, -rank - 1, -1):
        expected, actual = pattern.sizes[axis], type.shape[axis]
        if expected != actual:
            label = f"axis {type.rank + axis} has size {format_size(actual)}, expected {format_size(expected)}"
            return "shape-mismatch", label, (axis,)
    leading = type.shape[: type.rank - rank]
    if pattern.dots and dots is not None and leading != dots:
        shown = ", ".join(map(format_size, leading)), ", ".join(map(format_size, dots))
        label = f"`...` is [{shown[0]}] here and [{shown[1]}] before"
        return "shape-mismatch", label, tuple(range(len(leading)))
    return None


def _axes(count: int) -> str:
    return "axis" if count == 1 else "axes"


def leading_sizes(pattern: Pattern, type: TensorType) -> Shape:
    """Returns the sizes denoted by `...` in a matching type."""
    return type.shape[: type.rank - len(pattern.sizes)]


def is_static(type: TensorType) -> bool:
    return not any(isinstance(s, Poly) for s in type.shape)
