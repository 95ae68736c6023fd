"""Builds an artifact: object code, generated tables, weights and the fixed runtime become one shared library.

All files are written to a temporary folder beside the output and renamed at the end, so a failure leaves nothing behind
and a process that has the previous artifact loaded keeps it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from .blob import BLOB_FORMATS, Files, emit_blob
from .dim_bindings import check_artifact
from .elf_weights import write_weights_object
from .graphs import pack_graphs
from .json_descriptions import describe_artifact, describe_calls, to_json
from .link import Linker, find_linker, link
from .spec import ArtifactSpec, DeviceSpec, c_identifier
from .tables import DEVICE_WEIGHTS, WEIGHTS
from .weights import WrittenWeights, write_blob, write_safetensors

Placement = Literal["embedded", "external"]

_EMBEDDED_LIMIT = 0x70000000
"""Generated code addresses its data relative to itself with 31 bits; weights in between must leave room."""


def weights_path(output: Path) -> Path:
    """Returns the path of the external weights of an artifact."""
    return output.with_name(output.name + ".safetensors")


def _digest(texts: Sequence[str], objects: Sequence[bytes]) -> bytes:
    digest = hashlib.sha256()
    for data in (*map(str.encode, texts), *objects):
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()


def _embedded(spec: ArtifactSpec) -> Iterator[tuple[str, ArtifactSpec | DeviceSpec]]:
    """Yields the weights that an artifact embeds, by symbol."""
    if spec.weight_bytes:
        yield WEIGHTS, spec
    if spec.device is not None and spec.device.weight_bytes:
        yield DEVICE_WEIGHTS, spec.device


def _write(
    spec: ArtifactSpec, objects: Sequence[bytes], folder: Path, placement: Placement, linker: Linker, kept: Path | None
) -> bool:
    """Writes `artifact` and, if it has external weights, their file beside it; returns whether it has."""
    written = WrittenWeights("")
    external = placement == "external" and len(spec.file_weights) > 0
    if external:
        written = write_safetensors(replace(spec, weights=spec.file_weights), weights_path(folder / "artifact"))
    included: dict[str, str] = {}
    weights: list[str] = []
    format = BLOB_FORMATS[linker.system.format]
    for symbol, blob in _embedded(spec) if not external else ():
        if format.weights is None:
            weights.append(f"{symbol}.o")
            made = write_weights_object(blob, folder / weights[-1], symbol, objects[0])
        else:
            included[symbol] = f"{symbol}.bin"
            made = write_blob(blob, folder / included[symbol])
        written = made if blob is spec else written
    description = describe_artifact(spec, placement="external" if external else "embedded", weights_hash=written.sha256)
    calls = to_json(describe_calls(spec))
    digest = _digest([to_json(description), calls], objects)
    (folder / "calls.json").write_text(calls)
    (folder / "description.json").write_text(to_json({**description, "hash": digest.hex()}))
    graphs = pack_graphs(spec)
    (folder / "graphs.bin").write_bytes(graphs)
    files = Files(folder, "description.json", "calls.json", included, "graphs.bin" if graphs else None)
    alias = f"nacre_get_api_{c_identifier(spec.name)}"
    text = emit_blob(spec, written, files, digest, alias, linker.jump, linker.system.format)
    (folder / "data.s").write_text(text)
    names = [f"code_{i}.o" for i in range(len(objects))]
    for name, data in zip(names, objects, strict=True):
        (folder / name).write_bytes(data)
    link(linker, folder, [*weights, *names], ["nacre_get_api", alias], "artifact", kept)
    return external


def check_placement(weights: Placement, size: int) -> None:
    """Raises DiagnosticError if a library cannot hold `size` bytes of weights."""
    if weights == "embedded" and size > _EMBEDDED_LIMIT:
        message = f"{size} bytes of weights do not fit into a shared library; the limit is {_EMBEDDED_LIMIT}"
        raise DiagnosticError([Diagnostic("weights-too-large", message, help="use external weights")])


def build_artifact(
    spec: ArtifactSpec,
    objects: Sequence[bytes],
    output: str | Path,
    *,
    weights: Placement = "embedded",
    kept: Path | None = None,
    find: Callable[[], Linker] = find_linker,
    accept: Callable[[Path], None] = lambda made: None,
) -> Path:
    """Links `objects` (relocatable ELF, position-independent) into an artifact at `output`, and returns its path.

    `weights="external"` writes the weights to `<output>.safetensors`. `kept` is a folder in which the compiled runtime
    is cached; `find` returns the linker for the target of the objects. `accept` may examine the artifact, and raise an
    exception, before it is renamed to its final path. Raises DiagnosticError.
    """
    errors = check_artifact(spec)
    if errors:
        raise DiagnosticError(errors)
    check_placement(weights, spec.weight_bytes)
    linker = find()
    if spec.device is not None:
        linker = replace(linker, devices=spec.device.runtime)
    if weights == "external" and not linker.system.external_weights:
        message = f"an artifact for `{linker.machine}` has no file system to read external weights from"
        raise DiagnosticError([Diagnostic("external-weights", message, help="use embedded weights")])
    output = Path(output)
    folder: Path | None = None
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent))
        made = folder / "artifact"
        external = _write(spec, objects, folder, weights, linker, kept)
        accept(made)
        if external:
            os.replace(weights_path(made), weights_path(output))
        os.replace(made, output)
    except OSError as error:
        message = f"cannot write `{output}`: {(error.strerror or str(error)).lower()}"
        raise DiagnosticError([Diagnostic("cannot-write", message)]) from error
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
    return output
