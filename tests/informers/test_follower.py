"""A follower: where its streams resume, when it closes a stream, and how long it waits before the next one."""

from __future__ import annotations

import pytest

from headway.events import BookmarkRefused, StreamEnded, StreamLagging, StreamOpened
from headway.informers import watch_request
from headway.resource import ResourceType, Scope
from headway.rpc import Lagging
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
from tests.helpers.scripted_channel import SILENCE, Line, pause
from tests.helpers.scripted_follower import DOWN, GONE, LAG_LIMIT, Following, down

# --- resuming --------------------------------------------------------------


def test_next_stream_resumes_after_the_frontier() -> None:
    """The first stream begins with a snapshot."""
    following = Following([chunk(stored("ada", 5)), end(10), changes(put(stored("ada", 12)))], [SILENCE])
    following.follow()
    assert following.channel.openings[1].resume_after == at(12)
    assert following.resumed[:2] == [None, 12]
    assert versions(following.informer.store.entries) == {"ada": 12}


def test_stream_that_breaks_within_a_commit_resumes_before_that_commit() -> None:
    """No change of that commit has been delivered."""
    half = changes(put(stored("ada", 12), more=True))
    following = Following([end(10), half, DOWN], [bookmark(10, resumed=True), SILENCE])
    following.follow(20)
    assert following.resumed == [None, 10]
    assert following.informer.store.frontier == 10


def test_snapshot_that_breaks_starts_over() -> None:
    """The first half of the snapshot is dropped."""
    following = Following([chunk(stored("mary", 3)), DOWN], [chunk(stored("ada", 5)), end(10), SILENCE])
    following.follow(20)
    assert following.resumed == [None, None]
    assert versions(following.informer.store.entries) == {"ada": 5}


def test_stream_openings_and_ends_are_reported() -> None:
    """The reports have the position of the resumption, the reason of the end, and the number of failures before."""
    following = Following([end(10), DOWN], [bookmark(10, resumed=True)], [DOWN], [SILENCE])
    following.follow(20)
    assert following.events == [
        StreamOpened(TEAM.name, None),
        StreamEnded(TEAM.name, "UNAVAILABLE: down", 0),
        StreamOpened(TEAM.name, at(10)),
        StreamEnded(TEAM.name, "the server ended the stream", 0),
        StreamOpened(TEAM.name, at(10)),
        StreamEnded(TEAM.name, "UNAVAILABLE: down", 1),
        StreamOpened(TEAM.name, at(10)),
    ]


# --- waiting -----------------------------------------------------------------


def test_back_off_grows_with_each_failure_up_to_five_seconds() -> None:
    """The delay doubles each time. Jitter shortens it."""
    following = Following(*down(40))
    following.follow()
    for number, wait in enumerate(following.waits):
        ceiling = min(0.05 * 2.0**number, 5.0)
        assert ceiling / 2 <= wait <= ceiling
    assert len(following.waits) == 40


def test_item_resets_the_back_off() -> None:
    """An item shows that the server is available again."""
    following = Following(*down(8), [end(10), DOWN], [DOWN], [SILENCE])
    following.follow()
    assert following.waits[7] > 2
    assert following.waits[8] <= 0.05
    assert 0.05 <= following.waits[9] <= 0.1


# --- streams that can't resume, or that were wrong -----------------------------


def test_compacted_history_causes_one_snapshot() -> None:
    """Compacted history casts no doubt on the cache, so the next stream after that resumes."""
    following = Following([end(10)], [GONE], [chunk(stored("ada", 12)), end(12)], [SILENCE])
    following.follow(20)
    assert following.resumed == [None, 10, None, 12]
    assert versions(following.informer.store.entries) == {"ada": 12}
    assert not following.informer.distrusted


def test_lagging_server_without_history_is_followed_past_the_frontier() -> None:
    """The snapshot is discarded. The changes above the frontier are applied, from the same stream."""
    newer = changes(put(stored("grace", 11)))
    following = Following(
        [chunk(stored("ada", 5)), end(10)],
        [GONE],
        [chunk(stored("ada", 4)), end(8), changes(put(stored("ada", 5))), bookmark(10), newer, SILENCE],
    )
    following.follow(20)
    assert following.resumed == [None, 10, None]
    assert versions(following.informer.store.entries) == {"ada": 5, "grace": 11}


def test_reply_that_proves_a_bookmark_false_causes_a_snapshot_at_once() -> None:
    """The stream is silent, so that it would not show that for as long as nothing is committed."""
    following = Following(
        [chunk(stored("ada", 5), stored("mary", 6)), end(10), bookmark(12), SILENCE],
        [chunk(stored("mary", 11)), end(12), SILENCE],
    )
    following.answer_late = at(12)
    following.follow(15)
    assert following.resumed == [None, None]
    assert [type(each) for each in following.events].count(BookmarkRefused) == 1
    assert not following.informer.distrusted
    assert versions(following.informer.store.entries) == {"mary": 11}


