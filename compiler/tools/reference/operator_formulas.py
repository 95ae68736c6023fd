"""The formulas of operators whose summary is in words, as the reference page and `nacre help` print them.

A formula is text in the notation of NumPy, in which the operands and attributes have their names. Sums, means and
maxima are over the axes of the operator, which stay with size 1; `n` is the number of their elements. A formula for an
element, such as `result[i, j] = ...`, holds for all indices. Tests compare the formulas with the references.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_STANDARD = "(x - mean(x)) / sqrt(mean((x - mean(x)) ** 2) + eps) * weight + bias"
_STEP = "{} = split(x[t] @ weight.T + bias + h @ recurrence.T + recurrent_bias)"

FORMULAS: Mapping[str, Sequence[tuple[str, str]]] = {
    "maximum": [("", "where(x > y, x, y)")],
    "minimum": [("", "where(x < y, x, y)")],
    "cbrt": [("", "sign(x) * abs(x) ** (1 / 3)")],
    "sinh": [("", "(exp(x) - exp(-x)) / 2")],
    "cosh": [("", "(exp(x) + exp(-x)) / 2")],
    "tanh": [("", "(exp(x) - exp(-x)) / (exp(x) + exp(-x))")],
    "asinh": [("", "log(x + sqrt(x ** 2 + 1))")],
    "acosh": [("", "log(x + sqrt(x ** 2 - 1))")],
    "atanh": [("", "log((1 + x) / (1 - x)) / 2")],
    "relu6": [("", "minimum(maximum(x, 0), 6)")],
    "leaky_relu": [("", "where(x > 0, x, slope * x)")],
    "prelu": [("", "where(x > 0, x, slope * x)")],
    "elu": [("", "where(x > 0, x, alpha * (exp(x) - 1))")],
    "selu": [("", "1.0507009873554805 * where(x > 0, x, 1.6732632423543772 * (exp(x) - 1))")],
    "celu": [("", "where(x > 0, x, alpha * (exp(x / alpha) - 1))")],
    "gelu": [
        ('approximate="none"', "x / 2 * (1 + erf(x / sqrt(2)))"),
        ('approximate="tanh"', "x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))"),
    ],
    "soft_shrink": [("", "sign(x) * maximum(abs(x) - threshold, 0)")],
    "clip": [("", "minimum(maximum(x, low), high)")],
    "hard_tanh": [("", "minimum(maximum(x, low), high)")],
    "mean": [("", "sum(x) / n")],
    "variance": [("", "sum((x - mean(x)) ** 2) / (n - correction)")],
    "standard_deviation": [("", "sqrt(sum((x - mean(x)) ** 2) / (n - correction))")],
    "cumsum": [("", "result[t] = sum(x[: t + 1])")],
    "cumprod": [("", "result[t] = prod(x[: t + 1])")],
    "softmax": [("", "exp(x - max(x)) / sum(exp(x - max(x)))")],
    "log_softmax": [("", "x - max(x) - log(sum(exp(x - max(x))))")],
    "l2_normalize": [("", "x / maximum(eps, sqrt(sum(x ** 2)))")],
    "layer_norm": [("", _STANDARD)],
    "group_norm": [("", _STANDARD)],
    "instance_norm": [("", _STANDARD)],
    "rms_norm": [("", "x / sqrt(mean(x ** 2) + eps) * weight")],
    "batch_norm": [("", "(x - mean) / sqrt(variance + eps) * weight + bias")],
    "matmul": [("", "result[i, j] = sum(x[i, :] * y[:, j])")],
    "conv1d": [
        ("", "result[n, o, i] = bias[o] + sum(weight[o] * x[n, :, i * stride : i * stride + k * dilation : dilation])")
    ],
    "conv2d": [
        ("stride=1, dilation=1", "result[n, o, i, j] = bias[o] + sum(weight[o] * x[n, :, i : i + k, j : j + k])")
    ],
    "max_pool1d": [("", "result[n, c, i] = max(x[n, c, i * stride : i * stride + kernel])")],
    "avg_pool1d": [("", "result[n, c, i] = mean(x[n, c, i * stride : i * stride + kernel])")],
    "global_avg_pool": [("", "result[n, c] = mean(x[n, c])")],
    "global_max_pool": [("", "result[n, c] = max(x[n, c])")],
    "gather": [("axis=0", "result[i] = x[indices[i]]")],
    "take_along_axis": [("axis=0", "result[i, j] = x[indices[i, j], j]")],
    "embedding": [("", "result[i] = table[ids[i]]")],
    "one_hot": [("", "result[i, j] = ids[i] == j")],
    "bincount": [("", "result[i] = sum(where(x == i, weights, 0))")],
    "searchsorted": [("", "result[i] = sum(where(sorted < values[i], 1, 0))")],
    "attention": [("", "softmax(q @ k.mT * scale + mask) @ v")],
    "rotary_embedding": [("", "a, b = split(x); concat(a * cos - b * sin, b * cos + a * sin)")],
    "cross_entropy": [
        ('reduction="none"', "result[i] = -log(softmax(x[i])[target[i]])"),
    ],
    "fft": [("", "result[k] = sum(x * exp(-2j * pi * k * iota(n) / n))")],
    "ifft": [("", "result[k] = sum(x * exp(2j * pi * k * iota(n) / n)) / n")],
    "lstm": [
        (
            "",
            f"{_STEP.format('i, f, g, o')}; c = sigmoid(f) * c + sigmoid(i) * tanh(g); h = sigmoid(o) * tanh(c); "
            "y[t] = h",
        )
    ],
    "gru": [
        (
            "",
            "r, z, n = split(x[t] @ weight.T + bias); hr, hz, hn = split(h @ recurrence.T + recurrent_bias); "
            "z = sigmoid(z + hz); h = (1 - z) * tanh(n + sigmoid(r + hr) * hn) + z * h; y[t] = h",
        )
    ],
    "rnn": [("", "h = tanh(x[t] @ weight.T + bias + h @ recurrence.T + recurrent_bias); y[t] = h")],
}
"""The formulas of an operator, each with the attributes for which it holds; those that are not named have their
defaults, where they matter."""
