"""Packs what a machine with a GPU needs to check kernels: artifacts, inputs, expected results, and the loader.

The compiler is here alone. Expected results come from the references of the operators and from the judge of graphs,
never from compiled code.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import warnings
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from chip.cases import DATA, Case, Packed, pack_data, write_index
from chip.compare import Array, Expected
from chip.drawn import DTYPES as DRAWN
from chip.drawn import Drawn
from nacre.compiler.api import read_model
from nacre.compiler.model.source import SourceModel
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets
from nacre.compiler.validate.inputs import ORDINARY, SPECIAL, Trial, made_up, random_trial
from nacre.compiler.validate.judge import Judge
from nacre.compiler.weights.memory import open_arrays
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.graph import Module
from nacre.dialect.operator import Operator
from nacre.dialect.types import dtype_of

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[1] / "operators"))
sys.path.append(str(Path(__file__).parents[1] / "bench"))
import differential.generator as random_graphs
from differential.inputs import make_trial
from differential.maker import Graph
from differential.native import joined
from operator_harness import DEVICE_PASSES, TESTED
from packing_estimate import estimate
from packing_expected import expect_case, expect_judged
from packing_models import repeated_weights
from packing_timings import pack_timings
from packing_workers import make_parts
from test_compiled import symbolic_uses, uses

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TARGET = "cuda:sm_80"
NEWEST = f"cuda:sm_90a,{TARGET}"
"""Code with products of warpgroups for Hopper, beside that for every device."""
QUICK = ("where", "cumsum", "rnn")
OPERATORS, GRAPHS = 8, 25
"""The operators and the graphs of an artifact."""
MOST_BYTES = 1 << 14
"""The tensors of a graph's case, unless it is the smallest one."""
LEAST_DRAWN = 1 << 10
"""The bytes of an input from which on it is drawn from a seed."""
MINILM = {
    "vocab_size": 500,
    "hidden_size": 384,
    "num_hidden_layers": 2,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}
"""An encoder of the width of MiniLM with two layers."""
_BITS = {"bf16": np.uint16, "f8e4m3": np.uint8, "f8e5m2": np.uint8}


@dataclass
class Pack:
    """The folder that travels. `report` is called with lines of text; `refused` has the reasons for what has no code
    for GPUs, by name, and `failed` the errors of parts that could not be packed. `estimate` has lines about the time on
    a chip."""

    folder: Path
    report: Callable[[str], None] = print
    target: str = TARGET
    packed: list[Packed] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    estimate: list[str] = field(default_factory=list)

    def add(self, name: str, stage: str, source: SourceModel, cases: Sequence[Sampled], passes: str | None) -> None:
        """Builds an artifact; if it cannot be built, each part that can.

        Code for every device is PTX alone: to assemble thousands of kernels for one architecture takes longer than to
        compile them, and a device of another architecture does not load what it makes."""
        options = Options(targets=parse_targets(self.target), passes=passes, cubin=self.target != TARGET)
        try:
            Build(source, options).run(self.folder / f"{name}.so")
        except DiagnosticError as error:
            functions = source.module.functions
            if len(functions) == 1:
                self.refused[functions[0].name] = str(error).splitlines()[0]
                return
            middle = len(functions) // 2
            for part, letter in ((functions[:middle], "a"), (functions[middle:], "b")):
                names = {function.name for function in part}
                module = replace(source.module, functions=tuple(part))
                weights = {key: value for key, value in source.weights.items() if key in names}
                kept = [case for case in cases if case.entry in names]
                self.add(name + letter, stage, replace(source, module=module, weights=weights), kept, passes)
            return
        arrays: dict[str, Array] = {}
        for case in cases:
            arrays |= case.arrays()
        # The archive of all data is compressed.
        np.savez(self.folder / f"{name}.npz", **arrays)  # type: ignore[arg-type]  # NumPy's own stub
        self.packed.append(Packed(name, stage, tuple(case.described() for case in cases), self.target))
        self.report(f"{name}: {len(cases)} cases")


