"""A fixture that holds a store's commits until a test releases them."""

from collections.abc import Iterator

import pytest

from tests.storage.sqlite_kit import Gate, hold_commits


@pytest.fixture
def commit_gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Hold every transaction just before its COMMIT."""
    gate = Gate()
    hold_commits(monkeypatch, gate)
    yield gate
    gate.open()
