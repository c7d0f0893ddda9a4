"""The position that a type store resumes after: only what moves the frontier, or confirms it, sets it."""

from __future__ import annotations

import pytest

from headway.cache import TypeStore
from headway.resource import Bookmark, EndOfSnapshot, Position
from tests.helpers.resources import STORE, chunk, stored


def position(revision: int, server: str) -> Position:
    return Position(STORE, f"session of {server}", revision, f"versions of {server}")


@pytest.fixture
def primed() -> TypeStore:
    """Return a type store whose snapshot came from server A, at revision 10."""
    store = TypeStore()
    store.feed(chunk(stored("ada", 5)))
    store.feed(EndOfSnapshot(position(10, "A")))
    return store


@pytest.mark.parametrize("revision", [10, 11])
def test_bookmark_at_or_above_the_frontier_sets_the_session_and_versions(primed: TypeStore, revision: int) -> None:
    """The server that sent it can resume from there."""
    primed.feed(Bookmark(position(revision, "B")))
    assert primed.position == primed.known == position(revision, "B")


def test_bookmark_below_the_frontier_changes_nothing(primed: TypeStore) -> None:
    """Its server may not have the frontier's revision at all, and would refuse to resume."""
    primed.feed(Bookmark(position(9, "B")))
    assert primed.position == primed.known == position(10, "A")


def test_snapshot_below_the_frontier_changes_nothing(primed: TypeStore) -> None:
    """It is refused as a whole."""
    primed.feed(chunk(stored("grace", 9)))
    primed.feed(EndOfSnapshot(position(9, "B")))
    assert primed.position == primed.known == position(10, "A")
    assert primed.refused == 1
