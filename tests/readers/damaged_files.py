"""Damaged files of several formats: every one is read, or refused by a diagnostic; nothing else may happen.

    python tests/readers/damaged_files.py tflite --count 10000 --seed 1
    python tests/readers/damaged_files.py h5 --count 1000

Files are those of the readers' tests. Damage changes bytes (a flip, a cut, a copied or a removed part). That of
`config` changes values, keys and lists in the configuration of a Keras model, and leaves its weights; that of `pt2`
changes them in the program of an exported module, and that of `huggingface` in a JSON file of a folder; that of `mlir`
exchanges, removes and replaces words of StableHLO text. Processes of BATCH files each read them, so that a crash, a
long read or much memory names its batch.
"""

from __future__ import annotations

import argparse
import atexit
import copy
import faulthandler
import io
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import sys
import tempfile
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from nacre.compiler.model.parameters import open_parameters
from nacre.compiler.model.weight_notes import weight_notes
from nacre.compiler.readers.keras.keras_file import Archive, open_archive
from nacre.compiler.readers.keras.keras_model import read_archive
from nacre.compiler.readers.stablehlo import parsing_child
from nacre.compiler.readers.stablehlo.stablehlo_model import read_functions
from nacre.compiler.readers.stablehlo.writing.records import decode
from nacre.compiler.readers.table import read_file
from nacre.compiler.weights import open_checkpoint
from nacre.dialect.diagnostics import Diagnostic, DiagnosticError
from safetensors.numpy import save

HERE = Path(__file__).parent
sys.path += [str(HERE.parent / "weights"), str(HERE / "huggingface")]
from gguf_bytes import Stored, gguf_bytes  # noqa: E402  # beside the tests of weights
from tiny_folders import REFERENCES, write_folder  # noqa: E402  # beside the tests of folders

BATCH = 250
SLOWEST = 20.0
"""The most seconds of processor time that reading a small file may take."""
MOST = 2048
"""The most MiB of a process that reads a batch."""


