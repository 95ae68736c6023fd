"""The options of a build. The command line, cache keys and jobs of code generation are derived from this record.

A new option is a field here, a keyword of `nacre.compile`, and the code that reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, fields, replace
from functools import cached_property
from typing import Any, Literal

from ..dialect.lazy_dataclass import dataclass
from ..passes.pass_list import parse_pipeline
from .artifact.assemble import Placement
from .artifact.link import Linker, find_linker
from .codegen.objects import CodeOptions
from .codegen.workers.routes import FIRST
from .dumps.dumps import plain_name
from .stages import GRAPH, texts_of
from .targets.family import Family
from .targets.ptxas import find_assembler
from .targets.target import Target, choose_panels, family_of, format_targets, parse_targets
from .targets.variants import PORTABLE, PORTABLE_VARIANTS, VARIANTS
from .targets.vector_unit import PanelSizes
from .weight_sizes import SizeBound, parse_bound

LONGEST = 1e6
"""The longest duration in seconds: calls of the operating system that wait count milliseconds in 32 bits."""
Scope = Literal["build", "compile"]
"""The commands that take an option: every command that builds a model, or `nacre compile` alone."""


@dataclass(frozen=True, slots=True)
class Flag:
    """An option on the command line.

    names: as a user types it; a field that is a bool is set to the opposite of its default.
    help: the text of `--help`.
    scope: the commands that take it.
    read: converts the text of a user to the value; raises DiagnosticError. None if the type of the field determines it.
    write: the value as a user types it.
    bounds: the minimum and maximum value; None for no bound. A float minimum is exclusive.
    choices: the accepted texts, if there are few.
    says: the default in `--help`, if it differs from the value itself.
    variable: an environment variable that gives the value if the option is absent.
    in_artifact: whether the value can change the artifact. The cache of artifacts ignores the others.
    in_reproducers: whether a command that repeats the build gives the value.
    always: whether such a command gives the default too, so that it means the same after the default has changed.
    """

    names: tuple[str, ...]
    help: str
    scope: Scope = "build"
    metavar: str | None = None
    read: Callable[[str], Any] | None = None
    write: Callable[[Any], str] = str
    bounds: tuple[float | None, float | None] | None = None
    choices: tuple[str, ...] = ()
    says: str | None = None
    variable: str | None = None
    in_artifact: bool = True
    in_reproducers: bool = True
    always: bool = False


def _flag(*names: str, **further: Any) -> Mapping[str, Flag]:
    return {"flag": Flag(names, **further)}


def check_passes_text(text: str) -> str:
    """Returns the text of a pass list, if it parses. Raises DiagnosticError."""
    parse_pipeline(text)
    return text


@dataclass(frozen=True)
class Options:
    """The options of a build. `start` is the stage of code generation whose texts are its input."""

    level: int = field(
        default=2,
        metadata=_flag(
            "-O",
            bounds=(0, 3),
            always=True,
            help="Optimisation level: 0 is the reference, 1 simplifies the graph, 2 fuses and vectorizes kernels, 3 "
            "also runs LLVM at its level 3.",
        ),
    )
    targets: tuple[Target, ...] = field(
        default=(Target(),),
        metadata=_flag(
            "--target",
            read=parse_targets,
            write=format_targets,
            says="native",
            always=True,
            help=f"Target: native; one of {', '.join(VARIANTS)}, or several, separated by commas; {PORTABLE} (all "
            f"of these from {PORTABLE_VARIANTS[0]} on); an LLVM CPU name such as znver4; any of these followed by "
            "+feature or -feature; or a triple such as aarch64-linux-gnu or wasm32-wasi, which may be followed by "
            ":CPU. For GPUs: cuda, or an architecture such as cuda:sm_90a, alone or after CPUs, as in native,cuda.",
        ),
    )
    passes: str | None = field(
        default=None,
        metadata=_flag(
            "--passes",
            metavar="LIST",
            read=check_passes_text,
            help="Graph passes, such as `unroll-repeat,cse`; overrides those of -O. `nacre opt --help` lists all.",
        ),
    )
    strict: bool = field(
        default=False,
        metadata=_flag(
            "--strict",
            help="Disable transformations that change rounding beyond reassociation, such as folding of scales into "
            "weights and Winograd convolutions.",
        ),
    )
    debug: bool = field(
        default=False,
        metadata=_flag("-g", help="Add line tables for debuggers and readable kernel names."),
    )
    rewrite_limit: int | None = field(
        default=None,
        metadata=_flag(
            "--rewrite-limit",
            bounds=(0, None),
            help="Stop graph passes after this many rewrites, to find an incorrect one; `nacre bisect` automates this.",
        ),
    )
    size: SizeBound | None = field(
        default=None,
        metadata=_flag(
            "--size",
            metavar="1.2x|500MiB",
            read=parse_bound,
            help="Bound for the bytes of the weights, absolute or relative to the parameters. To meet it, transformed "
            "weights that save the least time per byte are computed in each call or not used.",
        ),
    )
    cache: bool = field(
        default=True,
        metadata=_flag(
            "--no-cache",
            in_artifact=False,
            in_reproducers=False,
            help="Do not use the cache; also enabled by $NACRE_NO_CACHE.",
        ),
    )
    weights: Placement = field(
        default="embedded",
        metadata=_flag(
            "--weights",
            scope="compile",
            choices=("embedded", "external"),
            help="Store weights in the library or in OUTPUT.safetensors beside it.",
        ),
    )
    graphs: bool = field(
        default=True,
        metadata=_flag(
            "--no-graphs",
            scope="compile",
            help="Omit the graphs that `nacre graph` draws from the library.",
        ),
    )
    cubin: bool = field(
        default=True,
        metadata=_flag(
            "--no-cubin",
            scope="compile",
            help="Omit machine code for GPUs, which CUDA's ptxas makes where it is installed, and leave it to the "
            "driver to compile the PTX; also enabled by $NACRE_NO_CUBIN.",
        ),
    )
    cc: str | None = field(
        default=None,
        metadata=_flag(
            "--cc",
            scope="compile",
            variable="CC",
            in_reproducers=False,
            help="C compiler used for linking.  [default: cc, or the one of ziglang]",
        ),
    )
    timeout: float = field(
        default=600.0,
        metadata=_flag(
            "--timeout",
            scope="compile",
            bounds=(0, LONGEST),
            write="{:g}".format,
            in_artifact=False,
            always=True,
            help="Time limit for the code of one kernel, in seconds.",
        ),
    )
    start: str = FIRST

    @cached_property
    def pipeline(self) -> str:
        """The graph passes, as text."""
        levels = self.family.strict_passes if self.strict else self.family.passes
        return levels[self.level] if self.passes is None else self.passes

    @property
    def family(self) -> Family:
        """The family of the first targets: a build is for one family, and has a further build for each other one."""
        return family_of(self.targets)

    @property
    def own_targets(self) -> tuple[Target, ...]:
        """The targets of the first family."""
        return tuple(target for target in self.targets if family_of((target,)) is self.family)

    @property
    def further(self) -> tuple[Options, ...]:
        """The options of the builds for the other families."""
        rest = tuple(target for target in self.targets if target not in self.own_targets)
        if not rest:
            return ()
        first = replace(self, targets=rest)
        return (replace(first, targets=first.own_targets), *first.further)

    @property
    def route(self) -> str:
        """The route of kernels from linalg to machine code."""
        return self.family.routes[self.level]

    @property
    def panels(self) -> PanelSizes | None:
        """The panels in which weights are stored in the order in which contractions read them; None if they are not."""
        return choose_panels(self.targets) if self.level >= self.family.packs else None

    def assembler(self, target: Target) -> str:
        """Returns the version of the assembler that makes machine code for a GPU; empty for a target that gets none.
        Raises DiagnosticError if `$NACRE_PTXAS` names no assembler."""
        found = find_assembler(target) if self.cubin else None
        return "" if found is None else found.version

    def linker(self) -> Linker:
        """The C compiler that links for the first target. Raises DiagnosticError if there is none."""
        return find_linker(self.cc, self.targets[0].host.triple)

    def code(self) -> CodeOptions:
        """The options of code generation: the fields that `CodeOptions` shares with this record."""
        options = {f.name: getattr(self, f.name) for f in fields(CodeOptions) if hasattr(self, f.name)}
        return CodeOptions(**{**options, "targets": self.own_targets})

    @property
    def identity(self) -> str:
        """A text that differs between options that may give different artifacts."""
        return repr([(f.name, getattr(self, f.name)) for f in fields(self) if not _is_ignored(f.metadata)])

    @property
    def flags(self) -> tuple[str, ...]:
        """The command-line arguments that repeat a build with these options."""
        return tuple(text for f in fields(self) for text in _written(f, self))

    @property
    def stages(self) -> tuple[str, ...]:
        """Every stage whose text can be dumped, in order; a pass may occur more than once."""
        return tuple(name for name, _ in texts_of(self.route, self.pipeline, self.start))

    def language(self, stage: str) -> str:
        """Returns the language of a stage's text, which is also the suffix of its file."""
        return dict(texts_of(self.route, self.pipeline)).get(plain_name(stage), GRAPH)


def option_flags() -> Mapping[str, tuple[Flag, Any]]:
    """Returns the flag and the default of each field that the command line can set, by field name."""
    return {f.name: (f.metadata["flag"], f.default) for f in fields(Options) if "flag" in f.metadata}


def _is_ignored(metadata: Mapping[str, Any]) -> bool:
    return "flag" in metadata and not metadata["flag"].in_artifact


def _written(each: Any, options: Options) -> tuple[str, ...]:
    """Returns a field as command-line arguments, if a repetition of the build needs it."""
    flag: Flag | None = each.metadata.get("flag")
    value = getattr(options, each.name)
    if flag is None or not flag.in_reproducers or (value == each.default and not flag.always):
        return ()
    name = flag.names[0]
    if isinstance(value, bool):
        return (name,)
    text = flag.write(value)
    return (f"{name}{text}",) if name == "-O" else (f"{name}={text}",) if flag.choices else (name, text)
