"""Runs on a machine with a GPU, packed with artifacts: needs Python, NumPy and the loader alone."""
