"""Compiles a lowered module to object files: one for every kernel, and those of the entries after memory planning.

    kernels (MLIR) -- one job each --> cache, else a child (kernel_worker) --> objects, reports
                                                                                    |
    entries (LLVM IR) <------------------- memory plan <---------- the tensors that each part uses
       |
       +-- for each target, the entries, their observed copies and each launcher:
           one job each --> cache, else a child (entry_worker) --> objects

An object depends on its text and the options alone. It is the same whichever child compiles it, with whichever others
and at whichever time, or if it comes from the cache.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import NoReturn

from ...dialect.diagnostics import Diagnostic, DiagnosticError, Note
from ...dialect.dims import static_size
from ...dialect.lazy_dataclass import dataclass
from ..base.cache_folder import object_folder
from ..dumps import Dumps
from ..dumps.kernel_texts import Part
from ..host.plan import EntryModule, LoweredEntry, entry_modules, plan_entries
from ..host.whole_loops import LoopReport, find_inner_kernels
from ..lower.lowered import Lowered, LoweredKernel
from ..lower.parts import PLAIN, join_targets
from ..lower.writer import ITEMS, part_name
from ..targets.ptxas import find_assembler
from ..targets.target import Target, check_target_is_known, family_of
from .workers.child import (
    ENTRY_WORKER,
    KERNEL_WORKER,
    TIMEOUT,
    Children,
    Outcome,
    Source,
    entry_source,
    kernel_source,
)
from .workers.job import KERNEL, NO_DEVICE_CODE, Job, Report, text_name
from .workers.job_errors import make_error
from .workers.object_cache import ObjectCache
from .workers.pool import give_back, prestart, take_child
from .workers.routes import ASSEMBLY, CUBIN, FIRST, LLVM_IR, LLVM_STAGES, MODULES, OPTIMIZED, TILED, code_stages

LOGGER = "nacre"
"""The logger that receives the progress of a build, with the level INFO."""
_LOG = logging.getLogger(LOGGER)
_KERNELS_PER_CHILD = 4
"""The number of kernels that compile in about the time that a child takes to start."""


@dataclass(frozen=True, slots=True)
class CodeOptions:
    """The options of code generation; everything is generated once for every target.

    timeout: seconds after which code generation is assumed to hang.
    quick: leave the machine code unoptimised, which takes a third of the time.
    visible: let a loader find the entries by name. They have no observed copies, which only an artifact's tables name.
    cache: reuse cached objects, and store new ones.
    strict: round results as the structured ops specify, except for the order of sums.
    debug: line tables. The code is the same, but kernels are shared only where they come from the same lines.
    tf32: round the factors of products of f32 to 11 bits, on GPUs.
    cubin: add machine code for GPUs to their PTX, if its assembler is installed.
    start: the stage of the texts that replace the kernels' own texts.
    """

    targets: tuple[Target, ...] = (Target(),)
    level: int = 2
    timeout: float = TIMEOUT
    quick: bool = False
    visible: bool = False
    cache: bool = True
    strict: bool = False
    debug: bool = False
    tf32: bool = False
    cubin: bool = False
    start: str = FIRST

    @property
    def route(self) -> str:
        """The route of kernels from linalg to machine code."""
        return family_of(self.targets).routes[self.level]

    def suffix(self, target: Target) -> str:
        """Returns the suffix of the symbols for a target."""
        return target.suffix if len(self.targets) > 1 or target.is_device else ""

    def job(self, target: Target, keep: Sequence[str], *, dump: tuple[str, ...] = ()) -> Job:
        # Level 0 selects a route, not slow machine code.
        level = 0 if self.quick else max(self.level, 1)
        cpu, triple, features = target.cpu, target.triple, target.features
        return Job(level, cpu, triple, features, tuple(keep), dump=dump, strict=self.strict, debug=self.debug)


@dataclass(frozen=True, slots=True)
class ObjectCode:
    """An object, its report, and its text at every dumped stage."""

    code: bytes
    report: Report
    dumps: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Untiled:
    """A kernel that became plain loops for a target, though vector code was requested; on a device, loops of a single
    thread."""

    kernel: str
    target: Target
    reason: str


@dataclass(frozen=True, slots=True)
class Launches:
    """The schedules of a kernel's launches on a device, in order."""

    kernel: str
    target: Target
    schedules: tuple[str, ...]

    @property
    def is_plain(self) -> bool:
        """Whether a launch has the plain schedule."""
        return any(schedule.startswith(f"{PLAIN} ") for schedule in self.schedules)


