"""LLVM through llvmlite: text in, optimised machine code out. Runs in the child process, since LLVM may abort."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm  # type: ignore[import-untyped]  # has no stubs

from ...targets.features import native_features, target_features
from ...targets.target import MadeFor, Target

_FILE = re.compile(r'^\t\.file\t"(.*)"\n', re.MULTILINE)
_SPECIAL = re.compile(r'[\\"\x00-\x1f\x7f]')


def _escaped(line: str) -> str:
    return _SPECIAL.sub(lambda found: f"\\{ord(found[0]):02X}", line)


@dataclass(frozen=True, slots=True)
class Options:
    """The optimisation options; `level` is that of the optimiser and of the code generator, 0 to 3."""

    level: int = 2


class Machine:
    """A target machine and an optimiser for it."""

    def __init__(self, target: Target, options: Options) -> None:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        self.options = options
        triple = target.triple or llvm.get_process_triple()
        cpu, features = target.cpu, target.features
        if cpu == "native":
            cpu = llvm.get_host_cpu_name()
            features = native_features(target)
        relocation = target.family.system.relocation if target.family is not None else "pic"
        if options.level == 0:
            # LLVM's selector of level 0 folds a load of one f32 into a blend, which reads 16 bytes (seen in LLVM 22).
            llvm.set_option("nacre", "-fast-isel=false")
        self._machine: Any = llvm.Target.from_triple(triple).create_target_machine(
            cpu=cpu, features=features, opt=options.level, reloc=relocation, codemodel="small"
        )
        self._triple = triple
        self.made_for = MadeFor(cpu, triple, tuple(sorted(target_features(target))))
        # A reused context would assign other names.
        self._context = llvm.create_context()

    def parse(self, text: str) -> Any:
        """Returns a verified module for the target."""
        module = llvm.parse_assembly(text, self._context)
        module.triple = self._triple
        module.data_layout = str(self._machine.target_data)
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

    def optimize(self, module: Any, *, vectorize: bool = True) -> None:
        tuning = llvm.create_pipeline_tuning_options(speed_level=self.options.level)
        tuning.loop_vectorization = tuning.slp_vectorization = vectorize and self.options.level > 0
        tuning.loop_unrolling = vectorize
        builder = llvm.create_pass_builder(self._machine, tuning)
        builder.getModulePassManager().run(module, builder)

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


def vector_features(target: Target) -> frozenset[str]:
    """Returns the features that decide the vector code: those of the CPU without the slow ones, which are used only
    where the target requests them."""
    cpu = llvm.get_host_cpu_name() if target.cpu == "native" else target.cpu
    slow = target.family.slow.get(cpu, frozenset()) if target.family is not None else frozenset()
    return target_features(target) - (slow - frozenset(target.added))
