"""Passes that change the dtypes in which values are stored and multiplied."""
