"""A follower whose store was rolled back, has lost acknowledged writes, or was replaced by another store."""

from __future__ import annotations

import pytest

from headway.errors import StoreChanged, StoreRolledBack, Unavailable
from headway.events import StreamEnded
from headway.resource import Position
from tests.helpers.resources import (
    OTHER_STORE,
    TEAM,
    at,
    bookmark,
    chunk,
    end,
    key,
    stored,
    versions,
)
from tests.helpers.scripted_channel import SILENCE, Line, pause
from tests.helpers.scripted_follower import GONE, NOT_OURS, Following


def test_store_below_the_frontier_has_rolled_back() -> None:
    """A linearizable read below the frontier ends the run with StoreRolledBack."""
    following = Following([end(10)], [SILENCE], store=at(9))
    with pytest.raises(StoreRolledBack, match=r"9.*10"):
        following.follow()


def test_store_at_the_frontier_has_not_rolled_back() -> None:
    """Only the endpoint lagged, so another endpoint is tried."""
    following = Following([end(10)], [SILENCE], [bookmark(10, resumed=True), SILENCE], store=at(10))
    following.follow()
    assert following.resumed == [None, 10, 10]


def test_store_below_a_position_that_it_does_not_know_has_rolled_back() -> None:
    """The store is asked at once, before it has grown past the lost position."""
    following = Following([end(10)], [NOT_OURS], store=at(9))
    with pytest.raises(StoreRolledBack):
        following.follow(1)


def test_server_that_does_not_know_the_position_proves_no_rollback() -> None:
    """A single server may have an old copy. If the store itself was not rolled back, a snapshot is requested.

    A snapshot from below the frontier is not enough.
    """
    following = Following([end(10)], [NOT_OURS], [end(9), bookmark(11), SILENCE], [end(11), SILENCE])
    following.follow(20)
    assert following.resumed == [None, 10, None, None]
    assert following.known == [None, None, 10, 11]


@pytest.mark.parametrize("in_the_process", [True, False])
def test_store_that_has_grown_past_its_lost_commits_has_rolled_back(in_the_process: bool) -> None:
    """The store is above the frontier, but says that it was never at it. None of its data is applied."""
    following = Following([end(10)], [NOT_OURS], [end(1000), SILENCE], lost=at(10))
    following.channel.knows_outcomes = in_the_process
    with pytest.raises(StoreRolledBack, match="it has lost"):
        following.follow(20)
    assert following.informer.store.frontier == 10


def test_store_that_lost_an_acknowledged_write_has_rolled_back() -> None:
    """The cache has the write's reply, but no stream has come that far. The next stream checks that position."""
    following = Following([end(10), pause(1)], [NOT_OURS], [end(1000), SILENCE], lost=at(15))
    following.answer_after_first_opening = at(15)
    with pytest.raises(StoreRolledBack, match="it has lost"):
        following.follow(20)
    assert (following.resumed, following.known) == ([None, 10], [None, 15])


def test_store_below_an_acknowledged_write_has_rolled_back() -> None:
    """This holds for any progress of the streams."""
    following = Following([end(10)], [NOT_OURS], store=at(14))
    following.answer_after_first_opening = at(15)
    with pytest.raises(StoreRolledBack, match=r"14.*15"):
        following.follow(20)


def test_snapshot_is_accepted_only_from_a_store_that_knows_the_held_position() -> None:
    """History may be compacted together with the lost commits, so the request names the held position."""
    following = Following([end(10)], [GONE], [NOT_OURS], [end(1000), SILENCE], lost=at(10))
    with pytest.raises(StoreRolledBack):
        following.follow(20)
    assert (following.resumed, following.known) == ([None, 10, None], [None, None, 10])


def test_unreachable_store_is_retried() -> None:
    """A position that can't be read is not a reason to end runs."""
    following = Following([end(10)], [SILENCE], [bookmark(10, resumed=True), SILENCE], store=Unavailable("no leader"))
    following.follow()
    assert following.resumed == [None, 10, 10]
    assert StreamEnded(TEAM.name, "no leader", 1) in following.events


@pytest.mark.parametrize(
    ("script", "store"),
    [
        ([end(20, OTHER_STORE)], at(1000)),
        ([bookmark(10, resumed=True, store_id=OTHER_STORE)], at(1000)),
        ([SILENCE], at(1000, OTHER_STORE)),
        ([NOT_OURS], at(1000, OTHER_STORE)),
    ],
)
def test_replaced_store_ends_the_follower_with_store_changed(script: list[Line], store: Position) -> None:
    """A stream or a read may reveal the replacement. No data of the new store is applied."""
    following = Following([chunk(stored("ada", 5)), end(10)], script, store=store)
    with pytest.raises(StoreChanged):
        following.follow()
    assert versions(following.informer.store.entries) == {"ada": 5}
    assert following.informer.store.frontier == 10


def test_store_other_than_that_of_a_reply_ends_the_follower() -> None:
    """The write may have been answered before the first stream began."""
    following = Following([end(20, OTHER_STORE)])
    following.informer.reply(key("ada"), None, at(3))
    with pytest.raises(StoreChanged):
        following.follow()
    following = Following([chunk(), end(20, OTHER_STORE)])
    following.answer_after_first_opening = at(3)
    with pytest.raises(StoreChanged):
        following.follow()
