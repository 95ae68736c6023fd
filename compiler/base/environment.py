"""Environment variables of the program `nacre`, and the environment of the commands that a user gives it."""

from __future__ import annotations

import os

CHECK_PASSES = "NACRE_CHECK_PASSES"
"""Enables the check of every build. An absolute path is a folder, in which checks are recorded once they are passed."""
BLAS_THREADS = "OPENBLAS_NUM_THREADS"
"""The number of threads of NumPy's library for matrices, which reads it when NumPy is imported."""
_added: set[str] = set()


def use_one_blas_thread() -> None:
    """Makes NumPy multiply matrices on one thread, unless the user's environment has another number. Call it before
    NumPy is imported."""
    if BLAS_THREADS not in os.environ:
        os.environ[BLAS_THREADS] = "1"
        _added.add(BLAS_THREADS)


def asks_for_checks() -> bool:
    """Returns whether the variable asks to check every build, and not only what no other build has checked."""
    value = os.environ.get(CHECK_PASSES, "")
    return bool(value) and not os.path.isabs(value)


def users_environment() -> dict[str, str]:
    """Returns the environment with which the program was started, for commands of the user."""
    return {name: value for name, value in os.environ.items() if name not in _added}
