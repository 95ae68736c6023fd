"""Writes the reference in `compiler/docs/python.md` from signatures and docstrings:
`python -m nacre.compiler.tools.reference.python_api`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

from ....runtime import loader
from ....runtime.observe import observe, record
from ....runtime.strings import decode_strings, encode_strings
from ... import api, checking
from ...readers.sklearn.model import from_sklearn
from ...readers.stablehlo.from_jax import from_jax
from ...readers.torch.torch_program import from_torch
from ...readers.trees.city_hash import category_hashes
from ..explorer import read
from ..explorer.graph import Graph
from .generated_part import replace_generated

PAGE = Path(__file__).parents[2] / "docs" / "python.md"

FUNCTIONS: tuple[tuple[str, Callable[..., object]], ...] = (
    ("nacre.compile", api.compile),
    ("nacre.from_torch", from_torch),
    ("nacre.from_jax", from_jax),
    ("nacre.from_sklearn", from_sklearn),
    ("nacre.category_hashes", category_hashes),
    ("nacre.check", checking.check),
    ("nacre.load", loader.load),
    ("nacre.encode_strings", encode_strings),
    ("nacre.decode_strings", decode_strings),
    ("Model.describe", loader.Model.describe),
    ("Model.session", loader.Model.session),
    ("Model.session_bytes", loader.Model.session_bytes),
    ("Model.use_stream", loader.Model.use_stream),
    ("Entry.__call__", loader.Entry.__call__),
    ("Entry.bind", loader.Entry.bind),
    ("Entry.workspace_bytes", loader.Entry.workspace_bytes),
    ("Session.reset", loader.Session.reset),
    ("Session.save", loader.Session.save),
    ("Session.restore", loader.Session.restore),
    ("Session.fork", loader.Session.fork),
    ("nacre.runtime.observe.observe", observe),
    ("nacre.runtime.observe.record", record),
    ("nacre.graph.read", read.read),
)


def format_reference() -> str:
    """Returns the generated part of the page."""
    parts = [_format_function(name, function) for name, function in FUNCTIONS]
    rows = [f"| `{name}` | {text} |" for name, text in _members(Graph)]
    table = ["### `nacre.graph.Graph`", "", "| member | meaning |", "|---|---|", *rows]
    return "\n".join([*parts, *table, ""])


def _format_function(name: str, function: Callable[..., object]) -> str:
    text = inspect.cleandoc(function.__doc__ or "")
    # Lines such as `weights: a checkpoint` describe arguments; their continuations are indented.
    text = re.sub(r"^(\w+(?:, \w+)*): ", r"- `\1`: ", text, flags=re.MULTILINE)
    text = re.sub(r"(?<=[^\n])\n {4}(?=\S)", "\n  ", text)
    text = re.sub(r"^>>>.*?(?=\n\n|\Z)", r"```pycon\n\g<0>\n```", text, flags=re.MULTILINE | re.DOTALL)
    return f"### `{name}{_signature(function)}`\n\n{text}\n"


def _signature(function: Callable[..., object]) -> str:
    """Returns the parameters with their defaults, without annotations and `self`."""
    signature = inspect.signature(function)
    own = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values() if p.name != "self"]
    return str(signature.replace(parameters=own, return_annotation=inspect.Signature.empty))


def _members(kind: type) -> Iterator[tuple[str, str]]:
    """Yields the public members of a class with a docstring: their text, and the first sentence."""
    for name, member in vars(kind).items():
        is_property = isinstance(member, (property, cached_property))
        function = member.fget if isinstance(member, property) else getattr(member, "func", member)
        if name.startswith("_") or not inspect.isfunction(function) or not function.__doc__:
            continue
        sentence = re.split(r"(?<=[.])\s", " ".join(inspect.cleandoc(function.__doc__).split()))[0]
        yield name if is_property else f"{name}{_signature(function)}", sentence.rstrip(".").replace("|", "\\|")


def format_page(page: str) -> str:
    """Returns the page with its generated part replaced."""
    return replace_generated(page, format_reference())


def main() -> None:
    PAGE.write_text(format_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
