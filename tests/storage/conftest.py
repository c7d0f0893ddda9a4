"""A store whose commits wait for a test."""

import sqlite3
from collections.abc import Iterator

import pytest

from headway.storage import _sqlite_commit
from tests.storage.sqlite_kit import Gate


@pytest.fixture
def commit_gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Every transaction waits here just before its COMMIT."""
    gate, commit = Gate(), _sqlite_commit.end_transaction

    def end_transaction(connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            gate.pass_through()
        commit(connection)

    monkeypatch.setattr(_sqlite_commit, "end_transaction", end_transaction)
    yield gate
    gate.open()