@dataclass(frozen=True)
class Sampled:
    """A case with its arrays. An input that is `Drawn` has no array."""

    name: str
    entry: str
    inputs: tuple[Array | Drawn, ...]
    results: tuple[Expected, ...]
    error: str = ""

    def described(self) -> Case:
        inputs = tuple(each if isinstance(each, Drawn) else None for each in self.inputs)
        return Case(self.name, self.entry, inputs, tuple(r.dtype for r in self.results), self.error)

    def arrays(self) -> dict[str, Array]:
        numbered = enumerate(self.inputs)
        named = {f"{self.name}.{n}": as_bits(each) for n, each in numbered if not isinstance(each, Drawn)}
        for number, result in enumerate(self.results):
            named |= result.arrays(f"{self.name}.r{number}")
        return named


def as_bits(array: Array) -> Array:
    """Returns an array whose dtype NumPy has."""
    bits = _BITS.get(dtype_of(array).name)
    return array if bits is None else np.ascontiguousarray(array).view(bits).reshape(array.shape)


def draw_inputs(trial: Trial, given: Collection[str] = ()) -> tuple[Trial, tuple[Array | Drawn, ...]]:
    """Returns the trial with arrays that are drawn from seeds in place of large ones of ordinary floats, unless they
    are `given`; and the inputs of its case."""
    arrays, inputs = list(trial.arguments), list[Array | Drawn](trial.arguments)
    for number, (name, array) in enumerate(zip(trial.names, trial.arguments, strict=True)):
        dtype = dtype_of(array)
        if trial.kind == ORDINARY and name not in given and dtype.name in DRAWN and array.nbytes >= LEAST_DRAWN:
            seed = zlib.crc32(f"{trial.function} {name} {array.shape}".encode())
            drawn = Drawn(seed, dtype.name, array.shape).signed()
            inputs[number], arrays[number] = drawn, drawn.draw().view(dtype.numpy)
    return replace(trial, arguments=tuple(arrays)), tuple(inputs)


# Operators


def pack_operators(pack: Pack, first: int, operators: Sequence[Operator], *, everything: bool) -> None:
    """Packs the cases of operators in typical dtypes, one with an odd size in each other dtype, unless `everything`
    asks for all of them, and one with symbolic sizes. `first` is the position of the first one among all operators."""
    found = uses(operators, everything=everything) | symbolic_uses(operators, 1)
    found = {name: use for name, use in found.items() if not use[1].operator.has("checking")}
    functions = tuple(function for function, _ in found.values())
    dims = {symbol for function in functions for symbol in function.symbols()}
    module = Module("operators", tuple(sorted(dims, key=str)), functions=functions)
    cases = [Sampled(name, name, item.arrays, expect_case(item)) for name, (_, item) in found.items()]
    source = SourceModel(module, "operators.graph", dict.fromkeys(found))
    pack.add(f"operators-{first // OPERATORS:02}", "operators", source, cases, DEVICE_PASSES)


# Graphs


def pack_graphs(pack: Pack, seeds: Sequence[int]) -> None:
    """Packs random graphs after the passes of the target, with ordinary numbers and with NaN and infinities."""
    graphs = [random_graphs.random_graph(seed) for seed in seeds]
    module = joined([graph.module for graph in graphs])
    named = [replace(f, result_names=tuple(f"r{n}" for n in range(len(f.outputs)))) for f in module.functions]
    weights = open_arrays({parameter.key: made_up(parameter) for parameter in module.parameters})
    functions = dict.fromkeys((function.name for function in named), weights)
    source = SourceModel(replace(module, functions=tuple(named)), "graphs.graph", functions)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy reports NaN, which some inputs contain
        cases = [case for graph in graphs for case in sample_graph(graph)]
    pack.add(f"graphs-{seeds[0]:04}", "graphs", source, cases, None)


