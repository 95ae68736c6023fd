"""Keys of caches: a change of any one input gives another key, and a change of nothing else does.

Tables have a changed value for each field of a record; a new field without one fails the test.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from nacre.compiler import cache, identity
from nacre.compiler.api import read_model
from nacre.compiler.artifact import link
from nacre.compiler.artifact.assemble import weights_path
from nacre.compiler.artifact.link import Linker
from nacre.compiler.base import packages
from nacre.compiler.cache import cached_path
from nacre.compiler.cli import quantize
from nacre.compiler.cli.build_options import Chosen
from nacre.compiler.codegen.objects import CodeOptions, ObjectCode
from nacre.compiler.codegen.tiler.evaluate import Evaluator
from nacre.compiler.codegen.tiler.schedule import Stage as TilerStage
from nacre.compiler.codegen.tiler.text import Writer
from nacre.compiler.codegen.workers import object_cache
from nacre.compiler.codegen.workers.job import Job, Report
from nacre.compiler.codegen.workers.object_cache import ObjectCache
from nacre.compiler.lower.function import Shared
from nacre.compiler.lower.packing import Packing
from nacre.compiler.lower.parts import KernelPart
from nacre.compiler.model.checks import ModelBudget
from nacre.compiler.model.policy import Calibration, Policy, Requirement
from nacre.compiler.model.source import SourceModel
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.quantization.fit_codes import Codes
from nacre.compiler.quantization.fits import with_fits
from nacre.compiler.readers.language import grammar
from nacre.compiler.targets.target import MadeFor, Target
from nacre.compiler.targets.vector_unit import PanelSizes
from nacre.compiler.tools.quantize.findings import Findings, Tried
from nacre.compiler.validate import kernels, passed
from nacre.compiler.validate.alone import Way
from nacre.compiler.validate.checker import Checker
from nacre.compiler.validate.passed import Passed
from nacre.compiler.weight_sizes import parse_bound
from nacre.dialect.diagnostics import Span
from nacre.dialect.graph import Constant, Formula, Function, Module, Node, Parameter, Region, Value
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.remembered import KeptParameters, KeptResults
from nacre.dialect.types import BLOCK_DTYPES, F32, F64, I32, DType, TensorType
from nacre.passes.analysis.known_values import KnownValues, definitions_in
from nacre.passes.analysis.node_keys import node_key
from nacre.passes.manager import Stage


def assert_each_field_counts(record: Any, changed: Mapping[str, Any], ignored: set[str], key: Any) -> None:
    assert set(changed) == {field.name for field in fields(record)}
    keys = {"": key(record)}
    for name, value in changed.items():
        assert value != getattr(record, name), name
        other = key(replace(record, **{name: value}))
        if name in ignored:
            assert other == keys[""], name
        else:
            keys[name] = other
    assert len(set(keys.values())) == len(keys)


def test_keys_of_objects() -> None:
    changed: Mapping[str, Any] = {
        "level": 3,
        "cpu": "x86-64-v4",
        "triple": "aarch64-linux-gnu",
        "features": "+fma",
        "keep": ("g",),
        "route": "tiled",
        "visible": True,
        "dump": ("tiled",),
        "strict": True,
        "debug": True,
        "start": "llvm-ir",
        "known": Report(schedules=("tile",)),
        "scratch": 1,
        "parts": (1056,),
        "tf32": True,
        "ptxas": "/bin/ptxas",
        "ptxas_version": "13.0.88",
        "inner": True,
        "alarm": True,
    }
    job = Job(2, "x86-64-v3", "", "", ("f",), "loops")
    assert_each_field_counts(job, changed, {"ptxas"}, lambda j: ObjectCache(None).key("text", j))


def test_identities_of_files_and_of_the_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The path, the size and the date of a file; the version, the packages and the files of the compiler."""
    path, other = tmp_path / "a.py", tmp_path / "b.py"

    def write(path: Path, text: str, date: int) -> None:
        path.write_text(text)
        os.utime(path, (date, date))

    def found(*paths: Path) -> tuple[str, ...]:
        return tuple(identity.identify_files(paths))

    def compiler() -> str:
        identity.identify_compiler.cache_clear()
        return identity.identify_compiler()

    write(path, "1", 1)
    write(other, "1", 1)
    first = found(path)
    assert first == found(path) != found(other)
    monkeypatch.setattr(identity, "_ROOMS", [tmp_path])
    made = [compiler()]
    write(path, "12", 1)
    longer = found(path)
    made.append(compiler())
    write(path, "1", 2)
    assert len({first, longer, found(path)}) == 3
    made.append(compiler())
    for name, value in (("__version__", "another"), ("identify_packages", lambda: ("another",))):
        with monkeypatch.context() as patch:
            patch.setattr(identity, name, value)
            made.append(compiler())
    (tmp_path / "c.h").write_text("")
    made.append(compiler())
    identity.identify_compiler.cache_clear()
    assert len(set(made)) == len(made)


