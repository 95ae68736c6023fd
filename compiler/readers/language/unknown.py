"""Diagnostics for undefined names: the nearest defined name, or the reason why a name is not visible."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from ....dialect.diagnostics import Note
from ....dialect.types import DTYPES
from . import static_functions, statics, syntax
from .argument_sizes import argument_sizes
from .context import Context, suggest
from .operators import BUILTINS
from .sugar import FORMS
from .values import Frame, Poison

FUNCTIONS = frozenset({*BUILTINS, *FORMS, *static_functions.FUNCTIONS})
"""Every name that can be called without being defined."""

FOREIGN = {
    "pixel_shuffle": "depth_to_space",
    "pixel_unshuffle": "space_to_depth",
    "index_add": "scatter_add",
    "index_select": "gather",
    "index_copy": "scatter",
    "segment_sum": "scatter_add",
    "unsorted_segment_sum": "scatter_add",
    "reduce_mean": "mean",
    "reduce_sum": "sum",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_prod": "prod",
    "reduce_any": "any",
    "reduce_all": "all",
    "unbind": "unstack",
    "rotary": "rotary_embedding",
    "rope": "rotary_embedding",
    "apply_rotary": "rotary_embedding",
    "apply_rotary_pos_emb": "rotary_embedding",
    "to": "cast",
    "type_as": "cast",
    "argwhere": "nonzero",
    "flatnonzero": "nonzero",
    "boolean_mask": "masked_select",
    "compress": "masked_select",
    "extract": "masked_select",
    "rand": "random_uniform",
    "randn": "random_normal",
    "tensordot": "einsum",
    "outer": "einsum",
    "kron": "einsum",
    "concatenate": "concat",
    "cat": "concat",
    "permute": "transpose",
    "pow": "power",
    "mul": "multiply",
    "sub": "subtract",
    "div": "divide",
    "neg": "negate",
    "var": "variance",
    "std": "standard_deviation",
    "arange": "iota",
    "range": "iota",
    "clamp": "clip",
    "topk": "top_k",
    "amax": "max",
    "amin": "min",
    "take": "gather",
    "astype": "cast",
    "swish": "silu",
    "dot": "matmul",
    "bmm": "matmul",
    "view": "reshape",
    "masked_fill": "where",
    "interpolate": "resize",
    "upsample": "resize",
    "chunk": "split",
    "expand": "broadcast_to",
    "broadcast": "broadcast_to",
    "swapaxes": "transpose",
    "moveaxis": "transpose",
    "repeat_kv": "repeat_interleave",
    "full_like": "full",
    "zeros_like": "zeros",
    "ones_like": "ones",
    "mm": "matmul",
    "linear": "matmul",
    "dense": "matmul",
    "scaled_dot_product_attention": "attention",
    "adaptive_avg_pool2d": "global_avg_pool",
    "True": "true",
    "False": "false",
    "none": "None",
    "null": "None",
    "erf_inv": "erf",
    "sgn": "sign",
    "float32": "f32",
    "layernorm": "layer_norm",
    "rmsnorm": "rms_norm",
}
"""The names of operators in other libraries."""

ADVICE = {
    "quantile": "`sort(x, axis)` gives the order; an index of it is a quantile",
    "percentile": "`sort(x, axis)` gives the order; an index of it is a percentile",
    "median": "`sort(x, axis)` gives the order; the middle of it is the median",
    "nanmedian": "`sort(x, axis)` gives the order; the middle of it is the median",
    "cross": "a cross product is `roll(x, 2, axis) * roll(y, 1, axis) - roll(x, 1, axis) * roll(y, 2, axis)`",
    "dropout": "a model that is trained multiplies by `where(random_uniform(x.shape, seed) < keep, 1 / keep, 0)`",
    "meshgrid": "`iota(n)[:, None]` and `iota(m)[None, :]` broadcast",
    "linspace": "`cast(iota(n), f32) * step + start`",
}
"""Words of other libraries for which there is no operator, and how their results are written."""


def counterpart(name: str) -> str:
    """Returns the function for a name of another library, also written as a class: `LayerNorm`; empty if none is."""
    for word in (name, name.lower()):
        if word in FOREIGN:
            return FOREIGN[word]
    if name in ADVICE:
        return ""
    joined = {function.replace("_", ""): function for function in FUNCTIONS}
    return joined.get(name.replace("_", "").lower(), "")


_KEYWORDS = frozenset({"true", "false", "None"})


def unknown_name(context: Context, frame: Frame, name: syntax.Name, what: str = "") -> Poison:
    """Reports an undefined name, with the nearest defined one."""
    notes: list[Note] = []
    if name.name in frame.gone:
        notes = [Note("it is only assigned inside a loop or branch and not visible after it", frame.gone[name.name])]
    elif frame.block is not None:
        later = [s for s in _definitions(frame.block.body) if s.name == name.name]
        notes = [Note("it is defined later", later[0].span)] if later else []
    foreign = counterpart(name.name)
    if name.name in ADVICE:
        help_text = ADVICE[name.name]
    elif foreign in FUNCTIONS or foreign in DTYPES or foreign in _KEYWORDS:
        help_text = f"did you mean `{foreign}`?"
    elif notes:
        help_text = ""
    else:
        own = {**frame.file.names, **frame.names}
        help_text = suggest(name.name, own)
        # Names that the file defines come first; the many built-in names have to be closer.
        far = [*FUNCTIONS, *DTYPES, *statics.CONSTANTS]
        close = difflib.get_close_matches(name.name, far, 1, 0.75) if not help_text else []
        help_text = help_text or (f"did you mean `{close[0]}`?" if close else "")
        if not help_text and not what and (name.name == "_" or re.fullmatch(r"[A-Z][A-Z0-9]*", name.name)):
            shown = "N" if name.name == "_" else name.name
            help_text = f"a symbolic size is declared as `dim {shown} in 1..64`"
            if frame.block is not None and not isinstance(frame.block, syntax.Model):
                help_text += f", and a size that an argument determines stands alone, as in `f32[{shown}]`"
    message = f"there is no {what or 'name'} `{name.name}`"
    if frame.block is not None and name.name in argument_sizes(frame.block, frame.file):
        block = frame.block.name.name
        message, help_text = f"`{name.name}` is known in a call of `{block}` alone", "an argument determines it"
        notes = []
    return context.reporter.error("unknown-name", message, name.span, notes=notes, help=help_text)


def _definitions(body: Sequence[syntax.Statement]) -> list[syntax.Name]:
    found: list[syntax.Name] = []
    for statement in body:
        if isinstance(statement, (syntax.Param, syntax.State)):
            found.append(statement.name)
        elif isinstance(statement, syntax.Use):
            found += [i.name for i in statement.instances]
        elif isinstance(statement, syntax.Assign):
            found += statement.targets
            found += _definitions(statement.value.body) if isinstance(statement.value, syntax.Repeat) else []
        elif isinstance(statement, syntax.Repeat):
            found += _definitions(statement.body)
    return found
