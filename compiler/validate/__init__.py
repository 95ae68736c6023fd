"""Validation of results: the results that a graph may have, and the first stage of a build that computes others."""
