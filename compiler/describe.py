"""The description of an artifact: what `artifact/` writes into its tables, gathered from the stages of a build."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial

from ..dialect.dims import Size, add
from ..dialect.graph import Constant, Function, Module
from ..dialect.interpreter import Load
from ..dialect.printer import print_module
from ..dialect.requirements import Requirement, requirements
from ..dialect.states import session_dims, used_states
from ..dialect.types import Array
from .artifact.spec import (
    ArgumentSpec,
    ArtifactSpec,
    CallSpec,
    Constraint,
    DeviceEntrySpec,
    DeviceLevelSpec,
    DeviceSpec,
    EntrySpec,
    LevelSpec,
    StateSpec,
    WeightSpec,
)
from .base.spans import relative_to, without_spans
from .codegen.objects import Program
from .host.calls import describe_calls
from .host.entry import observed
from .host.named_values import find_named_values
from .host.plan import LoweredEntry
from .lower.module import LoweredWeight
from .lower.parts import MATRIX_TILE
from .lower.text import printable
from .model.source import SourceModel
from .options import Options
from .targets.target import TILE_FEATURES, MadeFor, Target
from .version import __version__


def source_hash(module: Module) -> str:
    """Returns a hash that identifies the model; comments and source locations do not change it."""
    return hashlib.sha256(print_module(without_spans(module)).encode()).hexdigest()


def specify(
    source_model: SourceModel, optimized: Module, options: Options, program: Program, reader: Load
) -> ArtifactSpec:
    """Returns the description of the artifact and its weights."""
    lowered = program.lowered
    functions = {f.name: f for f in source_model.module.functions}
    # Named values are those of the source model, also for a lower precision.
    written = (source_model.written or source_model).module
    calls = []
    for function, entry in zip(lowered.functions, program.entries, strict=True):
        rewritten = optimized.function(entry.name)
        calls.append(
            describe_calls(rewritten, function, entry, find_named_values(written.function(entry.name), rewritten))
        )
    made = ArtifactSpec(
        name=lowered.name,
        entries=tuple(
            _specify_entry(entry, functions[entry.name], optimized, described)
            for entry, described in zip(program.entries, calls, strict=True)
        ),
        weights=tuple(WeightSpec(w.name, w.type, w.offset, partial(_data, w, reader)) for w in lowered.weights),
        levels=tuple(_specify_level(program, target) for target in options.own_targets),
        states=tuple(StateSpec(s.name, s.type, s.initial or 0, s.initial_bytes) for s in lowered.states),
        triple=_made_for(program, options.targets[0]).triple,
        compiler_version=__version__,
        source_hash=source_hash(source_model.module),
        graphs=_graphs(source_model, optimized) if options.graphs else (),
        options={
            "precision": source_model.precision,
            **{name: getattr(options, name) for name in ("level", "passes", "strict", "debug")},
        },
    )
    return _move_to_device(made, options, program) if options.family.device else made


def _graphs(source_model: SourceModel, optimized: Module) -> tuple[str, ...]:
    return print_module(relative_to(source_model.module, source_model.file)), print_module(optimized)


def _move_to_device(spec: ArtifactSpec, options: Options, program: Program) -> ArtifactSpec:
    """Returns the description of an artifact whose machine code is for devices alone."""
    device = DeviceSpec(
        tuple(_specify_device_level(target, options, program) for target in options.own_targets),
        tuple(DeviceEntrySpec(e.symbol, e.observed, e.workspace, e.checks, e.calls) for e in spec.entries),
        options.family.runtime,
    )
    entries = tuple(replace(entry, observed="", calls=(), workspace=0) for entry in spec.entries)
    return replace(spec, entries=entries, levels=(), device=device)


def _specify_device_level(target: Target, options: Options, program: Program) -> DeviceLevelSpec:
    number = target.cpu.removeprefix("sm_")
    capability, exact = int(number.removesuffix("a")), number.endswith("a")
    assembler, untiled = options.assembler(target), _untiled_for(program, target)
    return DeviceLevelSpec(target.name, target.suffix, capability, exact, assembler, untiled)


def join_device(spec: ArtifactSpec, other: ArtifactSpec) -> ArtifactSpec:
    """Returns the description of an artifact that has the code of `spec`, and that of `other` for devices."""
    assert other.device is not None, other
    entries = []
    for entry, more in zip(spec.entries, other.entries, strict=True):
        assert (entry.name, entry.dims) == (more.name, more.dims), (entry.dims, more.dims)
        entries.append(replace(entry, constraints=tuple(dict.fromkeys((*entry.constraints, *more.constraints)))))
    return replace(spec, entries=tuple(entries), device=replace(other.device, weights=other.weights))


def _made_for(program: Program, target: Target) -> MadeFor:
    return next(iter(program.kernels[target].values())).report.made_for


def _untiled_for(program: Program, target: Target) -> tuple[tuple[str, str], ...]:
    return tuple((left.kernel, left.reason) for left in program.untiled if left.target == target)


def _specify_level(program: Program, target: Target) -> LevelSpec:
    made_for = _made_for(program, target)
    suffix = target.suffix if len(program.kernels) > 1 else ""
    untiled = _untiled_for(program, target)
    loops = tuple(str(loop.report) for loop in program.loops if loop.target == target)
    # LLVM uses tile registers only where the tiler does, and the runtime asks the system for them.
    in_tiles = any(MATRIX_TILE in kernel.report.schedules for kernel in program.kernels[target].values())
    features = tuple(f for f in made_for.features if in_tiles or f not in TILE_FEATURES)
    return LevelSpec(target.name, suffix, features, made_for.cpu, untiled, loops)


def _requirements(entry: LoweredEntry, written: Function, optimized: Function) -> tuple[Requirement, ...]:
    """Returns the requirements of both graphs on the dims, without those that every call checks anyway."""
    known = [v.type.bytes for v in (*written.arguments, *written.results)]
    found: dict[tuple[Size, bool], Requirement] = {}
    for graph in (written, optimized):
        for requirement in requirements(graph, [*known, entry.workspace]):
            found.setdefault((requirement.size, requirement.extent), requirement)
    return tuple(found.values())


def _constraint(requirement: Requirement) -> Constraint:
    if requirement.cause:
        return Constraint(add(requirement.size, 1), ">=", 1, printable(requirement.cause))
    return Constraint(requirement.size, ">=" if requirement.extent else "fits", 0)


def _specify_entry(entry: LoweredEntry, function: Function, module: Module, calls: tuple[CallSpec, ...]) -> EntrySpec:
    optimized = module.function(entry.name)
    positions = {state.name: position for position, state in enumerate(module.states)}
    bound = session_dims(used_states(module, function))
    # A call passes one address for each of these results: a result without a name would not have one.
    assert len(function.result_names) >= len(function.outputs), (function.name, function.result_names)
    return EntrySpec(
        name=entry.name,
        symbol=entry.symbol,
        arguments=tuple(ArgumentSpec(v.name, v.type) for v in function.inputs),
        results=tuple(
            ArgumentSpec(name, v.type) for name, v in zip(function.result_names, function.outputs, strict=False)
        ),
        dims=entry.dims,
        workspace=entry.workspace,
        constraints=tuple(map(_constraint, _requirements(entry, function, optimized))),
        observed=observed(entry.symbol),
        calls=calls,
        checks=entry.checks,
        states=tuple(positions[name] for name in function.states),
        session_dims=bound,
    )


def _data(weight: LoweredWeight, reader: Load) -> Array:
    return weight.store(weight.source.data if isinstance(weight.source, Constant) else reader(weight.source))
