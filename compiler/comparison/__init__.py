"""Errors of a model's values relative to a reference over samples, and the bounds that a user sets on them."""
