"""What the results of a function may be: exact ones, and how far rounding may carry any correct program from them.

The exact results are those of the reference interpreter in float64. NaN and infinities are looked at by place: they
must be where some run of the reference, with noise or without, in float64 or in the dtypes of the graph, has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...dialect.graph import Function, Module
from ...dialect.interpreter import IndexRangeError, Interpreter, Load
from ...dialect.types import F64, Array, DType
from ...passes.decompose import Decompose
from .compare import Numbers, absolute_errors
from .inputs import Trial
from .tolerance import NoisyInterpreter, float_limits

SAMPLES = 3
MORE_SAMPLES = 40
"""Taken before a difference is believed: the noise may have missed what a comparison makes of a rounding error."""
FACTOR = 2.0
"""How many times the spread of the samples is allowed; correct programs reach about half of that."""
_NUMBER = 8


@dataclass(frozen=True, slots=True)
class Difference:
    """How a result is not what it may be: the element that is farthest out, and how many others are out too.

    `message` is empty, or says what else is wrong, such as the type of the array; then there is no element.
    """

    result: int
    message: str = ""
    place: tuple[int, ...] = ()
    actual: float = 0.0
    expected: float = 0.0
    allowed: float = 0.0
    different: int = 0
    size: int = 0

    @property
    def error(self) -> float:
        """The absolute error; infinite where a number is not one."""
        error = abs(self.actual - self.expected)
        return float("inf") if error != error else error

    def __str__(self) -> str:
        if self.message:
            return f"result {self.result} {self.message}"
        return (
            f"result {self.result}: {self.actual:.9g} at {list(self.place)}, expected {self.expected:.9g} within"
            f" {self.allowed:.3g} ({self.different} of {self.size} differ)"
        )


Classes = npt.NDArray[np.uint8]


def _classes(array: Array) -> Classes:
    """1 for NaN, 2 and 4 for infinities, 8 for numbers: bits, so that sets of them are sums."""
    wide = array.astype(np.float64)
    bits = np.where(wide > 0, 2, 4)
    return np.where(np.isnan(wide), 1, np.where(np.isinf(wide), bits, _NUMBER)).astype(np.uint8)


def _widened(array: Numbers) -> Numbers:
    """Along the last axes together the greatest of at least 16 elements: one element's luck is not a bound."""
    if array.size == 0 or array.ndim == 0:
        return array
    split = array.ndim
    while split > 0 and np.prod(array.shape[split:]) < 16:
        split -= 1
    axes = tuple(range(split, array.ndim))
    return np.broadcast_to(array.max(axis=axes, keepdims=True), array.shape)


@dataclass
class Expectation:
    """One result: its exact value, the spread of the samples around it, and the classes that have been seen."""

    dtype: DType
    exact: Array
    spread: Numbers
    classes: Classes

    def add(self, sample: Array) -> None:
        """A run of the reference: what is correct may be so far away."""
        apart = absolute_errors(sample, self.exact)
        if self.dtype.is_float:
            self.classes |= _classes(sample)
            apart = np.where(np.isfinite(apart), apart, 0)
        self.spread = np.maximum(self.spread, apart)

    @property
    def allowed(self) -> Numbers:
        """The error that each element may have."""
        if not self.dtype.is_float:
            return self.spread
        least, _ = float_limits(self.dtype)
        size = np.abs(self.exact.astype(np.float64))
        own = 0.6 * self.dtype.epsilon * np.where(np.isfinite(size), size, 0)
        return FACTOR * _widened(self.spread) + own + 4 * least

    def difference(self, number: int, actual: Array) -> Difference | None:
        """How an array differs from what result `number` may be."""
        if actual.shape != self.exact.shape or actual.dtype != self.dtype.numpy:
            expected = f"{self.dtype}{list(self.exact.shape)}"
            return Difference(number, f"is {actual.dtype}{list(actual.shape)}, expected {expected}")
        apart, allowed = absolute_errors(actual, self.exact), self.allowed
        wrong = apart > allowed
        if self.dtype.is_float:
            classes = _classes(actual)
            # Where the graph overflows in its dtypes, float64 is no measure: the class is all that is compared.
            finite = np.isfinite(self.exact.astype(np.float64))
            wrong = wrong & finite & (classes == _NUMBER) & (self.classes == _NUMBER)
            wrong |= (classes & self.classes) == 0
        if not wrong.any():
            return None
        beyond = np.where(wrong, apart, -1.0)
        place = tuple(int(i) for i in np.unravel_index(int(beyond.argmax()), beyond.shape))
        return Difference(
            number,
            "",
            place,
            float(actual[place]),
            float(self.exact[place]),
            float(allowed[place]),
            int(np.count_nonzero(wrong)),
            wrong.size,
        )


class Judge:
    """What one call of a function may give; more samples are drawn before a difference is believed.

    `load` gives the data of parameters. `in_blocks`: its convolutions may be computed in blocks.
    """

    def __init__(self, module: Module, trial: Trial, load: Load, *, in_blocks: bool = False, seed: int = 0) -> None:
        self.trial, self.load, self.in_blocks = trial, load, in_blocks
        self.rng = np.random.default_rng(seed)
        self.decomposed = Decompose().run(module)
        self.expected: list[Expectation] = []
        self._sampled_more = True
        exact = run_trial(Interpreter(module, load, precision=F64), trial)
        plain = run_trial(Interpreter(module, load), trial)
        self.refused = exact is None or plain is None
        if exact is None or plain is None:
            return
        function: Function = module.function(trial.function)
        for value, wide, narrow in zip(function.results, exact, plain, strict=True):
            expectation = Expectation(value.type.dtype, wide, np.zeros(wide.shape), np.zeros(wide.shape, np.uint8))
            expectation.add(narrow)
            self.expected.append(expectation)
        self._sample(SAMPLES, 1.0)
        self._sampled_more = False

    def _sample(self, count: int, amplitude: float) -> None:
        for number in range(count):
            # Every other one in the dtypes of the graph, where sums overflow as they will.
            precision = F64 if number % 2 == 0 else None
            interpreter = NoisyInterpreter(
                self.decomposed,
                self.load,
                self.rng,
                precision=precision,
                amplitude=amplitude,
                in_blocks=self.in_blocks,
            )
            # Noise may carry an index that is computed out of range.
            for expectation, array in zip(self.expected, run_trial(interpreter, self.trial) or (), strict=False):
                expectation.add(array)

    def difference(self, results: Sequence[Array] | None) -> Difference | None:
        """How the first wrong result differs from what it may be. None for results is a call that was refused for an
        index out of range."""
        if self.refused or results is None:
            expected, actual = ("an error" if refused else "none" for refused in (self.refused, results is None))
            message = f"gives {actual} for an index out of range, expected {expected}"
            return None if expected == actual else Difference(0, message)
        found = self._difference(results)
        if found is not None and not self._sampled_more:
            self._sampled_more = True
            self._sample(MORE_SAMPLES, 2.0)
            found = self._difference(results)
        return found

    def _difference(self, results: Sequence[Array]) -> Difference | None:
        for number, (expectation, actual) in enumerate(zip(self.expected, results, strict=True)):
            found = expectation.difference(number, actual)
            if found is not None:
                return found
        return None


def run_trial(interpreter: Interpreter, trial: Trial) -> tuple[Array, ...] | None:
    """The results of the interpreter's function for a trial; None where an index is out of range."""
    try:
        return interpreter.run(trial.function, trial.arguments, trial.dims)
    except IndexRangeError:
        return None
