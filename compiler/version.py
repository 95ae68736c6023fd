"""The version of the compiler, which is recorded in every artifact."""

__version__ = "0.1.0"
