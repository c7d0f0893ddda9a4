"""The grammar of a watch stream, rule by rule."""

from __future__ import annotations

import pytest

from headway.errors import StoreChanged
from headway.informers import FalseBookmark, StreamBroken, StreamMachine
from headway.resource import Position, StreamItem
from tests.helpers.resources import (
    OTHER_STORE,
    STORE,
    at,
    bookmark,
    changes,
    chunk,
    end,
    put,
    removed,
    stored,
)


def live(revision: int = 10) -> StreamMachine:
    """Return a stream past its snapshot."""
    machine = StreamMachine()
    machine.feed(end(revision))
    return machine


def one(revision: int, name: str = "ada", *, more: bool = False) -> StreamItem:
    return changes(put(stored(name, revision), more=more))


# --- rule 1: order -----------------------------------------------------------


def test_stream_is_a_snapshot_its_end_and_changes() -> None:
    """Each item is passed on unchanged. The frontier is the revision up to which the stream is complete."""
    machine = StreamMachine()
    frontiers = []
    for item in (chunk(stored("ada", 5)), chunk(stored("grace", 6)), end(10), one(11), bookmark(15), one(16)):
        assert machine.feed(item) == item
        frontiers.append(machine.frontier)
    assert frontiers == [0, 0, 10, 11, 15, 16]


def test_stream_resumes_at_the_requested_position() -> None:
    """The first item is a bookmark that confirms the position."""
    machine = StreamMachine(STORE, at(10))
    assert machine.feed(bookmark(10, resumed=True)) == bookmark(10, resumed=True)
    assert machine.frontier == 10
    assert machine.feed(one(11)) == one(11)


def test_stream_asked_to_resume_may_begin_with_a_snapshot() -> None:
    """A server that can't resume sends everything."""
    machine = StreamMachine(STORE, at(10))
    for item in (chunk(stored("ada", 5)), end(9), one(10)):
        assert machine.feed(item) == item


@pytest.mark.parametrize("asked", [None, at(10)])
@pytest.mark.parametrize(
    "items",
    [
        [one(11)],
        [bookmark(10)],
        [chunk(), one(11)],
        [chunk(), bookmark(10)],
        [chunk(), bookmark(10, resumed=True)],
        [end(10), chunk()],
        [end(10), end(11)],
    ],
)
def test_any_other_order_breaks_the_grammar(asked: Position | None, items: list[StreamItem]) -> None:
    """The items before the misplaced item are passed on, and the misplaced item is not."""
    machine = StreamMachine(STORE, asked)
    for item in items[:-1]:
        machine.feed(item)
    with pytest.raises(StreamBroken):
        machine.feed(items[-1])


def test_unrequested_resumption_breaks_the_grammar() -> None:
    """All earlier changes would be missing."""
    with pytest.raises(StreamBroken):
        StreamMachine(STORE).feed(bookmark(10, resumed=True))


def test_resumed_stream_has_no_snapshot() -> None:
    """The stream is live from its first item on."""
    for item in (chunk(), end(12)):
        machine = StreamMachine(STORE, at(10))
        machine.feed(bookmark(10, resumed=True))
        with pytest.raises(StreamBroken):
            machine.feed(item)


# --- rule 2: whole commits ---------------------------------------------------


def test_commit_is_passed_on_once_complete() -> None:
    """Until then, the frontier doesn't include the commit."""
    machine = live()
    first, second, third = (put(stored(name, 11), more=name != "c") for name in ("a", "b", "c"))
    assert machine.feed(changes(first)) is None
    assert machine.feed(changes(second)) is None
    assert machine.frontier == 10
    assert machine.feed(changes(third)) == changes(first, second, third)
    assert machine.frontier == 11


def test_complete_commits_before_a_partial_one_are_passed_on() -> None:
    """The part of the commit is kept, and joined to the rest."""
    machine = live()
    whole, part, rest = put(stored("a", 11)), put(stored("b", 12), more=True), removed(stored("c", 3), 12)
    assert machine.feed(changes(whole, part)) == changes(whole)
    assert machine.frontier == 11
    after = put(stored("d", 13))
    assert machine.feed(changes(rest, after)) == changes(part, rest, after)
    assert machine.frontier == 13


