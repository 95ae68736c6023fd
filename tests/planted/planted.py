"""What a planted fault is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .setting import Setter

VARIABLE = "NACRE_PLANTED_FAULT"
"""Names the fault that children which generate code have; only the tests' `sitecustomize` knows it."""


@dataclass(frozen=True)
class Planted:
    """`plant` puts the fault into the compiler, which then gets the model wrong.

    To be blamed are `stage`: a pass, or the stage of code generation, or of putting the artifact together; and the line
    of the model at which it goes wrong, which the text marks with a comment `# here`.
    """

    name: str
    stage: str
    plant: Callable[[Setter], None]
    model: str

    @property
    def line(self) -> int:
        (number,) = (i for i, text in enumerate(self.model.splitlines(), start=1) if text.endswith("# here"))
        return number
