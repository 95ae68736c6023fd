"""Damaged files of TFLite and Keras: every one is read, or refused by a diagnostic; nothing else may happen.

    python tests/readers/damaged_files.py tflite --count 10000 --seed 1
    python tests/readers/damaged_files.py h5 --count 1000

Files are those of the readers' tests. Damage changes bytes (a flip, a cut, a copied or a removed part). That of
`config` changes values, keys and lists in the configuration of a Keras model, and leaves its weights. Processes of
BATCH files each read them, so that a crash, a long read or much memory names its batch.
"""

from __future__ import annotations

import argparse
import copy
import multiprocessing
import random
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from nacre.compiler.readers.keras.keras_file import Archive, open_archive
from nacre.compiler.readers.keras.keras_model import read_archive
from nacre.compiler.readers.table import read_file
from nacre.dialect.diagnostics import DiagnosticError

HERE = Path(__file__).parent
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


def damaged_config(config: Any, rng: random.Random) -> Any:
    """Returns a configuration with some values replaced, removed, copied or exchanged."""
    changed = copy.deepcopy(config)
    for _ in range(rng.choice((1, 1, 2, 4))):
        places: list[tuple[Any, Any]] = []
        _collect(changed, places)
        if not places:
            return rng.choice(_VALUES)
        (holder, key), (other, place) = rng.choice(places), rng.choice(places)
        kind = rng.randrange(4)
        if kind == 0:
            holder[key] = copy.deepcopy(rng.choice(_VALUES))
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


KINDS: dict[str, Kind] = {
    "tflite": Kind(_tflite, damaged_bytes, read_as(".tflite")),
    "keras": Kind(_keras(".keras"), damaged_bytes, read_as(".keras")),
    "h5": Kind(_keras(".h5"), damaged_bytes, read_as(".h5")),
    "config": Kind(_archives, _configured, lambda archive, folder: read_archive(archive, folder / "damaged.keras")),
}


def read_batch(name: str, whole: Sequence[Any], seed: int, count: int) -> tuple[Counter[str], list[str], float, int]:
    """Returns the number of files by the code of their diagnostic, the errors, the greatest time of a file, and the
    memory in MiB."""
    kind, rng = KINDS[name], random.Random(seed)
    codes: Counter[str] = Counter()
    errors: list[str] = []
    slowest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            damaged = kind.damage(rng.choice(whole), rng)
            start = time.process_time()
            try:
                kind.read(damaged, Path(folder))
                codes["read"] += 1
            except DiagnosticError as error:
                codes[error.diagnostics[0].code] += 1
            except Exception:
                errors.append(f"{name} {number} of seed {seed}:\n{traceback.format_exc()}")
            slowest = max(slowest, time.process_time() - start)
    used = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return codes, errors, slowest, used // 1024


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
