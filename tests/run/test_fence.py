"""The writes of a run, tested alone: the resolution of an initialiser's lost write, and a commit below a reply."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from headway.cache import Informer
from headway.client import LeaseClient, RunFence
from headway.controller import Definition
from headway.errors import OutcomeUnknown, StoreChanged, StoreRolledBack, Unavailable
from headway.events import CallDelayed, WriteResolved, ignore
from headway.informers import Informers
from headway.queue import WaitingQueue, WorkQueue
from headway.reconcile import Reason
from headway.resource import Key, Position, ResourceType, pb
from headway.run import RunCaches, RunWrites
from tests.helpers.resources import ACCOUNT, TEAM, Team, at, bookmark, end, key, stored


class _Leases:
    """A lease client that raises every fence and, during a raise, loses another write."""

    def __init__(self) -> None:
        self.lose: Any = None
        self.failing = 0

    async def raise_fence(self, controller: str, member: str, *, term: int = 0, number: int = 0) -> RunFence:
        await trio.lowlevel.checkpoint()
        if self.failing:
            self.failing -= 1
            raise Unavailable("no leader")
        if self.lose is not None:
            self.lose(None)
        fence = pb.Fence(controller=controller, member=member, term=term or 1, number=number)
        return RunFence(fence, Position("store", "incarnation", 1), 1)


class _Stream:
    """A cached type. ``waited`` gets the revisions that are awaited."""

    def __init__(self, type: ResourceType[Any], waited: list[tuple[str, int]]) -> None:
        self.type = type
        self._waited = waited

    async def wait_complete(self, revision: int) -> None:
        await trio.lowlevel.checkpoint()
        self._waited.append((str(self.type.name), revision))


class _NoCaches:
    """The caches of a run before anything is cached."""

    primed: Sequence[_Stream] = ()

    def newest(self) -> dict[Any, Position]:
        return {}

    def check_new_commit(self, before: dict[Any, Position], position: Position) -> None:
        assert not before, position

    async def wait_complete(self, revision: int) -> None:
        assert revision
        await trio.lowlevel.checkpoint()


class _Started:
    """The writes of a run that has raised its fence for the first time."""

    def __init__(self) -> None:
        self.queue = WaitingQueue[Key, Reason](WorkQueue())
        self.leases = _Leases()
        self.reported: list[object] = []
        # Whether the keys were held each time that the run was told of progress.
        self.progress: list[bool] = []
        self.caches = _NoCaches()
        leases, caches = cast("LeaseClient", self.leases), cast("RunCaches", self.caches)
        self.writes = RunWrites(
            "pools",
            leases,
            caches,
            self.queue,
            self.reported.append,
            on_resolved=lambda: self.progress.append(self.queue.held),
        )


@pytest.fixture
async def started() -> _Started:
    made = _Started()
    await made.writes.raise_first("app/pools", "")
    return made


async def test_write_lost_during_a_resolution_holds_the_keys(started: _Started) -> None:
    """A task that the initialiser left behind may still write after the raise that resolves the other writes."""
    queue, leases, writes = started.queue, started.leases, started.writes
    writes.unknown(None)
    assert queue.held
    await writes.raise_again()
    assert not queue.held
    leases.lose = writes.unknown
    await writes.raise_again()
    assert queue.held


@pytest.mark.parametrize("more", [False, True])
async def test_keys_are_released_once_every_unknown_write_is_resolved(
    started: _Started, more: bool, nursery: trio.Nursery
) -> None:
    """Whoever waits for the run to be idle is told so. A write that is lost during the raise needs another one."""
    writes, leases = started.writes, started.leases
    raised: list[int] = []

    def lose(_: object) -> None:
        raised.append(writes.unknown_writes)
        if more and len(raised) == 1:
            writes.unknown(None)

    leases.lose = lose
    nursery.start_soon(writes.resolve)
    writes.unknown(None)
    writes.unknown(None)
    await trio.testing.wait_all_tasks_blocked()
    assert raised == ([2, 3] if more else [2])
    assert started.progress == [False]
    assert writes.hold is None
    assert [type(each) for each in started.reported].count(WriteResolved) == 1
    nursery.cancel_scope.cancel()


async def test_raise_without_an_answer_is_repeated_with_a_higher_number(
    started: _Started, autojump_clock: MockClock
) -> None:
    """It may have been stored. The wait grows, and each failure is reported."""
    writes, leases = started.writes, started.leases
    leases.failing = 5
    before = writes.fence
    raised = await writes.raise_again()
    assert before is not None
    assert raised.fence.number == before.number + 6
    assert writes.fence == raised.fence
    delays = [each.retry_after for each in started.reported if isinstance(each, CallDelayed)]
    assert len(delays) == 5
    assert 0.4 <= delays[-1] <= 0.8


async def test_keys_are_held_when_the_present_fence_is_refused_but_not_an_earlier_one(started: _Started) -> None:
    """A write that was in flight while the run raised its own fence is refused. No other run has begun then."""
    writes = started.writes
    earlier = writes.fence
    await writes.raise_again()
    writes.fenced(earlier)
    assert not started.queue.held
    assert writes.hold is None
    writes.fenced(writes.fence)
    assert started.queue.held
    assert writes.hold is not None
    assert writes.hold.why == "it was rejected, because another run may have begun"


async def test_writes_that_have_left_hold_no_key(started: _Started) -> None:
    """A shard has gone to another process. No task here would resolve a write of it."""
    writes = started.writes
    writes.unknown(None)
    writes.leave()
    assert (started.queue.held, writes.hold) == (False, None)
    writes.unknown(None)
    assert (started.queue.held, writes.hold) == (False, None)


async def test_hold_names_the_first_unknown_write(started: _Started) -> None:
    """All later ones wait for it, so it is the reason that keys are held, until all are resolved."""
    writes = started.writes
    first, second = TEAM.new("ada", Team()), TEAM.new("grace", Team())
    writes.unknown(OutcomeUnknown("lost"), pb.WriteRequest(resource=first.message()))
    writes.unknown(None, pb.DeleteRequest(id=second.id.message()))
    assert writes.hold is not None
    assert (writes.hold.written, writes.hold.why) == (first.id, "OutcomeUnknown: lost")
    await writes.raise_again()
    writes.unknown(None, pb.DeleteRequest(id=second.id.message()))
    assert writes.hold is not None
    assert (writes.hold.written, writes.hold.why) == (second.id, "it was canceled before its answer")


async def test_write_waits_only_for_the_streams_of_other_versions_of_its_kind(started: _Started) -> None:
    """Its own version has the reply. What the others show, only the server can say."""
    waited: list[tuple[str, int]] = []
    second = ResourceType("staff", "v2", "Team", Team)
    started.caches.primed = [_Stream(each, waited) for each in (TEAM, ACCOUNT, second)]
    await started.writes.wait_cached(TEAM, 12)
    assert waited == [("staff.v2.Team", 12)]


def caching(informer: Informer) -> RunCaches:
    """Return the caches of a run whose only type has this informer, which is at revision 10."""
    for item in (end(10), bookmark(10)):
        informer.feed(item)
    caches = RunCaches.__new__(RunCaches)
    caches._definition = cast("Definition", SimpleNamespace(types=[TEAM]))
    caches.informers = cast("Informers", SimpleNamespace(opened=lambda _: [informer]))
    return caches


async def test_commit_that_is_not_above_a_reply_shows_that_the_store_was_rolled_back() -> None:
    """A reply may be ahead of the stream, which has not shown yet that the store has lost that write."""
    informer = Informer(TEAM, ignore)
    caches = caching(informer)
    informer.reply(key("ada"), stored("ada", 12), at(12))
    caches.check_new_commit(caches.newest(), at(13))
    with pytest.raises(StoreRolledBack):
        caches.check_new_commit(caches.newest(), at(12))
    assert informer.rolled_back


async def test_first_commit_in_another_store_is_not_compared_with_revisions_of_the_one_before() -> None:
    """The informer may change over to a store with lower revisions while the commit is on its way."""
    informer = Informer(TEAM, ignore)
    caches = caching(informer)
    before = caches.newest()
    other = at(3)._replace(store_id="another store")
    informer.void(StoreChanged("the store is another one now"), replaced=True)
    informer.reply(key("ada"), stored("ada", 2), other._replace(revision=2))
    caches.check_new_commit(before, other)
    assert not informer.rolled_back
    # Revisions of one store are still compared.
    with pytest.raises(StoreRolledBack):
        caches.check_new_commit(caches.newest(), other._replace(revision=2))
