"""The shared store of a type: how runs wait for it, join it, hear of changes and learn that it is void."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from headway import indexes
from headway.cache import LINGER_LIMIT, Applied, Informer, Subscription
from headway.errors import StoreChanged, StoreRolledBack
from headway.events import BookmarkRefused, StaleRefused, ignore
from headway.resource import Bookmark, Key, Position
from tests.helpers.resources import (
    OTHER_STORE,
    STORE,
    TEAM,
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

ADA = key("ada")


def _ignore_failure(name: str, key: Key, error: BaseException) -> None:
    """Nobody has to hear of it here."""


def subscribe(shared: Informer) -> Subscription:
    return shared.subscribe([indexes.by(TEAM, "name", lambda team: team.name)], _ignore_failure)


@pytest.fixture
def shared() -> Informer:
    """Primed at 10 with ada at 5."""
    shared = Informer(TEAM, ignore)
    shared.feed(chunk(stored("ada", 5)))
    shared.feed(end(10))
    return shared


async def returned_at_once(subscription: Subscription) -> list[Applied]:
    """What `next` gives; it must have something to give."""
    with trio.fail_after(30):
        return await subscription.next()


# --- joining and hearing -----------------------------------------------------


async def test_a_subscription_begins_with_what_is_held(shared: Informer) -> None:
    """Its indexes are built over it; its feed has only what comes after."""
    shared.feed(changes(put(stored("grace", 11))))
    subscription = subscribe(shared)
    assert set(subscription.tables["name"].keys("grace")) == {key("grace")}
    old, new = shared.gate.entries[ADA], stored("ada", 12)
    shared.feed(changes(put(new)))
    assert await returned_at_once(subscription) == [Applied(ADA, old, new, 12)]


async def test_indexes_change_in_the_same_step_as_the_store(shared: Informer) -> None:
    """Before anybody has taken the feed."""
    subscription = subscribe(shared)
    shared.feed(changes(put(stored("grace", 11))))
    assert set(subscription.tables["name"].keys("grace")) == {key("grace")}


async def test_every_subscription_hears_every_change(shared: Informer) -> None:
    """Each takes them at its own pace; one that has left hears nothing."""
    first, second, left = subscribe(shared), subscribe(shared), subscribe(shared)
    left.close()
    left.close()
    shared.feed(changes(put(stored("ada", 11))))
    assert [each.revision for each in await returned_at_once(first)] == [11]
    shared.feed(changes(put(stored("ada", 12))))
    assert [each.revision for each in await returned_at_once(first)] == [12]
    assert [each.revision for each in await returned_at_once(second)] == [11, 12]
    with trio.move_on_after(0):
        assert await left.next() == []
    assert set(left.tables["name"].values()) == {"ada"}


async def test_a_reply_is_heard_as_a_change_is(shared: Informer) -> None:
    """It is mapped as an event is, and held before the call returns."""
    subscription = subscribe(shared)
    shared.reply(ADA, stored("ada", 12), at(12))
    assert versions(shared.gate.entries) == {"ada": 12}
    assert [each.revision for each in await returned_at_once(subscription)] == [12]


async def test_an_overtaken_change_is_heard_and_not_indexed(shared: Informer) -> None:
    """It is there for mapping alone."""
    subscription = subscribe(shared)
    shared.reply(ADA, stored("ada", 12), at(12))
    shared.feed(changes(put(stored("ada", 11, metadata={"theirs": "yes"}))))
    heard = await returned_at_once(subscription)
    assert [each.revision for each in heard] == [12, 11]
    assert set(subscription.tables["name"].keys("ada")) == {ADA}
    shared.feed(changes(put(stored("mary", 13))))
    assert [each.revision for each in await returned_at_once(subscription)] == [13]


async def test_a_frontier_that_moves_wakes_with_nothing_applied(shared: Informer) -> None:
    """Another type's changes may have waited for it."""
    subscription = subscribe(shared)
    shared.feed(bookmark(15))
    assert await returned_at_once(subscription) == []


