"""The informer of a type: waiting, subscriptions, the delivery of changes, and invalidation."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from headway import indexes
from headway.cache import LINGER_LIMIT, Applied, Informer, Subscription
from headway.errors import PermissionDenied, StoreChanged, StoreRolledBack
from headway.events import BookmarkRefused, StaleRefused, ignore
from headway.resource import AnyMessage, Bookmark, Key, Position
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
    """Ignore the failure, which these tests don't check."""


def subscribe(informer: Informer) -> Subscription:
    return informer.subscribe([indexes.by(TEAM, "name", lambda team: team.name)], _ignore_failure)


@pytest.fixture
def informer() -> Informer:
    """Return an informer primed at 10 with ada at 5."""
    informer = Informer(TEAM, ignore)
    informer.feed(chunk(stored("ada", 5)))
    informer.feed(end(10))
    return informer


async def returned_at_once(subscription: Subscription) -> list[Applied]:
    """Return the result of `next`, which must not wait."""
    with trio.fail_after(30):
        return await subscription.next()


# --- subscriptions and deliveries -----------------------------------------------


async def test_subscription_starts_from_the_present_state(informer: Informer) -> None:
    """The indexes cover that state. The feed has only later changes."""
    informer.feed(changes(put(stored("grace", 11))))
    subscription = subscribe(informer)
    assert set(subscription.tables["name"].keys("grace")) == {key("grace")}
    old, new = informer.store.entries[ADA], stored("ada", 12)
    informer.feed(changes(put(new)))
    assert await returned_at_once(subscription) == [Applied(ADA, old, new, 12)]


async def test_indexes_are_updated_in_the_same_step_as_the_store(informer: Informer) -> None:
    """The indexes don't wait until a subscriber reads its feed."""
    subscription = subscribe(informer)
    informer.feed(changes(put(stored("grace", 11))))
    assert set(subscription.tables["name"].keys("grace")) == {key("grace")}


async def test_every_subscription_receives_every_change(informer: Informer) -> None:
    """Each subscriber reads at its own pace. A subscriber that has left receives nothing."""
    first, second, left = subscribe(informer), subscribe(informer), subscribe(informer)
    left.close()
    left.close()
    informer.feed(changes(put(stored("ada", 11))))
    assert [each.revision for each in await returned_at_once(first)] == [11]
    informer.feed(changes(put(stored("ada", 12))))
    assert [each.revision for each in await returned_at_once(first)] == [12]
    assert [each.revision for each in await returned_at_once(second)] == [11, 12]
    with trio.move_on_after(0):
        assert await left.next() == []
    assert set(left.tables["name"].values()) == {"ada"}


async def test_reply_is_delivered_like_a_change(informer: Informer) -> None:
    """The cache has the reply before the call returns."""
    subscription = subscribe(informer)
    informer.reply(ADA, stored("ada", 12), at(12))
    assert versions(informer.store.entries) == {"ada": 12}
    assert [each.revision for each in await returned_at_once(subscription)] == [12]


async def test_reply_about_a_key_outside_the_scope_is_ignored() -> None:
    """It would be a revision that the views of the type wait for."""
    informer = Informer(TEAM.within(namespace="elsewhere"), ignore)
    informer.feed(end(10))
    subscription = subscribe(informer)
    informer.reply(ADA, stored("ada", 12), at(12))
    assert informer.store.newest == 10
    assert not subscription.pending


async def test_overtaken_change_is_delivered_but_not_indexed(informer: Informer) -> None:
    """The change is delivered only for mapping."""
    subscription = subscribe(informer)
    informer.reply(ADA, stored("ada", 12), at(12))
    informer.feed(changes(put(stored("ada", 11, metadata={"theirs": "yes"}))))
    heard = await returned_at_once(subscription)
    assert [each.revision for each in heard] == [12, 11]
    assert set(subscription.tables["name"].keys("ada")) == {ADA}
    informer.feed(changes(put(stored("mary", 13))))
    assert [each.revision for each in await returned_at_once(subscription)] == [13]


async def test_overtaken_change_is_delivered_with_the_other_changes_of_its_item(informer: Informer) -> None:
    subscription = subscribe(informer)
    informer.reply(ADA, stored("ada", 13), at(13))
    assert [each.revision for each in await returned_at_once(subscription)] == [13]
    informer.feed(changes(put(stored("ada", 11, metadata={"theirs": "yes"})), put(stored("grace", 12))))
    assert {each.revision for each in await returned_at_once(subscription)} == {11, 12}


async def test_frontier_wakes_a_subscriber_only_if_it_is_wanted(informer: Informer) -> None:
    """The changes of another type may have waited for the frontier."""
    subscription = subscribe(informer)
    informer.feed(bookmark(15))
    with trio.move_on_after(0.01) as patience:
        await subscription.next()
    assert patience.cancelled_caught
    assert [subscription.reach(revision) for revision in (15, 18, 17)] == [15, 15, 15]
    informer.feed(bookmark(16))
    with trio.move_on_after(0.01) as patience:
        await subscription.next()
    assert patience.cancelled_caught
    for reached in (17, 18):
        informer.feed(bookmark(reached))
        assert await returned_at_once(subscription) == []
        assert subscription.reach(18) == reached


