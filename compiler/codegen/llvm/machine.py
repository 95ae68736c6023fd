"""LLVM through llvmlite: text in, optimised machine code out. Runs in the child process, since LLVM may abort."""

from __future__ import annotations

import re
from enum import Enum
from functools import cache
from typing import Any

import llvmlite.binding as llvm  # type: ignore[import-untyped]  # has no stubs

from ....dialect.lazy_dataclass import dataclass
from ...targets.features import native_features, target_features
from ...targets.target import MadeFor, Target

_FILE = re.compile(r'^\t\.file\t"(.*)"\n', re.MULTILINE)
_SPECIAL = re.compile(r'[\\"\x00-\x1f\x7f]')


def _escaped(line: str) -> str:
    return _SPECIAL.sub(lambda found: f"\\{ord(found[0]):02X}", line)


class Pipeline(Enum):
    """The optimisation passes of a module."""

    LOOPS = "scalar loops: the passes of the level, which vectorize them, and unroll them from level 2 on"
    SCALARS = "scalar loops that set an alarm: as `LOOPS`, without vectorization"
    VECTORS = "vectors of their final length: the passes of the level without vectorization and unrolling"
    SHORT = "a tiled kernel, or an entry without loops of kernels: `SHORT_PASSES`"
    COUNTS = "functions of a few instructions, which count the blocks of launches: `COUNT_PASSES`, at every level"


SHORT_PASSES = ("simplify_cfg", "loop_rotate", "new_gvn", "instruction_combine", "simplify_cfg")
"""The passes of `Pipeline.SHORT`. The tiler writes loops of vectors in their final form. MLIR has inlined functions,
removed common subexpressions and hoisted loop invariants, so the instructions are nearly those of the passes of level
2, in a quarter of the time. Generated code allocates no scalars, and has no dead code that these passes leave. A second
`instruction_combine` would move the invariant parts of addresses back into loops. Entries compute sizes and call
kernels: their code is the same, in a fifth of the time. Level 3 uses its own passes."""
COUNT_PASSES = ("global_dead_code_eliminate", "instruction_combine", "simplify_cfg")
"""The passes of `Pipeline.COUNTS`. They remove the globals of device functions, and fold the arithmetic of sizes."""
_PASSES = {pipeline: () for pipeline in Pipeline} | {Pipeline.SHORT: SHORT_PASSES, Pipeline.COUNTS: COUNT_PASSES}
"""The passes of each pipeline, by their names in llvmlite; none where it has the passes of the level."""


@dataclass(frozen=True, slots=True)
class Options:
    """The optimisation options; `level` is that of the optimiser and of the code generator, 0 to 3."""

    level: int = 2


def create_target_machine(target: Target, level: int) -> Any:
    """Returns a new machine of LLVM for a target."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    cpu, features = cpu_name(target), target.features
    if target.cpu == "native":
        features = native_features(target)
    relocation = target.family.system.relocation if target.family is not None else "pic"
    if level == 0:
        # LLVM's selector of level 0 folds a load of one f32 into a blend, which reads 16 bytes (seen in LLVM 22).
        llvm.set_option("nacre", "-fast-isel=false")
    return llvm.Target.from_triple(_triple(target)).create_target_machine(
        cpu=cpu, features=features, opt=level, reloc=relocation, codemodel="small"
    )


@cache
def _target_machine(target: Target, level: int) -> tuple[Any, str, MadeFor]:
    """Returns the machine of a target for all modules of this process, its data layout, and its description."""
    machine = create_target_machine(target, level)
    made_for = MadeFor(cpu_name(target), _triple(target), tuple(sorted(target_features(target))))
    return machine, str(machine.target_data), made_for


def _triple(target: Target) -> str:
    return target.triple or str(llvm.get_process_triple())


class Machine:
    """A target machine and an optimiser for it."""

    def __init__(self, target: Target, options: Options) -> None:
        self.options = options
        self._machine, self._layout, self.made_for = _target_machine(target, options.level)
        self._triple = self.made_for.triple
        # A reused context would assign other names.
        self._context = llvm.create_context()

    def parse(self, text: str) -> Any:
        """Returns a verified module for the target."""
        module = llvm.parse_assembly(text, self._context)
        module.triple = self._triple
        module.data_layout = self._layout
        module.verify()
        return module

    def hide_others(self, module: Any, keep: frozenset[str], visible: bool) -> None:
        """Makes every defined function internal except those to keep; a loader of the library sees these if
        `visible`."""
        for function in module.functions:
            if function.is_declaration:
                continue
            function.add_function_attribute("nounwind")
            if function.name in keep:
                function.visibility = "default" if visible else "hidden"
            else:
                function.linkage = "internal"

    def has_passes(self, pipeline: Pipeline) -> bool:
        """Returns whether `optimize` may change a module: level 0 only inlines kernels into the loops of entries."""
        return self.options.level > 0 or pipeline is Pipeline.VECTORS

    def optimize(self, module: Any, pipeline: Pipeline) -> None:
        tuning = llvm.create_pipeline_tuning_options(speed_level=self.options.level)
        # At level 1, unrolling would take a third of the time of the passes, and make few loops faster.
        tuning.loop_unrolling = self.options.level > 1 and pipeline in (Pipeline.LOOPS, Pipeline.SCALARS)
        tuning.loop_vectorization = tuning.slp_vectorization = pipeline is Pipeline.LOOPS and self.options.level > 0
        builder = llvm.create_pass_builder(self._machine, tuning)
        names = _PASSES[pipeline] if pipeline is Pipeline.COUNTS or self.options.level in (1, 2) else ()
        passes = llvm.create_new_module_pass_manager() if names else builder.getModulePassManager()
        for name in names:
            getattr(passes, f"add_{name}_pass")()
        passes.run(module, builder)

    def emit_object(self, module: Any) -> bytes:
        return bytes(self._machine.emit_object(module))

    def assemble(self, text: str) -> bytes:
        """Assembles the output of `emit_assembly` to the same object that `emit_object` would return.

        Raises ValueError where LLVM has no assembler for the target at hand.
        """
        if self._triple.split("-")[0] != llvm.get_process_triple().split("-")[0]:
            raise ValueError(f"there is no assembler for `{self._triple}`")
        llvm.initialize_native_asmparser()
        # LLVM assembles the inline assembly of a module. It names the module's file first, as the text does already.
        named = _FILE.search(text)
        lines = _FILE.sub("", text, count=1).splitlines()
        source = [f'module asm "{_escaped(line)}"' for line in lines]
        return self.emit_object(self.parse("\n".join([f'source_filename = "{named[1] if named else ""}"', *source])))

    def emit_assembly(self, module: Any) -> str:
        return str(self._machine.emit_assembly(module))


def cpu_name(target: Target) -> str:
    """Returns LLVM's name of the CPU."""
    return _host_cpu() if target.cpu == "native" else target.cpu


@cache
def _host_cpu() -> str:
    # Asks the processor, which traps in a virtual machine.
    return str(llvm.get_host_cpu_name())


def vector_features(target: Target) -> frozenset[str]:
    """Returns the features that decide the vector code: those of the CPU without the slow ones, which are used only
    where the target requests them."""
    slow = target.family.slow.get(cpu_name(target), frozenset()) if target.family is not None else frozenset()
    return target_features(target) - (slow - frozenset(target.added))