def test_keys_of_sources_that_generate_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The name and the content of each file."""
    job = Job(2, "x86-64-v3", "", "", ("f",))

    def key(**files: str) -> str:
        paths = [tmp_path / f"{name}.py" for name in sorted(files)]
        for path in paths:
            path.write_text(files[path.stem])
        monkeypatch.setattr(object_cache, "generator_sources", lambda: paths)
        object_cache._generator.cache_clear()
        return ObjectCache(None).key("text", job)

    found = [key(), key(a="1"), key(a="2"), key(b="1"), key(a="1", b="2"), key(a="2", b="1"), key(a="1", c="2")]
    object_cache._generator.cache_clear()
    assert len(set(found)) == len(found)


def test_keys_of_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another version of one package gives other objects, artifacts, and checks."""

    def found() -> tuple[str, ...]:
        for remembered in (packages.identify_packages, identity.identify_compiler, object_cache._generator):
            remembered.cache_clear()
        build = Build(read_model("model f(x: f32[2]) -> f32[2] { return exp(x) }"))
        job = Job(2, "x86-64-v3", "", "", ("f",))
        checks = Passed(tmp_path, lambda parameter: X)  # type: ignore[arg-type, return-value]  # it reads none
        return ObjectCache(None).key("text", job), str(cached_path(build)), checks.key(module(), b"text")

    versions = {name: version(name) for name in ("llvmlite", "mlir", "numpy", "torch-mlir") if is_installed(name)}
    assert {"llvmlite", "numpy"} < {*versions}
    keys = [found()]
    assert found() == keys[0]
    with monkeypatch.context() as patch:
        for changed in versions:
            others = {**versions, changed: "another"}

            def version_of(name: str, others: Mapping[str, str] = others) -> str:
                if name not in others:
                    raise PackageNotFoundError(name)
                return others[name]

            patch.setattr(packages, "version", version_of)
            keys.append(found())
    assert found() == keys[0]
    for one_kind in zip(*keys, strict=True):
        assert len(set(one_kind)) == len(keys)


def is_installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def test_known_reports_of_objects() -> None:
    report = Report((KernelPart((True, False), ()),), ("tile",))
    changed: Mapping[str, Any] = {
        "parts": (KernelPart((True, False), ((1, 0),)),),
        "schedules": ("rows",),
        "reason": "a loop",
        "made_for": MadeFor("znver4"),
        "steps": (8,),
        "code": "define void @f()",
    }

    def key(known: Report) -> str:
        return ObjectCache(None).key("text", Job(2, "x86-64-v3", "", "", ("f",), known=known))

    assert_each_field_counts(report, changed, set(), key)


def test_identities_of_options() -> None:
    changed: Mapping[str, Any] = {
        "level": 1,
        "targets": (Target("x86-64-v3"),),
        "passes": "dce",
        "strict": True,
        "debug": True,
        "rewrite_limit": 0,
        "size": parse_bound("1.5x"),
        "cache": False,
        "weights": "external",
        "graphs": False,
        "cubin": False,
        "cc": "clang",
        "timeout": 1.0,
        "start": "llvm-ir",
    }
    assert_each_field_counts(Options(), changed, {"cache", "timeout"}, lambda options: options.identity)


