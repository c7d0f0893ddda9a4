"""The caches of a run, tested alone: how long types are primed, of which store, and which deletions were missed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from grpclib.const import Status
from trio.testing import MockClock

import headway
from headway.base import BoundedReport
from headway.cache import Informer
from headway.errors import PrimingStalled, StoreChanged, StoreRolledBack, Unavailable
from headway.events import DeletionsUnknown, ignore
from headway.informers import Informers
from headway.resource import ANY_VERSIONS
from headway.rpc import Channel
from headway.run import RunCaches, deletions_since
from tests.helpers.resources import OTHER_STORE, STORE, TEAM, at, bookmark, changes, chunk, end, put, removed, stored
from tests.helpers.scripted_channel import SILENCE, Line, ScriptedChannel
from tests.helpers.service_errors import failed


def caches_of(informer: Informer, *others: Informer) -> RunCaches:
    """Return the caches of a run that has only this type. Other scopes of it may be open."""
    opened = (informer, *others)
    app = headway.App("primed")
    app.registry.register(TEAM)

    @app.controller(manages=TEAM, name="teams")
    async def teams(rt: headway.Runtime, request: headway.Request) -> None: ...

    informers = cast("Informers", SimpleNamespace(informer_for=lambda _: informer, opened=lambda _: opened))
    return RunCaches(app.controllers["teams"], informers, cast("Channel", None), ignore, BoundedReport(ignore), 60)


@pytest.mark.parametrize("cached", [STORE, OTHER_STORE])
async def test_run_is_subscribed_only_to_the_store_that_has_raised_its_fence(cached: str) -> None:
    """Another store may have replaced it since, and its cache may be primed to the same revision."""
    informer = Informer(TEAM, ignore)
    informer.feed(end(12, cached))
    caches = caches_of(informer)
    if cached == STORE:
        await caches.prime(at(12))
        assert caches.frontiers() == {TEAM.name: 12}
        return
    said = f"the cache of {TEAM.name} belongs to store {OTHER_STORE}, but the fence to {STORE}"
    with pytest.RaisesGroup(pytest.RaisesExc(StoreChanged, match=said)):
        await caches.prime(at(12))
    assert caches.subscriptions == {}


@pytest.mark.parametrize("arrives", [True, False])
async def test_priming_stalls_only_while_nothing_arrives(autojump_clock: MockClock, arrives: bool) -> None:
    """A large type may take as long as it needs. The error has the reason why there is no stream."""
    informer = Informer(TEAM, ignore)

    async def feed() -> None:
        for number in range(10):
            await trio.sleep(40)
            informer.feed(chunk(stored(f"t{number}", 5)))
        informer.feed(end(12))

    async with trio.open_nursery() as nursery:
        if arrives:
            nursery.start_soon(feed)
            await caches_of(informer).prime(at(12))
            assert autojump_clock.current_time() >= 400
        else:
            informer.disconnected("the server is away")
            said = "nothing was received for 60 s; 0 resources have arrived.* 0 of 12; the server is away"
            with pytest.RaisesGroup(pytest.RaisesExc(PrimingStalled, match=said)):
                await caches_of(informer).prime(at(12))


async def test_commit_that_is_not_new_voids_every_cache_that_is_above_it() -> None:
    """A cache below it, or of another store, may go on. Nothing is known about one without data."""
    high, higher, low, other, empty = informers = [Informer(TEAM, ignore) for _ in range(5)]
    for informer, revision in ((high, 12), (higher, 14), (low, 11)):
        informer.feed(end(revision))
    other.feed(end(20, OTHER_STORE))
    caches = caches_of(high, higher, low, other, empty)
    caches.check_store()
    with pytest.raises(StoreRolledBack, match="at revision 12, but has delivered changes up to 14"):
        caches.check_new_commit(caches.newest(), at(12))
    assert [each.rolled_back for each in informers] == [True, True, False, False, False]
    with pytest.raises(StoreRolledBack):
        caches.check_store()


async def test_run_depends_on_the_newest_position_of_its_types() -> None:
    """It trusts none of them while one is being verified."""
    informers = [Informer(TEAM, ignore) for _ in range(3)]
    caches = caches_of(informers[0])
    assert caches.known is None
    for informer, revision in zip(informers, (12, 14, 11), strict=True):
        informer.feed(end(revision))
    caches.primed = informers
    caches.subscriptions = {cast("Any", each): each.subscribe([], lambda *_: None) for each in informers}
    assert caches.known == at(14)
    assert not caches.distrusted
    informers[1].distrusted = True
    assert caches.distrusted


# --- the deletions between two runs ---

ADA, GRACE, MARY = (stored(name, 4) for name in ("ada", "grace", "mary"))
RESUMED = bookmark(5, resumed=True)


async def missed(*script: Line, until: int = 9) -> tuple[list[str] | None, list[str], ScriptedChannel]:
    """Return the names that were deleted after 5, why deletions are unknown, and the channel."""
    channel, heard = ScriptedChannel([[*script, SILENCE]]), list[Any]()
    found = await deletions_since(channel, TEAM, at(5), until, heard.append, "teams")
    names = None if found is None else [f"{each.key[2]} at {each.revision}" for each in found]
    return names, [event.why for event in heard if isinstance(event, DeletionsUnknown)], channel


async def test_missed_deletions_are_read_up_to_a_revision_and_no_further(autojump_clock: MockClock) -> None:
    """A later one is a change of the cache. The stream ends when the revision is reached, and not when it is silent."""
    items = (RESUMED, bookmark(6), changes(put(stored("mary", 7)), removed(ADA, 8), removed(GRACE, 10)))
    assert (await missed(*items))[:2] == (["ada at 8"], [])
    assert (await missed(*items, until=10))[:2] == (["ada at 8", "grace at 10"], [])
    assert (await missed(RESUMED, bookmark(9)))[:2] == ([], [])


async def test_missed_deletions_do_not_depend_on_the_versions_of_the_previous_run() -> None:
    _, _, channel = await missed(RESUMED, bookmark(9))
    [opening] = channel.openings
    assert opening.resume_after == at(5)._replace(versions=ANY_VERSIONS)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ([chunk(MARY), end(9)], "the server can't resume"),
        ([failed(Status.OUT_OF_RANGE, "compacted")], "compacted"),
        ([failed(Status.DATA_LOSS)], "DATA_LOSS"),
    ],
)
async def test_missed_deletions_are_unknown_without_the_history(script: list[Line], why: str) -> None:
    assert (await missed(*script))[:2] == (None, [why])


async def test_failing_stream_of_missed_deletions_ends_the_run() -> None:
    """The next one reads them again."""
    with pytest.raises(Unavailable, match="no leader"):
        await missed(RESUMED, failed(Status.UNAVAILABLE, "no leader"))


async def test_no_history_is_read_for_a_type_that_has_not_moved() -> None:
    informer = Informer(TEAM, ignore)
    assert await caches_of(informer).deletions(at(12), 5, {TEAM.name: 5}) == {}