async def test_next_waits_until_something_comes(shared: Informer, nursery: trio.Nursery) -> None:
    """And again after each time."""
    subscription = subscribe(shared)
    heard: list[int] = []

    async def listen() -> None:
        while True:
            heard.append(len(await subscription.next()))

    nursery.start_soon(listen)
    await trio.testing.wait_all_tasks_blocked()
    assert heard == []
    for revision in (11, 12):
        shared.feed(changes(put(stored("ada", revision))))
        await trio.testing.wait_all_tasks_blocked()
    assert heard == [1, 1]
    nursery.cancel_scope.cancel()


async def test_a_cancelled_next_has_taken_nothing(shared: Informer) -> None:
    """The changes are there for the next call."""
    subscription = subscribe(shared)
    shared.feed(changes(put(stored("ada", 11))))
    with trio.CancelScope() as scope:
        scope.cancel()
        await subscription.next()
    assert scope.cancelled_caught
    assert [each.revision for each in await returned_at_once(subscription)] == [11]


# --- waiting for completeness ------------------------------------------------


async def test_waiting_ends_when_primed_and_complete(nursery: trio.Nursery) -> None:
    """After a snapshot below the revision it waits on, until the frontier has got there."""
    shared = Informer(TEAM, ignore)
    reached: list[int] = []

    async def wait() -> None:
        reached.append(await shared.wait_complete(12))

    nursery.start_soon(wait)
    for item in (chunk(stored("ada", 5)), end(10), changes(put(stored("ada", 11)))):
        shared.feed(item)
        await trio.testing.wait_all_tasks_blocked()
        assert reached == []
    shared.feed(bookmark(13))
    await trio.testing.wait_all_tasks_blocked()
    assert reached == [13]


async def test_waiting_for_revision_zero_waits_for_the_snapshot(nursery: trio.Nursery) -> None:
    """An empty cache is not a primed one (C1)."""
    shared = Informer(TEAM, ignore)
    nursery.start_soon(shared.wait_complete, 0)
    await trio.testing.wait_all_tasks_blocked()
    assert len(nursery.child_tasks) == 1
    assert not shared.gate.primed
    shared.feed(end(0))
    await trio.testing.wait_all_tasks_blocked()
    assert len(nursery.child_tasks) == 0


async def test_a_feed_that_nobody_takes_is_given_up_when_it_is_long(shared: Informer) -> None:
    """A controller that can't start costs a bounded amount of memory; one that runs loses nothing."""
    running, ended = subscribe(shared), subscribe(shared)
    ended.linger()
    change = Applied(("default", "default", "ada"), None, None, 1)
    for subscription in (running, ended):
        subscription.applied([change] * LINGER_LIMIT)
    assert len(ended.take()) == LINGER_LIMIT
    for subscription in (running, ended):
        subscription.applied([change] * LINGER_LIMIT)
        subscription.applied([change])
        subscription.applied([change])
    assert len(running.take()) == 2 * LINGER_LIMIT + 2
    assert ended.take() == []


# --- void data ---------------------------------------------------------------


async def test_another_store_ends_every_subscription_and_begins_anew(shared: Informer) -> None:
    """What a run still holds stays as it was; who comes later waits for the new store."""
    subscription = subscribe(shared)
    shared.distrust()
    shared.void(StoreChanged("replaced"), replaced=True)
    with pytest.raises(StoreChanged, match="replaced"):
        await subscription.next()
    assert versions(subscription.gate.entries) == {"ada": 5}
    assert (shared.store_id, shared.frontier, shared.distrusted) == ("", 0, False)
    assert not shared.gate.primed
    shared.feed(chunk(stored("grace", 2)))
    shared.feed(end(3, OTHER_STORE))
    assert await shared.wait_complete(3) == 3
    assert versions(shared.gate.entries) == {"grace": 2}
    assert shared.store_id == OTHER_STORE


async def test_who_waits_while_the_store_is_replaced_is_told(nursery: trio.Nursery) -> None:
    """A starting revision of one store says nothing of another."""
    shared = Informer(TEAM, ignore)
    told: list[str] = []

    async def wait() -> None:
        with pytest.raises(StoreChanged):
            await shared.wait_complete(1)
        told.append("changed")

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    shared.void(StoreChanged("replaced"), replaced=True)
    await trio.testing.wait_all_tasks_blocked()
    assert told == ["changed"]


