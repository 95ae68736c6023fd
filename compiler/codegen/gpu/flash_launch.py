"""The text of an attention's schedule: the function of the threads, and the one that counts the blocks."""

from __future__ import annotations

from .attention import Attention
from .flash import FlashWriter
from .flash_shape import Shape, counted_arguments
from .flash_words import ExactWriter, Tf32Writer
from .text import Text


def write_flash(attention: Attention, name: str, *, tf32: bool) -> str:
    """Returns the text of the schedule. Products of f32 may be those of `tf32`."""
    is_exact = attention.values.inputs[1].element == "f32"
    writer = FlashWriter if not is_exact else Tf32Writer if tf32 else ExactWriter
    return writer(attention, name).write() + _write_count(attention, name)


def _write_count(attention: Attention, name: str) -> str:
    text = Text()
    shape = Shape(text, attention)
    blocks = text.multiply(shape.batches, shape.row_tiles, text.constant(shape.parts))
    arguments = ", ".join(f"{argument}: {type}" for argument, type in counted_arguments(attention))
    return text.function(f"@{name}_count({arguments}) -> index", [blocks], ["index"])
