"""Fixtures of the tests of StableHLO: files are parsed in forks."""

from __future__ import annotations

import pytest
from forked_readers import ForkedReaders
from nacre.compiler.readers.stablehlo import stablehlo_model

NEW_PROCESSES = (
    "test_a_number_that_asks_for_memory_is_an_error",
    "test_a_trained_network_agrees",
    "test_both_kinds_of_bytecode_are_read",
    "test_damaged_bytecode_is_a_diagnostic",
    "test_damaged_text_is_a_diagnostic",
)
"""The tests that parse files as users do: files of each kind, and those that damage or exhaust the parser."""


@pytest.fixture(autouse=True)
def forked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parses files in forks."""
    if request.node.name not in NEW_PROCESSES:
        monkeypatch.setattr(stablehlo_model, "subprocess", ForkedReaders())
