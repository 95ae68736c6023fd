"""The names of operators in other libraries, and the functions of the language that they mean."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

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
    "im2col": "unfold",
    "inv": "inverse",
    "linalg_inv": "inverse",
    "det": "determinant",
    "solve_triangular": "triangular_solve",
    "non_max_suppression": "nms",
    "nll_loss": "cross_entropy",
    "softmax_cross_entropy": "cross_entropy",
    "bucketize": "searchsorted",
    "digitize": "searchsorted",
    "histc": "bincount",
    "fft2": "fft",
    "fftn": "fft",
    "ifft2": "ifft",
    "ifftn": "ifft",
    "rfft2": "rfft",
    "rfftn": "rfft",
    "irfft2": "irfft",
    "irfftn": "irfft",
    "simple_rnn": "rnn",
    "elman": "rnn",
    "categorical": "multinomial",
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
    "conv": "conv2d",
    "convolution": "conv2d",
    "max_pool": "max_pool2d",
    "avg_pool": "avg_pool2d",
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
    "mm": "matmul",
    "linear": "matmul",
    "dense": "matmul",
    "scaled_dot_product_attention": "attention",
    "adaptive_avg_pool2d": "global_avg_pool",
    "True": "true",
    "False": "false",
    "none": "None",
    "null": "None",
    "sgn": "sign",
    "float32": "f32",
    "layernorm": "layer_norm",
    "rmsnorm": "rms_norm",
    "float16": "f16",
    "half": "f16",
    "bfloat16": "bf16",
    "float64": "f64",
    "int32": "i32",
    "int64": "i64",
    "hstack": "concat",
    "vstack": "concat",
    "mod": "remainder",
    "floordiv": "floor_divide",
    "argtopk": "top_k",
    "histogram": "bincount",
    "padding": "pad",
    "gelu_new": "gelu",
    "gelu_tanh": "gelu",
    "multihead_attention": "attention",
    "sdpa": "attention",
}
"""The names of operators in other libraries."""

ADVICE = {
    "quantile": "`sort(x, axis)` gives the order; an index of it is a quantile",
    "percentile": "`sort(x, axis)` gives the order; an index of it is a percentile",
    "median": "`sort(x, axis)` gives the order; the middle of it is the median",
    "nanmedian": "`sort(x, axis)` gives the order; the middle of it is the median",
    "cross": "a cross product is `roll(x, 2, axis) * roll(y, 1, axis) - roll(x, 1, axis) * roll(y, 2, axis)`",
    "dropout": "a model that is trained multiplies by `where(random_uniform(x.shape, seed) < keep, 1 / keep, 0)`",
    "zeros_like": "`zeros(x.shape, f32)` has the shape of `x`",
    "ones_like": "`ones(x.shape, f32)` has the shape of `x`",
    "full_like": "`full(x.shape, 2.0, f32)` has the shape of `x`",
    "shape": "`x.shape` is the shape of `x`, and `x.shape[0]` its first size",
    **dict.fromkeys(
        ("scatter_max", "segment_max", "scatter_amax", "index_reduce", "scatter_reduce"),
        "`max(where(groups == iota(n)[:, None], x, -inf), axis=-1)` is the maximum of each of `n` groups",
    ),
    **dict.fromkeys(
        ("segment_softmax", "scatter_softmax", "edge_softmax"),
        "`e = exp(x - max(x))`, then `e / scatter_add(zeros(n), groups, e)[groups]` is a softmax within each group",
    ),
    "glu": "`a, b = split(x, 2, axis=-1)`, then `a * sigmoid(b)`",
    "geglu": "`a, b = split(x, 2, axis=-1)`, then `a * gelu(b)`",
    "swiglu": "`a, b = split(x, 2, axis=-1)`, then `silu(a) * b`",
    "lerp": "`x + weight * (y - x)`",
    "logit": "`log(x / (1 - x))`",
    "addmm": "`c + a @ b`",
    "baddbmm": "`c + a @ b`",
    "addcmul": "`x + value * a * b`",
    **dict.fromkeys(("inner", "vecdot"), "`sum(x * y, axis=-1)`"),
    "cosine_similarity": "`sum(l2_normalize(x) * l2_normalize(y), axis=-1)`",
    "cdist": "`norm(x[:, None] - y[None], axis=-1)` is the distance of each row of `x` from each row of `y`",
    **dict.fromkeys(("diag", "diagonal"), "`x[iota(n), iota(n)]` is the diagonal, and `eye(n) * x` a diagonal matrix"),
    "trace": "`sum(x[iota(n), iota(n)])`",
    **dict.fromkeys(("fftshift", "ifftshift"), "`roll(x, n // 2, axis)`, where the size of the axis is even"),
    **dict.fromkeys(("hann", "hann_window"), "`0.5 - 0.5 * cos(2 * pi * cast(iota(n), f32) / n)`"),
    **dict.fromkeys(("hamming", "hamming_window"), "`0.54 - 0.46 * cos(2 * pi * cast(iota(n), f32) / n)`"),
    **dict.fromkeys(
        ("huber", "huber_loss", "smooth_l1", "smooth_l1_loss"),
        "`d = abs(x - y)`, then `mean(where(d < 1, d * d / 2, d - 0.5))`",
    ),
    "kthvalue": "`sort(x, axis)` gives the order; an index of it is the value",
    "qr": "`cholesky(x.mT @ x).mT` is the triangular factor of a matrix of full rank",
}
"""Words of other libraries without an equivalent operator, and how to express their results."""


def synonym(name: str, functions: Collection[str]) -> str:
    """Returns the equivalent function for a name of another library, which may have the form of a class, `LayerNorm`;
    empty if there is none."""
    for word in (name, name.lower()):
        if word in FOREIGN:
            return FOREIGN[word]
    if name in ADVICE:
        return ""
    joined = {function.replace("_", ""): function for function in functions}
    return joined.get(name.replace("_", "").lower(), "")


def similar_names(name: str, functions: Collection[str]) -> list[str]:
    """Returns functions and names of other libraries with a similar spelling, the most similar first. The case of
    letters is ignored. For a name with a capital, names of other libraries are returned as classes."""
    is_class = name[:1].isupper()
    known = {word.lower(): word.capitalize() if is_class else word for word in (*FOREIGN, *ADVICE)}
    # Of two words that differ in case alone, the last one is kept.
    known |= {word.lower(): word for word in sorted(functions, key=lambda word: word[:1].isupper() == is_class)}
    return [known[word] for word in get_close_matches(name.lower(), known, 3, 0.65)]
