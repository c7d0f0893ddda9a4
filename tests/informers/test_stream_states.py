"""The state of a stream between its items: parts of commits, bookmarks, and the store of its positions."""

from __future__ import annotations

import pytest

from headway.informers import StreamBroken, StreamMachine
from headway.resource import Bookmark, EndOfSnapshot, Position
from tests.helpers.resources import STORE, changes, end, put, stored


def test_joined_commit_is_passed_on_only_once() -> None:
    """Each later commit comes without it, in one item or in several."""
    machine = StreamMachine()
    machine.feed(end(10))
    for revision in (11, 12):
        first, second = (put(stored(name, revision), more=name == "a") for name in ("a", "b"))
        assert machine.feed(changes(first)) is None
        assert machine.feed(changes(second)) == changes(first, second)
        assert machine.frontier == revision
    single = changes(put(stored("c", 13)))
    assert machine.feed(single) == single
    assert machine.feed(Bookmark(Position(STORE, "session", 14))) is not None


def test_first_commit_of_a_store_is_accepted() -> None:
    """The snapshot was of an empty store, at revision 0."""
    machine = StreamMachine()
    machine.feed(EndOfSnapshot(Position(STORE, "session", 0)))
    first = changes(put(stored("a", 1)))
    assert machine.feed(first) == first


@pytest.mark.parametrize(("session", "revision"), [("session", 0), ("", 5), ("session", 5)])
def test_position_needs_a_store_and_a_session_or_a_revision(session: str, revision: int) -> None:
    """A server that is no Headway server sends none of them."""
    StreamMachine().feed(EndOfSnapshot(Position(STORE, session, revision)))
    with pytest.raises(StreamBroken, match="has no positions"):
        StreamMachine().feed(EndOfSnapshot(Position("", session, revision)))
    with pytest.raises(StreamBroken, match="has no positions"):
        StreamMachine().feed(EndOfSnapshot(Position(STORE, "", 0)))