def sample_graph(graph: Graph) -> Iterator[Sampled]:
    """Yields cases of a graph: the smallest sizes of its dims, and others if they are small."""
    trials = [make_trial(graph, binding, ORDINARY) for binding in graph.bindings]
    trials.sort(key=lambda trial: sum(array.nbytes for array in trial.arguments))
    trials.append(make_trial(graph, trials[0].dims, SPECIAL))
    for number, trial in enumerate(trials):
        if number == 0 or sum(array.nbytes for array in trial.arguments) <= MOST_BYTES:
            trial, inputs = draw_inputs(trial, graph.given)
            judge = Judge(graph.module, trial, made_up, seed=graph.seed)
            yield from _judged(f"{graph.name}-{number}", graph.name, inputs, judge, number == 0)


def _judged(name: str, entry: str, inputs: tuple[Array | Drawn, ...], judge: Judge, always: bool) -> Iterator[Sampled]:
    if judge.endless:
        return
    if judge.refused:
        yield Sampled(name, entry, inputs, (), "out of range")
        return
    if not always and sum(expectation.exact.nbytes for expectation in judge.expected) > MOST_BYTES:
        return
    judge.sample_more()
    yield Sampled(name, entry, inputs, tuple(map(expect_judged, judge.expected)))


# Samples