async def test_next_waits_for_the_next_delivery(informer: Informer, nursery: trio.Nursery) -> None:
    subscription = subscribe(informer)
    heard: list[int] = []

    async def listen() -> None:
        while True:
            heard.append(len(await subscription.next()))

    nursery.start_soon(listen)
    await trio.testing.wait_all_tasks_blocked()
    assert heard == []
    for revision in (11, 12):
        informer.feed(changes(put(stored("ada", revision))))
        await trio.testing.wait_all_tasks_blocked()
    assert heard == [1, 1]
    nursery.cancel_scope.cancel()


async def test_canceled_next_takes_nothing(informer: Informer) -> None:
    """The changes remain for the next call."""
    subscription = subscribe(informer)
    informer.feed(changes(put(stored("ada", 11))))
    with trio.CancelScope() as scope:
        scope.cancel()
        await subscription.next()
    assert scope.cancelled_caught
    assert [each.revision for each in await returned_at_once(subscription)] == [11]


# --- waiting for completeness ------------------------------------------------


async def test_wait_ends_when_primed_and_complete_up_to_the_revision(nursery: trio.Nursery) -> None:
    """After a snapshot below the revision, the wait continues until the frontier has reached it."""
    informer = Informer(TEAM, ignore)
    reached: list[int] = []

    async def wait() -> None:
        reached.append(await informer.wait_complete(12))

    nursery.start_soon(wait)
    for item in (chunk(stored("ada", 5)), end(10), changes(put(stored("ada", 11)))):
        informer.feed(item)
        await trio.testing.wait_all_tasks_blocked()
        assert reached == []
    informer.feed(bookmark(13))
    await trio.testing.wait_all_tasks_blocked()
    assert reached == [13]


async def test_wait_for_revision_zero_waits_for_the_snapshot(nursery: trio.Nursery) -> None:
    """An empty cache is not a primed cache (C1)."""
    informer = Informer(TEAM, ignore)
    nursery.start_soon(informer.wait_complete, 0)
    await trio.testing.wait_all_tasks_blocked()
    assert len(nursery.child_tasks) == 1
    assert not informer.store.primed
    informer.feed(end(0))
    await trio.testing.wait_all_tasks_blocked()
    assert len(nursery.child_tasks) == 0


async def test_wait_ends_when_the_type_may_not_be_read(nursery: trio.Nursery) -> None:
    informer = Informer(TEAM, ignore)
    told: list[str] = []

    async def wait() -> None:
        with pytest.raises(PermissionDenied, match=r"staff\.v1\.Team cannot be watched: revoked"):
            await informer.wait_complete(0)
        told.append("denied")

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    informer.disconnected("the server ended the stream")
    await trio.testing.wait_all_tasks_blocked()
    assert told == []
    informer.disconnected("revoked", denied=True)
    await trio.testing.wait_all_tasks_blocked()
    assert told == ["denied"]


async def test_unread_feed_is_dropped_when_too_long(informer: Informer) -> None:
    """A controller that can't start uses bounded memory. A running controller loses nothing."""
    running, ended = subscribe(informer), subscribe(informer)
    ended.linger()
    assert ended.tables == {}
    change = Applied(("default", "default", "ada"), None, None, 1)
    for subscription in (running, ended):
        subscription.deliver([change] * LINGER_LIMIT, [])
    assert len(ended.drain()) == LINGER_LIMIT
    for subscription in (running, ended):
        subscription.deliver([change] * LINGER_LIMIT, [])
        subscription.deliver([change], [])
        subscription.deliver([change], [])
    assert len(running.drain()) == 2 * LINGER_LIMIT + 2
    assert ended.drain() == []


# --- invalid data -------------------------------------------------------------


async def test_replaced_store_ends_every_subscription_and_starts_over(informer: Informer) -> None:
    """The caches of current runs keep their data. New subscribers wait for the new store."""
    subscription = subscribe(informer)
    informer.distrusted = True
    informer.void(StoreChanged("replaced"), replaced=True)
    with pytest.raises(StoreChanged, match="replaced"):
        await subscription.next()
    assert versions(subscription.store.entries) == {"ada": 5}
    assert (informer.store.store_id, informer.store.frontier, informer.distrusted) == ("", 0, False)
    assert not informer.store.primed
    informer.feed(chunk(stored("grace", 2)))
    informer.feed(end(3, OTHER_STORE))
    assert await informer.wait_complete(3) == 3
    assert versions(informer.store.entries) == {"grace": 2}
    assert informer.store.store_id == OTHER_STORE


async def test_undecodable_resources_are_forgotten_with_the_store_that_had_them(informer: Informer) -> None:
    """The other store may have a resource of the same name and version that decodes."""
    damaged = stored("ada", 11)
    damaged.data = AnyMessage(type_url=TEAM.type_url, value=b"\xff")
    informer.feed(changes(put(damaged)))
    assert informer.is_undecodable(ADA, damaged)
    assert informer.undecodable == [ADA]
    informer.void(StoreChanged("replaced"), replaced=True)
    informer.feed(chunk(stored("ada", 11)))
    informer.feed(end(12, OTHER_STORE))
    assert informer.undecodable == []


