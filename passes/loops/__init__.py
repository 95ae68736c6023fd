"""Passes over loops that run at call time."""