def test_keys_of_artifacts(tmp_path: Path) -> None:
    """Fields of a model. Some have no part in an artifact, or change it through its graph alone; files of weights count
    where a parameter is read (`tests/cli/test_cache.py`)."""
    path = tmp_path / "m.nacre"
    path.write_text("language 1\nmodel f(x: f32[2]) -> f32[2] { return exp(x) }\n")
    model = read_model(path)
    policy = Policy(requirements=(Requirement("error", 1.0, path),))
    changed: Mapping[str, Any] = {
        "module": module("tanh"),
        "file": str(tmp_path / "folder" / "m.nacre"),
        "weights": {"f": tmp_path / "w.npz"},
        "tests": (object(),),
        "budgets": (ModelBudget("f", "flops", {}, "<=", 1.0, "", "count", Span("m.nacre", 1, 1, 1, 2)),),
        "policies": (policy,),
        "sources": {},
        "warnings": (object(),),
        "precision": "bf16",
        "written": replace(model, policies=(policy,)),
        "acceptance": object(),
    }
    ignored = {"tests", "policies", "sources", "warnings", "acceptance", "weights"}
    assert_each_field_counts(model, changed, ignored, lambda m: cached_path(Build(m)))


def test_the_variable_for_the_c_compiler_counts_without_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(variable: str, cc: str | None) -> Path:
        monkeypatch.setenv("CC", variable)
        return cached_path(Build(read_model("model f(x: f32[2]) -> f32[2] { return exp(x) }"), Options(cc=cc)))

    assert len({found("gcc", None), found("clang", None), found("", None), found("gcc", "gcc")}) == 4
    assert found("gcc", "cc") == found("clang", "cc")


def test_another_cpu_counts_for_code_that_is_made_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(cpu: str, host: str) -> Path:
        monkeypatch.setattr(cache, "identify_host", lambda: host)
        options = Options(targets=(Target(cpu),))
        return cached_path(Build(read_model("model f(x: f32[2]) -> f32[2] { return exp(x) }"), options))

    assert found("native", "one") != found("native", "another")
    assert found("x86-64-v3", "one") == found("x86-64-v3", "another")


