"""The features of a CPU, by their LLVM names, that its code may use.

llvmlite has no call that lists them. LLVM inlines a function only into a caller with all features of the callee, so a
module with one callee for each feature reveals them: the remaining callees are those of the missing features. A feature
that LLVM implies by another one is found as well.

Only a child process imports this module. `python -m nacre.compiler.targets.features` answers the compiler's process:
with a CPU and features as arguments, it prints the available features; with a triple, LLVM's names for it.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm  # type: ignore[import-untyped]  # has no stubs

from .target import CHECKED_FEATURES, Target
from .variants import VARIANTS
from .x86 import X86

_NOT_COMPARED = frozenset({"cx16", "sahf"})
"""The features that never prevent LLVM from inlining; every CPU with SSSE3 has both."""


@lru_cache(maxsize=64)
def find_features(cpu: str, features: str = "") -> frozenset[str]:
    """Returns the `CHECKED_FEATURES` that LLVM gives an x86 CPU of this name, with features such as `+avx512f,-fma`."""
    llvm.initialize_all_targets()
    names = sorted(CHECKED_FEATURES)
    lines = [f'target triple = "{X86.triple}"', "@kept = global i32 0", "define void @caller() #0 {"]
    lines += [f"  call void @callee{number}()" for number in range(len(names))]
    lines += ["  ret void", "}", f'attributes #0 = {{ "target-cpu"="{cpu}" "target-features"="{features}" }}']
    for number, name in enumerate(names, 1):
        lines += [f"define internal void @callee{number - 1}() #{number} {{"]
        lines += [f"  store volatile i32 {number}, ptr @kept", "  ret void", "}"]
        lines += [f'attributes #{number} = {{ "target-cpu"="x86-64" "target-features"="+{name}" }}']
    machine: Any = llvm.Target.from_triple(X86.triple).create_target_machine(opt=1)
    module: Any = llvm.parse_assembly("\n".join(lines), llvm.create_context())
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1))
    builder.getModulePassManager().run(module, builder)
    left = {function.name for function in module.functions}
    found = frozenset(name for number, name in enumerate(names) if f"callee{number}" not in left)
    return found if "ssse3" in found else found - _NOT_COMPARED


def target_features(target: Target) -> frozenset[str]:
    """Returns the features that code for a target may use, of those that the runtime can detect."""
    if target.family is not X86:
        return frozenset()
    if target.name in VARIANTS:
        return frozenset(VARIANTS[target.name].features)
    if target.cpu != "native":
        return find_features(target.cpu, target.features)
    if target.features:
        return find_features(llvm.get_host_cpu_name(), native_features(target))
    return _host_features()


@lru_cache(maxsize=1)
def _host_features() -> frozenset[str]:
    return frozenset(name for name, there in llvm.get_host_cpu_features().items() if there) & CHECKED_FEATURES


@lru_cache(maxsize=1)
def _host_list() -> str:
    return str(llvm.get_host_cpu_features().flatten())


def native_features(target: Target) -> str:
    """Returns the features of this machine, with those that a target adds or removes. The name of a CPU alone may imply
    more features than a virtual machine has."""
    return ",".join(filter(None, (_host_list(), target.features)))


def main(arguments: list[str]) -> None:
    if len(arguments) == 2:
        print("\n".join(sorted(find_features(*arguments))))
        return
    (triple,) = arguments
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    # LLVM writes the lists to standard error.
    llvm.Target.from_triple(triple or llvm.get_process_triple()).create_target_machine(cpu="help")


if __name__ == "__main__":
    main(sys.argv[1:])
