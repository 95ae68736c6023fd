"""Reads PMML files: trees, ensembles of trees, and the regressions that follow them in a chain."""