@dataclass(frozen=True, slots=True)
class LoopCode:
    """A loop of an entry as it is compiled for a target."""

    report: LoopReport
    target: Target


@dataclass(frozen=True, slots=True)
class Program:
    """A lowered module with its kernels compiled, by symbol for each target, and its memory planned. The text of its
    entries may be given: `writes_entries` is false then."""

    lowered: Lowered
    kernels: Mapping[Target, Mapping[str, ObjectCode]]
    entries: tuple[LoweredEntry, ...]
    writes_entries: bool = True

    @property
    def untiled(self) -> tuple[Untiled, ...]:
        """Returns the kernels that the tiler left unchanged, in order, for each target."""
        return tuple(
            Untiled(symbol, target, made.report.reason)
            for target, kernels in self.kernels.items()
            for symbol, made in kernels.items()
            if made.report.reason
        )

    @property
    def launches(self) -> tuple[Launches, ...]:
        """Returns the launches of the kernels, in order, for each target that is a device."""
        return tuple(
            Launches(symbol, target, made.report.schedules)
            for target, kernels in self.kernels.items()
            for symbol, made in kernels.items()
            if target.is_device
        )

    def inner(self, target: Target, suffix: str = "") -> frozenset[str]:
        """Returns the functions of the kernels with copies for loops that are one function."""
        return frozenset(
            part_name(symbol + suffix, number)
            for symbol, made in self.kernels[target].items()
            if made.report.code
            for number in range(max(1, len(made.report.parts)))
        )

    @property
    def loops(self) -> tuple[LoopCode, ...]:
        """The reports on the loops of all entries, for each target; none for entries whose text was given."""
        if not self.writes_entries:
            return ()
        return tuple(
            LoopCode(report, target)
            for target in self.kernels
            for entry in self.entries
            for report in entry.report_loops(self.inner(target))
        )


def plan_program(lowered: Lowered, kernels: Mapping[Target, Mapping[str, ObjectCode]]) -> Program:
    """Returns the program of a module with its kernels compiled for all targets."""
    # One memory plan serves all targets.
    parts = {
        kernel.symbol: join_targets([made[kernel.symbol].report.parts for made in kernels.values()])
        for kernel in lowered.kernels
    }
    return Program(lowered, kernels, plan_entries(lowered, parts))


