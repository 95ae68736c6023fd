"""The figures in `figures.json`, by section. `--update` writes a section anew; several processes may do so at once."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

FIGURES = Path(__file__).with_name("figures.json")


def read_figures(section: str) -> dict[str, Any]:
    """Returns the figures of a section, by name."""
    return dict(json.loads(FIGURES.read_text())[section])


def write_figures(section: str, made: dict[str, Any]) -> None:
    """Replaces the figures of a section."""
    with FIGURES.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        whole = json.load(file) | {section: made}
        file.seek(0)
        file.write(json.dumps(whole, indent=1) + "\n")
        file.truncate()
