"""Generators of pages in `compiler/docs` from the code."""
