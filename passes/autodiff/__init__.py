"""Reverse-mode differentiation of whole graphs, through branches and loops."""