@dataclass
class CodeGenerator:
    """The generator of one module's objects. `given` are texts that replace its kernels' own, by symbol. `times` are
    seconds by stage, summed over all children.

    Raises CompilerError where MLIR or LLVM fail, DiagnosticError for a CPU that LLVM does not know and for given texts
    that cannot be read.
    """

    options: CodeOptions = field(default_factory=CodeOptions)
    dumps: Dumps = field(default_factory=Dumps)
    given: Mapping[str, Part] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)
    _parts: dict[str, list[Part]] = field(default_factory=dict)
    """The initial texts of the stages: while entries are compiled, the kernels."""
    _inner: set[str] = field(default_factory=set)
    """The symbols of the kernels that loops may need copies of."""

    @property
    def _dump(self) -> tuple[str, ...]:
        """The stages whose texts are requested of the children."""
        wanted = self.dumps.wanted((*code_stages(self.options.route), *MODULES), whole=MODULES)
        return tuple(stage for stage in wanted if stage != FIRST)

    def write_kernels(self, lowered: Lowered) -> None:
        """Writes the text of the first stage, which no child makes."""
        stages, name = code_stages(self.options.route), text_name(KERNEL, FIRST)
        if self.options.start == FIRST and FIRST in self.dumps.wanted(tuple(stages), whole=()):
            sources = [self._source(kernel, target) for target in self.options.targets for kernel in lowered.kernels]
            parts = [_part(FIRST, source.files[name], source, Report()) for source in sources]
            self.dumps.write_parts(FIRST, stages[FIRST], parts)

    def compile_kernels(self, lowered: Lowered) -> Program:
        options = self.options
        if options.route == TILED and options.start not in LLVM_STAGES:
            self._inner = find_inner_kernels(lowered.functions)
        sources = [self._source(kernel, target) for target in options.targets for kernel in lowered.kernels]
        made = iter(self._make(sources, KERNEL_WORKER, {"mlir"}))
        kernels = {target: {kernel.symbol: next(made) for kernel in lowered.kernels} for target in options.targets}
        return replace(plan_program(lowered, kernels), writes_entries=options.start not in LLVM_STAGES)

    def compile_entries(self, program: Program) -> tuple[bytes, ...]:
        """Returns all objects of the program: for every target the kernels in their order, then the entries."""
        modules = [(target, each) for target in self.options.targets for each in self._entry_modules(program, target)]
        modules.sort(key=lambda pair: pair[1].entries)
        self._parts = self._kernel_parts(program) if self._dump else {}
        made: dict[Target, list[ObjectCode]] = {target: [] for target in self.options.targets}

        def make(chosen: Sequence[tuple[Target, EntryModule]], dumped: Collection[str]) -> list[ObjectCode]:
            sources = [self._entry_source(program, target, module, made[target]) for target, module in chosen]
            codes = self._make(sources, ENTRY_WORKER, dumped)
            for (target, _), code in zip(chosen, codes, strict=True):
                made[target].append(code)
            return codes

        if self.dumps.keeps(MODULES):
            # The text of the whole program, which the job of the entries links, contains those of the other modules.
            others = [pair for pair in modules if not pair[1].entries]
            for (_, module), code in zip(others, make(others, ()), strict=True):
                for stage, language in LLVM_STAGES.items():
                    part = Part(code.dumps[f"{stage}.{language}"], module.symbols[0], kind="entries")
                    self._parts.setdefault(stage, []).append(part)
            modules = modules[len(others) :]
        entries = make(modules, {"ll", "s"})
        for name, language in MODULES.items():
            texts = [entry.dumps.get(f"{name}.{language}") for entry in entries]
            self.dumps.write_module(name, language, [Part(text) for text in texts if text is not None])
        objects: list[bytes] = []
        for target, codes in made.items():
            objects += [*(kernel.code for kernel in program.kernels[target].values()), *(code.code for code in codes)]
        return tuple(objects)

    def _kernel_parts(self, program: Program) -> dict[str, list[Part]]:
        """Returns the texts of the kernels in LLVM IR and assembly, by stage."""
        made = [
            (kernel.symbol + self.options.suffix(target), kernel.origins, code)
            for target, kernels in program.kernels.items()
            for kernel, code in zip(program.lowered.kernels, kernels.values(), strict=True)
        ]
        return {
            stage: [
                Part(code.dumps[name], symbol, nodes, code.report.schedules, code.report.parts)
                for symbol, nodes, code in made
                if (name := f"{stage}.{language}") in code.dumps
            ]
            for stage, language in LLVM_STAGES.items()
        }

    def _source(self, kernel: LoweredKernel, target: Target) -> Source:
        options, suffix = self.options, self.options.suffix(target)
        symbol = kernel.symbol + suffix
        job = self.options.job(target, [symbol, symbol + ITEMS], dump=self._dump)
        has_alarm = kernel.kernel.alarm is not None
        job = replace(job, route=self.options.route, inner=kernel.symbol in self._inner, alarm=has_alarm)
        if target.is_device:
            scratch = kernel.kernel.scratch
            parts = tuple(static_size(type.shape[0]) for type in scratch[len(scratch) - kernel.kernel.parts :])
            job = replace(job, scratch=len(scratch), parts=parts, tf32=self.options.tf32)
            if options.cubin and (found := find_assembler(target)) is not None:
                job = replace(job, ptxas=found.path, ptxas_version=found.version)
        if self.given:
            part = self.given.get(symbol) or _no_kernel(symbol, kernel)
            if self.options.start in LLVM_STAGES:
                _check_functions(part, kernel)
            if target.is_device and self.options.start in (OPTIMIZED, ASSEMBLY):
                written = kernel.text(suffix)
                job = replace(job, start=self.options.start)
                return kernel_source(part.text, f"{part.text}\n{written}", job, kernel.origins, written)
            known = Report(part.functions, part.schedules)
            job = replace(job, start=self.options.start, known=known)
            return kernel_source(part.text, part.text, job, kernel.origins)
        text = kernel.text(suffix)
        identity = text if self.options.debug else kernel.identity(suffix)
        return kernel_source(text, identity, job, kernel.origins)

    def _entry_modules(self, program: Program, target: Target) -> list[EntryModule]:
        suffix = self.options.suffix(target)
        return entry_modules(
            program.entries,
            suffix,
            {symbol: kernel.report.parts for symbol, kernel in program.kernels[target].items()},
            debug=self.options.debug,
            device=target.is_device,
            inner=program.inner(target, suffix),
            watched=target.is_device or not self.options.visible,  # the tables of a device name the observed copies
        )

    def _entry_source(
        self, program: Program, target: Target, module: EntryModule, others: Sequence[ObjectCode]
    ) -> Source:
        """Returns the source of a module; `others` are the modules of the target that are compiled already."""
        start = self.options.start if self.options.start in LLVM_STAGES else LLVM_IR
        job = self.options.job(target.host, module.symbols, dump=self._dump)
        # Entries of a device compute sizes and launch kernels; the emission of level 2 takes four times as long.
        level = 0 if module.observed or target.is_device else job.level
        job = replace(job, level=level, visible=self.options.visible, start=start)
        dumped: dict[str, str] = {}
        kernels = program.kernels[target].values()
        if self.dumps.keeps(MODULES) and module.entries and not target.is_device:
            linked = enumerate([*kernels, *others])
            dumped = {f"{i:06}-{stage}": text for i, code in linked for stage, text in code.dumps.items()}
        if self.given and start == self.options.start:
            symbol = module.symbols[0]
            part = self.given.get(symbol) or _no_entries(symbol)
            return entry_source(part.text, job, dumped)
        called = [made.report.code for made in kernels if made.report.code] if module.entries else []
        return entry_source(module.text, job, dumped, called)

    def _make(self, sources: Sequence[Source], worker: str, dumped: Collection[str]) -> list[ObjectCode]:
        """Returns the objects of the sources. Objects that are not cached are compiled in a suitable number of
        children. Texts in the languages `dumped` are those of a stage as a whole."""
        cache = ObjectCache(object_folder() if self.options.cache else None)
        keys = [cache.key(source.whole if source.job.dump else source.identity, source.job) for source in sources]
        unique = dict(zip(keys, sources, strict=True))
        made = {key: ObjectCode(*kept) for key in unique if (kept := cache.get(key)) is not None}
        missing = {key: source for key, source in unique.items() if key not in made}
        try:
            self._compile(missing, worker, made)
        except Exception:
            # The dumps before the error are the useful ones then.
            self._write_dumps(unique, made, {"mlir", "ll", "s"})
            raise
        for key in missing:
            cache.put(key, made[key].code, made[key].report, made[key].dumps)
        if missing:
            cache.prune()
        self._write_dumps(unique, made, dumped)
        return [made[key] for key in keys]

    def _compile(self, missing: Mapping[str, Source], worker: str, made: dict[str, ObjectCode]) -> None:
        """Adds to `made` the objects of the sources; where one cannot be compiled, its dumps, before the error."""
        keys, sources = list(missing), list(missing.values())
        done = 0

        def take(number: int, outcome: Outcome) -> None:
            nonlocal done
            made[keys[number]] = ObjectCode(outcome.code, outcome.result.report, outcome.dumps)
            done += 1
            if worker == KERNEL_WORKER:
                _LOG.info("%d of %d kernels are compiled", done, len(sources))
            check_target_is_known(outcome.output, sources[number].job.triple)
            if outcome.result.error and self.given and outcome.result.stage in (self.options.start, CUBIN):
                raise _unreadable(sources[number], outcome)
            if outcome.result.error.startswith(NO_DEVICE_CODE):
                raise _no_device_code(sources[number], outcome)
            if outcome.result.error:
                raise make_error(sources[number], outcome, self.options.timeout)
            for stage, seconds in outcome.result.times.items():
                self.times[stage] = self.times.get(stage, 0.0) + seconds

        count = min(os.cpu_count() or 1, -(-len(sources) // _KERNELS_PER_CHILD))
        if sources and worker == KERNEL_WORKER:
            # The entries are compiled next.
            prestart(ENTRY_WORKER)
        children = Children([take_child(worker) for _ in range(count)])
        try:
            children.run(sources, self.options.timeout, take)
            give_back(worker, children.release())
        finally:
            children.close()

    def _write_dumps(
        self, sources: Mapping[str, Source], made: Mapping[str, ObjectCode], languages: Collection[str]
    ) -> None:
        """Writes one text for every stage: the concatenated texts of the objects, kernels before entries."""
        for stage, language in code_stages(self.options.route).items():
            name = f"{stage}.{language}"
            shown = [(source, made[key]) for key, source in sources.items() if key in made and name in made[key].dumps]
            if shown and language in languages:
                parts = (_part(stage, code.dumps[name], source, code.report) for source, code in shown)
                self.dumps.write_parts(stage, language, [*self._parts.get(stage, ()), *parts])


def _part(stage: str, text: str, source: Source, report: Report) -> Part:
    """Returns a text with the information that is available at the end of the stage."""
    if source.worker == ENTRY_WORKER:
        return Part(text, source.job.keep[0], kind="entries")
    functions = report.parts if stage in LLVM_STAGES else ()
    return Part(text, source.kernel, source.nodes, () if stage == FIRST else report.schedules, functions)


def _check_functions(part: Part, kernel: LoweredKernel) -> None:
    """Raises DiagnosticError where a text does not define the memory that its kernel needs."""
    tensors = sum(map(len, (kernel.kernel.inputs, kernel.kernel.results, kernel.kernel.scratch)))
    functions = part.functions
    if functions and all(
        len(f.uses) == tensors and all(i < tensors for pair in f.in_place for i in pair) for f in functions
    ):
        return
    message = f"the text of `{part.symbol}` does not say which of its {tensors} tensors it uses"
    help_text = "a dump states them in comments before the kernel, which must be kept: `uses 1101, 3 over 0`"
    raise DiagnosticError([Diagnostic("bad-kernel", message, help=help_text)])


def _no_kernel(symbol: str, kernel: LoweredKernel) -> NoReturn:
    message = f"the graph needs a kernel `{symbol}`, which the text does not have"
    help_text = "compile the text with the options of the dump"
    raise DiagnosticError(
        [Diagnostic("missing-kernel", message, notes=tuple(map(Note, kernel.origins)), help=help_text)]
    )


def _no_entries(symbol: str) -> NoReturn:
    message = f"the text does not define `{symbol}`"
    help_text = "launchers and entries follow the kernels in a dump of LLVM IR or assembly"
    raise DiagnosticError([Diagnostic("missing-entries", message, help=help_text)])


def _no_device_code(source: Source, outcome: Outcome) -> DiagnosticError:
    """Returns the error about a kernel that a GPU cannot compute; its notes name the operators and their lines."""
    reason = outcome.result.error.removeprefix(NO_DEVICE_CODE).removeprefix(": ")
    message = f"`{source.kernel}` cannot be compiled for {source.job.cpu}: {reason}"
    notes = tuple(map(Note, source.nodes))
    help_text = "compile the model for CPUs, or change the operator or its dtype"
    return DiagnosticError([Diagnostic("no-device-code", message, notes=notes, help=help_text)])


def _unreadable(source: Source, outcome: Outcome) -> DiagnosticError:
    notes = [Note(line.strip()) for line in outcome.result.error.splitlines()[:4]]
    return DiagnosticError(
        [Diagnostic("bad-kernel", f"the text of `{source.job.keep[0]}` cannot be read", notes=tuple(notes))]
    )


def generate_objects(
    lowered: Lowered, options: CodeOptions | None = None, dump_dir: Path | None = None
) -> tuple[Program, tuple[bytes, ...]]:
    """Generates all objects in one call, for callers without steps in between. `dump_dir` receives the text after every
    stage."""
    generator = CodeGenerator(options or CodeOptions(), Dumps(dump_dir))
    generator.write_kernels(lowered)
    program = generator.compile_kernels(lowered)
    return program, generator.compile_entries(program)
