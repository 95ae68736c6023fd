"""Writes compiler/docs/vector_math.md: the errors and the cost of the elementary functions on this machine.

`python tests/codegen/measure_vector_math.py` goes over all 2**32 arguments of every function of one operand, which
takes hours; `--step 1021` over every 1021st of them. Functions of two operands are sampled. With names, only the errors
of those functions are measured again, and the others stay as they stand there. `--jobs` processes share the work.
"""

from __future__ import annotations

import argparse
import ctypes
import platform
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
from nacre.compiler.codegen.elementary.double_math import DOUBLE
from nacre.compiler.codegen.elementary.vector_math import SINGLE
from nacre.compiler.codegen.llvm.machine import Machine, Options, vector_features
from nacre.compiler.targets.target import Target
from nacre.dialect.types import Array
from vector_math_harness import BINARY, COMPOSED, Run, build, build_library, build_operators, seconds, worst

PAGE = Path(__file__).parents[2] / "compiler" / "docs" / "vector_math.md"
CHUNK = 1 << 16
PAIRS = 200_000_000
TIMED = 4096
"""Elements of a timed call: arguments and results fit the first cache."""
DOMAINS = {
    **dict.fromkeys(("log", "log2", "log10", "powf"), (0.1, 10.0)),
    **dict.fromkeys(("asin", "acos", "atanh"), (-1.0, 1.0)),
    **{"log1p": (-0.9, 10.0), "acosh": (1.0, 10.0), "exp": (-10.0, 0.0)},
}
HEAD = """# Elementary functions

Code generators evaluate MLIR's math operations on f32 and f64 with functions of their own, which vectorise
(`compiler/codegen/elementary`). f16 and bf16 operands are computed in f32. On targets without fused multiply-add
instructions, such as `x86-64`, f64 calls the C library. Scalar code uses the same arithmetic, so a result does not
depend on the vector width. With `avx512f`, the last step of an exponential is a single instruction, which gives the
same result. NaN, infinities, signed zeros and denormals follow IEEE 754 and NumPy.

`python tests/codegen/measure_vector_math.py` writes this page. Errors are in units in the last place (ulp) of the
nearest f32, relative to a computation in float64; the error of a correctly rounded result is at most 0.5. For denormal
results, the unit is 2**-149. The columns have the following meanings:

- `bound`: the error that no result may exceed. Tests check it on samples.
- `largest error`, `at`: the largest error that was found, and its argument.
- `of`: the arguments that were tried: `all` 2**32, every n-th (`1 in n`), or random pairs.
- `AVX-512`, `AVX2`, `C library`: the cycles for 16 results, with data in the first-level cache, on {cpu}. AVX2
  computes two vectors of 8; the C library is called for each result.

{composed} is an operator composed of these functions, measured as models compute it at `-O2`. Some arguments take a
slower path: `sin`, `cos` and `tan` take about 50 more cycles for arguments beyond 2**15, `erfc` takes about 15 more
for arguments beyond 3.95, `powf` is slower for arguments that are not positive or not finite, and exponentials take
about 10 more cycles for denormal results. Without AVX-512, `exp` takes about 20 more cycles where one of the 16
arguments is beyond 86, and so does `exp2` where one is beyond 124.

| function | bound | largest error | at | of | AVX-512 | AVX2 | C library |
|---|---|---|---|---|---|---|---|
"""
DOUBLES = """
## Double precision

The bounds of the errors of f64, in units in the last place of the nearest f64, relative to a computation in extended
precision. Tests check them on samples.

| function | bound |
|---|---|
"""
TAIL = """
## Special values

Each elementwise operator gives the same NaNs, infinities, signed zeros and denormals as its reference, in every
dtype, at every optimisation level and for every CPU variant. `maximum`, `minimum` and operators composed of them
treat +0 as greater than -0. Conversion to bf16 rounds to nearest even, also for denormals. The AVX-512 BF16
instruction would flush denormals to zero, so the code rescales them first.

There are two exceptions.

- The sign of a zero returned by the reductions `max` and `min` is not specified if the operands contain zeros of both
  signs.
- Sums of products of bf16 use `vdpbf16ps` where the CPU has it. The instruction treats denormal factors as zero and
  flushes denormal sums. This changes a sum by less than 2**-126 at each step, and by less than |x| * 2**-126 for each
  product of x with a denormal. `--strict` avoids the instruction.
"""
BOUNDS = {**SINGLE.ulp, **COMPOSED}


@cache
def functions() -> dict[str, Callable[..., Array]]:
    return {**build(16), **build_operators(tuple(COMPOSED))}


def chunks(step: int, part: int, parts: int) -> Iterator[Array]:
    """This part of every step-th f32."""
    size = CHUNK * step
    for start in range(part * size, 2**32, parts * size):
        bits = np.arange(start, min(start + size, 2**32), step, dtype=np.uint64)
        yield bits.astype(np.uint32).view(np.float32)


