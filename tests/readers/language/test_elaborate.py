"""What `load_module` and `check_source` give, beside what the file tests of diagnostics and the run tests see."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from nacre.compiler.model.source import SourceModel
from nacre.compiler.readers import language as frontend
from nacre.compiler.weights import open_checkpoint
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.graph import Function, walk
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.verifier import verify
from safetensors.numpy import save_file

LINEAR = """
block Linear<inputs, outputs>(x: f32[..., inputs]) -> f32[..., outputs] {
  param weight: f32[outputs, inputs]
  return x @ weight.T
}
"""


def load(text: str) -> SourceModel:
    source_model = frontend.load_module(text, text=True)
    verify(source_model.module)
    return source_model


def operators(function: Function) -> list[str]:
    return [node.op for node in walk(function.body)]


def codes(text: str, root: Path | None = None) -> list[str]:
    return [fault.code for fault in frontend.check_source(text, "test.nacre", root)]


def run(text: str, *arguments: object) -> list[np.ndarray]:
    module = load(text).module
    interpreter = Interpreter(module, lambda parameter: np.ones(parameter.type.shape, np.float32))
    return list(interpreter.run(module.functions[0], [np.asarray(a) for a in arguments]))


# --- what comes out ---


def test_a_model_becomes_a_function_with_named_arguments_and_results() -> None:
    source_model = load(
        "dim B in 1..8\n\n"
        "model two(x: f32[B, 4], y: f32[4]) -> f32[B, 4], sum: f32[B, 4], f32[4] { return x, x + y, y }\n\n"
        "model one(x: f32[B]) -> f32[B] { return -x }\n"
    )
    two, one = source_model.module.functions
    assert [a.name for a in two.arguments] == ["x", "y"]
    assert two.result_names == ("result0", "sum", "result2")
    assert one.result_names == ("result",)
    assert [str(d) for d in source_model.module.dims] == ["dim B in 1..8"]
    assert two.results[0] == two.arguments[0]


def test_nodes_have_their_instance_and_their_span() -> None:
    text = f"{LINEAR}\nmodel f(x: f32[2, 4]) -> f32[2, 4] {{\n  use up = Linear<4, 4>\n  return up(x) + 1\n}}\n"
    function = load(text).module.function("f")
    product = next(node for node in function.body if node.op == "matmul")
    assert product.scope == "up" and product.span is not None
    assert text.splitlines()[product.span.line - 1][product.span.column - 1 :].startswith("x @ weight.T")
    total = next(node for node in function.body if node.op == "add")
    assert total.scope == ""


def test_an_element_of_an_array_is_named_by_its_number_where_that_is_known() -> None:
    """The braces that are left are those of loops."""
    inner = "block Pair(x: f32[2, 4]) -> f32[2, 4] {\n  use part[3] = Linear<4, 4>\n  x = part[0](x)\n"
    inner += "  repeat i in 0..2 { x = part[i+1](x) }\n  return x\n}\n"
    body = "  use pair[2] = Pair\n  x = pair[-1](x)\n  repeat i in 0..1 { x = pair[i](x) }\n  return x\n"
    text = f"{LINEAR}\n{inner}\nmodel f(x: f32[2, 4]) -> f32[2, 4] {{\n{body}}}\n"
    products = [node.scope for node in walk(load(text).module.function("f").body) if node.op == "matmul"]
    assert products == ["pair.1.part.0", "pair.1.part.{}", "pair.{}.part.0", "pair.{}.part.{}"]


def test_an_instance_that_is_called_twice_has_one_parameter() -> None:
    text = f"{LINEAR}\nmodel f(x: f32[2, 4]) -> f32[2, 4] {{\n  use a = Linear<4, 4>\n  return x |> a |> a\n}}\n"
    module = load(text).module
    assert [p.name for p in module.parameters] == ["a.weight"]
    assert operators(module.function("f")).count("parameter") == 1
    assert operators(module.function("f")).count("matmul") == 2


def test_an_array_that_is_only_called_by_numbers_has_single_parameters() -> None:
    text = (
        f"{LINEAR}\nmodel f(x: f32[2, 4]) -> f32[2, 4] {{\n  use a[3] = Linear<4, 4>\n  return x |> a[0] |> a[-1]\n}}\n"
    )
    module = load(text).module
    assert [(p.name, p.counts) for p in module.parameters] == [("a.0.weight", ()), ("a.2.weight", ())]


def test_a_loop_stays_a_loop() -> None:
    text = (
        f"{LINEAR}\nmodel f(x: f32[2, 4]) -> f32[2, 4] {{\n  use a[96] = Linear<4, 4>\n"
        "  repeat i in 0..96 { x = a[i](x) }\n  return x\n}\n"
    )
    module = load(text).module
    (node,) = [n for n in module.function("f").body if n.op == "repeat"]
    assert node.attribute("count") == 96
    assert operators(module.function("f")).count("matmul") == 1
    assert [(p.name, p.counts) for p in module.parameters] == [("a.{}.weight", (96,))]


def test_arrays_inside_arrays_have_an_index_each() -> None:
    text = (
        LINEAR
        + """