def test_keys_of_measurements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`nacre quantize` reuses a measurement only for the weights, data and options that it was made with."""
    text = "model f(x: f32[2]) -> f32[2] {{\n  param w: f32[2]\n  return x * w{}\n}}\n"
    text += "model g(x: f32[2]) -> f32[2] {{ return x }}\n"
    for name in ("a.npz", "b.npz"):
        np.savez(tmp_path / name, x=np.ones((3, 2), np.float32))
        os.utime(tmp_path / name, (1, 1))
    ones = np.ones(2, np.float32)

    def question(
        weight: Any = ones,
        *,
        more: str = "",
        name: str = "f",
        data: str = "a.npz",
        method: Any = "mse",
        estimate: bool = False,
        batch: int = 1,
        threads: int = 1,
        level: int = 2,
    ) -> str:
        model = read_model(text.format(more), {"w": weight})
        chosen = Chosen(Options(level=level), None, False)
        calibration = Calibration(tmp_path / data, method)
        return repr(quantize._question(model, name, calibration, estimate, batch, threads, chosen))

    first = question()
    assert question(ones.copy()) == first
    keys = [
        question(2 * ones),
        question(more=" + 1"),
        question(name="g"),
        question(data="b.npz"),
        question(method="minmax"),
        question(estimate=True),
        question(batch=2),
        question(threads=2),
        question(level=1),
    ]
    for changed, value in {"identify_compiler": "another version", "identify_host": "another CPU"}.items():
        with monkeypatch.context() as patch:
            patch.setattr(quantize, changed, lambda value=value: value)
            keys.append(question())
    os.utime(tmp_path / "a.npz", (2, 2))
    keys.append(question())
    assert len({first, *keys}) == len(keys) + 1


def test_keys_of_compiled_runtimes(tmp_path: Path) -> None:
    compiler, other = (tmp_path / name for name in ("cc", "other"))
    for path in (compiler, other):
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        os.utime(path, (1, 1))
    sources = (("a.c", "int a;"), ("a.h", "int b;"))

    def key(*command: object, machine: str = "x86_64", dialect: tuple[str, ...] = (), files: Any = sources) -> str:
        link._key.cache_clear()  # it assumes that the compiler stays as it is while a process runs
        return link._key(Linker(tuple(map(str, command)), machine), dialect, files)

    first = key(compiler)
    assert key(compiler) == first
    keys = {
        "path": key(other),
        "argument": key(compiler, "-m32"),
        "machine": key(compiler, machine="wasm32"),
        "dialect": key(compiler, dialect=("-mtls-dialect=gnu2",)),
        "text": key(compiler, files=(("a.c", "int c;"), sources[1])),
        "name": key(compiler, files=(("b.c", "int a;"), sources[1])),
        "order": key(compiler, files=sources[::-1]),
        "border": key(compiler, files=(("a.ci", "nt a;"), sources[1])),
    }
    os.utime(compiler, (2, 2))
    keys["date"] = key(compiler)
    os.utime(compiler, (1, 1))
    assert key(compiler) == first
    compiler.write_text("#!/bin/sh\n\n")
    os.utime(compiler, (1, 1))
    keys["size"] = key(compiler)
    assert len({first, *keys.values()}) == len(keys) + 1


X, Y = (Value(name, TensorType(F32, (2, 3))) for name in "xy")


def module(op: str = "exp", name: str = "f", parameters: tuple[Parameter, ...] = ()) -> Module:
    node = Node(op, (X,), (Y,))
    return Module("m", (), parameters, (Function(name, (X,), (node,), (Y,), ("y",)),))


def test_keys_of_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = Parameter("w", X.type)
    data = np.ones((2, 3), np.float32)

    def key(*subject: Any, reference: Module | None = None, data: Any = data) -> str:
        checks = Passed(tmp_path, lambda parameter: data)
        return checks.key(reference or module(parameters=(weight,)), *subject)

    first = key("kernel", b"text", module())
    assert key("kernel", b"text", module()) == first
    keys = {
        "kind": key("artifact", b"text", module()),
        "text": key("kernel", b"another", module()),
        "graph": key("kernel", b"text", module("tanh")),
        "order": key("kernel", module(), b"text"),
        "border": key("kernelt", b"ext", module()),
        "less": key("kernel", b"text"),
        "reference": key("kernel", b"text", module(), reference=module("tanh", parameters=(weight,))),
        "data": key("kernel", b"text", module(), data=2 * data),
        "sign": key("kernel", b"text", module(), data=-data),
    }
    for name, changed in {"identify_compiler": "another version", "identify_host": "another CPU"}.items():
        with monkeypatch.context() as patch:
            patch.setattr(passed, name, lambda changed=changed: changed)
            keys[name] = key("kernel", b"text", module())
    assert len({first, *keys.values()}) == len(keys) + 1


def test_keys_of_checked_kernels(tmp_path: Path) -> None:
    target, other = Target("x86-64"), Target("x86-64-v3")
    code = ObjectCode(b"code", Report(("tile",)))

    def key(op: str = "exp", *, on: Target = target, made: ObjectCode = code, **options: Any) -> str:
        part: Any = SimpleNamespace(module=module(op), symbol="k")
        program: Any = SimpleNamespace(kernels={on: {"k": made, "other": code}})
        panels = options.pop("pack", None)
        way = Way(CodeOptions((on,), 2, visible=True, **options), panels, (on,))
        return kernels._key(part, program, way, Passed(tmp_path, lambda parameter: X))  # type: ignore[arg-type, return-value]

    first = key()
    assert key() == first
    keys = {
        "graph": key("tanh"),
        "target": key(on=other),
        "code": key(made=replace(code, code=b"other")),
        "report": key(made=replace(code, report=Report(("rows",)))),
        "strict": key(strict=True),
        "panels": key(pack=PanelSizes(8)),
    }
    assert len({first, *keys.values()}) == len(keys) + 1


def test_keys_of_checked_artifacts(tmp_path: Path) -> None:
    """The source, the graph after the passes, each file of the artifact, and the devices that run it."""
    path = tmp_path / "m.so"

    def key(
        op: str = "exp", last: str = "exp", code: bytes = b"code", weights: bytes | None = None, device: str = "cpu"
    ) -> str:
        checker = Checker(SourceModel(module(op), "m.graph", {"f": None}), Options(), tmp_path)
        checker.accept_graph(Stage(0, "input", module(op)))
        checker.stages.append(Stage(1, "pass", module(last)))
        for file, data in ((path, code), (weights_path(path), weights)):
            file.unlink(missing_ok=True)
            if data is not None:
                file.write_bytes(data)
        return checker._artifact_key(path, (device,))

    first = key()
    assert key() == first
    keys = [key("tanh"), key(last="tanh"), key(code=b"other"), key(weights=b""), key(weights=b"data")]
    assert len({first, *keys, key(code=b"co", weights=b"de"), key(device="cuda")}) == len(keys) + 3


def test_keys_of_stored_weights() -> None:
    """Weights of an artifact: one for each source, packing, and shape under which a kernel reads it."""
    square, same = TensorType(F32, (16, 16)), np.arange(256, dtype=np.float32).reshape(16, 16)
    names = {name: Parameter(name, square) for name in ("w", "v")}
    packing = Packing((), (0,), 1, 8)
    cube, turned = TensorType(F32, (4, 4, 16)), TensorType(F32, (16, 4, 4))
    changed = {
        "batch": replace(packing, batch=(0,)),
        "summed": replace(packing, summed=(1, 0)),
        "lane": replace(packing, lane=0),
        "width": replace(packing, width=16),
        "group": replace(packing, group=4),
    }
    assert_each_field_counts(packing, {n: getattr(p, n) for n, p in changed.items()}, set(), lambda p: p.name)
    uses = [
        *((names[name], None, square) for name in ("w", "v")),
        *((names["w"], each, square) for each in (packing, replace(packing, lane=0, summed=(1,)))),
        (names["v"], packing, square),
        (names["w"], Packing((), (0, 1), 2, 8), cube),
        (names["w"], Packing((), (0, 1), 2, 8), TensorType(F32, (8, 2, 16))),
        (names["w"], Packing((), (1, 2), 0, 8), turned),
        # These differ in the axes of a batch alone.
        *((names["w"], Packing(batch, summed, 2, 8), cube) for batch, summed in (((), (1, 0)), ((1,), (0,)))),
        *(
            (Constant(array), None, TensorType(F32, array.shape))
            for array in (same, -same, same.T, same.reshape(8, 32))
        ),
        (Constant(same.view(np.int32)), None, TensorType(I32, (16, 16))),
        (Constant(same), packing, square),
    ]
    shared = Shared(Module("m", (), tuple(names.values())))
    places = [shared.weight(*use) for use in uses]
    assert len(set(places)) == len(uses)
    assert [shared.weight(*use) for use in uses] == places


def test_keys_of_memory_on_the_stack() -> None:
    """Of a kernel: what it is for, the op, the number of elements, and their type."""
    evaluator = Evaluator(Writer({}), TilerStage())
    op, other = (SimpleNamespace(result=SimpleNamespace(element="f32")) for _ in range(2))

    def found(kind: str = "row", op: Any = op, elements: int = 8, element: str | None = None) -> object:
        return evaluator.stack(kind, op, elements, element)

    first = found()
    others = [found("sums"), found(op=other), found(elements=9), found(elements=7), found(element="bf16")]
    assert len({first, *others}) == len(others) + 1
    assert found() == first == found(element="f32")


def test_keys_of_fitted_weights() -> None:
    """Fitted quantized values replace the quantization of one formula to one dtype alone."""
    kind = TensorType(F32, (2, 32))

    def quantized(name: str, bits: int) -> Module:
        b, w = Builder(OPERATORS), Value("w", kind)
        y = b.dequantize_blocks(b.quantize_blocks(w, dtype=BLOCK_DTYPES[f"q{bits}[block 32]"]))
        body = (Node("parameter", (), (w,), (("name", name),)), *b.nodes)
        parameters = tuple(Parameter(each, kind) for each in "wv")
        return Module("m", (), parameters, (Function("f", (), body, (y,), ("y",)),))

    found = quantized("w", 4)
    known = KnownValues(definitions_in(found.functions[0].body), found.parameter_index)
    codes = Codes(np.zeros((2, 16), np.uint8), np.ones((2, 1), np.float16), None)
    fits = {(known.formula(Value("w", kind)), BLOCK_DTYPES["q4[block 32]"]): codes}
    for name, bits in (("w", 4), ("v", 4), ("w", 8)):
        model = quantized(name, bits)
        assert (with_fits(model, fits) != model) == ((name, bits) == ("w", 4))


def test_keys_of_tried_assignments() -> None:
    figures, chosen = Tried({"error": 1.0}, 1.0), {"a": "f32", "b": "i8"}
    findings = Findings({})
    findings.add_tried(chosen, figures)
    assert findings.tried(dict(reversed(chosen.items()))) is figures
    others = (
        {**chosen, "b": "f32"},
        {"a": "i8", "b": "f32"},
        {"a": "f32", "c": "i8"},
        {"a": "f32"},
        {**chosen, "c": "i8"},
    )
    assert [findings.tried(other) for other in others] == [None] * len(others)


def test_keys_of_grammars(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of a parser belong to the text, to the code that makes them, to Lark and to Python."""
    keys = [grammar._grammar_key("a", b""), grammar._grammar_key("b", b""), grammar._grammar_key("a", b"c")]
    for module, name in ((grammar.lark, "__version__"), (grammar.sys, "version")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, "another")
            keys.append(grammar._grammar_key("a", b""))
    assert grammar._grammar_key("a", b"") == keys[0]
    assert len(set(keys)) == 5


