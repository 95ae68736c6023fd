"""Environment variables of the program `nacre`, and the environment of the commands that a user gives it."""

from __future__ import annotations

import os

CHECK_PASSES = "NACRE_CHECK_PASSES"
"""Enables the check of every build."""
BLAS_THREADS = "OPENBLAS_NUM_THREADS"
"""The number of threads of NumPy's library for matrices, which reads it when NumPy is imported."""
_added: set[str] = set()


def use_one_blas_thread() -> None:
    """Makes NumPy multiply matrices on one thread, unless the user's environment has another number. Call it before
    NumPy is imported."""
    if BLAS_THREADS not in os.environ:
        os.environ[BLAS_THREADS] = "1"
        _added.add(BLAS_THREADS)


def users_environment() -> dict[str, str]:
    """Returns the environment with which the program was started, for commands of the user."""
    return {name: value for name, value in os.environ.items() if name not in _added}