async def test_a_store_that_went_back_stays_void(shared: Informer) -> None:
    """Neither who runs nor who starts sees its data, also when it stands where it stood: that is another history."""
    subscription = subscribe(shared)
    shared.void(StoreRolledBack("back"), replaced=False)
    assert shared.went_back
    with pytest.raises(StoreRolledBack):
        await subscription.next()
    for item in (end(4), bookmark(9), bookmark(10), end(12)):
        shared.feed(item)
        with pytest.raises(StoreRolledBack):
            await shared.wait_complete(0)
        with pytest.raises(StoreRolledBack):
            shared.check()


async def test_a_store_that_went_back_and_is_replaced_is_void_no_more() -> None:
    """Another id is the other way to mend it."""
    shared = Informer(TEAM, ignore)
    shared.interrupted("away")
    shared.void(StoreRolledBack("back"), replaced=False)
    assert shared.cut_off is not None
    shared.void(StoreChanged("replaced"), replaced=True)
    # The other store's stream is another one, and isn't open yet.
    assert shared.cut_off is None
    assert not shared.gate.primed
    assert not shared.went_back
    shared.check()


# --- as a sink ---------------------------------------------------------------


async def test_a_stream_goes_on_after_the_frontier_once_primed(shared: Informer) -> None:
    """Never after what a reply told."""
    assert Informer(TEAM, ignore).resume_after is None
    shared.reply(ADA, stored("ada", 20), at(20))
    shared.feed(changes(put(stored("grace", 11))))
    assert shared.resume_after == Position(STORE, "opened-first", 11)
    assert shared.frontier == 11
    shared.feed(Bookmark(at(12)._replace(versions="v1,v2")))
    assert shared.resume_after == Position(STORE, "opened-first", 12, "v1,v2")


async def test_distrust_ends_with_a_snapshot_that_was_applied(shared: Informer) -> None:
    """One from below the frontier, and a bookmark, mend nothing."""
    shared.distrust()
    for item in (end(9), bookmark(12)):
        shared.feed(item)
        assert shared.distrusted
        assert shared.resume_after is None
    shared.feed(end(12))
    assert not shared.distrusted
    assert shared.resume_after == at(12)


async def test_what_was_refused_is_reported() -> None:
    """With how many there have been."""
    heard: list[object] = []
    shared = Informer(TEAM, heard.append)
    shared.feed(end(10))
    shared.feed(changes(put(stored("ada", 9))))
    shared.feed(changes(put(stored("ada", 11))))
    shared.feed(end(9))
    assert heard == [StaleRefused(TEAM.name, "Changes", 1), StaleRefused(TEAM.name, "EndOfSnapshot", 2)]


async def test_a_new_stream_forgets_half_a_snapshot(shared: Informer) -> None:
    """See the gate's rule of the same name."""
    shared.feed(chunk(stored("mary", 7)))
    shared.restart()
    shared.feed(end(12))
    assert versions(shared.gate.entries) == {}


def test_a_false_bookmark_is_found_by_what_another_stream_tells_late() -> None:
    """The stream that had told it broke before what it hid came; then only a snapshot at its revision is trusted."""
    told: list[object] = []
    shared = Informer(TEAM, told.append)
    shared.feed(chunk(stored("ada", 5)))
    shared.feed(end(10))
    shared.feed(bookmark(12))
    shared.restart()
    shared.feed(chunk(stored("ada", 5)))
    shared.feed(end(11))
    assert not shared.distrusted
    shared.feed(changes(put(stored("ada", 12))))
    assert shared.distrusted
    assert [type(each) for each in told].count(BookmarkRefused) == 1
    assert shared.resume_after is None
    shared.feed(chunk(stored("ada", 12)))
    shared.feed(end(12))
    assert not shared.distrusted
    assert versions(shared.gate.entries) == {"ada": 12}
