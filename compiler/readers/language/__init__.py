"""The reader of model text: text to tokens, tokens to a syntax tree, the tree to a checked graph."""

from .elaborate import NoModelError, check_source, check_weights, load_module

__all__ = ["NoModelError", "check_source", "check_weights", "load_module"]
