"""Passes that compute subgraphs of constants and parameters at compile time."""
