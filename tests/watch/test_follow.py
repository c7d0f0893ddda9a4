"""A follower: where its streams go on, when it leaves one, and how long it waits for the next."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio
import trio.testing
from grpclib import GRPCError
from grpclib.const import Status

from headway.cache import SharedType
from headway.errors import HeadwayError, StoreChanged, StoreWentBack, Unavailable
from headway.events import BookmarkRefused, StreamEnded, StreamLagging, StreamOpened
from headway.resource import Position, ResourceType, Scope
from headway.rpc import Lagging
from headway.watch import Follower, watch_request
from tests.helpers.resources import (
    OTHER_STORE,
    TEAM,
    Team,
    at,
    bookmark,
    changes,
    chunk,
    end,
    key,
    put,
    stored,
    versions,
)
from tests.helpers.scripted_channel import SILENCE, Line, Pause, ScriptedChannel

LAG_LIMIT = 30.0
GONE = GRPCError(Status.OUT_OF_RANGE, "history is gone")
NOT_OURS = GRPCError(Status.DATA_LOSS, "that position is not one of this store's")
DOWN = GRPCError(Status.UNAVAILABLE, "down")


def _down(times: int) -> list[list[Line]]:
    return [[DOWN] for _ in range(times)]


class Following:
    """A follower with its scripted channel and what it has done."""

    def __init__(
        self, *scripts: list[Line], store: Position | Exception | None = None, lost: Position | None = None
    ) -> None:
        self.heard: list[object] = []
        self.channel = ScriptedChannel(scripts)
        self.shared = SharedType(TEAM, self.heard.append)
        self._store = at(1000) if store is None else store
        # What the store has not stood at, though it is said that it has.
        self._lost = lost
        self.linearizable_reads = 0
        self.answer_after_first_opening: Position | None = None

    def follow(self, seconds: float = 1000.0) -> None:
        """Follow for so long by a clock that jumps, or until the follower raises."""
        follower = Follower(TEAM, self.channel, self.shared, self._hear, self._linearizable, LAG_LIMIT)

        async def until_then() -> None:
            with trio.move_on_after(seconds):
                await follower.run()

        try:
            trio.run(until_then, clock=trio.testing.MockClock(autojump_threshold=0))
        finally:
            assert self.channel.open == 0

    def _hear(self, event: object) -> None:
        self.heard.append(event)
        if isinstance(event, StreamOpened) and self.answer_after_first_opening is not None:
            self.shared.reply(key("ada"), None, self.answer_after_first_opening)

    async def _linearizable(self, known: Position | None) -> Position:
        self.linearizable_reads += 1
        await trio.lowlevel.checkpoint()
        if known is not None and known == self._lost:
            raise StoreWentBack(f"it has lost {known}")
        if isinstance(self._store, Exception):
            raise self._store
        return self._store

    @property
    def resumed(self) -> list[int | None]:
        """After which revision each stream was to go on."""
        return [None if each.resume_after is None else each.resume_after.revision for each in self.channel.openings]

    @property
    def known(self) -> list[int | None]:
        """What each stream's server was to have besides, by its revision."""
        return [None if each.known is None else each.known.revision for each in self.channel.openings]

    @property
    def waits(self) -> list[float]:
        """The seconds between one opening and the next."""
        return [after.time - before.time for before, after in pairwise(self.channel.openings)]

    def count(self, event: type) -> int:
        return sum(isinstance(each, event) for each in self.heard)


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
    following = Following(*_down(40))
    following.follow()
    for number, wait in enumerate(following.waits):
        ceiling = min(0.05 * 2.0**number, 5.0)
        assert ceiling / 2 <= wait <= ceiling
    assert len(following.waits) == 40


def test_an_item_resets_the_waiting() -> None:
    """The server is there again."""
    following = Following(*_down(8), [end(10), DOWN], [DOWN], [SILENCE])
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
    following.channel.settles_writes = in_the_process
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


# --- stores that went back, or are others ------------------------------------


def test_a_store_below_the_frontier_went_back() -> None:
    """When a read that every acknowledged commit is in answers so, the run has to end, by that name."""
    following = Following([end(10)], [SILENCE], store=at(9))
    with pytest.raises(StoreWentBack, match=r"9.*10"):
        following.follow()


def test_a_store_at_the_frontier_did_not_go_back() -> None:
    """The endpoint lagged alone; another one is tried."""
    following = Following([end(10)], [SILENCE], [bookmark(10, resumed=True), SILENCE], store=at(10))
    following.follow()
    assert following.resumed == [None, 10, 10]


def test_a_store_that_doesnt_know_the_position_and_stands_below_it_went_back() -> None:
    """It is asked at once, before it has grown past the place where it was left."""
    following = Following([end(10)], [NOT_OURS], store=at(9))
    with pytest.raises(StoreWentBack):
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
    following.channel.settles_writes = in_the_process
    with pytest.raises(StoreWentBack, match="it has lost"):
        following.follow(20)
    assert following.shared.frontier == 10


def test_a_store_that_has_lost_what_it_had_acknowledged_went_back() -> None:
    """A write's reply is held too, though no stream has come as far: the next stream asks for it."""
    following = Following([end(10), Pause(1)], [NOT_OURS], [end(1000), SILENCE], lost=at(15))
    following.answer_after_first_opening = at(15)
    with pytest.raises(StoreWentBack, match="it has lost"):
        following.follow(20)
    assert (following.resumed, following.known) == ([None, 10], [None, 15])


def test_a_store_below_what_it_had_acknowledged_went_back() -> None:
    """Wherever the streams have come to."""
    following = Following([end(10)], [NOT_OURS], store=at(14))
    following.answer_after_first_opening = at(15)
    with pytest.raises(StoreWentBack, match=r"14.*15"):
        following.follow(20)


def test_a_snapshot_is_taken_only_of_a_store_that_has_what_is_held() -> None:
    """History may be gone together with what it was the history of: what is held is asked for besides."""
    following = Following([end(10)], [GONE], [NOT_OURS], [end(1000), SILENCE], lost=at(10))
    with pytest.raises(StoreWentBack):
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


def test_bookmarks_are_spaced_over_a_network_alone() -> None:
    """There a burst of commits would else be as many messages to every watch of another type."""
    for in_the_process, interval in ((True, 0), (False, 50)):
        following = Following([SILENCE])
        following.channel.settles_writes = in_the_process
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
    assert issubclass(StoreWentBack, HeadwayError)
