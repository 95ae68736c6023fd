"""The compiler as a Python function: `nacre.compile`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, get_args

from ..runtime.loader import Model
from .artifact.assemble import Placement
from .build_warnings import issue_warnings, with_warnings
from .cache import load_built, load_cached
from .checking import Source, Weights, read_model
from .dumps import Dumps
from .graph_passes import GRAPH_PASSES
from .model.source import SourceModel
from .options import Options
from .pipeline import Build
from .quantization.choose import in_precision
from .readers.language.settings import Settings
from .targets.target import parse_targets
from .validate.checker import choose_observer
from .weight_sizes import parse_bound


def compile(
    source: Source | SourceModel,
    output: str | os.PathLike[str] | None = None,
    *,
    weights: Weights | None = None,
    target: str = "native",
    opt_level: int = 2,
    strict: bool = False,
    debug: bool = False,
    placement: Placement = "embedded",
    threads: int = 0,
    dump_dir: str | os.PathLike[str] | None = None,
    cc: str | None = None,
    check_passes: bool = False,
    precision: str | None = None,
    size: str | None = None,
    settings: Settings | None = None,
    graphs: bool = True,
    cubin: bool = True,
) -> Model:
    """Compiles a model and loads it.

    source: the path of a model file (`.nacre`, `.graph`, `.onnx` and others), the text of a model (a string with a line
        break or a brace), or a model that `nacre.from_torch`, `from_jax` or `from_sklearn` returned.
    output: path of the shared library; by default a file in the user's cache, which later calls reuse.
    weights: a checkpoint (.safetensors, .gguf, .npz, .npy, or .pt, .pth, .ckpt, .bin of `torch.save`) or a folder
        with one; overrides the one named in the source.
    target: `native`, a CPU variant such as `x86-64-v3` or several separated by commas, `portable`, `native,cuda`, or
        any other value of `--target`.
    opt_level: 0 (the reference) to 3.
    strict: disables transformations that change rounding beyond reassociation.
    debug: adds line tables for debuggers and readable kernel names; the generated code does not change.
    placement: `embedded`, or `external` for weights in a file beside the library.
    threads: maximum number of threads of a call; 0 for `$NACRE_THREADS`, else one thread per CPU.
    dump_dir: folder for the output of every stage; with it, the cache is not used.
    cc: C compiler used for linking; by default `$CC`, `cc`, or ziglang's.
    check_passes: verifies the results of the build on random inputs, and raises CompilerError at the first error; also
        enabled by `$NACRE_CHECK_PASSES`.
    precision: overrides the policies of the source: `f32`, `tf32`, `bf16`, `f16`, `f8`, `int8`, `int4`, `int4a8`,
        `a8`, `a16` or `a8bf16`, the path of a `.nacre` file with `quantize` blocks, or the text of such a file.
    size: bound for the bytes of the weights, such as `500MiB`, or `1.2x` relative to the parameters. To meet it,
        transformed weights that save the least time per byte are computed in each call or not used.
    settings: values for the hyper-parameters of models, as `--set` gives them: `{"layers": 4}`.
    graphs: stores the graph as written and the graph of kernels in the library, for `nacre graph`.
    cubin: stores machine code for GPUs beside the PTX, if CUDA's `ptxas` is installed; `$NACRE_NO_CUBIN` disables it.

    Issues `nacre.NacreWarning` for the warnings that `nacre compile` prints. A model loaded from the cache does not
    repeat the warning about its size.

    Raises TypeError for a source of another kind, ValueError for another invalid argument, DiagnosticError for an error
    in the input, CompilerError for an internal compiler error.
    """
    if opt_level not in GRAPH_PASSES:
        raise ValueError(f"opt_level must be 0, 1, 2 or 3, not {opt_level!r}")
    if placement not in get_args(Placement):
        raise ValueError(f"placement must be 'embedded' or 'external', not {placement!r}")
    if threads < 0:
        raise ValueError(f"threads must be at least 0, not {threads!r}")
    targets = parse_targets(target)
    bound = None if size is None else parse_bound(size)
    given: dict[str, Any] = {"weights": placement, "cc": cc, "size": bound, "graphs": graphs, "cubin": cubin}
    options = Options(opt_level, targets, strict=strict, debug=debug, **given)
    if not isinstance(source, str | os.PathLike | SourceModel):
        raise TypeError(
            "source must be a path, the text of a model, or the result of nacre.from_torch, from_jax or from_sklearn,"
            f" not {type(source).__name__}"
        )
    dumps = Dumps(None if dump_dir is None else Path(dump_dir))
    source_model = source if isinstance(source, SourceModel) else read_model(source, weights, settings)
    source_model = with_warnings(in_precision(source_model, precision), targets, check=check_passes)
    build = Build(source_model, options, dumps, choose_observer(source_model, options, check=check_passes))
    if output is None:
        model = load_cached(build, threads=threads)
    else:
        build.run(Path(output))
        model = load_built(Path(output), build, threads=threads)
    issue_warnings(build, model)
    return model