block Group<count>(x: f32[2, 4]) -> f32[2, 4] {
  use part[count] = Linear<4, 4>
  repeat j in 0..count { x = part[j](x) }
  return x
}

model f(x: f32[2, 4]) -> f32[2, 4] {
  use group[3] = Group<2>
  repeat i in 1..3 { x = group[i](x) }
  return x
}
"""
    )
    module = load(text).module
    assert [(p.name, p.counts) for p in module.parameters] == [("group.{}.part.{}.weight", (3, 2))]
    (node,) = [n for n in walk(module.function("f").body) if n.op == "parameter"]
    assert len(node.inputs) == 2


@pytest.mark.parametrize(("count", "expected"), [(0, 1.0), (1, 2.0), (5, 32.0)])
def test_loops_run_as_often_as_they_say(count: int, expected: float) -> None:
    text = f"model f(x: f32) -> f32 {{\n  repeat i in 0..{count} {{ x = x * 2 }}\n  return x\n}}\n"
    assert run(text, np.float32(1))[0] == expected


def test_loops_carry_assigned_values_and_read_outer_values() -> None:
    text = """
model fibonacci(a: i64, step: i64) -> i64, i64 {
  b = a
  repeat i in 3..9 {
    next = a + b * step
    a = b
    b = next
    repeat j in 0..2 { b = b + i + j }
  }
  return a, b
}
"""
    a = b = 1
    for i in range(3, 9):
        a, b = b, a + b * 2
        for j in range(2):
            b += i + j
    assert [int(v) for v in run(text, 1, 2)] == [a, b]


def test_hypers_by_name_by_default_and_blocks_without_an_instance() -> None:
    text = """
block Affine<scale, shift=scale + 1, dtype=f32>(x: dtype[...]) -> dtype[...] { return x * scale + shift }

model f(x: f32[3], n: i64[3]) -> f32[3], f32[3], i64[3] {
  return Affine<2>(x), Affine<shift=1, scale=3>(x), Affine<2, dtype=i64>(n)
}
"""
    results = run(text, np.float32([1, 2, 3]), np.int64([1, 2, 3]))
    assert [list(map(float, r)) for r in results] == [[5, 7, 9], [4, 7, 10], [5, 7, 9]]


def test_blocks_as_hyper_parameters() -> None:
    text = """
block Twice<inner>(x: f32[...]) -> f32[...] {
  use part = inner<4>
  return x |> part |> part
}

block Add<n>(x: f32[...]) -> f32[...] { return x + n }

model f(x: f32[3]) -> f32[3] { return Twice<Add>(x) }
"""
    assert list(run(text, np.float32([0, 1, 2]))[0]) == [8, 9, 10]


def test_dots_stand_for_the_same_dims_in_arguments_and_results() -> None:
    text = """
dim B in 1..8

block Add(x: f32[..., 4], y: f32[..., 1]) -> f32[..., 4] { return x + y }

model f(x: f32[B, 3, 4], y: f32[B, 3, 1]) -> f32[B, 3, 4] { return Add(x, y) }
"""
    assert run(text, np.ones((2, 3, 4), np.float32), np.ones((2, 3, 1), np.float32))[0].shape == (2, 3, 4)


def test_a_key_may_name_the_loop_a_hyper_parameter_or_nothing() -> None:
    text = """
block Layer<n>(x: f32[4]) -> f32[4] {
  param a: f32[4] from "h.{i}.a"
  param b: f32[4] from "h.{}.b"
  param c: f32[4] from "{n}.{k}.c"
  param d: f32[2, 4, 3] from "h.{i}.d" transpose 2, 0, 1
  return x + a + b + c + d[0, :, 0]
}

