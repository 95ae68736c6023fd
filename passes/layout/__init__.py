"""Passes that change layouts and algorithms of convolutions."""
