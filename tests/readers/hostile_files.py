"""Files that are made to exhaust a reader: `python tests/readers/hostile_files.py [NAME ...]`.

Each file is written, read by `nacre check` and by `nacre fmt` or `nacre import`, and removed. A table shows the CPU
time, the memory and the first line of the answer. The command fails if a reader takes more than a minute of CPU time or
more memory than its limit, or ends other than with a diagnostic or a result.
"""

from __future__ import annotations

import io
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

M = 1 << 20
SECONDS = 60.0
MEGABYTES = {"nacre": 1024}
OTHERS = 2048
"""The greatest memory of readers of other formats; those of the language have less."""
HEAD = "language 1\nmodel f(x: f32[4]) -> f32[4] {\n"


def model(body: str) -> str:
    return f"{HEAD}{body}\n}}\n"


def lines(text: str, megabytes: float) -> str:
    """So many megabytes of numbered copies of a line."""
    count = int(megabytes * M) // (len(text) + 4)
    return "".join(text.replace("#", str(i)) + "\n" for i in range(count))


def long_lines(size: int) -> Mapping[str, Callable[[], str]]:
    """One line of so many megabytes."""
    return {
        "name": lambda: model("  return " + "a" * (size * M)),
        "sum": lambda: model("  return x" + " + x" * (size * M // 4)),
        "parentheses": lambda: model("  return " + "(" * (size * M // 2) + "x" + ")" * (size * M // 2)),
        "calls": lambda: model("  return " + "relu(" * (size * M // 6) + "x" + ")" * (size * M // 6)),
        "pipes": lambda: model("  return x" + " |> relu" * (size * M // 8)),
        "dots": lambda: model("  return x" + ".T" * (size * M // 2)),
        "minus": lambda: model("  return " + "-" * (size * M) + "x"),
        "comment": lambda: model("  return x # " + "c" * (size * M)),
        "text": lambda: model('  weights "' + "s" * (size * M) + '"\n  return x'),
        "list": lambda: model("  return reshape(x, shape=[" + "1," * (size * M // 2) + "])"),
        "number": lambda: model("  return x * " + "9" * (size * M)),
        "junk": lambda: model("  return " + "$" * (size * M)),
    }


def text_files(size: float) -> Mapping[str, Callable[[], str]]:
    """Files of so many megabytes."""
    return {
        "statements": lambda: model(lines("  a# = x + #", size) + "  return x"),
        "unknown-names": lambda: model(lines("  a# = undefined#", size) + "  return x"),
        "models": lambda: "language 1\n" + lines("model m#(x: f32[4]) -> f32[4] { return x }", size),
        "braces": lambda: model("  if x {\n" * int(size * M / 9)),
        "syntax": lambda: "language 1\n" + lines("model ( ) ] #", size),
        "no-values": lambda: model(lines("  a# = = x", size) + "  return x"),
        "dims": lambda: "language 1\n" + lines("dim D# in 1..#", size),
        "indices": lambda: model(lines("  y[b] = sum(i) x", size)),
        "blank": lambda: "language 1\n" + "\n" * int(size * M),
    }


def nacre_files() -> Iterator[tuple[str, Callable[[], str]]]:
    for kind, size, found in (("line", 100, long_lines(100)), ("line", 15, long_lines(15))):
        yield from ((f"{kind}-of-{size}-{name}.nacre", write) for name, write in found.items())
    for size in (20, 15, 3):
        yield from ((f"file-of-{size}-{name}.nacre", write) for name, write in text_files(size).items())
    yield "errors-100000.nacre", lambda: model("  = x\n" * 100_000 + "  return x")


def trees(**model_fields: object) -> str:
    learner: dict[str, object] = {"learner_model_param": {"num_feature": "3", "num_class": "0", "base_score": "0.5"}}
    booster = {"name": "gbtree", "model": model_fields}
    objective = {"name": "reg:squarederror"}
    return json.dumps(
        {"version": [2, 0, 0], "learner": {**learner, "objective": objective, "gradient_booster": booster}}
    )


def tree_files() -> Iterator[tuple[str, Callable[[], str]]]:
    yield "deep.json", lambda: "[" * (10 * M) + "]" * (10 * M)
    yield "nested.json", lambda: '{"a":' * (4 * M) + "1" + "}" * (4 * M)
    yield "digits.json", lambda: '{"learner": ' + "9" * (20 * M) + "}"
    yield "text.json", lambda: '{"learner": "' + "s" * (20 * M) + '"}'
    yield "empty-trees.json", lambda: trees(trees=[{}] * (5 * M), tree_info=[0] * (5 * M))
    node = {"left_children": [-1], "right_children": [-1], "split_indices": [0], "split_conditions": [0.5]}
    leaf = {**node, "default_left": [0], "tree_param": {"num_nodes": "1"}}
    yield "many-trees.json", lambda: trees(trees=[leaf] * (20 * M // 150), tree_info=[0] * (20 * M // 150))
    chain = {
        "left_children": [*range(1, 300_000), -1], "right_children": [*([300_000] * 299_999), -1, -1],
        "split_indices": [0] * 300_001, "split_conditions": [0.5] * 300_001, "default_left": [0] * 300_001,
        "tree_param": {"num_nodes": "300001"},
    }  # fmt: skip
    yield "deep-tree.json", lambda: trees(trees=[chain], tree_info=[0])
    oblivious = {"splits": [], "leaf_values": [0.0]}
    yield "oblivious.json", lambda: json.dumps({"oblivious_trees": [oblivious] * (20 * M // 45), "features_info": {}})
    head = "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nmax_feature_idx=2\nobjective=regression\n"
    yield "sizes.txt", lambda: head + "tree_sizes=" + "9 " * (50 * M) + "\n"
    yield "splits.txt", lambda: head + "\nTree=0\nnum_leaves=3\nnum_cat=0\nsplit_feature=" + "0 " * (50 * M) + "\n"
    yield "many-trees.txt", lambda: head + lines("\nTree=#\nnum_leaves=1\nnum_cat=0\nleaf_value=0\n", 20)


def gguf(tensors: int, keys: int, body: bytes) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, keys) + body


def gguf_text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def binary_files() -> Iterator[tuple[str, Callable[[], bytes]]]:
    yield "counts.gguf", lambda: gguf(1 << 40, 1 << 40, bytes(20 * M))
    keys = range(500_000)
    yield "keys.gguf", lambda: gguf(0, 500_000, b"".join(gguf_text(f"k{i}") + struct.pack("<II", 4, i) for i in keys))
    kind = gguf_text("general.architecture") + struct.pack("<I", 8) + gguf_text("llama")
    tensor = struct.pack("<IQIQ", 1, 4, 0, 0)
    yield "tensors.gguf", lambda: gguf(400_000, 1, kind + b"".join(gguf_text(f"t{i}") + tensor for i in keys[:400_000]))
    array = gguf_text("tokens") + struct.pack("<IIQ", 9, 8, 2 * M)
    yield "array.gguf", lambda: gguf(0, 1, array + gguf_text("ab") * (2 * M))
    yield "arrays.gguf", lambda: gguf(0, 1, gguf_text("tokens") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * M)
    yield "zeros.onnx", lambda: bytes(20 * M)
    yield "graphs.onnx", lambda: b"\x3a" + varint(20 * M) + b"\x0a\x02\x0a\x00" * (5 * M)
    node = b"\x0a\x01x\x12\x01y\x22\x04Relu"
    nodes = b"\x0a" + bytes([len(node)]) + node
    for count in (1_000_000, 350_000):
        yield f"nodes-{count}.onnx", lambda n=count: b"\x08\x08\x3a" + varint(len(nodes) * n) + nodes * n
    yield "zeros.pt2", lambda: bytes(20 * M)
    yield "zip.pt2", lambda: b"PK\x03\x04" + bytes(20 * M)
    yield "zeros.tflite", lambda: bytes(20 * M)
    # Each word is an offset to a table, a vector, and the next word.
    yield "offsets.tflite", lambda: b"\x08\0\0\0TFL3" + b"\x04\0\0\0" * (5 * M)
    yield "sizes.tflite", lambda: b"\x10\0\0\0TFL3" + b"\x0c\0\x0c\0\x08\0\x04\0" + b"\xff\xff\xff\x7f" * (5 * M)
    yield "zeros.h5", lambda: bytes(20 * M)
    yield "tree.h5", lambda: b"\x89HDF\r\n\x1a\n" + bytes(16) + b"TREE" * (5 * M)
    # Zip files that are small, and large where they are opened.
    for name in ("keras", "skops"):
        part = "config.json" if name == "keras" else "schema.json"
        yield f"brackets.{name}", lambda part=part: zipped({part: "[" * (60 * M), "metadata.json": "{}"})
        yield f"zeros.{name}", lambda part=part: zipped({part: "\0" * (1 << 30), "metadata.json": "{}"})
    layer = '{"class_name": "ReLU", "config": {"name": "r"}}'
    layers = f'{{"class_name": "Sequential", "config": {{"name": "s", "layers": [{layer}{f", {layer}" * 400_000}]}}}}'
    members = {"config.json": layers, "metadata.json": "{}", "model.weights.h5": ""}
    yield "layers.keras", lambda: zipped(members)


def zipped(members: Mapping[str, str]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return file.getvalue()


def mlir(body: str, result: str = "tensor<4xf32>") -> str:
    return f"module {{ func.func @main(%x: tensor<4xf32>) -> {result} {{\n{body}\n}} }}"


def mlir_files() -> Iterator[tuple[str, Callable[[], str]]]:
    add = "%# = stablehlo.add %x, %x : tensor<4xf32>"
    for size in (20, 4):
        yield f"operations-{size}.mlir", lambda n=size: mlir(lines(add, n) + "return %1 : tensor<4xf32>")
    yield "line.mlir", lambda: mlir(lines(add, 20).replace("\n", " ") + "return %1 : tensor<4xf32>")
    yield "parentheses.mlir", lambda: "(" * (20 * M)
    yield "modules.mlir", lambda: "module {" * (2 * M)
    numbers = "1.0," * (5 * M) + "1.0"
    dense = f"%0 = stablehlo.constant dense<[{{}}]> : tensor<{5 * M + 1}xf32>\nreturn %0 : tensor<{5 * M + 1}xf32>"
    yield "numbers.mlir", lambda: mlir(dense.format(numbers), f"tensor<{5 * M + 1}xf32>")
    yield "junk.mlir", lambda: "$" * (100 * M)


def every_file() -> Iterator[tuple[str, Callable[[], str | bytes]]]:
    yield from nacre_files()
    yield from tree_files()
    yield from binary_files()
    yield from mlir_files()


def run(path: Path, command: list[str]) -> bool:
    """Runs a command on a file and prints a line; returns whether it stays within the limits."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "nacre.compiler.cli.main", *command],
            cwd=path.parent, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        signal.signal(signal.SIGALRM, lambda *_: os.killpg(process.pid, signal.SIGKILL))
        signal.alarm(int(10 * SECONDS))
        _, status, used = os.wait4(process.pid, 0)
        signal.alarm(0)
        process.returncode = code = os.waitstatus_to_exitcode(status)
        output.seek(0)
        answer = output.read().decode(errors="replace").splitlines()
    seconds, megabytes = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    is_fine = code in (0, 1) and seconds <= SECONDS and megabytes <= MEGABYTES.get(path.suffix[1:], OTHERS)
    head, tail = (answer[0], answer[-1]) if answer else ("", "")
    mark = "" if is_fine else "  <- beyond the limits"
    print(
        f"{command[0]:6} {path.name:32} {code:3} {seconds:6.1f} s {megabytes:6.0f} MB  {head[:70]} | {tail[:40]}{mark}",
        flush=True,
    )
    return is_fine


def write_apart(path: Path, write: Callable[[], str | bytes]) -> None:
    """Writes a file in a fork: a command that this process starts is said to have used what this process has used."""
    child = os.fork()
    if child == 0:
        content = write()
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, path


def main(names: list[str]) -> int:
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, write in every_file():
            if names and not any(part in name for part in names):
                continue
            path = Path(folder) / name
            write_apart(path, write)
            second = ["fmt", "--check", name] if path.suffix == ".nacre" else ["import", name, "-o", "written.nacre"]
            wrong += sum(not run(path, command) for command in (["check", name], second))
            path.unlink()
    print("all within the limits" if not wrong else f"{wrong} beyond the limits")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
