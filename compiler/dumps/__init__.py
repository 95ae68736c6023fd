"""What a build can show of itself: the text of every stage, in files that read back, and parts of it by name."""

from .dumps import Dumps

__all__ = ["Dumps"]
