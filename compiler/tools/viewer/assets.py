"""The asset files of a page, which are in the folder of this module."""

from __future__ import annotations

from importlib.resources import files


def read_asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
