"""Writes the tables of operators in the pages about Keras, ONNX, PyTorch, StableHLO and TFLite.

    python -m nacre.compiler.tools.reference.reader_operators

A table comes from the converters of its reader; a test compares it with the committed page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...readers.keras.convert import FAMILIES as KERAS_FAMILIES
from ...readers.onnx.convert import FAMILIES as ONNX_FAMILIES
from ...readers.stablehlo.convert import FAMILIES as STABLEHLO_FAMILIES
from ...readers.tflite.convert import FAMILIES as TFLITE_FAMILIES
from ...readers.torch.convert import FAMILIES as TORCH_FAMILIES
from .generated_part import replace_generated

_DOCS = Path(__file__).parents[2] / "docs"


@dataclass(frozen=True, slots=True)
class ReaderPage:
    """A page with a table of operators: its file, the head of the second column, and the converters by family."""

    path: Path
    column: str
    families: Mapping[str, Mapping[str, Any]]

    def table(self) -> str:
        """Returns one row for each family."""
        rows = [f"| family | {self.column} |", "|---|---|"]
        for family, converters in self.families.items():
            rows.append(f"| {family} | {', '.join(_entry(name, converters[name]) for name in sorted(converters))} |")
        return "\n".join(rows) + "\n"

    def current(self) -> str:
        """Returns the page with the current table."""
        return replace_generated(self.path.read_text(encoding="utf-8"), self.table())


KERAS = ReaderPage(_DOCS / "keras.md", "layers", KERAS_FAMILIES)
ONNX = ReaderPage(_DOCS / "onnx.md", "operators", ONNX_FAMILIES)
PYTORCH = ReaderPage(_DOCS / "pytorch.md", "operators", TORCH_FAMILIES)
STABLEHLO = ReaderPage(_DOCS / "stablehlo.md", "operations", STABLEHLO_FAMILIES)
TFLITE = ReaderPage(_DOCS / "tflite.md", "operators", TFLITE_FAMILIES)


def _entry(name: str, converter: Any) -> str:
    """Returns a name, with the versions in which the meaning changed if the converters differ by version."""
    if not isinstance(converter, Mapping) or list(converter) == [1]:
        return f"`{name}`"
    return f"`{name}` ({', '.join(map(str, sorted(converter)))})"


def main() -> None:
    for page in (KERAS, ONNX, PYTORCH, STABLEHLO, TFLITE):
        page.path.write_text(page.current(), encoding="utf-8")


if __name__ == "__main__":
    main()
