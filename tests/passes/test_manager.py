"""Running lists of passes: stages, counts, verification, and the text that lists them."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.graph import Constant, Module, Value
from nacre.dialect.parser import parse_module
from nacre.dialect.printer import collect_constants, print_module
from nacre.dialect.types import F32, TensorType
from nacre.passes.fold.fold_constants import FoldConstants
from nacre.passes.manager import Context, Pass, PassError, PassManager, Stage
from nacre.passes.pass_list import format_pipeline, parse_pipeline, run_pipeline_text
from nacre.passes.registry import PASSES, RENAMED
from nacre.passes.simplify.dce import Dce
from nacre.passes.simplify.decompose import Decompose
from nacre.passes.simplify.unroll_repeat import UnrollRepeat

TEXT = """module m

func main(%x: f32[2]) -> (f32[2]) {
  %1 = exp(%x) : f32[2]
  %2 = sin(%1) : f32[2]
  %3 = exp(%x) : f32[2]
  return %3
}
"""
PACKAGE = Path(__file__).parents[2] / "passes"


def test_stages_hold_the_graph_after_each_pass() -> None:
    seen: list[Stage] = []
    manager = PassManager(parse_pipeline("cse,canonicalize,dce"), watch=seen.append)
    result = manager.run(parse_module(TEXT))
    assert seen == manager.stages
    assert [(s.number, s.name, s.changed) for s in seen] == [
        (0, "input", False),
        (1, "cse", True),
        (2, "canonicalize", False),
        (3, "dce", True),
    ]
    assert [s.nodes for s in seen] == [3, 2, 2, 1]
    assert seen[0].text == TEXT and seen[3].text == print_module(result)
    assert seen[1].module is seen[2].module
    assert all(s.seconds >= 0 for s in seen)


def test_rewrites_are_numbered_and_limited() -> None:
    manager = PassManager(parse_pipeline("cse,dce"), rewrite_limit=1)
    manager.run(parse_module(TEXT))
    assert list(map(str, manager.context.rewrites)) == ["1: cse: merge: %3 = exp(%x) : f32[2]"]
    assert [s.changed for s in manager.stages] == [False, True, False]
    manager.run(parse_module(TEXT))
    assert len(manager.context.rewrites) == 1 and len(manager.stages) == 3


def invalid(module: Module) -> Module:
    nobody = Value("nobody", TensorType(F32, (2,)))
    return replace(module, functions=(replace(module.functions[0], results=(nobody,)),))


@dataclass(frozen=True)
class Break(Pass):
    """Leaves a graph that is not valid."""

    name: ClassVar[str] = "break"

    def rewrite(self, module: Module, context: Context) -> Module:
        context.allow("break", module.functions[0].body[0])
        return invalid(module)


def test_invalid_graph_names_the_pass_and_is_still_shown() -> None:
    seen: list[Stage] = []
    with pytest.raises(PassError, match="`%nobody` is not defined here") as caught:
        PassManager([Dce(), Break(), Dce()], watch=seen.append).run(parse_module(TEXT))
    assert caught.value.step == Break() and "it produced an invalid graph" in caught.value.what
    assert caught.value.before == seen[-2].module and isinstance(caught.value.__cause__, DiagnosticError)
    assert seen[-1].name == "break" and "%nobody" in seen[-1].text
    assert PassManager([Break()], check=False).run(parse_module(TEXT)) is not None


def test_a_pass_that_fails_is_named_with_the_graph_that_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Module:
        raise AssertionError("planted")

    monkeypatch.setattr(Break, "rewrite", fail)
    with pytest.raises(PassError, match="pass `break`: AssertionError: planted") as caught:
        PassManager([Dce(), Break()]).run(parse_module(TEXT))
    assert print_module(caught.value.before) == run_pipeline_text(TEXT, [Dce()])
    with pytest.raises(DiagnosticError, match="is not defined here"):
        PassManager([]).run(invalid(parse_module(TEXT)))


def test_text_in_text_out() -> None:
    after = run_pipeline_text(TEXT, "cse,dce")
    assert after == "module m\n\nfunc main(%x: f32[2]) -> (f32[2]) {\n  %1 = exp(%x) : f32[2]\n  return %1\n}\n"
    assert run_pipeline_text(TEXT, "") == TEXT
    assert run_pipeline_text(TEXT, [Dce()], rewrite_limit=0) == TEXT


def test_big_constants_pass_through_text() -> None:
    big = Constant(np.arange(100, dtype=np.float32))
    text = f"""module m
        func main() -> (f32[100]) {{
          %1 = constant() {{value = constant<{big.type}, #{big.digest}>}} : f32[100]
          %2 = negate(%1) : f32[100]
          return %2
        }}"""
    assert "negate" in run_pipeline_text(text, "fold-constants,dce")
    folded = run_pipeline_text(text, "fold-constants,dce", constants={big.digest: big.data})
    assert Constant(-big.data).digest in folded and "negate" not in folded
    assert collect_constants(parse_module(folded)) == {}


def test_fault_of_the_text_points_into_it() -> None:
    with pytest.raises(DiagnosticError) as caught:
        run_pipeline_text(TEXT.replace("sin(%1)", "sin(%x, %1)"), "dce", file="a.graph")
    assert "error[wrong-operands]" in str(caught.value) and "a.graph:5:3" in str(caught.value)
    assert "5 |   %2 = sin(%x, %1) : f32[2]" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("", ()),
        ("dce", (Dce(),)),
        (" dce , fold-constants,", (Dce(), FoldConstants())),
        ("unroll-repeat{limit=8},dce", (UnrollRepeat(8), Dce())),
        ("unroll-repeat{limit=none}", (UnrollRepeat(),)),
        ("decompose{keep=softmax|gelu}", (Decompose(("softmax", "gelu")),)),
        ("decompose{}", (Decompose(),)),
        ("fold-constants{growth=0,}", (FoldConstants(0),)),
    ],
)
def test_list_of_passes(text: str, passes: tuple[Pass, ...]) -> None:
    assert parse_pipeline(text) == passes
    assert parse_pipeline(format_pipeline(passes)) == passes


def test_options_are_printed_where_they_are_not_the_default() -> None:
    passes = (UnrollRepeat(), UnrollRepeat(3), Decompose(("a", "b")), FoldConstants(0))
    assert (
        format_pipeline(passes) == "unroll-repeat,unroll-repeat{limit=3},decompose{keep=a|b},fold-constants{growth=0}"
    )


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("dse", "unknown-pass", "did you mean `dce`?"),
        ("frobnicate", "unknown-pass", "there are batch-last, batch-scanned, butterflies, canonicalize"),
        ("dce cse", "pipeline-syntax", "expected `,` between passes"),
        (",", "pipeline-syntax", "expected the name of a pass"),
        ("dce{limit=3}", "unknown-option", "it has no options"),
        ("unroll-repeat{limt=3}", "unknown-option", "did you mean `limit`?"),
        ("unroll-repeat{limit}", "pipeline-syntax", "expected `=`"),
        ("unroll-repeat{limit=3", "pipeline-syntax", "expected `}`"),
        ("unroll-repeat{limit=}", "bad-option", "is ``, expected a number or none"),
        ("unroll-repeat{limit=3.5}", "bad-option", "is `3.5`, expected a number or none"),
        ("fold-constants{growth=none}", "bad-option", "is `none`, expected a number"),
        ("unroll-repeat{", "pipeline-syntax", "expected the name of an option, or `}`"),
        ("\n\n  dse", "unknown-pass", "<passes>:3:3"),
    ],
)
def test_faults_of_a_list(text: str, code: str, words: str) -> None:
    with pytest.raises(DiagnosticError) as caught:
        parse_pipeline(text)
    assert [d.code for d in caught.value.diagnostics] == [code]
    assert words in str(caught.value)


def test_every_pass_is_in_the_file_of_its_name_and_has_a_docstring() -> None:
    for name, kind in PASSES.items():
        (file,) = PACKAGE.rglob(f"{name.replace('-', '_')}.py")
        assert kind.__module__ == ".".join(("nacre.passes", file.parent.name, file.stem))
        assert kind.__doc__ and len(kind.__doc__.split()) > 12, name
        assert all(f.default is not None or "None" in str(f.type) for f in fields(kind)), name
        assert kind() == kind() and hash(kind()) == hash(kind())


def test_former_names_lead_to_the_present_ones() -> None:
    assert set(RENAMED.values()) <= PASSES.keys() and not RENAMED.keys() & PASSES.keys()
    for former, present in RENAMED.items():
        with pytest.raises(DiagnosticError, match=f"there is no pass `{former}`") as caught:
            parse_pipeline(former)
        assert caught.value.diagnostics[0].help == f"it is named `{present}` now"
    assert RENAMED
