"""A follower: where its streams go on, when it leaves one, and how long it waits for the next."""

from __future__ import annotations

import pytest

from headway.cache import watch_request
from headway.errors import HeadwayError, StoreChanged, StoreRolledBack
from headway.events import BookmarkRefused, StreamEnded, StreamLagging, StreamOpened
from headway.resource import ResourceType, Scope
from headway.rpc import Lagging
from tests.helpers.following import DOWN, GONE, LAG_LIMIT, Following, down
from tests.helpers.resources import (
    TEAM,
    Team,
    at,
    bookmark,
    changes,
    chunk,
    end,
    put,
    stored,
    versions,
)
from tests.helpers.scripted_channel import SILENCE, Line, Pause

# --- going on ----------------------------------------------------------------


def test_the_next_stream_goes_on_after_the_frontier() -> None:
    """And the first one begins with a snapshot."""
    following = Following([chunk(stored("ada", 5)), end(10), changes(put(stored("ada", 12)))], [SILENCE])
    following.follow()
    assert following.channel.openings[1].resume_after == at(12)
    assert following.resumed[:2] == [None, 12]
    assert versions(following.shared.gate.entries) == {"ada": 12}


def test_a_stream_that_breaks_in_a_commit_is_resumed_before_it() -> None:
    """Nothing of the commit has been told."""
    half = changes(put(stored("ada", 12), more=True))
    following = Following([end(10), half, DOWN], [bookmark(10, resumed=True), SILENCE])
    following.follow(20)
    assert following.resumed == [None, 10]
    assert following.shared.frontier == 10


def test_a_snapshot_that_breaks_is_begun_again() -> None:
    """What the first half had brought is forgotten."""
    following = Following([chunk(stored("mary", 3)), DOWN], [chunk(stored("ada", 5)), end(10), SILENCE])
    following.follow(20)
    assert following.resumed == [None, None]
    assert versions(following.shared.gate.entries) == {"ada": 5}


def test_openings_and_ends_are_reported() -> None:
    """With where the stream was to go on, why it ended and how many failures came before."""
    following = Following([end(10), DOWN], [bookmark(10, resumed=True)], [DOWN], [SILENCE])
    following.follow(20)
    assert following.heard == [
        StreamOpened(TEAM.name, None),
        StreamEnded(TEAM.name, "UNAVAILABLE: down", 0),
        StreamOpened(TEAM.name, at(10)),
        StreamEnded(TEAM.name, "the server ended the stream", 0),
        StreamOpened(TEAM.name, at(10)),
        StreamEnded(TEAM.name, "UNAVAILABLE: down", 1),
        StreamOpened(TEAM.name, at(10)),
    ]


# --- waiting -----------------------------------------------------------------


def test_it_backs_off_longer_with_each_failure_and_never_for_long() -> None:
    """Twice as long each time with jitter below, up to five seconds."""
    following = Following(*down(40))
    following.follow()
    for number, wait in enumerate(following.waits):
        ceiling = min(0.05 * 2.0**number, 5.0)
        assert ceiling / 2 <= wait <= ceiling
    assert len(following.waits) == 40


def test_an_item_resets_the_waiting() -> None:
    """The server is there again."""
    following = Following(*down(8), [end(10), DOWN], [DOWN], [SILENCE])
    following.follow()
    assert following.waits[7] > 2
    assert following.waits[8] <= 0.05
    assert 0.05 <= following.waits[9] <= 0.1


# --- streams that can't go on, or have told lies -----------------------------


def test_history_that_is_gone_means_one_snapshot() -> None:
    """Nothing is said against what is held, so the stream after that one resumes."""
    following = Following([end(10)], [GONE], [chunk(stored("ada", 12)), end(12)], [SILENCE])
    following.follow(20)
    assert following.resumed == [None, 10, None, 12]
    assert versions(following.shared.gate.entries) == {"ada": 12}
    assert not following.shared.distrusted


def test_a_lagging_server_without_history_is_followed_past_the_frontier() -> None:
    """Its snapshot is thrown away; its changes above the frontier are applied, by the same stream."""
    newer = changes(put(stored("grace", 11)))
    following = Following(
        [chunk(stored("ada", 5)), end(10)],
        [GONE],
        [chunk(stored("ada", 4)), end(8), changes(put(stored("ada", 5))), bookmark(10), newer, SILENCE],
    )
    following.follow(20)
    assert following.resumed == [None, 10, None]
    assert versions(following.shared.gate.entries) == {"ada": 5, "grace": 11}


def test_a_false_bookmark_means_a_snapshot_at_once_and_is_counted() -> None:
    """The cache is whole again after it."""
    following = Following(
        [end(10), bookmark(15), changes(put(stored("ada", 12)))],
        [chunk(stored("ada", 12)), end(15), SILENCE],
    )
    following.follow(20)
    assert following.resumed == [None, None]
    assert following.waits[0] <= 0.05
    assert following.count(BookmarkRefused) == 1
    assert versions(following.shared.gate.entries) == {"ada": 12}


