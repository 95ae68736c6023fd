"""The version of the compiler, which is recorded in every artifact."""

from importlib import metadata

__version__ = metadata.version("nacre")