def test_bookmark_within_a_commit_breaks_the_grammar() -> None:
    """The bookmark would claim that the commit is complete."""
    machine = live()
    machine.feed(one(11, more=True))
    with pytest.raises(StreamBroken):
        machine.feed(bookmark(11))


@pytest.mark.parametrize("revision", [10, 12])
@pytest.mark.parametrize("apart", [False, True])
def test_commit_within_another_one_breaks_the_grammar(revision: int, apart: bool) -> None:
    """A part of the first commit would be missing. This holds within one item, and across two."""
    machine = live(9)
    half, other = put(stored("a", 11), more=True), put(stored("b", revision))
    if apart:
        machine.feed(changes(half))
    with pytest.raises(StreamBroken):
        machine.feed(changes(other) if apart else changes(half, other))


# --- rule 3: bookmarks -------------------------------------------------------


@pytest.mark.parametrize("revision", [14, 15])
def test_change_at_or_below_a_bookmark_proves_it_false(revision: int) -> None:
    """The bookmark had claimed that the stream was complete up to there."""
    machine = live()
    machine.feed(bookmark(15))
    with pytest.raises(FalseBookmark):
        machine.feed(one(revision))


def test_change_anywhere_in_an_item_proves_a_bookmark_false() -> None:
    """The change may also follow a change above the bookmark."""
    machine = live()
    machine.feed(bookmark(15))
    with pytest.raises(FalseBookmark):
        machine.feed(changes(put(stored("a", 16)), put(stored("b", 14))))


def test_change_at_the_resume_position_proves_the_bookmark_false() -> None:
    """The stream was requested to begin after that position."""
    machine = StreamMachine(STORE, at(10))
    machine.feed(bookmark(10, resumed=True))
    with pytest.raises(FalseBookmark):
        machine.feed(one(10))


def test_lower_bookmark_is_ignored() -> None:
    """The highest bookmark counts."""
    machine = live()
    machine.feed(bookmark(15))
    machine.feed(bookmark(12))
    assert machine.frontier == 15
    with pytest.raises(FalseBookmark):
        machine.feed(one(13))


def test_change_at_or_below_the_snapshots_end_is_passed_on() -> None:
    """The change is only late. The type store refuses it."""
    machine = live(10)
    assert machine.feed(one(9)) == one(9)
    assert machine.frontier == 10


# --- rules 4 and 5: positions ------------------------------------------------


def test_stream_of_an_unexpected_store_raises_store_changed() -> None:
    """The end of the snapshot or the first bookmark reveals the store."""
    with pytest.raises(StoreChanged):
        StreamMachine(STORE).feed(end(10, OTHER_STORE))
    with pytest.raises(StoreChanged):
        StreamMachine(STORE, at(10)).feed(bookmark(10, resumed=True, store_id=OTHER_STORE))


def test_stream_that_changes_its_store_raises_store_changed() -> None:
    """This holds also if no store was expected."""
    machine = live()
    with pytest.raises(StoreChanged):
        machine.feed(bookmark(11, store_id=OTHER_STORE))


@pytest.mark.parametrize("revision", [9, 11])
def test_resumption_at_another_position_breaks_the_grammar(revision: int) -> None:
    """After the requested position, changes would be missing.

    A resumption before it would be a mistake of the server.
    """
    with pytest.raises(StreamBroken):
        StreamMachine(STORE, at(10)).feed(bookmark(revision, resumed=True))


@pytest.mark.parametrize("position", [Position("", "x", 3), Position("s", "", 0)])
def test_stream_without_positions_breaks_the_grammar(position: Position) -> None:
    """The server is Consul's, which can't report the position of a stream."""
    with pytest.raises(StreamBroken, match="not a Headway server"):
        StreamMachine().feed(end(position.revision, position.store_id, position.session))
