"""What a planted fault is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .setting import Setter

VARIABLE = "NACRE_PLANTED_FAULT"
"""Names the fault of children that generate code, as `module:name`; only the tests' `sitecustomize` knows it."""

FILE = "NACRE_PLANTED_FAULT_FILE"
"""Names a file that holds the same; its fault is planted in children that a process forks, and not in the process."""


@dataclass(frozen=True)
class Planted:
    """`plant` puts the fault into the compiler, which then gets the model wrong.

    To be blamed are `stage`: a pass, or the stage of code generation, or of putting the artifact together; and the line
    of the model at which it goes wrong, which the text marks with a comment `# here`. `size` bounds the weights, and
    `target` is the CPU variant that has the fault. `inputs` are the tensors that the wrong part reads.
    """

    name: str
    stage: str
    plant: Callable[[Setter], None]
    model: str
    size: str | None = None
    target: str | None = None
    inputs: tuple[str, ...] = ("x",)

    @property
    def place(self) -> str:
        """The module that plants it, and its name."""
        return f"{self.plant.__module__}:{self.name}"

    @property
    def line(self) -> int:
        (number,) = (i for i, text in enumerate(self.model.splitlines(), start=1) if text.endswith("# here"))
        return number