model f(x: f32[4]) -> f32[4] {
  use layer[3] = Layer<7>
  repeat i in 0..3 { x = layer[i](x) }
  return x
}
"""
    parameters = {p.name: p for p in load(text).module.parameters}
    sources = [parameters[f"layer.{{}}.{name}"].source for name in "abcd"]
    assert sources == ["h.{}.a", "h.{}.b", "7.{}.c", "h.{}.d"]
    assert parameters["layer.{}.d"].transpose == (2, 0, 1)
    assert parameters["layer.{}.a"].at([2]).key == "h.2.a"


def test_two_models_of_a_file_share_parameters_of_one_path() -> None:
    text = (
        LINEAR
        + "\nmodel f(x: f32[4]) -> f32[1, 4] {\n  use a = Linear<4, 4>\n  return a(x[None])\n}\n"
        + "\nmodel g(x: f32[4]) -> f32[1, 4] {\n  use a = Linear<4, 4>\n  return a(x[None]) * 2\n}\n"
    )
    assert [p.name for p in load(text).module.parameters] == ["a.weight"]


# --- files ---


def test_weights_configuration_and_names_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "config.json").write_text(json.dumps({"width": 4, "deep": {"list": [1, [2.5]]}}))
    (tmp_path / "checkpoint" / "w.npz").write_bytes(b"")
    source = tmp_path / "model" / "tiny-net.nacre"
    source.write_text(
        'config "config.json" as c\nhalf = c.width // 2 + c.deep.list[1][0]\n'
        'model f(x: f32[c.width]) -> f32[c.width] {\n  weights "w.npz"\n  return x * half\n}\n'
    )
    with pytest.raises(DiagnosticError) as failure:
        frontend.load_module(source)
    assert [d.code for d in failure.value.diagnostics] == ["missing-file"]
    by_folder = frontend.load_module(source, weights=tmp_path / "checkpoint")
    assert by_folder.weights == {"f": tmp_path / "checkpoint" / "w.npz"}
    assert by_folder.module.name == "tiny_net"
    assert list(by_folder.sources) == [str(source)]
    (tmp_path / "model" / "config.json").write_text('{"width": 8, "deep": {"list": [0, [0]]}}')
    beside = frontend.load_module(source)
    assert beside.weights == {"f": tmp_path / "model" / "w.npz"}
    assert str(beside.module.function("f").arguments[0].type) == "f32[8]"


def test_files_that_cannot_be_read_are_diagnostics(tmp_path: Path) -> None:
    (tmp_path / "latin.nacre").write_bytes("# \xe4".encode("latin-1"))
    for path in (tmp_path / "missing.nacre", tmp_path, tmp_path / "latin.nacre", Path("a\0b")):
        with pytest.raises(DiagnosticError):
            frontend.load_module(path)


def test_a_library_can_be_checked_but_not_compiled() -> None:
    assert frontend.check_source(LINEAR, "linear.nacre") == []
    with pytest.raises(DiagnosticError, match="no model"):
        frontend.load_module(LINEAR, text=True)


def test_without_a_folder_no_file_is_read() -> None:
    assert codes('import "x.nacre"\nconfig "c.json" as c\n') == ["missing-file", "missing-file"]


@pytest.mark.parametrize(
    "content", ["", "[", "[]", "3", '{"a": 1e999}', '{"a": ' + "[" * 50_000, '{"a": ' + "9" * 5_000 + "}", "\0", "NaN"]
)
def test_strange_configurations(tmp_path: Path, content: str) -> None:
    (tmp_path / "c.json").write_text(content)
    text = 'config "c.json" as c\nmodel f(x: f32[2]) -> f32[2] { return x * c.a }\n'
    assert codes(text, tmp_path) in (["bad-config"], ["literal-range"], [])


def test_an_imported_block_sees_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "library.nacre").write_text(
        'import "deeper.nacre" as deeper\nfactor = 3\n\n'
        "block Scale(x: f32[...]) -> f32[...] { return deeper.Negate(x) * factor }\n"
    )
    (tmp_path / "deeper.nacre").write_text("block Negate(x: f32[...]) -> f32[...] { return -x }\n")
    main = tmp_path / "main.nacre"
    main.write_text('import "library.nacre"\nfactor = 5\n\nmodel f(x: f32[2]) -> f32[2] { return Scale(x) * factor }\n')
    source_model = frontend.load_module(main)
    result = Interpreter(source_model.module, lambda p: np.zeros(0)).run("f", [np.float32([1, 2])])[0]
    assert list(result) == [-15, -30]
    assert {Path(name).name for name in source_model.sources} == {"main.nacre", "library.nacre", "deeper.nacre"}


# --- tests and budgets ---


def test_tests_and_budgets_become_records(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.float32([[1, 2]]))
    np.savez(tmp_path / "y.npz", x=np.zeros(1), double=np.float32([[2, 4]]))
    np.save(tmp_path / "wrong.npy", np.zeros((2, 2), np.int32))
    source = tmp_path / "m.nacre"
    source.write_text(
        "dim B in 1..8\n\nmodel f(x: f32[B, 2]) -> double: f32[B, 2] { return x * 2 }\n\n"
        'test f "files" {\n  given x = file "x.npy"\n  expect file "y.npz" within 1e-6\n}\n\n'
        'test f "numbers" {\n  given x = [[1, 2], [3, 4]]\n  expect double = ones((2, 2)) * 2 + [0, 2]\n}\n\n'
        'test f "wrong" { given x = file "wrong.npy"; expect 2 * ones((1, 2)) }\n\n'
        "budget f {\n  memory(B=2) <= 8 KiB\n  parameters < 10\n}\n"
    )
    source_model = frontend.load_module(source)
    files, numbers, wrong = source_model.tests
    assert (files.model, files.title) == ("f", "files")
    assert files.inputs["x"].load().tolist() == [[1, 2]]
    assert files.expectations[0].tolerance == 1e-6
    assert files.expectations[0].data.load().tolist() == [[2, 4]]
    assert numbers.inputs["x"].load().dtype == np.float32
    assert numbers.expectations[0].data.load().tolist() == [[2, 4], [2, 4]]
    assert numbers.expectations[0].tolerance == 0
    with pytest.raises(DiagnosticError, match=r"`x` is f32\[B, 2\], and .* holds"):
        wrong.inputs["x"].load()
    memory, parameters = source_model.budgets
    assert (memory.metric, memory.dims, memory.limit, memory.measure) == ("memory", {"B": 2}, 8192, "bytes")
    assert (parameters.comparison, parameters.limit) == ("<", 10)


# --- weights ---


def test_parameters_are_compared_with_the_header_of_a_checkpoint(tmp_path: Path) -> None:
    save_file(
        {
            "a.weight": np.zeros((3, 4), np.float16),
            "b.weight": np.zeros((4, 3), np.float32),
            "c.wieght": np.zeros((3, 4), np.float32),
            "layer.0.weight": np.zeros((4, 4), np.float32),
            "d": np.zeros((3, 4), np.int32),
            "e": np.zeros((4, 3), np.float64),
            "f": np.zeros((3, 4), np.float32),
        },
        tmp_path / "w.safetensors",
    )
    text = (
        LINEAR
        + """