def attribute(value: object) -> Node:
    return Node("sum", (X,), (Y,), (("axis", value),))  # type: ignore[arg-type]  # any attribute


def region(
    body: Callable[[Value], Node] = lambda a: Node("exp", (a,), (Y,)), argument: Value = X, result: Value = Y
) -> Node:
    return Node("scan", (X,), (Y,), (), (Region((argument,), (body(argument),), (result,)),))


A = Value("a", X.type)
DIFFERENT: Mapping[str, Node] = {
    "base": Node("exp", (X,), (Y,)),
    "operator": Node("tanh", (X,), (Y,)),
    "operand": Node("exp", (Y,), (Y,)),
    "two operands": Node("exp", (X, X), (Y,)),
    "dtype of the result": Node("exp", (X,), (Value("y", TensorType(I32, (2, 3))),)),
    "shape of the result": Node("exp", (X,), (Value("y", TensorType(F32, (3, 2))),)),
    "two results": Node("exp", (X,), (Y, X)),
    "order": Node("subtract", (X, Y), (Y,)),
    "other order": Node("subtract", (Y, X), (Y,)),
    **{f"attribute {value!r}": attribute(value) for value in (0, 1, 1.0, 0.0, -0.0, True, (1,), "1", F32)},
    **{
        f"constant of {array.dtype}, {array.shape}": attribute(Constant(array))
        for array in (np.ones(4, np.float32), np.ones((2, 2), np.float32), np.full(4, 0x3F800000, np.int32))
    },
    "name of an attribute": Node("sum", (X,), (Y,), (("axes", 0),)),
    "region": region(),
    "operator in a region": region(lambda a: Node("tanh", (a,), (Y,))),
    "a value from outside in a region": region(lambda a: Node("exp", (Value("z", X.type),), (Y,)), A),
    "another one from outside": region(lambda a: Node("exp", (Value("w", X.type),), (Y,)), A),
    "result of a region": region(result=X),
    "type of an argument": region(argument=Value("x", TensorType(F32, (3, 3)))),
}
EQUAL: Mapping[str, tuple[Node, Node]] = {
    "name of a result": (Node("exp", (X,), (Y,)), Node("exp", (X,), (A,))),
    "order of a sum": (Node("add", (X, Y), (Y,)), Node("add", (Y, X), (Y,))),
    "names in a region": (region(), region(argument=A)),
    "scope": (Node("exp", (X,), (Y,)), Node("exp", (X,), (Y,), scope="layer.0")),
}


