"""Passes that bring graphs into a simpler form with the same results."""