block Other(x: f32[1, 4]) -> f32[1, 3] {
  param d: f32[3, 4] from "d"
  param e: f32[3, 4] from "e" transpose
  param f: f32[3, 4] from "f" transpose
  return x @ (d + e + f).T
}

model f(x: f32[1, 4]) -> f32[1, 3] {
  use a, b, c = Linear<4, 3>
  use layer[9] = Linear<4, 4>
  use other = Other
  repeat i in 0..9 { x = layer[i](x) }
  return a(x) + b(x) + c(x) + other(x)
}
"""
    )
    faults = frontend.check_weights(load(text), open_checkpoint(tmp_path / "w.safetensors"))
    reported = {
        (fault.code, fault.message.split("`")[1] if "more" not in fault.message else "more") for fault in faults
    }
    assert reported == {
        ("tensor-shape", "b.weight"),
        ("missing-tensor", "w.safetensors"),
        ("missing-tensor", "more"),
        ("tensor-dtype", "other.d"),
        ("tensor-shape", "other.f"),
    }
    by_code = {fault.message: fault for fault in faults}
    missing = next(f for m, f in by_code.items() if "`c.weight`" in m)
    assert "`c.wieght`" in missing.help
    transposed = next(f for m, f in by_code.items() if m.startswith("`b.weight`"))
    assert "f32[3, 4]" in transposed.message and "f32[4, 3]" in transposed.message and "transpose" in transposed.help
    untransposed = next(f for m, f in by_code.items() if m.startswith("`other.f`"))
    assert untransposed.help == "it fits without `transpose`"
    assert all(fault.span is not None for fault in faults)


@pytest.mark.parametrize(
    ("stored", "help_text"),
    [
        ("{}", "all of them exist without the prefix `net.`"),
        ("module.net.{}", "all of them exist with the prefix `module.`"),
    ],
)
def test_names_with_another_prefix_are_one_fault(tmp_path: Path, stored: str, help_text: str) -> None:
    text = (
        LINEAR
        + """
