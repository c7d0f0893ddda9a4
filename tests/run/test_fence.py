"""The writes of a run, tested alone: the resolution of an initialiser's lost write, and a commit below a reply."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from headway.cache import Informer, Informers
from headway.client import LeaseClient, RunFence
from headway.controller import Definition
from headway.errors import OutcomeUnknown, StoreChanged, StoreRolledBack
from headway.events import ignore
from headway.queue import WaitingQueue, WorkQueue
from headway.reconcile import Reason
from headway.resource import Key, Position, pb
from headway.run import RunCaches, RunWrites
from tests.helpers.resources import TEAM, Team, at, bookmark, end, key, stored


class _Leases:
    """A lease client that raises every fence and, during a raise, loses another write."""

    def __init__(self) -> None:
        self.lose: Any = None

    async def raise_fence(self, controller: str, member: str, *, term: int = 0, number: int = 0) -> RunFence:
        await trio.lowlevel.checkpoint()
        if self.lose is not None:
            self.lose(None)
        fence = pb.Fence(controller=controller, member=member, term=term or 1, number=number)
        return RunFence(fence, Position("store", "incarnation", 1), 1)


class _NoCaches:
    """The caches of a run before anything is cached."""

    def newest(self) -> dict[Any, Position]:
        return {}

    def check_new_commit(self, before: dict[Any, Position], position: Position) -> None:
        assert not before, position


class _Started:
    """The writes of a run that has raised its fence for the first time."""

    def __init__(self) -> None:
        self.queue = WaitingQueue[Key, Reason](WorkQueue())
        self.leases = _Leases()
        leases, caches = cast("LeaseClient", self.leases), cast("RunCaches", _NoCaches())
        self.writes = RunWrites("pools", leases, caches, self.queue, ignore, lambda: None)


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
