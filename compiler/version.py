"""The compiler's version, which every artifact carries."""

from importlib import metadata

__version__ = metadata.version("nacre")
