"""The table of stages: builds, dumps and times follow from it."""

import pytest
from nacre.compiler.checking import read_model
from nacre.compiler.codegen.workers.routes import ROUTES
from nacre.compiler.dumps import Dumps
from nacre.compiler.options import Options
from nacre.compiler.outputs import EMIT_KINDS
from nacre.compiler.pipeline import _RUN, Build
from nacre.compiler.stages import KERNELS, LOWER, PASSES, STAGES, needed_stages, result_with_text, texts_of

MODEL = """language 1
model double(x: f32[3]) -> f32[3] { return x + x }
"""


def test_every_stage_can_run_after_those_before_it() -> None:
    given: set[str] = set()
    for stage in STAGES:
        assert set(stage.takes) <= given, stage.name
        given.add(stage.gives)
    assert _RUN.keys() == {stage.name for stage in STAGES}
    assert len(given) == len(STAGES)
    assert given <= vars(Build(read_model(MODEL))).keys()


@pytest.mark.parametrize(
    ("wanted", "stages"),
    [
        ("optimized", ["passes"]),
        ("program", ["passes", "lower", "kernels"]),
        ("objects", ["passes", "lower", "kernels", "entries"]),
        ("spec", ["parameters", "passes", "lower", "kernels", "description"]),
        ("library", ["parameters", "passes", "lower", "kernels", "entries", "description", "link"]),
    ],
)
def test_stages_that_a_result_needs(wanted: str, stages: list[str]) -> None:
    assert [stage.name for stage in needed_stages([wanted])] == stages


@pytest.mark.parametrize("level", range(4))
def test_texts(level: int) -> None:
    options = Options(level=level)
    texts = texts_of(options.route, options.pipeline)
    dumps = Dumps(keep=[name for name, _ in texts])
    build = Build(read_model(MODEL), options, dumps)
    build.make("objects")
    assert dumps.texts.keys() == {name for name, _ in texts}
    assert options.stages == tuple(name for name, _ in texts)
    assert [text[0] for text in texts_of(options.route, "cse", "llvm-ir")] == [
        "graph",
        "cse",
        "llvm-ir",
        "optimized",
        "assembly",
    ]


@pytest.mark.parametrize(
    ("dumps", "made"),
    [
        (Dumps(keep=["tiled"]), {"tiled.mlir"}),
        (Dumps(after=["03-llvm-ir", "cse"]), {"llvm-ir.ll"}),
        (Dumps(keep=["cse"]), set()),
    ],
)
def test_only_requested_texts_are_made(dumps: Dumps, made: set[str]) -> None:
    build = Build(read_model(MODEL), Options(), dumps)
    build.make("program")
    assert build.program is not None
    (kernels,) = build.program.kernels.values()
    assert [set(code.dumps) for code in kernels.values()] == [made]


def test_the_input_of_a_stage_is_a_text_of_another() -> None:
    stages = ("linalg", "tiled", "llvm-ir")
    assert Dumps(before=["tiled"]).wanted(stages, whole=()) == stages
    assert Dumps(keep=["llvm-ir"]).wanted(stages, whole=["llvm-ir"]) == stages
    assert Dumps(before=["graph"], keep=["llvm-ir", "linalg"]).wanted(stages, whole=()) == ("linalg", "llvm-ir")


def test_only_needed_stages_run() -> None:
    options = Options()
    assert result_with_text("03-unroll-repeat", options.route, options.pipeline) == PASSES.gives
    assert result_with_text("linalg", options.route, options.pipeline) == LOWER.gives
    assert result_with_text("tiled", options.route, options.pipeline) == KERNELS.gives
    build = Build(read_model(MODEL), options)
    build.make("program")
    first = build.program
    assert first is not None and build.objects is None
    assert list(build.times)[:3] == ["passes", "lower", "kernels"]
    build.make("objects")
    assert build.program is first and build.objects


def test_emit_kinds_need_results_of_stages() -> None:
    given = {stage.gives for stage in STAGES}
    options = Options()
    for kind in EMIT_KINDS.values():
        assert set(kind.needs) <= given
        assert not kind.text or kind.text in {"linalg", "module-ir", "module-assembly"}
    assert "linalg" in options.stages


def test_the_inliner_sets_up_no_passes_of_its_own() -> None:
    """Its default pipeline takes longer than most kernels of a device; each route canonicalises at a later stage."""
    actions = [action for route in ROUTES.values() for stage in route.stages for action in stage.actions]
    inlined = [action for action in actions if "inline" in action]
    assert inlined and all("inline{default-pipeline=}" in action for action in inlined)
