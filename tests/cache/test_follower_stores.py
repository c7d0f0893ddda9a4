"""A follower whose store went back, lost what it had acknowledged, or is another one."""

from __future__ import annotations

import pytest

from headway.errors import StoreChanged, StoreRolledBack, Unavailable
from headway.events import StreamEnded
from headway.resource import Position
from tests.helpers.following import GONE, NOT_OURS, Following
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
from tests.helpers.scripted_channel import SILENCE, Line, Pause


def test_a_store_below_the_frontier_went_back() -> None:
    """When a read that every acknowledged commit is in answers so, the run has to end, by that name."""
    following = Following([end(10)], [SILENCE], store=at(9))
    with pytest.raises(StoreRolledBack, match=r"9.*10"):
        following.follow()


def test_a_store_at_the_frontier_did_not_go_back() -> None:
    """The endpoint lagged alone; another one is tried."""
    following = Following([end(10)], [SILENCE], [bookmark(10, resumed=True), SILENCE], store=at(10))
    following.follow()
    assert following.resumed == [None, 10, 10]


def test_a_store_that_doesnt_know_the_position_and_stands_below_it_went_back() -> None:
    """It is asked at once, before it has grown past the place where it was left."""
    following = Following([end(10)], [NOT_OURS], store=at(9))
    with pytest.raises(StoreRolledBack):
        following.follow(1)


def test_a_server_that_doesnt_know_the_position_is_no_proof_against_the_store() -> None:
    """One server of several may have a copy. What the store itself has never lost is asked for once more, as a
    snapshot; one from below the frontier isn't enough.
    """
    following = Following([end(10)], [NOT_OURS], [end(9), bookmark(11), SILENCE], [end(11), SILENCE])
    following.follow(20)
    assert following.resumed == [None, 10, None, None]
    assert following.known == [None, None, 10, 11]


@pytest.mark.parametrize("in_the_process", [True, False])
def test_a_store_that_has_grown_past_what_it_has_lost_went_back(in_the_process: bool) -> None:
    """Although it stands above the frontier: it says itself that it has never been there. Nothing of it is taken."""
    following = Following([end(10)], [NOT_OURS], [end(1000), SILENCE], lost=at(10))
    following.channel.knows_outcomes = in_the_process
    with pytest.raises(StoreRolledBack, match="it has lost"):
        following.follow(20)
    assert following.shared.frontier == 10


def test_a_store_that_has_lost_what_it_had_acknowledged_went_back() -> None:
    """A write's reply is held too, though no stream has come as far: the next stream asks for it."""
    following = Following([end(10), Pause(1)], [NOT_OURS], [end(1000), SILENCE], lost=at(15))
    following.answer_after_first_opening = at(15)
    with pytest.raises(StoreRolledBack, match="it has lost"):
        following.follow(20)
    assert (following.resumed, following.known) == ([None, 10], [None, 15])


def test_a_store_below_what_it_had_acknowledged_went_back() -> None:
    """Wherever the streams have come to."""
    following = Following([end(10)], [NOT_OURS], store=at(14))
    following.answer_after_first_opening = at(15)
    with pytest.raises(StoreRolledBack, match=r"14.*15"):
        following.follow(20)


def test_a_snapshot_is_taken_only_of_a_store_that_has_what_is_held() -> None:
    """History may be gone together with what it was the history of: what is held is asked for besides."""
    following = Following([end(10)], [GONE], [NOT_OURS], [end(1000), SILENCE], lost=at(10))
    with pytest.raises(StoreRolledBack):
        following.follow(20)
    assert (following.resumed, following.known) == ([None, 10, None], [None, None, 10])


def test_a_store_that_cant_be_asked_is_tried_again() -> None:
    """Not knowing is no reason to end runs."""
    following = Following([end(10)], [SILENCE], [bookmark(10, resumed=True), SILENCE], store=Unavailable("no leader"))
    following.follow()
    assert following.resumed == [None, 10, 10]
    assert StreamEnded(TEAM.name, "no leader", 1) in following.heard


@pytest.mark.parametrize(
    ("script", "store"),
    [
        ([end(20, OTHER_STORE)], at(1000)),
        ([bookmark(10, resumed=True, store_id=OTHER_STORE)], at(1000)),
        ([SILENCE], at(1000, OTHER_STORE)),
        ([NOT_OURS], at(1000, OTHER_STORE)),
    ],
)
def test_another_store_ends_the_following_by_name(script: list[Line], store: Position) -> None:
    """Whether a stream says so or a read does; nothing of it is applied."""
    following = Following([chunk(stored("ada", 5)), end(10)], script, store=store)
    with pytest.raises(StoreChanged):
        following.follow()
    assert versions(following.shared.gate.entries) == {"ada": 5}
    assert following.shared.frontier == 10


def test_another_store_than_a_reply_came_from_ends_the_following() -> None:
    """A write may have been answered before the first stream was."""
    following = Following([end(20, OTHER_STORE)])
    following.shared.reply(key("ada"), None, at(3))
    with pytest.raises(StoreChanged):
        following.follow()
    following = Following([chunk(), end(20, OTHER_STORE)])
    following.answer_after_first_opening = at(3)
    with pytest.raises(StoreChanged):
        following.follow()
