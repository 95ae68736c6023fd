"""Trials: builds of a model with a policy, compared with f32 on all samples, and timed layer by layer.

Times are those of a call with the first samples; the time of a kernel is divided among layers by their operations. The
time of a layer that is too short to measure, or of all layers if no measurement is requested, is estimated: the maximum
of the time of its operations and of reading the weight, on a reference machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ....dialect.dims import evaluate
from ....dialect.types import Array
from ....passes.selection import EVERYTHING
from ....runtime.loader import Model, load
from ....runtime.observe import Call, Operation
from ....runtime.observe import evaluate as evaluate_size
from ...base.repeated import begin_session, find_session_dims, new_session
from ...comparison.sample_errors import Accuracy, compare_results, results_of
from ...model.policy import Calibration, Policy, Rule
from ...model.samples import Samples, open_samples
from ...model.source import SourceModel
from ...options import Options
from ...pipeline import Build
from ...quantization.apply import quantized, without_loops
from ...quantization.calibrate import find_ranges
from ...quantization.fit import find_fits
from ...quantization.fits import Fits
from ...quantization.ranges import Ranges
from ..profile.machine import threads_of
from ..profile.profile import Profile, profile_entry
from .layers import CHOICES, Assignment, Choice, Layer, find_layers, policy_of

SHORTEST = 20e-6
"""Layers below this time in seconds are estimated: clock resolution and other processes dominate the measurement."""
_SECONDS = 0.3


FLOPS, BYTES = 150e9, 20e9
"""The reference machine: f32 operations and bytes read, per second; `Choice` is relative to it."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of a call, and of each layer in it, by path."""

    call: float
    layers: Mapping[str, float]


@dataclass
class Trials:
    """Builds of the function `name` of a model in f32, on the samples of a calibration. `folder` holds the artifact of
    the current trial."""

    source_model: SourceModel
    name: str
    options: Options
    calibration: Calibration
    most: int
    threads: int
    folder: Path

    def __post_init__(self) -> None:
        module = self.source_model.module
        alone = replace(module, functions=(module.function(self.name),))
        self.source_model = replace(self.source_model, module=alone, policies=(), budgets=(), tests=())

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        module = without_loops(self.source_model.module)
        return find_layers(module, module.function(self.name))

    @cached_property
    def plain(self) -> Model:
        """The model in f32."""
        return self._build(Policy())

    @cached_property
    def samples(self) -> Samples:
        (described,) = self.plain.describe()["entries"]
        return open_samples(self.calibration.path, described, self.most)

    @cached_property
    def _expected(self) -> Sequence[Mapping[str, Array]]:
        return [results_of(self.plain, self.name, batch) for batch in self.samples]

    def build(self, chosen: Assignment) -> Model:
        return self._build(policy_of(self.name, [layer.path for layer in self.layers], chosen, self.calibration))

    def _build(self, policy: Policy) -> Model:
        ranges, fits = self._ranges if policy.is_static else {}, self._fits if policy.is_fitted else {}
        made = replace(self.source_model, module=quantized(self.source_model.module, {self.name: policy}, ranges, fits))
        path = self.folder / "tried.so"
        # A loaded artifact stays mapped after its file is removed.
        path.unlink(missing_ok=True)
        Build(made, self.options).run(path)
        return load(path, threads=self.threads)

    @cached_property
    def _ranges(self) -> Mapping[str, Ranges]:
        """The ranges of every value that any assignment may need; they do not depend on the assignment."""
        everything = Policy((Rule("activations", EVERYTHING, CHOICES["int8-static"].activations),), self.calibration)
        return find_ranges(self.source_model, {self.name: everything})

    @cached_property
    def _fits(self) -> Mapping[str, Fits]:
        """The fitted quantized values of every weight that any assignment may need."""
        everything = Policy((Rule("weights", EVERYTHING, CHOICES["int4-fitted"].weights),), self.calibration)
        return find_fits(self.source_model, {self.name: everything})

    def accuracy(self, model: Model) -> Accuracy:
        """Returns the accuracy of the results relative to those in f32."""
        return compare_results(model, self._expected, self.name, self.samples)

    def times(self, model: Model) -> Times:
        dims = find_session_dims(model, self.name, self._first, {})
        session, restart = begin_session(model, dims)
        threads = threads_of(self.threads)
        profile = profile_entry(session, session.entries[self.name], self._first, threads, _SECONDS, restart)
        return Times(profile.seconds, {layer.path: _seconds(profile, layer) for layer in self.layers})

    def estimate(self, chosen: Assignment) -> Times:
        """Returns estimated times on the reference machine; the time of a call is the sum over its layers."""
        layers = {layer.path: self._estimated(layer, CHOICES[chosen.get(layer.path, "f32")]) for layer in self.layers}
        return Times(sum(layers.values()), layers)

    def _estimated(self, layer: Layer, choice: Choice) -> float:
        computing = evaluate(layer.operations, self._dims) / (FLOPS * choice.speed)
        reading = evaluate(layer.read, self._dims) * choice.bits / 8 / BYTES
        return max(computing, reading)

    @cached_property
    def _first(self) -> Sequence[Array]:
        return next(iter(self.samples)).inputs

    @cached_property
    def _dims(self) -> Mapping[str, int]:
        return new_session(self.plain, self.name, self._first).entries[self.name].bind(*self._first)


def _seconds(profile: Profile, layer: Layer) -> float:
    return sum(c.seconds * _share(c.call, profile.dims, layer) for c in profile.calls)


def _share(call: Call, dims: Mapping[str, int], layer: Layer) -> float:
    """Returns the layer's share of a kernel, by operations."""
    counts = [(o, evaluate_size(o.flops, dims)) for o in call.operations]
    own = sum(count for operation, count in counts if _location(operation) in layer.locations)
    return own / max(sum(count for _, count in counts), 1)


def _location(operation: Operation) -> tuple[str, str]:
    """Returns the location as layers store it, without the file, which artifacts name relative to their model."""
    return operation.scope, "" if operation.at is None else ":".join(operation.at.rsplit(":", 2)[1:])
