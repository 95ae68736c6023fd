"""IREE's CPU backend, for the processor at hand, from the ONNX twin. Weights stay in a file beside the program.

Data tiling helps some models, hurts others, and cannot compile some: both ways are tried and the quicker one competes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import iree.compiler
import iree.runtime
from measure import Contender
from prepare import Model

HOST = "--iree-llvmcpu-target-cpu=host"
WAYS = {"tiled": (HOST, "--iree-opt-level=O3", "--iree-opt-data-tiling"), "plain": (HOST,)}
IMPORT_SECONDS = 600


def prepare(model: Model, threads: int) -> Contender:
    text = model.onnx.with_suffix(".mlir")
    command = [sys.executable, "-m", "iree.compiler.tools.import_onnx", str(model.onnx), "--externalize-params"]
    done = subprocess.run([*command, "-o", str(text)], capture_output=True, text=True, timeout=IMPORT_SECONDS)
    if done.returncode:
        raise RuntimeError(f"import: {done.stderr.strip().splitlines()[-1]}")
    if threads > 1:
        iree.runtime.flags.parse_flags(f"--task_topology_group_count={threads}")
    found: list[Contender] = []
    for number, (way, flags) in enumerate(WAYS.items()):
        program = text.with_name(f"{way}.vmfb")
        try:
            iree.compiler.compile_file(
                str(text),
                input_type="auto",
                target_backends=["llvm-cpu"],
                output_file=str(program),
                extra_args=[*flags],
            )
        except iree.compiler.CompilerToolError:
            if not found and number == len(WAYS) - 1:
                raise
            continue
        found.append(_load(model, program, text.with_name(f"{text.stem}_params.irpa"), threads))
    return min(found, key=_quickest)


def _quickest(contender: Contender) -> float:
    contender.call()
    return min(contender.seconds(1) for _ in range(5))


def _load(model: Model, program: Path, parameters: Path, threads: int) -> Contender:
    config = iree.runtime.Config("local-sync" if threads == 1 else "local-task")
    module = iree.runtime.VmModule.mmap(config.vm_instance, str(program))
    modules = [module]
    if parameters.exists():
        index = iree.runtime.ParameterIndex()
        index.load(str(parameters))
        provider = index.create_provider(scope="model")
        modules.insert(0, iree.runtime.create_io_parameters_module(config.vm_instance, provider))
    context = iree.runtime.SystemContext(config=config, vm_modules=modules)
    # Each function is there twice: the other one takes fences, and returns before it is done.
    (name,) = (n for n in module.function_names if not n.startswith("_") and not n.endswith("$async"))
    function = context.modules[module.name][name]
    inputs = [iree.runtime.asdevicearray(config.device, array) for array in model.inputs.values()]
    return Contender("iree", lambda: function(*inputs), _arrays)


def _arrays(result: Any) -> list[Any]:
    return [r.to_host() for r in (result if isinstance(result, (tuple, list)) else [result])]
