"""The files that a page is made of, as they stand beside this module."""

from __future__ import annotations

from importlib.resources import files


def read_asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
