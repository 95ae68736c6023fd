"""Chooses the schedule of a structured op on a GPU by its loops, maps and the way in which it combines values."""

from __future__ import annotations

from dataclasses import dataclass

from .nest import Nest
from .plain import THREADS, write_plain


@dataclass(frozen=True, slots=True)
class Schedule:
    """The text of a schedule: the function of the threads, named as the nest, and the one that counts the blocks."""

    name: str
    threads: int
    text: str


def choose_schedule(nest: Nest) -> Schedule | None:
    """Returns the schedule of an op; None where parallel iterations may write the same element."""
    if not nest.is_independent():
        return None
    return Schedule("plain", THREADS, write_plain(nest))
