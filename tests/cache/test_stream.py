"""The grammar of a stream, rule by rule."""

from __future__ import annotations

import pytest

from headway.cache import FalseBookmark, StreamBroken, StreamMachine
from headway.errors import StoreChanged
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
    """A stream past its snapshot."""
    machine = StreamMachine()
    machine.feed(end(revision))
    return machine


def one(revision: int, name: str = "ada", *, more: bool = False) -> StreamItem:
    return changes(put(stored(name, revision), more=more))


# --- rule 1: order -----------------------------------------------------------


def test_a_stream_is_a_snapshot_its_end_and_what_follows() -> None:
    """Every item is handed on as it is, and `told` says up to where everything is told."""
    machine = StreamMachine()
    told = []
    for item in (chunk(stored("ada", 5)), chunk(stored("grace", 6)), end(10), one(11), bookmark(15), one(16)):
        assert machine.feed(item) == item
        told.append(machine.told)
    assert told == [0, 0, 10, 11, 15, 16]


def test_a_stream_resumes_where_it_was_asked_to() -> None:
    """Its first word is a bookmark that says so."""
    machine = StreamMachine(STORE, at(10))
    assert machine.feed(bookmark(10, resumed=True)) == bookmark(10, resumed=True)
    assert machine.told == 10
    assert machine.feed(one(11)) == one(11)


def test_a_stream_asked_to_resume_may_begin_with_a_snapshot() -> None:
    """A server that can't resume, or doesn't know how, tells everything."""
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
def test_any_other_order_is_broken(asked: Position | None, items: list[StreamItem]) -> None:
    """What came before the item out of order is handed on, it is not."""
    machine = StreamMachine(STORE, asked)
    for item in items[:-1]:
        machine.feed(item)
    with pytest.raises(StreamBroken):
        machine.feed(items[-1])


def test_a_stream_that_was_not_asked_to_resume_doesnt() -> None:
    """Everything before would be missing."""
    with pytest.raises(StreamBroken):
        StreamMachine(STORE).feed(bookmark(10, resumed=True))


def test_a_resumed_stream_has_no_snapshot() -> None:
    """It is live from its first word on."""
    for item in (chunk(), end(12)):
        machine = StreamMachine(STORE, at(10))
        machine.feed(bookmark(10, resumed=True))
        with pytest.raises(StreamBroken):
            machine.feed(item)


# --- rule 2: whole commits ---------------------------------------------------


def test_a_commit_is_handed_on_when_it_is_whole() -> None:
    """Until then nothing of it is, and `told` doesn't count it."""
    machine = live()
    first, second, third = (put(stored(name, 11), more=name != "c") for name in ("a", "b", "c"))
    assert machine.feed(changes(first)) is None
    assert machine.feed(changes(second)) is None
    assert machine.told == 10
    assert machine.feed(changes(third)) == changes(first, second, third)
    assert machine.told == 11


def test_whole_commits_before_a_part_of_one_are_handed_on() -> None:
    """The part is kept, and joined to the rest."""
    machine = live()
    whole, part, rest = put(stored("a", 11)), put(stored("b", 12), more=True), removed(stored("c", 3), 12)
    assert machine.feed(changes(whole, part)) == changes(whole)
    assert machine.told == 11
    after = put(stored("d", 13))
    assert machine.feed(changes(rest, after)) == changes(part, rest, after)
    assert machine.told == 13


def test_a_bookmark_in_the_middle_of_a_commit_is_broken() -> None:
    """It would say that the half is all."""
    machine = live()
    machine.feed(one(11, more=True))
    with pytest.raises(StreamBroken):
        machine.feed(bookmark(11))


@pytest.mark.parametrize("revision", [10, 12])
@pytest.mark.parametrize("apart", [False, True])
def test_another_commit_in_the_middle_of_one_is_broken(revision: int, apart: bool) -> None:
    """Something of the first would be missing, in one item or in two."""
    machine = live(9)
    half, other = put(stored("a", 11), more=True), put(stored("b", revision))
    if apart:
        machine.feed(changes(half))
    with pytest.raises(StreamBroken):
        machine.feed(changes(other) if apart else changes(half, other))


# --- rule 3: bookmarks -------------------------------------------------------


@pytest.mark.parametrize("revision", [14, 15])
def test_a_change_at_or_below_a_bookmark_proves_it_false(revision: int) -> None:
    """The stream had said that everything up to there was told."""
    machine = live()
    machine.feed(bookmark(15))
    with pytest.raises(FalseBookmark):
        machine.feed(one(revision))


def test_a_change_anywhere_in_an_item_proves_a_bookmark_false() -> None:
    """Also behind one that is above it."""
    machine = live()
    machine.feed(bookmark(15))
    with pytest.raises(FalseBookmark):
        machine.feed(changes(put(stored("a", 16)), put(stored("b", 14))))


def test_a_change_at_the_place_of_resumption_proves_it_false() -> None:
    """What a resumed stream was asked after is told by definition."""
    machine = StreamMachine(STORE, at(10))
    machine.feed(bookmark(10, resumed=True))
    with pytest.raises(FalseBookmark):
        machine.feed(one(10))


def test_a_bookmark_that_falls_takes_nothing_back() -> None:
    """The highest one stands."""
    machine = live()
    machine.feed(bookmark(15))
    machine.feed(bookmark(12))
    assert machine.told == 15
    with pytest.raises(FalseBookmark):
        machine.feed(one(13))


def test_a_change_at_or_below_the_snapshots_end_is_merely_late() -> None:
    """It is handed on; whoever holds the data refuses it."""
    machine = live(10)
    assert machine.feed(one(9)) == one(9)
    assert machine.told == 10


# --- rules 4 and 5: positions ------------------------------------------------


def test_a_stream_of_another_store_than_expected_is_named() -> None:
    """By its snapshot's end, and by its first bookmark."""
    with pytest.raises(StoreChanged):
        StreamMachine(STORE).feed(end(10, OTHER_STORE))
    with pytest.raises(StoreChanged):
        StreamMachine(STORE, at(10)).feed(bookmark(10, resumed=True, store_id=OTHER_STORE))


def test_a_stream_stays_of_the_store_that_it_began_with() -> None:
    """Also where nobody expected one."""
    machine = live()
    with pytest.raises(StoreChanged):
        machine.feed(bookmark(11, store_id=OTHER_STORE))


@pytest.mark.parametrize("revision", [9, 11])
def test_a_stream_that_resumes_elsewhere_is_broken(revision: int) -> None:
    """Past the place asked for changes would be missing; before it the server is confused."""
    with pytest.raises(StreamBroken):
        StreamMachine(STORE, at(10)).feed(bookmark(revision, resumed=True))


@pytest.mark.parametrize("position", [Position("", "x", 3), Position("s", "", 0)])
def test_a_stream_without_positions_is_broken(position: Position) -> None:
    """Its server is one of the origin's, which can't say how far it has told."""
    with pytest.raises(StreamBroken, match="not a Headway server"):
        StreamMachine().feed(end(position.revision, position.store_id, position.session))