def test_false_bookmark_causes_a_snapshot_at_once_and_is_counted() -> None:
    """After the snapshot, the cache is complete again."""
    following = Following(
        [end(10), bookmark(15), changes(put(stored("ada", 12)))],
        [chunk(stored("ada", 12)), end(15), SILENCE],
    )
    following.follow(20)
    assert following.resumed == [None, None]
    assert following.waits[0] <= 0.05
    assert following.count(BookmarkRefused) == 1
    assert versions(following.informer.store.entries) == {"ada": 12}


def test_stream_that_breaks_the_grammar_causes_a_snapshot() -> None:
    """No item that the stream delivered can be trusted."""
    following = Following([end(10)], [bookmark(11, resumed=True)], [end(12), SILENCE])
    following.follow(20)
    assert following.resumed == [None, 10, None]
    assert following.informer.store.frontier == 12


def test_snapshot_below_the_frontier_does_not_repair_the_cache_and_is_repeated() -> None:
    """The follower leaves a lagging server as soon as that server has caught up, and asks for a current snapshot."""
    following = Following(
        [end(10), bookmark(15), changes(put(stored("ada", 12)))],
        [end(11), changes(put(stored("ada", 12))), bookmark(16), SILENCE],
        [chunk(stored("ada", 12)), end(16), SILENCE],
    )
    following.follow(20)
    assert following.resumed == [None, None, None]
    assert versions(following.informer.store.entries) == {"ada": 12}
    assert not following.informer.distrusted


# --- servers that lag --------------------------------------------------------


@pytest.mark.parametrize("resumed", [True, False])
def test_stream_below_the_frontier_is_closed_after_the_limit(resumed: bool) -> None:
    """This holds whether the stream is silent or repeats old changes. The store itself works."""
    lagging: list[Line] = [SILENCE] if resumed else [GONE]
    following = Following([end(10)], lagging, [end(8), pause(20), bookmark(9), SILENCE])
    following.follow(29)
    assert following.count(StreamLagging) == 0
    following = Following([end(10)], lagging, [end(8), pause(20), bookmark(9), SILENCE])
    following.follow(32)
    assert following.count(StreamLagging) == 1
    assert following.channel.left_by.count(Lagging) == 1
    assert following.linearizable_reads == 1


@pytest.mark.parametrize(
    ("stands_at", "in_the_process", "left"), [(11, False, True), (10, False, False), (11, True, False)]
)
def test_stream_that_is_silent_while_the_store_advances_is_lagging(
    stands_at: int, in_the_process: bool, left: bool
) -> None:
    """The cache alone cannot show that. The stream of an idle store is silent too, and stays open."""
    following = Following([end(10), SILENCE], store=at(stands_at))
    following.channel.knows_outcomes = in_the_process
    # Items that come after the patrol has begun count for its first half.
    following.follow(LAG_LIMIT * 1.5 + 5)
    assert any(isinstance(event, StreamLagging) for event in following.events) is left


@pytest.mark.parametrize("again", [bookmark(10), changes(put(stored("ada", 10)))])
def test_stream_that_repeats_itself_while_the_store_advances_is_lagging(again: Line) -> None:
    """Only what brings the reader further shows that the server keeps up."""
    following = Following([end(10), *[pause(2), again] * 60, SILENCE], store=at(11))
    following.channel.knows_outcomes = False
    following.follow(LAG_LIMIT * 1.5 + 5)
    assert following.count(StreamLagging) == 1


def test_stream_that_advances_slowly_stays_open() -> None:
    """It may be catching up. A commit in several parts counts as well."""
    slow: list[Line] = [line for number in range(11, 16) for line in (pause(14), bookmark(number))]
    parts: list[Line] = [line for _ in range(5) for line in (pause(14), changes(put(stored("ada", 20), more=True)))]
    for lines in (slow, parts):
        following = Following([end(10), *lines, SILENCE], store=at(30))
        following.channel.knows_outcomes = False
        following.follow(14 * 5)
        assert following.count(StreamLagging) == 0


def test_snapshot_in_progress_does_not_count_as_lag() -> None:
    """A large snapshot may take longer than the limit, as long as chunks arrive."""
    slow: list[Line] = [line for _ in range(5) for line in (pause(20), chunk(stored("ada", 12)))]
    following = Following([end(10)], [GONE], [*slow, end(12), SILENCE])
    following.follow()
    assert following.informer.store.frontier == 12
    assert following.count(StreamLagging) == 0


def test_snapshot_that_stalls_counts_as_lag() -> None:
    """The limit counts from the last chunk of the snapshot."""
    following = Following([end(10)], [GONE], [chunk(stored("ada", 12)), SILENCE], [bookmark(10, resumed=True), SILENCE])
    following.follow()
    assert following.count(StreamLagging) == 1
    assert following.resumed == [None, 10, None, 10]


def test_bookmarks_are_spaced_only_over_a_network() -> None:
    """Otherwise, a burst of commits would cause as many messages on every watch of another type."""
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
def test_request_covers_every_tenancy_of_the_type(scope: Scope, partition: str, namespace: str) -> None:
    """The wildcards are those of the type's scope."""
    request = watch_request(ResourceType("staff", "v1", "Place", Team, scope=scope), at(7))
    assert request.tenancy is not None
    assert (request.tenancy.partition, request.tenancy.namespace) == (partition, namespace)
    assert request.resume_after == at(7).message()
    assert request.known is None
    assert watch_request(TEAM).resume_after is None
