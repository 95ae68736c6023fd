"""What is compared: a model as text, and the sizes and ranges that say what it is called with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from .precision import F32, Precision


class Kind(Enum):
    """What is timed: calls from Python, calls from C, or a fresh process that loads a model and calls it once."""

    CALL = "call"
    C_CALL = "C call"
    COLD_START = "cold start"


class Bound(Enum):
    """What limits a workload, if one thing does: its time is stated as a share of what the machine can do of it."""

    COMPUTE = "compute"
    MEMORY = "memory"
    NONE = ""


@dataclass(frozen=True)
class Workload:
    """`text` is a model file. Its arguments are made up: floats are normal, integers within `ranges`.

    `dims` are the values of symbolic sizes. `files` stand beside the model file, by name. Weights are made up too, by
    name and with a fixed seed, unless `checkpoint` says where they are. `variants` are other texts of the same model,
    timed beside it. `precision` is what contenders make of a text that is in f32; `strict` is our option of that name.
    """

    name: str
    text: str
    dims: Mapping[str, int] = field(default_factory=dict)
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    checkpoint: Path | None = None
    bound: Bound = Bound.NONE
    kind: Kind = Kind.CALL
    variants: Mapping[str, str] = field(default_factory=dict)
    precision: Precision = F32
    strict: bool = False
