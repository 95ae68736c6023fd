"""The admissible results of a function: exact values, and the rounding errors of correct programs.

The exact results are those of the reference interpreter in float64. NaN and infinities are compared by position: some
run of the reference, with noise or without, in float64 or in the dtypes of the graph, must have them there, or the
exact value is beyond the range of the result. Sums of terms beyond this range may be any infinity or NaN. The sign of
a zero is compared in the same way; `docs/vector_math.md` lists the cases in which it is unspecified.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ...dialect.control_flow import CONTROL_FLOW
from ...dialect.graph import Function, Module, Node, walk
from ...dialect.interpreter import EndlessError, IndexRangeError, Interpreter, Load
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS
from ...dialect.remembered import KeptParameters, by_identity
from ...dialect.types import F64, Array, DType
from ...passes.simplify.decompose import Decompose
from .array_errors import Numbers, absolute_errors
from .inputs import Trial
from .tolerance import NoisyInterpreter, float_limits

ROUNDS = ((3, 1.0), (40, 2.0))
"""The number of samples, and the amplitude of their noise, in each round. The last round is drawn before a difference
is reported: comparisons may amplify a rounding error that the noise has missed."""
_SAMPLES = tuple((F64 if n % 2 == 0 else None, amplitude) for count, amplitude in ROUNDS for n in range(count))
"""The precision and the amplitude of each sample. Every second one uses the dtypes of the graph, so that sums overflow
as they do there."""
_WIDE = [number for number, (precision, _) in enumerate(_SAMPLES) if precision is F64]
_TURNS = {number: turn for turn, number in enumerate(_WIDE[::2])}
"""The turns of every second sample in float64, in which a sum of terms beyond the range is a number."""
_COMPARED = (1, 2, 3, 5, 8, 13, 23, len(_SAMPLES))
"""The numbers of samples with which a difference is compared again. Samples only widen the admissible range, so a
result that is admissible with some of them is so with all."""
FACTOR = 2.0
"""The multiple of the samples' spread that is allowed; correct programs reach about half of it."""
UNBOUNDED = frozenset(name for name, control in CONTROL_FLOW.items() if not control.is_bounded)
MOST_ITERATIONS = 1024
"""The most iterations of a `while` in a call that can be judged. Programs that are examined get `PATIENCE` times as
many, since rounding may delay the end."""
PATIENCE = 4
_NAN, _INFINITIES, _NUMBER = 1, 2 | 4, 8
_NO_ZERO = 4


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference of a result from its admissible values: the worst element, and the number of wrong elements.

    `message` is empty, or describes another error, such as the type of the array; then there is no element.
    """

    result: int
    message: str = ""
    index: tuple[int, ...] = ()
    actual: float = 0.0
    expected: float = 0.0
    allowed: float = 0.0
    different: int = 0
    size: int = 0

    @property
    def is_sign(self) -> bool:
        """Whether zeros differ in their signs only."""
        return not self.message and self.actual == self.expected == 0

    @property
    def error(self) -> float:
        """The absolute error; infinite if a value is not a finite number."""
        error = abs(self.actual - self.expected)
        return float("inf") if error != error else error

    def __str__(self) -> str:
        if self.message:
            return f"result {self.result} {self.message}"
        return (
            f"result {self.result}: {self.actual:.9g} at {list(self.index)}, expected {self.expected:.9g} within"
            f" {self.allowed:.3g} ({self.different} of {self.size} differ)"
        )


Classes = npt.NDArray[np.uint8]


def _classes(array: Array) -> Classes:
    """Returns 1 for NaN, 2 and 4 for infinities, 8 for finite numbers: bits, so that sets of them are sums."""
    classes = np.full(array.shape, _NUMBER, np.uint8)
    unusual = ~np.isfinite(array)
    if unusual.any():
        wide = array[unusual].astype(np.float64)
        classes[unusual] = np.where(np.isnan(wide), _NAN, np.where(wide > 0, 2, 4))
    return classes


def _zeros(array: Array) -> Classes:
    """Returns 1 and 2 for positive and negative zeros, 4 for nonzero elements."""
    zero, negative = (np.asarray(found).astype(np.uint8) for found in (array == 0, np.signbit(array)))
    # 4 - 3 == 1, and 4 - 2 == 2. Arithmetic takes the same time for any share of zeros; a mask does not.
    return np.asarray(_NO_ZERO - zero * (3 - negative))


def _widened(array: Numbers) -> Numbers:
    """Takes the maximum over at least 16 elements along the last axes: the spread of one element is unreliable."""
    if array.size == 0 or array.ndim == 0:
        return array
    split = array.ndim
    while split > 0 and np.prod(array.shape[split:]) < 16:
        split -= 1
    axes = tuple(range(split, array.ndim))
    return np.broadcast_to(array.max(axis=axes, keepdims=True), array.shape)


@dataclass
class Expectation:
    """One result: its exact value, the spread of the samples around it, and the observed classes and signs of zeros."""

    dtype: DType
    exact: Array
    spread: Numbers
    classes: Classes
    zeros: Classes

    def add(self, sample: Array) -> None:
        """Adds a run of the reference, which widens the admissible range."""
        apart = absolute_errors(sample, self.exact)
        if self.dtype.is_float:
            self.classes |= _classes(sample)
            self.zeros |= _zeros(sample)
            apart = np.where(np.isfinite(apart), apart, 0)
        self.spread = np.maximum(self.spread, apart)

    @property
    def allowed(self) -> Numbers:
        """Returns the allowed error of each element."""
        if not self.dtype.is_float:
            return self.spread
        least, _ = float_limits(self.dtype)
        size = np.abs(self.exact.astype(np.float64))
        own = 0.6 * self.dtype.epsilon * np.where(np.isfinite(size), size, 0)
        return FACTOR * _widened(self.spread) + own + 4 * least

    @property
    def has_signs(self) -> bool:
        """Whether all runs agree on the sign of each exact zero."""
        zeros = self.zeros[self.exact == 0] & ~np.uint8(_NO_ZERO)
        return bool(np.isin(zeros, (1, 2)).all())

    def difference(self, number: int, actual: Array) -> Difference | None:
        """Returns the difference of an array from the admissible values of result `number`."""
        if actual.shape != self.exact.shape or actual.dtype != self.dtype.numpy:
            expected = f"{self.dtype}{list(self.exact.shape)}"
            return Difference(number, f"is {actual.dtype}{list(actual.shape)}, expected {expected}")
        apart, allowed = absolute_errors(actual, self.exact), self.allowed
        wrong = apart > allowed
        if self.dtype.is_float:
            classes = _classes(actual)
            # If the graph overflows in its dtypes, float64 is no reference: only the classes are compared.
            finite = np.isfinite(self.exact.astype(np.float64))
            wrong = wrong & finite & (classes == _NUMBER) & (self.classes == _NUMBER)
            # NaN instead of a number is inf - inf: a sum of terms beyond the range, and their order is free.
            mixed = np.where(finite & ((self.classes & _NAN) != 0), _NAN | _INFINITIES, 0).astype(np.uint8)
            wrong |= (classes & (self.classes | mixed)) == 0
            # A zero must have a sign that some run has, unless rounding alone may make it zero.
            wrong |= (actual == 0) & (((_zeros(actual) | _NO_ZERO) & self.zeros) == 0)
        if not wrong.any():
            return None
        beyond = np.where(wrong, apart, -1.0)
        index = tuple(int(i) for i in np.unravel_index(int(beyond.argmax()), beyond.shape))
        return Difference(
            number,
            "",
            index,
            float(actual[index]),
            float(self.exact[index]),
            float(allowed[index]),
            int(np.count_nonzero(wrong)),
            wrong.size,
        )


_decompose = by_identity(Decompose().run, most=16)


class Judge:
    """The admissible results of one call of a function.

    Every further run only widens the admissible range, and a sample costs more than a plain run of the reference. So
    each is made only if results differ without it:

        exact results -> differ? -> plain results -> differ? -> sample 1 -> differ? -> ... -> sample 43 -> differ: wrong

    `load` returns the data of parameters, which judges of calls of the same module share through `kept`. `in_blocks`:
    convolutions may be computed in blocks. A call in which a `while` does not end has no admissible results: it is
    `endless`, and never judged to differ.
    """

    def __init__(
        self,
        module: Module,
        trial: Trial,
        load: Load,
        *,
        in_blocks: bool = False,
        seed: int = 0,
        kept: KeptParameters | None = None,
    ) -> None:
        self.trial, self.load, self.in_blocks, self.kept = trial, load, in_blocks, kept or KeptParameters()
        self.rng = np.random.default_rng(seed)
        self.module, self.decomposed = module, _decompose(module)
        self._expected: list[Expectation] = []
        self._drawn = 0
        self.endless, self.refused, self._is_plain_run = False, False, False
        function: Function = module.function(trial.function)
        exact = self._run(F64)
        for value, wide in zip(function.results, exact or (), strict=exact is not None):
            nothing = np.zeros(wide.shape, np.uint8)
            dtype, is_float = value.type.dtype, value.type.dtype.is_float
            # The exact value rounded to its dtype is always right: an infinity beyond the range of the dtype.
            with np.errstate(all="ignore"):
                classes = _classes(wide.astype(dtype.numpy)) if is_float else nothing
            zeros = _zeros(wide) if is_float else nothing
            self._expected.append(Expectation(dtype, wide, np.zeros(wide.shape), classes, zeros))
        # Operators whose decomposition checks tables refuse these by themselves.
        bodies = (function.body, self.decomposed.function(trial.function).body)
        if exact is None or any(_may_stop(node) for body in bodies for node in walk(body)):
            self._run_plain()

    def _run(self, precision: DType | None) -> tuple[Array, ...] | None:
        """Returns the results of the reference; None if there are none, which makes the call `endless` or `refused`."""
        interpreter = Interpreter(
            self.module, self.load, precision=precision, most_iterations=MOST_ITERATIONS, kept=self.kept
        )
        try:
            results = run_trial(interpreter, self.trial)
        except EndlessError:
            self.endless = True
            return None
        self.refused |= results is None
        return results

    def _run_plain(self) -> None:
        """Adds the results in the dtypes of the graph, once."""
        if self._is_plain_run:
            return
        self._is_plain_run = True
        results = None if self.endless else self._run(None)
        if results is None:
            self._expected.clear()
        for expectation, narrow in zip(self._expected, results or (), strict=True):
            expectation.add(narrow)

    @property
    def expected(self) -> Sequence[Expectation]:
        """The admissible results, with the samples of the first round; none if the call is refused or endless."""
        self._sample(ROUNDS[0][0])
        return self._expected

    def _sample(self, count: int) -> None:
        """Draws samples until there are `count`."""
        self._run_plain()
        drawn, self._drawn = self._drawn, max(count, self._drawn)
        for number in range(drawn, count) if self._expected else ():
            precision, amplitude = _SAMPLES[number]
            interpreter = NoisyInterpreter(
                self.decomposed,
                self.load,
                self.rng,
                precision=precision,
                amplitude=amplitude,
                in_blocks=self.in_blocks,
                turn=_TURNS.get(number),
                most_iterations=PATIENCE * MOST_ITERATIONS,
                kept=self.kept,
            )
            # Noise may move a computed index out of range, and a condition away from its end.
            try:
                results = run_trial(interpreter, self.trial)
            except EndlessError:
                continue
            for expectation, array in zip(self._expected, results or (), strict=False):
                expectation.add(array)

    def difference(self, results: Sequence[Array] | None) -> Difference | None:
        """Returns the difference of the first wrong result. None for `results` denotes a call that was rejected for an
        index out of range."""
        if self.endless:
            return None
        if self.refused or results is None:
            expected, actual = ("an error" if refused else "none" for refused in (self.refused, results is None))
            message = f"gives {actual} for an index out of range, expected {expected}"
            return None if expected == actual else Difference(0, message)
        found = self._difference(results)
        if found is not None and not self._is_plain_run:
            self._run_plain()
            found = self._difference(results)
        for count in _COMPARED:
            if found is None or found.message:
                break  # no sample has another type
            if count > self._drawn:
                self._sample(count)
                found = self._difference(results)
        return found

    def sample_more(self) -> None:
        """Draws the samples of a difference in advance, for results that are compared without this judge."""
        self._sample(len(_SAMPLES))

    def _difference(self, results: Sequence[Array]) -> Difference | None:
        for number, (expectation, actual) in enumerate(zip(self._expected, results, strict=True)):
            found = expectation.difference(number, actual)
            if found is not None:
                return found
        return None


def _may_stop(node: Node) -> bool:
    """Returns whether a run may end without results in one precision, and not in another."""
    operator = OPERATORS[node.op]
    return node.op in UNBOUNDED or operator.addresses is not None or operator.has("checking")


def may_be_endless(function: Function) -> bool:
    return any(node.op in UNBOUNDED for node in walk(function.body))


def ends(module: Module, trial: Trial, load: Load) -> bool:
    """Returns whether every `while` ends in a call, within `MOST_ITERATIONS` iterations."""
    if not may_be_endless(module.function(trial.function)):
        return True
    try:
        run_trial(Interpreter(module, load, most_iterations=MOST_ITERATIONS), trial)
    except EndlessError:
        return False
    return True


def run_trial(interpreter: Interpreter, trial: Trial) -> tuple[Array, ...] | None:
    """Returns the results of the interpreter's function for a trial; None if an index is out of range."""
    try:
        return interpreter.run(trial.function, trial.arguments, trial.dims)
    except IndexRangeError:
        return None
