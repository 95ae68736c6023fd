"""Nacre: an ahead-of-time compiler for machine-learning models.

`import nacre` costs numpy and ctypes; the compiler is imported at the first use of what needs it.
"""
