"""Properties in which two builds may differ besides values: sizes, kernels, memory, options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....runtime.loader import Model
from ....runtime.observe import calls, evaluate


@dataclass(frozen=True, slots=True)
class Build:
    """The externally visible properties of an artifact, by name."""

    path: Path
    facts: Mapping[str, Any]


def describe_build(path: Path, model: Model, entry: str, dims: Mapping[str, int]) -> Build:
    """Returns the properties of an artifact; those of memory are at sizes of the dims."""
    description: Mapping[str, Any] = model.describe()
    described = next(e for e in description["entries"] if e["name"] == entry)
    made = calls(model)[entry]
    options: Mapping[str, Any] = description["options"]
    facts = {
        "bytes": path.stat().st_size,
        "weight bytes": description["weights"]["bytes"],
        "workspace bytes": evaluate(described["workspace"], dims),
        "kernels": len({call.kernel for call in made}),
        "calls": len(made),
        "target": f"{description['target']['triple']} {','.join(t['name'] for t in description['target']['levels'])}",
        "compiler": description["compiler"],
        "model": description["source_hash"],
        **{f"option {name}": value for name, value in options.items()},
    }
    return Build(path, facts)
