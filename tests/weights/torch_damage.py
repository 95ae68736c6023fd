"""Reads files of `torch.save` with random damage: `python tests/weights/torch_damage.py --count 2000`.

Each file must be read, with all its tensors, or give a diagnostic. Single bytes are damaged, anywhere in the file or in
its pickle alone, in an archive whose checksums are correct.
"""

from __future__ import annotations

import argparse
import io
import random
import resource
import sys
import tempfile
import traceback
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from nacre.compiler.weights import open_checkpoint
from nacre.dialect.diagnostics import DiagnosticError

MOST = 1024
"""The most MiB of the process."""


def whole_files() -> list[bytes]:
    import torch  # noqa: PLC0415  # only these files need it

    found = []
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Conv2d(1, 2, 3))
    values: list[Any] = [
        module.state_dict(),
        {
            "state_dict": module.state_dict(),
            "epoch": 3,
            "list": [1, 2.5, None, "x" * 300],
            "best": [np.float64(2), np.eye(2)],
        },
        {"half": torch.ones(3, dtype=torch.bfloat16), "view": torch.ones(4, 6)[1:, ::2], "u": torch.ones(2).int()},
    ]
    for value in values:
        for options in ({}, {"_use_new_zipfile_serialization": False}, {"pickle_protocol": 4}):
            file = io.BytesIO()
            torch.save(value, file, **options)
            found.append(file.getvalue())
    return found


def _damage(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at, kind = rng.randrange(len(changed)), rng.randrange(8)
        if kind < 3:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind < 5:
            changed[at] = rng.choice((0, 1, 40, 46, 99, 127, 128, 255, rng.randrange(256)))
        elif kind == 5:
            del changed[at : at + rng.randrange(1, 20)]
        elif kind == 6:
            changed[at:at] = changed[at : at + rng.randrange(1, 20)]
        elif rng.randrange(4) == 0:
            del changed[at + 1 :]
        if not changed:
            break
    return bytes(changed)


def _damage_pickle(data: bytes, rng: random.Random) -> bytes:
    """Damages the pickle of an archive, or the first part of an old file."""
    if not data.startswith(b"PK"):
        return _damage(data[:700], rng) + data[700:]
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(target, "w") as file:
        for member in source.infolist():
            content = source.read(member)
            file.writestr(member.filename, _damage(content, rng) if member.filename.endswith(".pkl") else content)
    return target.getvalue()


def read_damaged(folder: Path, seed: int, count: int) -> tuple[Counter[str], list[str]]:
    """Returns the number of files by the code of their diagnostic, and other errors."""
    rng, codes, errors = random.Random(seed), Counter[str](), list[str]()
    whole, path = whole_files(), folder / "damaged.pth"
    for number in range(count):
        data = rng.choice(whole)
        path.write_bytes((_damage_pickle if rng.random() < 0.7 else _damage)(data, rng))
        try:
            checkpoint = open_checkpoint(path)
            for name in checkpoint.names():
                if checkpoint.info(name)[0] is not None:
                    checkpoint.read(name).tobytes()
            codes["read"] += 1
        except DiagnosticError as error:
            (found,) = error.diagnostics
            codes[found.code] += 1
            if found.code not in ("checkpoint-broken", "refused-pickle"):
                errors.append(f"file {number} of seed {seed}: {found.code}: {found.message}")
        except Exception:
            errors.append(f"file {number} of seed {seed}:\n{traceback.format_exc()}")
    return codes, errors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        codes, errors = read_damaged(Path(folder), options.seed, options.count)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print("\n".join(errors))
    print(f"{codes.most_common()}; {len(errors)} of {options.count} failed; {used} MiB")
    return 1 if errors or used > MOST else 0


if __name__ == "__main__":
    sys.exit(main())
