"""What the compiler's process and the code generation child tell each other, as JSON files in a folder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class Job:
    """Beside it stand `kernels.mlir` and `entries.ll`. `keep` names the functions that the object exports, to
    everybody if `visible`, else to those that it is linked with."""

    route: str
    level: int
    cpu: str
    triple: str
    features: str
    keep: tuple[str, ...]
    visible: bool = False
    dump: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"

    @staticmethod
    def from_json(text: str) -> Job:
        fields = json.loads(text)
        return Job(**{**fields, "keep": tuple(fields["keep"])})


@dataclass(frozen=True, slots=True)
class Result:
    """Seconds per stage; where it failed, the stage and what was said there. The object stands in `kernels.o`."""

    times: dict[str, float] = field(default_factory=dict)
    stage: str = ""
    error: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"

    @staticmethod
    def from_json(text: str) -> Result:
        return Result(**json.loads(text))