def damaged_bytes(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        at = rng.randrange(len(changed) + 1)
        kind = rng.randrange(8)
        if kind < 3 and changed:
            changed[at % len(changed)] ^= 1 << rng.randrange(8)
        elif kind < 5 and changed:
            changed[at % len(changed)] = rng.choice((0, 1, 4, 127, 128, 255, rng.randrange(256)))
        elif kind == 5:
            del changed[at : at + rng.randrange(1, 40)]
        elif kind == 6:
            changed[at:at] = changed[at : at + rng.randrange(1, 40)]
        elif rng.randrange(4) == 0:
            del changed[at:]
    return bytes(changed)


_VALUES: Sequence[Any] = (
    None,
    True,
    -1,
    0,
    1,
    3,
    1 << 40,
    1.5,
    float("nan"),
    "",
    "valid",
    "Dense",
    [],
    [0],
    [1, 2],
    {},
)


def damaged_config(config: Any, rng: random.Random, values: Sequence[Any] = _VALUES) -> Any:
    """Returns a configuration with some values replaced by one of `values`, removed, copied or exchanged."""
    changed = copy.deepcopy(config)
    for _ in range(rng.choice((1, 1, 2, 4))):
        places: list[tuple[Any, Any]] = []
        _collect(changed, places)
        if not places:
            return rng.choice(values)
        (holder, key), (other, place) = rng.choice(places), rng.choice(places)
        kind = rng.randrange(4)
        if kind == 0:
            holder[key] = copy.deepcopy(rng.choice(values))
        elif kind == 1:
            del holder[key]
        elif kind == 2:
            holder[key] = copy.deepcopy(other[place])
        else:
            holder[key], value = copy.deepcopy(other[place]), copy.deepcopy(holder[key])
            other[place] = value
    return changed


def _collect(value: Any, places: list[tuple[Any, Any]]) -> None:
    """Adds each place in a value: the list or mapping that has it, and its index or key."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        places.append((value, key))
        _collect(value[key], places)


_WORD = re.compile(r"%?[A-Za-z_][\w.#]*|-?\d+(?:\.\d+)?|\S")


def damaged_words(text: str, rng: random.Random) -> str:
    """Returns a text with some words exchanged, removed, copied or replaced by odd numbers."""
    words = list(_WORD.finditer(text))
    changed = text
    for _ in range(rng.choice((1, 1, 2, 4))):
        one, other = sorted(rng.sample(range(len(words)), 2))
        a, b = words[one].group(), words[other].group()
        kind = rng.randrange(5)
        if kind == 0:
            a, b = b, a
        elif kind == 1:
            a = ""
        elif kind == 2:
            a = b
        elif kind == 3 and a.lstrip("-").isdigit():
            a = str(rng.choice((-1, 0, 1, 2, 7, 1 << 31, 1 << 62)))
        elif a in _ELEMENTS:
            a = rng.choice(_ELEMENTS)
        first, last = words[one].span(), words[other].span()
        changed = text[: first[0]] + a + text[first[1] : last[0]] + b + text[last[1] :]
        text, words = changed, list(_WORD.finditer(changed))
    return changed


_ELEMENTS = ("f32", "i32", "i64", "i1", "xf32", "xi32", "add", "multiply", "maximum", "compare", "LT", "EQ")


@dataclass(frozen=True)
class Kind:
    """Files of one kind: the `whole` ones, the damage, and the reader of a damaged one in a folder."""

    whole: Callable[[], Sequence[Any]]
    damage: Callable[[Any, random.Random], Any]
    read: Callable[[Any, Path], object]


def read_as(suffix: str) -> Callable[[bytes, Path], object]:
    def read(data: bytes, folder: Path) -> object:
        path = folder / f"damaged{suffix}"
        path.write_bytes(data)
        return read_file(path)

    return read


def _mlir() -> Sequence[str]:
    files = sorted((HERE.parent / "stablehlo" / "files").glob("*.mlir"))
    return [path.read_text(encoding="utf-8") for path in files]


def read_mlir_text(text: str, folder: Path) -> object:
    """Reads StableHLO. A fork of this process parses it, as a new process does in a build, where an abort of MLIR for
    lack of memory is a diagnostic; any other signal is an error."""
    path, parsed, said = folder / "damaged.mlir", folder / "damaged.json", folder / "stderr"
    path.write_text(text, encoding="utf-8")
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        with parsed.open("w") as out, said.open("w") as error, redirect_stdout(out):
            os.dup2(error.fileno(), 2)
            code = parsing_child.main(str(path))
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0 and "out of memory" not in said.read_text():
        raise RuntimeError(f"the parser ended by signal {-code}: {said.read_text()}\n{text}")
    if code != 0:
        raise DiagnosticError([Diagnostic("no-memory" if code < 0 else "bad-mlir", "the file cannot be parsed")])
    return read_functions(decode(json.loads(parsed.read_text())), "damaged", str(path), text)


def _gguf() -> Sequence[bytes]:
    """Returns a language model of one layer and width 32, with matrices of f32 and of Q8_0."""
    sizes = {"context_length": 16, "embedding_length": 32, "block_count": 1, "feed_forward_length": 64}
    sizes |= {"attention.head_count": 4, "attention.head_count_kv": 2}
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(16)), "a", "b"]
    metadata = {"general.architecture": "llama", "llama.attention.layer_norm_rms_epsilon": 1e-5}
    metadata |= {f"llama.{name}": size for name, size in sizes.items()}
    metadata |= {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens}
    metadata |= {"tokenizer.ggml.scores": [float(-n) for n in range(len(tokens))]}
    metadata |= {"tokenizer.ggml.token_type": [1] * len(tokens)}
    shapes = {"token_embd": (len(tokens), 32), "output": (len(tokens), 32), "output_norm": (32,)}
    layer = {"attn_q": (32, 32), "attn_k": (16, 32), "attn_v": (16, 32), "attn_output": (32, 32), "attn_norm": (32,)}
    layer |= {"ffn_gate": (64, 32), "ffn_up": (64, 32), "ffn_down": (32, 64), "ffn_norm": (32,)}
    shapes |= {f"blk.0.{name}": shape for name, shape in layer.items()}
    random_bytes = np.random.default_rng(0)
    tensors = []
    for number, (name, shape) in enumerate(shapes.items()):
        if number % 2 and len(shape) == 2:
            data = random_bytes.integers(0, 60, shape[0] * shape[1] // 32 * 34).astype(np.uint8)
            tensors.append(Stored(f"{name}.weight", shape, 8, data.tobytes()))
        else:
            tensors.append(Stored(f"{name}.weight", shape, 0, np.ones(shape, np.float32).tobytes()))
    return [gguf_bytes(tensors, metadata)]


def _checkpoint(data: bytes, folder: Path) -> object:
    path = folder / "damaged.safetensors"
    path.write_bytes(data)
    stored = open_checkpoint(path)
    return [stored.read(name) for name in stored.names()]


def _safetensors() -> Sequence[bytes]:
    arrays = {"a.weight": np.ones((3, 5), np.float32), "a.bias": np.arange(7), "b": np.ones((2, 2), np.float16)}
    return [save(arrays), save({"x": np.zeros(0, np.int8)}, {"format": "pt"})]


def _tflite() -> Sequence[bytes]:
    cases = np.load(HERE / "tflite_files" / "cases.npz")
    return [cases[key].tobytes() for key in cases if key.endswith("/model")]


def _keras(suffix: str) -> Callable[[], Sequence[bytes]]:
    models = np.load(HERE / "keras_files" / "models.npz")
    return lambda: [models[key].tobytes() for key in models if key.endswith(f"/file{suffix}")]


def _archives() -> Sequence[Archive]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "whole.keras"
        found = []
        for data in _keras(".keras")():
            path.write_bytes(data)
            found.append(open_archive(path))
    return found


def _configured(archive: Archive, rng: random.Random) -> Archive:
    return replace(archive, config=damaged_config(archive.config, rng))


def _programs() -> Sequence[Mapping[str, bytes]]:
    """Returns the entries of archives with exported modules. PyTorch is imported for this kind alone."""
    torch: Any = import_module("torch")
    nn, batch = torch.nn, torch.export.Dim("batch", max=64)
    modules = (
        (nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 2)), (3, 4)),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.MaxPool2d(2), nn.Flatten()), (2, 1, 8, 8)),
        (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 5, 8)),
    )
    found = []
    for module, shape in modules:
        stream = io.BytesIO()
        exported = torch.export.export(module.eval(), (torch.zeros(shape),), dynamic_shapes=({0: batch},))
        torch.export.save(exported, stream)
        with zipfile.ZipFile(stream) as archive:
            found.append({name: archive.read(name) for name in archive.namelist()})
    return found


def _damaged_program(parts: Mapping[str, bytes], rng: random.Random) -> bytes:
    """Returns an archive with a changed program, and sometimes another changed entry."""
    changed = dict(parts)
    for name in [name for name in parts if name.endswith("models/model.json")]:
        changed[name] = json.dumps(damaged_config(json.loads(parts[name]), rng)).encode()
    if rng.randrange(4) == 0:
        name = rng.choice(sorted(changed))
        changed[name] = damaged_bytes(changed[name], rng)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in changed.items():
            archive.writestr(name, data)
    return stream.getvalue()


def _folders() -> Sequence[tuple[Mapping[str, Any], Path]]:
    """Returns the JSON files of folders by name, and the checkpoints, which the processes of all batches read."""
    above = Path(tempfile.mkdtemp(prefix="damaged-folders-"))
    atexit.register(shutil.rmtree, above, ignore_errors=True)
    with np.load(REFERENCES) as stored:
        described = {key.split("/")[0]: json.loads(bytes(stored[key])) for key in stored if key.endswith("/described")}
    for name, each in described.items():
        write_folder(above / name, each["config"], each["shapes"])
    return [
        ({"config": each["config"], **TOKENIZER_FILES}, above / name / "model.safetensors")
        for name, each in described.items()
    ]


def _damaged_folder(whole: tuple[Mapping[str, Any], Path], rng: random.Random) -> tuple[Mapping[str, Any], Path]:
    name = rng.choice(("config", "config", "config", *TOKENIZER_FILES))
    return {**whole[0], name: damaged_config(whole[0][name], rng, (*_VALUES, *_FOLDER_VALUES))}, whole[1]


TOKENIZER_FILES: Mapping[str, Any] = {
    "tokenizer": {
        "model": {"type": "WordLevel", "vocab": {"a": 0, "</s>": 2}, "unk_token": "a"},
        "added_tokens": [{"content": "<s>", "id": 1}],
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
            "special_tokens": {"<s>": {"ids": [1]}},
        },
    },
    "tokenizer_config": {"eos_token": {"content": "</s>"}, "chat_template": [{"name": "default", "template": "a"}]},
}
_FOLDER_VALUES = (2, 7, 64, 4097, 65536, (1 << 31) - 1, 1 << 31, 1 << 2000, 5e-324, 1.7e308, -1.5, float("inf"))
_FOLDER_VALUES += ("gelu", "linear", "yarn", "dynamic", "longrope", "bert", "mamba", "\ud800", [0.5] * 4)


def _read_folder(damaged: tuple[Mapping[str, Any], Path], folder: Path) -> object:
    """Reads JSON files beside a checkpoint, and compares the parameters with it, as each build does first."""
    files, weights = damaged
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    source = read_file(folder, weights)
    return open_parameters(source), weight_notes(source)


KINDS: dict[str, Kind] = {
    "huggingface": Kind(_folders, _damaged_folder, _read_folder),
    "pt2": Kind(_programs, _damaged_program, read_as(".pt2")),
    "gguf": Kind(_gguf, damaged_bytes, read_as(".gguf")),
    "mlir": Kind(_mlir, damaged_words, read_mlir_text),
    "safetensors": Kind(_safetensors, damaged_bytes, _checkpoint),
    "tflite": Kind(_tflite, damaged_bytes, read_as(".tflite")),
    "keras": Kind(_keras(".keras"), damaged_bytes, read_as(".keras")),
    "h5": Kind(_keras(".h5"), damaged_bytes, read_as(".h5")),
    "config": Kind(_archives, _configured, lambda archive, folder: read_archive(archive, folder / "damaged.keras")),
}


def _seconds() -> float:
    """Returns the processor time of this process and of its children that have ended."""
    return sum(os.times()[:4])


def _peak() -> int:
    """Returns the most memory that this process or one of its children has had, in MiB."""
    return max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) // 1024


def read_batch(name: str, whole: Sequence[Any], seed: int, count: int) -> tuple[Counter[str], list[str], float, int]:
    """Returns the number of files by the code of their diagnostic, the errors, the greatest time of a file, and by how
    many MiB the peak of the memory has grown."""
    kind, rng = KINDS[name], random.Random(seed)
    codes: Counter[str] = Counter()
    errors: list[str] = []
    slowest, before = 0.0, _peak()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            damaged = kind.damage(rng.choice(whole), rng)
            start = _seconds()
            try:
                kind.read(damaged, Path(folder))
                codes["read"] += 1
            except DiagnosticError as error:
                codes[error.diagnostics[0].code] += 1
            except Exception:
                errors.append(f"{name} {number} of seed {seed}:\n{traceback.format_exc()}")
            slowest = max(slowest, _seconds() - start)
    return codes, errors, slowest, _peak() - before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    codes: Counter[str] = Counter()
    failed, slowest, most = 0, 0.0, 0
    whole = KINDS[chosen.kind].whole()
    for batch in range(-(-chosen.count // BATCH)):
        count = min(BATCH, chosen.count - batch * BATCH)
        seed = chosen.seed * 1_000_000 + batch
        pool = multiprocessing.get_context("fork").Pool(1)
        try:
            found = pool.apply_async(read_batch, (chosen.kind, whole, seed, count)).get(SLOWEST * BATCH)
        except multiprocessing.TimeoutError:
            failed += 1
            print(f"batch of seed {seed}: no end, or a crash", flush=True)
            continue
        finally:
            pool.terminate()
        codes += found[0]
        failed += len(found[1]) + (found[2] > SLOWEST) + (found[3] > MOST)
        slowest, most = max(slowest, found[2]), max(most, found[3])
        print("\n".join(found[1]) or f"{(batch + 1) * BATCH} files, at most {slowest:.2f} s and {most} MiB", flush=True)
    print(codes.most_common())
    print(f"{failed} of {chosen.count} failed; at most {slowest:.2f} s of processor time and {most} MiB")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