def pairs(count: int, part: int) -> Iterator[tuple[Array, Array]]:
    """Any two numbers, and powers all over the range of results, for small and large exponents."""
    random = np.random.default_rng(part)
    for i in range(count // CHUNK + 1):
        if i % 4 == 0:
            yield tuple(random.integers(0, 2**32, CHUNK, dtype=np.uint32).view(np.float32) for _ in range(2))
            continue
        spread = (149.0, 1.0, 0.02)[i % 4 - 1]
        x = np.exp2(random.uniform(-spread, min(spread, 127.9), CHUNK)).astype(np.float32)
        slope = np.log2(x.astype(np.float64))
        y = random.uniform(-152, 129, CHUNK) / np.where(slope == 0, 1.0, slope)
        yield x, y.astype(np.float32)


def sweep(name: str, step: int, part: int, *, parts: int) -> tuple[float, tuple[float, ...]]:
    run = functions()[name]
    if name in BINARY:
        return max(worst(run, name, *pair) for pair in pairs(PAIRS // step // parts, part))
    return max(worst(run, name, x) for x in chunks(step, part, parts))


def cycles_per_second() -> float:
    """By a chain of multiplications of three cycles and exclusive ors of one."""
    links = "".join(
        f"  %m{i} = mul i64 {f'%v{i - 1}' if i else '%v'}, %x\n  %v{i} = xor i64 %m{i}, 12345\n" for i in range(8)
    )
    text = f"""define i64 @chain(i64 %n, i64 %x) {{
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%j, %loop]
  %v = phi i64 [%x, %entry], [%v7, %loop]
{links}  %j = add i64 %i, 1
  %end = icmp eq i64 %j, %n
  br i1 %end, label %done, label %loop
done:
  ret i64 %v7
}}"""
    module = Machine(Target(), Options(1)).parse(text)
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    chain = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(engine.get_function_address("chain"))
    return 100_000 * 8 * 4 / min(seconds(lambda: chain(100_000, 3)) for _ in range(30))


def cost(run: Run, name: str) -> float:
    """Cycles for 16 results."""
    random = np.random.default_rng(0)
    operands = 2 if name in BINARY else 1
    arguments = [random.uniform(*DOMAINS.get(name, (-3.0, 3.0)), TIMED).astype(np.float32) for _ in range(operands)]
    # The clock is taken beside every measurement, since it changes.
    return min(run.seconds(*arguments) * cycles_per_second() for _ in range(3)) / (TIMED / 16)


def costs(name: str) -> list[str]:
    """The last cells of a row; empty where there is nothing to time."""
    if name in COMPOSED:
        return ["", "", ""]
    here = vector_features(Target())
    cells = []
    for needed, make in (
        ("avx512f", lambda: build(16, here, names=[name])),
        ("avx2", lambda: build(8, target=Target("x86-64-v3"), names=[name])),
        ("", lambda: build_library([name])),
    ):
        cells.append(f"{cost(make()[name], name):.0f}" if not needed or needed in here else "")
    return cells


def measured() -> dict[str, tuple[str, str, str]]:
    """The largest error, its place and of how many, by function, as they stand on the page."""
    rows = (line.strip("| ").split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines())
    return {row[0]: (row[2], row[3], row[4]) for row in rows if row[0] in BOUNDS}


def write(errors: dict[str, tuple[str, str, str]], timed: dict[str, list[str]]) -> None:
    cpu = f"one core ({llvm.get_host_cpu_name()}, {platform.machine()})"
    page = HEAD.format(cpu=cpu, composed=", ".join(f"`{name}`" for name in COMPOSED))
    for name in BOUNDS:
        if name in errors:
            error, at, extent = errors[name]
            page += f"| {name} | {BOUNDS[name]} | {error} | {at} | {extent} | {' | '.join(timed[name])} |\n"
    page += DOUBLES + "".join(f"| {name} | {bound} |\n" for name, bound in DOUBLE.ulp.items())
    PAGE.write_text(page + TAIL, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="FUNCTION", help=f"by default all of {', '.join(BOUNDS)}")
    parser.add_argument("--step", type=int, default=1, help="look at every so many numbers (1)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in BOUNDS]:
        parser.error(f"no function is called {', '.join(unknown)}")
    timed = {name: costs(name) for name in BOUNDS}
    errors = measured()
    alone = "all" if options.step == 1 else f"1 in {options.step}"
    with ProcessPoolExecutor(options.jobs) as pool:
        for name in options.names or BOUNDS:
            part = partial(sweep, name, options.step, parts=options.jobs)
            parts = [pool.submit(part, number) for number in range(options.jobs)]
            error, place = max(part.result() for part in parts)
            extent = f"{PAIRS // options.step:,} pairs" if name in BINARY else alone
            errors[name] = (f"{error:.3f}", ", ".join(f"{v:.9g}" for v in place), extent)
            print(f"{name}: {error:.3f} at {errors[name][1]}, {timed[name]}", flush=True)
            write(errors, timed)


if __name__ == "__main__":
    main()