block Net(x: f32[1, 4]) -> f32[1, 4] {
  use a, b = Linear<4, 4>
  use layer[9] = Linear<4, 4>
  repeat i in 0..9 { x = layer[i](x) }
  return a(b(x))
}

model f(x: f32[1, 4]) -> f32[1, 4] {
  use net = Net
  return net(x)
}
"""
    )
    names = ["a", "b", *(f"layer.{i}" for i in range(9))]
    tensors = {stored.format(f"{name}.weight"): np.zeros((4, 4), np.float32) for name in names}
    save_file(tensors, tmp_path / "w.safetensors")
    (fault,) = frontend.check_weights(load(text), open_checkpoint(tmp_path / "w.safetensors"))
    assert fault.code == "missing-tensor" and fault.help == help_text
    assert re.fullmatch(r"`w.safetensors` is missing `net\.\S+` and 10 more tensors", fault.message)
    # Where one of them is missing for another reason, they are reported one by one.
    tensors.popitem()
    save_file(tensors, tmp_path / "w.safetensors")
    assert len(frontend.check_weights(load(text), open_checkpoint(tmp_path / "w.safetensors"))) == 2 + 3 + 1


# --- the look of a diagnostic ---


def test_a_size_is_traced_to_where_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"hidden_size": 384}')
    source = tmp_path / "minilm.nacre"
    source.write_text(
        'config "config.json" as c\ndim B in 1..64\n\n'
        "block Linear<inputs, outputs>(x: f32[B, 384]) -> f32[B, outputs] {\n"
        "  param weight: f32[outputs, inputs]\n  return x @ weight.T\n}\n\n"
        "block Encoder<width>(x: f32[B, width]) -> f32[B, 100] {\n"
        "  use dense = Linear<512, 100>\n  return dense(x)\n}\n\n"
        "model embed(x: f32[B, 384]) -> f32[B, 100] {\n  use encoder = Encoder<c.hidden_size>\n  return encoder(x)\n}\n"
    )
    with pytest.raises(DiagnosticError) as failure:
        frontend.load_module(source)
    reported = [line.strip() for line in str(failure.value).replace(f"{tmp_path}/", "").splitlines()]
    assert reported == [
        "error[shape-mismatch]: `@` cannot multiply f32[B, 384] by f32[512, 100]",
        "--> minilm.nacre:6:10",
        "|",
        "6 |   return x @ weight.T",
        "|          ^^^^^^^^^^^^ inner dimensions 384 and 512 differ",
        "|",
        "= 384 is `width`, given at minilm.nacre:15:25 (c.hidden_size)",
        "= 512 is `inputs`, given at minilm.nacre:10:22",
    ]


def test_an_error_of_a_block_is_reported_once_for_all_its_calls() -> None:
    text = "block Bad(x: f32[2]) -> f32[2] { return x + y }\n\nmodel f(x: f32[2]) -> f32[2] { return Bad(Bad(x)) }\n"
    assert codes(text) == ["unknown-name"]


@pytest.mark.parametrize(
    "expression",
    [
        "+".join(["x"] * 3000),
        "-" * 90 + "x",
        "x" + "[None, 0]" * 90,
        "x" + " |> relu" * 2000,
        "2 ** 2 ** 2 ** 2 ** 2 ** 2",
        "x * (" + " * ".join(["9" * 18] * 50) + ")",
    ],
)
def test_long_and_deep_expressions_end(expression: str) -> None:
    codes(f"model f(x: f32[4]) -> f32[4] {{ return {expression} }}\n")


def test_sizes_that_double_with_every_step_are_refused() -> None:
    lines = "\n".join(f"  n{k + 1} = n{k} // 2 + n{k} // 3" for k in range(60))
    text = f"dim T in 8..64\n\nmodel f(x: f32[T]) -> f32[T] {{\n  n0 = T\n{lines}\n  return x[:n60]\n}}\n"
    assert codes(text) == ["size-too-complex"]
    halves = "\n".join("  x = max_pool1d(x, 2, padding=1)" for _ in range(300))
    text = f"dim T in 8..64\n\nmodel f(x: f32[1, 1, T]) -> f32[1] {{\n{halves}\n  return sum(x, axis=(1, 2))\n}}\n"
    assert set(codes(text)) <= {"size-too-complex", "bad-attribute", "negative-size"}
