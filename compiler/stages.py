"""The stages of a build as data: the result that each one gives, the results that it takes, and the texts that it can
dump.

The order of the table is the order of a build. A build runs the stages that its outputs need; the names of texts for
`--dump-after`, `--stage` and `--from`, the times of `--time` and the reports of internal errors follow from the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from ..dialect.lazy_dataclass import dataclass
from ..passes.pass_list import parse_pipeline
from .codegen.workers.routes import FIRST, LLVM_STAGES, code_stages
from .dumps.dumps import plain_name

Text = tuple[str, str]
"""The name of a text that can be dumped, and its language, which is also the suffix of its file."""

GRAPH = "graph"
"""The name of the source graph, and the language of all graphs."""


def _no_texts(route: str, pipeline: str) -> Sequence[Text]:
    return ()


def _graphs(route: str, pipeline: str) -> Sequence[Text]:
    return ((GRAPH, GRAPH), *((step.name, GRAPH) for step in parse_pipeline(pipeline)))


def _lowered_texts(route: str, pipeline: str) -> Sequence[Text]:
    return [(FIRST, code_stages(route)[FIRST])]


def _kernel_texts(route: str, pipeline: str) -> Sequence[Text]:
    return [text for text in code_stages(route).items() if text[0] not in (FIRST, *LLVM_STAGES)]


def _code_texts(route: str, pipeline: str) -> Sequence[Text]:
    return list(LLVM_STAGES.items())


@dataclass(frozen=True, slots=True)
class BuildStage:
    """name: the row in `--time`, and the stage of an internal error.
    gives: its result, an attribute of `nacre.compiler.pipeline.Build`.
    takes: the results of earlier stages that it reads.
    does: its task.
    path: the folder or file that performs it.
    texts: the texts that it can dump, in order, for a route of code generation and the passes; a pass may occur
        repeatedly.
    """

    name: str
    gives: str
    takes: tuple[str, ...]
    does: str
    path: str
    texts: Callable[[str, str], Sequence[Text]] = _no_texts


PARAMETERS = BuildStage("parameters", "reader", (), "compares checkpoints with the graph", "model/parameters.py")
PASSES = BuildStage("passes", "optimized", (), "graph to graph", "../passes/", _graphs)
LOWER = BuildStage(
    "lower", "lowered", ("optimized",), "graph to kernels in linalg, and calls of them", "lower/", _lowered_texts
)
KERNELS = BuildStage(
    "kernels", "program", ("lowered",), "linalg to machine code; memory plans", "codegen/, host/", _kernel_texts
)
BUDGETS = BuildStage("budgets", "within_budget", ("optimized", "program"), "compares costs with budgets", "budgets.py")
ENTRIES = BuildStage("entries", "objects", ("program",), "functions that call the kernels", "codegen/", _code_texts)
DESCRIPTION = BuildStage("description", "spec", ("program", "reader"), "entries and weights as tables", "describe.py")
LINK = BuildStage("link", "library", ("spec", "objects"), "objects, weights, runtime to one library", "artifact/")

STAGES: tuple[BuildStage, ...] = (PARAMETERS, PASSES, LOWER, KERNELS, BUDGETS, ENTRIES, DESCRIPTION, LINK)


def needed_stages(results: Iterable[str]) -> Iterator[BuildStage]:
    """Yields the stages that give the results, and those that they take results from, in order."""
    wanted = set(results)
    unknown = wanted - {stage.gives for stage in STAGES}
    assert not unknown, unknown
    chosen = []
    for stage in reversed(STAGES):
        if stage.gives in wanted:
            wanted |= set(stage.takes)
            chosen.append(stage)
    return reversed(chosen)


def texts_of(route: str, pipeline: str, start: str = FIRST) -> tuple[Text, ...]:
    """Returns every text that a build can dump, in order. Code generation begins with the text `start`."""
    graphs, code = (
        [text for stage in STAGES for text in stage.texts(route, pipeline) if (text[1] == GRAPH) == is_graph]
        for is_graph in (True, False)
    )
    first = [name for name, _ in code].index(start)
    return (*graphs, *code[first:])


def result_with_text(name: str, route: str, pipeline: str) -> str:
    """Returns the result of the stage that dumps the text, named with or without its number."""
    (found,) = (s for s in STAGES if plain_name(name) in dict(s.texts(route, pipeline)))
    return found.gives