def test_keys_of_nodes() -> None:
    keys = {name: node_key(node, {}) for name, node in DIFFERENT.items()}
    found: dict[object, str] = {}
    for name, key in keys.items():
        assert key not in found, (name, found[key])
        found[key] = name


@pytest.mark.parametrize("name", EQUAL)
def test_nodes_that_compute_the_same(name: str) -> None:
    first, second = EQUAL[name]
    assert node_key(first, {}) == node_key(second, {})


def test_keys_of_kept_results() -> None:
    """Of nodes that the interpreter does not compute again: each part of a node, of its operands and of the call."""
    large = np.zeros((8, 8), np.float32)  # too large to be recognized by its bytes
    small = np.arange(4, dtype=np.float32)
    node = Node("sum", (X,), (Y,), (("axis", 0),))

    def key(
        node: Node = node,
        inputs: tuple[Any, ...] = (small,),
        dims: Mapping[str, int] | None = None,
        precision: DType | None = None,
    ) -> tuple[object, ...]:
        return KeptResults().key(node, inputs, {"T": 3, "S": 3} if dims is None else dims, precision)

    first = key()
    assert key(inputs=(small.copy(),)) == first == key(dims={"S": 3, "T": 3})
    assert key(replace(node, scope="layer.0", outputs=(replace(Y, name="z"),))) == first
    changed = [
        key(replace(node, op="max")),
        *(key(attribute(value)) for value in (1, 0.0, -0.0, False, (0,), "0", F32)),
        *(key(attribute(Constant(np.zeros(2, dtype)))) for dtype in (np.float32, np.int32)),
        key(replace(node, attributes=(("axes", 0),))),
        key(replace(node, outputs=(Value("y", TensorType(I32, (2, 3))),))),
        key(replace(node, outputs=(Y, X))),
        *(key(inputs=(array,)) for array in (-small, small[::-1], small[:3], small[None], small.view(np.int32))),
        key(inputs=(small, small)),
        key(inputs=()),
        *(key(inputs=(array,)) for array in (large, large.copy(), large.T[:4], large[:4], large[::2], large[4:])),
        key(inputs=(large.view(np.int32),)),
        *(key(inputs=pair) for pair in ((large, small), (small, large))),
        key(dims={"T": 4, "S": 3}),
        key(dims={"T": 3, "S": 4}),
        key(dims={"T": 3, "N": 3}),
        key(precision=F64),
    ]
    assert len({first, *changed}) == len(changed) + 1


def test_keys_of_kept_parameters() -> None:
    changed: Mapping[str, Any] = {
        "name": "v",
        "type": TensorType(F32, (3, 2)),
        "counts": (2,),
        "source": "v",
        "transpose": (1, 0),
        "formula": Formula((), (), Y),
    }
    parameter = Parameter("w", TensorType(F32, (2, 3)))
    assert {*changed, "span"} == {field.name for field in fields(parameter)}
    kept = KeptParameters()
    arrays = {name: np.full(1, number) for number, name in enumerate(["", "f64", *changed])}
    others = {name: replace(parameter, **{name: value}) for name, value in changed.items()}
    kept.add(parameter, None, arrays[""])
    assert kept.get(parameter, None) is arrays[""] is kept.get(replace(parameter), None)
    for name, other in others.items():
        assert kept.get(other, None) is None, name
        kept.add(other, None, arrays[name])
    assert kept.get(parameter, F64) is None
    kept.add(parameter, F64, arrays["f64"])
    assert kept.get(parameter, F64) is arrays["f64"] and kept.get(parameter, None) is arrays[""]
    assert all(kept.get(other, None) is arrays[name] for name, other in others.items())
