"""A pytest plugin: one folder of compiled objects for all mutants. Its keys hold the sources that generate code."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Iterator[None]:
    yield
    if fixturedef.argname == "own_cache":
        os.environ["NACRE_CACHE"] = os.environ["NACRE_SHARED_CACHE"]