def pack_samples(pack: Pack, *, quick: bool = False) -> None:
    """Packs the digits with their weights, and, unless it must be `quick`, an encoder with weights made here."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "config.json").write_text(json.dumps(MINILM))
        samples = ROOT / "samples"
        models: dict[str, tuple[SourceModel, Sequence[Mapping[str, int]]]] = {
            "digits": (read_model(samples / "digits" / "digits.nacre"), [{"B": 1}, {"B": 2 if quick else 37}])
        }
        if not quick:
            longer = [{"B": 1, "T": 7}, {"B": 3, "T": 33}]
            models["minilm"] = (read_model(samples / "minilm" / "minilm.nacre", folder), longer)
        for name, (source, sizes) in models.items():
            if name != "digits":
                made = repeated_weights(source.module)
                source = replace(source, weights=dict.fromkeys(source.weights, made), tests=(), budgets=())
            pack.add(f"sample-{name}", "samples", source, list(_sample_model(name, source, sizes)), None)


def _sample_model(name: str, source: SourceModel, sizes: Sequence[Mapping[str, int]]) -> Iterator[Sampled]:
    reader = Build(source, Options()).read_parameters()
    for number, dims in enumerate(sizes):
        trial = random_trial(source.module.functions[0], dims)
        if name == "digits":
            images = np.load(ROOT / "samples" / "digits" / "test_images.npz")["images"][: dims["B"]]
            trial = replace(trial, arguments=(images.astype(np.float32),))
        judge = Judge(source.module, trial, reader)
        yield Sampled(f"{name}-{number}", trial.function, trial.arguments, tuple(map(expect_judged, judge.expected)))


WARPGROUPS = """language 1
dim B in 0..1024
model both(x: bf16[B, 456], w: bf16[456, 136]) -> bf16[B, 136] { return relu(x @ w) }
model wide(x: f16[B, 512], w: f16[512, 1024], b: f16[1024]) -> f16[B, 1024] { return x @ w + b }
model turned(x: f16[2, B, 200], w: f16[2, 144, 200]) -> f16[2, B, 144] { return x @ transpose(w, (0, 2, 1)) }
model many(x: f16[B, 64, 64], w: f16[B, 64, 72]) -> f16[B, 64, 72] { return x @ w }
"""


def pack_warpgroups(pack: Pack, *, quick: bool = False) -> None:
    """Packs products that warpgroups compute where the device has them: with whole tiles, with ragged ones, with fewer
    rows than a tile, and with more tiles than multiprocessors."""
    source = read_model(WARPGROUPS)
    if quick:
        source = replace(source, module=replace(source.module, functions=source.module.functions[:1]))
    cases = []
    for function in source.module.functions:
        reader = Build(source, Options()).read_parameters()
        for rows in (5, 140) if quick or function.name == "many" else (5, 140, 256):
            trial, inputs = draw_inputs(random_trial(function, {"B": rows}))
            judge = Judge(source.module, trial, reader)
            name = f"{function.name}-{rows}"
            cases.append(Sampled(name, trial.function, inputs, tuple(map(expect_judged, judge.expected))))
    made = Pack(pack.folder, pack.report, NEWEST)
    made.add("sample-warpgroups", "samples", source, cases, None)
    pack.packed += made.packed
    pack.refused |= made.refused


ERRORS = """language 1
dim B in 0..1048576
model pick(x: f32[B, 8], i: i64[B]) -> y: f32[B, 20], z: f32[B, 8] {
  param w: f32[20, 8]
  return x @ w.T, gather(w, i, axis=0)
}
"""


def pack_errors(pack: Pack) -> None:
    """Packs the artifacts of the checks that must fail."""
    weight = np.random.default_rng(1).normal(size=(20, 8)).astype(np.float32)
    for name, target in (("errors", pack.target), *((f"errors-{n}", f"cuda:{n}") for n in ("sm_90a", "sm_120a"))):
        path = pack.folder / f"{name}.so"
        np.savez(path.with_suffix(".npz"), w=weight)
        Build(read_model(ERRORS, path.with_suffix(".npz")), Options(targets=parse_targets(target))).run(path)


@dataclass(frozen=True)
class Amount:
    """The amount that is packed: `graphs` is the number of random graphs, and `everything` asks for all cases of
    operators in all dtypes. A `quick` folder is for a device in C: a few operators, and few rounds."""

    graphs: int
    everything: bool = False
    quick: bool = False


def _parts(amount: Amount) -> Iterator[Callable[[Pack], None]]:
    """Yields the functions that pack the artifacts, which are independent of each other."""
    operators = [operator for operator in TESTED if operator.name in QUICK or not amount.quick]
    for first in range(0, len(operators), OPERATORS):
        chosen = operators[first : first + OPERATORS]
        yield partial(pack_operators, first=first, operators=chosen, everything=amount.everything)
    for first in range(0, amount.graphs, GRAPHS):
        yield partial(pack_graphs, seeds=range(first, min(first + GRAPHS, amount.graphs)))
    yield partial(pack_samples, quick=amount.quick)
    yield partial(pack_warpgroups, quick=amount.quick)
    yield pack_errors


def _pack_part(folder: Path, amount: Amount, number: int) -> Pack:
    """Packs one of the parts, in a process that may have packed others."""
    pack = Pack(folder)
    list(_parts(amount))[number](pack)
    return pack


def pack_parts(pack: Pack, amount: Amount, jobs: int) -> None:
    """Packs all artifacts, several at once: expected results are computed in one process while others compile."""

    def add(number: int, part: Pack | str) -> None:
        if isinstance(part, str):
            pack.failed[f"part {number}"] = part
        else:
            pack.packed += part.packed
            pack.refused |= part.refused
        pack.report(f"part {number}")

    make_parts(partial(_pack_part, pack.folder, amount), len(list(_parts(amount))), jobs, add)
    pack.packed.sort(key=lambda packed: packed.name)


def pack_all(folder: Path, amount: Amount, *, jobs: int = 1) -> Pack:
    """Writes the folder: the program, the loader, and one file of data, which is unpacked there."""
    quick = amount.quick
    with tempfile.TemporaryDirectory() as temporary:
        pack = Pack(Path(temporary))
        pack_parts(pack, amount, jobs)
        timings = pack_timings(pack.folder, NEWEST, quick=quick)
        described = [asdict(timing) for timing in timings]
        write_index(pack.folder, pack.packed, refused=pack.refused, rounds=1 if quick else 12, timings=described)
        pack.estimate += estimate(pack.folder, pack.packed, timings)
        folder.mkdir(parents=True, exist_ok=True)
        pack_data(pack.folder, folder / DATA)
    shutil.copy(HERE / "run.py", folder)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(HERE / "chip", folder / "chip", dirs_exist_ok=True, ignore=ignored)
    (folder / "nacre" / "runtime").mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "compiler" / "nacre" / "__init__.py", folder / "nacre")
    for path in (ROOT / "runtime").glob("*.py"):
        shutil.copy(path, folder / "nacre" / "runtime")
    return pack
