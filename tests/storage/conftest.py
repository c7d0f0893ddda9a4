"""A fixture that holds a store's commits until a test releases them."""

import sqlite3
from collections.abc import Iterator

import pytest

from headway.storage.sqlite import _writer
from tests.storage.sqlite_kit import Gate


@pytest.fixture
def commit_gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Hold every transaction just before its COMMIT."""
    gate, commit = Gate(), _writer.end_transaction

    def end_transaction(connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            gate.pass_through()
        commit(connection)

    monkeypatch.setattr(_writer, "end_transaction", end_transaction)
    yield gate
    gate.open()
