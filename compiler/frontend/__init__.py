"""The language: text to tokens, tokens to a syntax tree, the tree to a checked graph."""

from .elaborate import Elaborated, check_source, check_weights, load_module
from .examples import Expectation, ModelBudget, ModelTest, TestData

__all__ = [
    "Elaborated",
    "Expectation",
    "ModelBudget",
    "ModelTest",
    "TestData",
    "check_source",
    "check_weights",
    "load_module",
]