async def test_waiters_raise_when_the_store_is_replaced(nursery: trio.Nursery) -> None:
    """A starting revision of one store means nothing in another store."""
    informer = Informer(TEAM, ignore)
    told: list[str] = []

    async def wait() -> None:
        with pytest.raises(StoreChanged):
            await informer.wait_complete(1)
        told.append("changed")

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    informer.void(StoreChanged("replaced"), replaced=True)
    await trio.testing.wait_all_tasks_blocked()
    assert told == ["changed"]


async def test_rolled_back_store_stays_invalid(informer: Informer) -> None:
    """Neither present nor new subscribers see its data, even at the earlier revision, because its history differs."""
    subscription = subscribe(informer)
    informer.void(StoreRolledBack("back"), replaced=False)
    assert informer.rolled_back
    with pytest.raises(StoreRolledBack):
        await subscription.next()
    for item in (end(4), bookmark(9), bookmark(10), end(12)):
        informer.feed(item)
        with pytest.raises(StoreRolledBack):
            await informer.wait_complete(0)
        with pytest.raises(StoreRolledBack):
            informer.check()


async def test_rolled_back_store_is_valid_again_once_replaced() -> None:
    """A new store id is the other way to recover."""
    informer = Informer(TEAM, ignore)
    informer.disconnected("away")
    informer.void(StoreRolledBack("back"), replaced=False)
    assert informer.cut_off is not None
    informer.void(StoreChanged("replaced"), replaced=True)
    # The stream of the other store isn't open yet.
    assert informer.cut_off is None
    assert not informer.store.primed
    assert not informer.rolled_back
    informer.check()


# --- updates by the follower -----------------------------------------------------------


async def test_stream_resumes_after_the_frontier_once_primed(informer: Informer) -> None:
    """The stream never resumes after the revision of a reply."""
    assert Informer(TEAM, ignore).resume_after is None
    informer.reply(ADA, stored("ada", 20), at(20))
    informer.feed(changes(put(stored("grace", 11))))
    assert informer.resume_after == Position(STORE, "opened-first", 11)
    assert informer.store.frontier == 11
    informer.feed(Bookmark(at(12)._replace(versions="v1,v2")))
    assert informer.resume_after == Position(STORE, "opened-first", 12, "v1,v2")


async def test_distrust_ends_only_with_an_applied_snapshot(informer: Informer) -> None:
    """A snapshot from below the frontier doesn't end it, and neither does a bookmark."""
    informer.distrusted = True
    for item in (end(9), bookmark(12)):
        informer.feed(item)
        assert informer.distrusted
        assert informer.resume_after is None
    informer.feed(end(12))
    assert not informer.distrusted
    assert informer.resume_after == at(12)


async def test_refused_changes_are_reported_with_their_count() -> None:
    heard: list[object] = []
    informer = Informer(TEAM, heard.append)
    informer.feed(end(10))
    informer.feed(changes(put(stored("ada", 9))))
    informer.feed(changes(put(stored("ada", 11))))
    informer.feed(end(9))
    assert heard == [StaleRefused(TEAM.name, "Changes", 1), StaleRefused(TEAM.name, "EndOfSnapshot", 2)]


async def test_new_stream_forgets_a_partial_snapshot(informer: Informer) -> None:
    """The type store has a test of the same rule."""
    informer.feed(chunk(stored("mary", 7)))
    informer.store.restart()
    informer.feed(end(12))
    assert versions(informer.store.entries) == {}


def test_false_bookmark_is_found_by_a_late_change_of_another_stream() -> None:
    """The first stream broke before the hidden change arrived. Only a snapshot at its revision restores trust."""
    told: list[object] = []
    informer = Informer(TEAM, told.append)
    informer.feed(chunk(stored("ada", 5)))
    informer.feed(end(10))
    informer.feed(bookmark(12))
    informer.store.restart()
    informer.feed(chunk(stored("ada", 5)))
    informer.feed(end(11))
    assert not informer.distrusted
    informer.feed(changes(put(stored("ada", 12))))
    assert informer.distrusted
    assert [type(each) for each in told].count(BookmarkRefused) == 1
    assert informer.resume_after is None
    informer.feed(chunk(stored("ada", 12)))
    informer.feed(end(12))
    assert not informer.distrusted
    assert versions(informer.store.entries) == {"ada": 12}


async def test_false_bookmark_is_found_by_a_reply(informer: Informer) -> None:
    """The reply is newer than the cached resource. It is delivered at once."""
    subscription = subscribe(informer)
    informer.feed(bookmark(12))
    old = informer.store.entries[ADA]
    informer.reply(ADA, None, at(11))
    assert informer.distrusted
    assert await returned_at_once(subscription) == [Applied(ADA, old, None, 11)]