def test_a_broken_stream_means_a_snapshot() -> None:
    """What it told may be anything."""
    following = Following([end(10)], [bookmark(11, resumed=True)], [end(12), SILENCE])
    following.follow(20)
    assert following.resumed == [None, 10, None]
    assert following.shared.frontier == 12


def test_a_snapshot_from_below_the_frontier_mends_nothing_and_is_taken_again() -> None:
    """A server that lagged is left as soon as it has caught up, and asked for a snapshot that is the truth."""
    following = Following(
        [end(10), bookmark(15), changes(put(stored("ada", 12)))],
        [end(11), changes(put(stored("ada", 12))), bookmark(16), SILENCE],
        [chunk(stored("ada", 12)), end(16), SILENCE],
    )
    following.follow(20)
    assert following.resumed == [None, None, None]
    assert versions(following.shared.gate.entries) == {"ada": 12}
    assert not following.shared.distrusted


# --- servers that lag --------------------------------------------------------


@pytest.mark.parametrize("resumed", [True, False])
def test_a_stream_below_the_frontier_is_closed_after_the_limit(resumed: bool) -> None:
    """Whether it says nothing or says what is long known; the store itself is well."""
    lagging: list[Line] = [SILENCE] if resumed else [GONE]
    following = Following([end(10)], lagging, [end(8), Pause(20), bookmark(9), SILENCE])
    following.follow(29)
    assert following.count(StreamLagging) == 0
    following = Following([end(10)], lagging, [end(8), Pause(20), bookmark(9), SILENCE])
    following.follow(32)
    assert following.count(StreamLagging) == 1
    assert following.channel.left_by.count(Lagging) == 1
    assert following.linearizable_reads == 1


def test_a_stream_that_catches_up_within_the_limit_is_kept() -> None:
    """However long it is silent afterwards."""
    following = Following([end(10)], [Pause(25), bookmark(10, resumed=True), SILENCE])
    following.follow()
    assert len(following.channel.openings) == 2
    assert following.count(StreamLagging) == 0
    assert Lagging not in following.channel.left_by


@pytest.mark.parametrize(
    ("stands_at", "in_the_process", "left"), [(11, False, True), (10, False, False), (11, True, False)]
)
def test_a_stream_that_is_silent_while_the_store_goes_on_lags(stands_at: int, in_the_process: bool, left: bool) -> None:
    """Though nothing that is held tells so. One of a store that stands still is quiet, and stays."""
    following = Following([end(10), SILENCE], store=at(stands_at))
    following.channel.knows_outcomes = in_the_process
    # What is said after the patrol has begun counts for the first half.
    following.follow(LAG_LIMIT * 1.5 + 5)
    assert any(isinstance(event, StreamLagging) for event in following.heard) is left


def test_a_snapshot_on_its_way_is_no_lag() -> None:
    """A big one may take longer than the limit, as long as it comes."""
    slow: list[Line] = [line for _ in range(5) for line in (Pause(20), chunk(stored("ada", 12)))]
    following = Following([end(10)], [GONE], [*slow, end(12), SILENCE])
    following.follow()
    assert following.shared.frontier == 12
    assert following.count(StreamLagging) == 0


def test_a_snapshot_that_stops_coming_is_lag() -> None:
    """The limit counts from its last chunk."""
    following = Following([end(10)], [GONE], [chunk(stored("ada", 12)), SILENCE], [bookmark(10, resumed=True), SILENCE])
    following.follow()
    assert following.count(StreamLagging) == 1
    assert following.resumed == [None, 10, None, 10]


def test_bookmarks_are_spaced_over_a_network_alone() -> None:
    """There a burst of commits would else be as many messages to every watch of another type."""
    for in_the_process, interval in ((True, 0), (False, 50)):
        following = Following([SILENCE])
        following.channel.knows_outcomes = in_the_process
        following.follow(1.0)
        assert [opening.interval for opening in following.channel.openings] == [interval]


# --- the request -------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "partition", "namespace"),
    [(Scope.CLUSTER, "", ""), (Scope.PARTITION, "*", ""), (Scope.NAMESPACE, "*", "*")],
)
def test_a_request_is_for_everything_of_the_type(scope: Scope, partition: str, namespace: str) -> None:
    """In every tenancy that its scope has."""
    request = watch_request(ResourceType("staff", "v1", "Place", Team, scope=scope), at(7))
    assert request.tenancy is not None
    assert (request.tenancy.partition, request.tenancy.namespace) == (partition, namespace)
    assert request.resume_after == at(7).message()
    assert request.known is None
    assert watch_request(TEAM).resume_after is None


def test_what_ends_runs_is_for_everybody_to_catch() -> None:
    """Both errors are the engine's own."""
    assert issubclass(StoreChanged, HeadwayError)
    assert issubclass(StoreRolledBack, HeadwayError)
