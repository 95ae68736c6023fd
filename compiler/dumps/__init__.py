"""Dumps: the text of every stage of a build, in files that can be read back, and parts of these texts by name."""

from .dumps import Dumps

__all__ = ["Dumps"]
