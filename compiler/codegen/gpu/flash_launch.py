"""The text of an attention's schedule: the function of the threads, and the one that counts the blocks."""

from __future__ import annotations

from .attention import Attention
from .flash import FlashWriter
from .flash_shape import Shape, counted_arguments
from .flash_words import ExactWriter, Tf32Writer
from .text import Text


def write_flash(attention: Attention, name: str, *, tf32: bool, combines: bool = False) -> str:
    """Returns the text of the schedule. With `combines`, it is the schedule of the launch that combines the parts of
    the keys. With `tf32`, factors of f32 are rounded to this format, unless keys or values have a
    narrower dtype."""
    (q, k), (_, v) = attention.scores.inputs, attention.values.inputs
    has_words = q.element == k.element == v.element
    writer = FlashWriter if q.element != "f32" else Tf32Writer if tf32 and has_words else ExactWriter
    return writer(attention, name, combines=combines).write() + _write_count(attention, name, combines=combines)


def _write_count(attention: Attention, name: str, *, combines: bool) -> str:
    text = Text()
    shape = Shape(text, attention)
    blocks = shape.whole
    if combines:
        assert shape.parts is not None
        is_whole = text.let(f"arith.cmpi eq, {shape.parts}, {text.constant(1)} : index")
        blocks = text.let(f"arith.select {is_whole}, {text.constant(0)}, {blocks} : index")
    elif shape.parts is not None:
        blocks = text.multiply(blocks, shape.parts)
    arguments = ", ".join(f"{argument}: {type}" for argument, type in counted_arguments(attention))
    return text.function(f"@{name}_count({arguments}) -> index", [blocks], ["index"])
