"""Times the same operations in PyTorch, where it is installed: eager, compiled, and its own kernels of attention."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

from .clock import CALLS
from .peer_models import make_arguments, make_model
from .records import NO_TIME, Record, began, ended, fact
from .timing import Timing, calls_before, copies_for

COMPILE_SECONDS = 60
"""The least time that must be left before a compilation begins."""


def functions(torch: Any) -> dict[str, Callable[..., Any]]:
    """The operations by name. Products of matrices are those of cuBLAS."""
    return {
        "matmul": torch.matmul,
        "relu": torch.relu,
        "softmax": lambda x: torch.softmax(x, dim=-1),
        "attention": torch.nn.functional.scaled_dot_product_attention,
    }


def time_peers(timings: Sequence[Timing], device: str, deadline: float, first: int) -> Iterator[Record]:
    """Times each operation: `eager`, and `compiled` where time is left."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        yield fact(skipped="torch is not installed")
        return
    if not torch.cuda.is_available():
        yield fact(skipped="torch does not see a GPU")
        return
    yield fact(torch=torch.__version__)
    torch.backends.cuda.matmul.allow_tf32 = False
    l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    known = [timing for timing in timings if timing.peer]
    wanted = [(kind, timing) for kind in ("eager", "compiled") for timing in known]
    for number, (kind, timing) in enumerate(wanted[first:], first):
        if deadline - time.monotonic() < (COMPILE_SECONDS if kind == "compiled" else 0):
            left = ", ".join(f"{timing.name} ({kind})" for kind, timing in wanted[number:])
            yield fact(skipped=f"{NO_TIME} for {left}")
            return
        yield began(timing.name)
        try:
            model = make_model(torch, timing, device)
            function = functions(torch)[timing.peer] if model is None else model
            if kind == "compiled":
                # Models are replayed as CUDA graphs; a graph of a single kernel is not faster than the kernel.
                mode = "max-autotune-no-cudagraphs" if model is None else "reduce-overhead"
                torch.compiler.reset()
                function = torch.compile(function, mode=mode, dynamic=False)
            seconds = _time(torch, function, timing, device, l2_bytes)
        except Exception as error:
            yield ended(timing.name, f"{kind}: {type(error).__name__}: {error}")
        else:
            yield ended(timing.name, None, {kind: seconds})


def _time(torch: Any, function: Callable[..., Any], timing: Timing, device: str, l2_bytes: int) -> float:
    copies = [make_arguments(torch, timing, device) for _ in range(copies_for(timing, l2_bytes))]
    marks = []
    for number in range(calls_before(len(copies)) + CALLS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        function(*copies[number % len(copies)])
        end.record()
        marks.append((begin, end))
    torch.cuda.synchronize()
    return median(begin.elapsed_time(end) * 1e-3 for begin, end in marks[-CALLS:])
