"""Views of several types at one revision, tested case by case. `tests/stateful/test_view.py` tests them at random."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import headway
from headway import indexes
from headway.cache import Cache, CacheReader, Informer, View, query
from headway.errors import IndexIncomplete, InvalidArgument, NotPrimed, NotWatched, StoreChanged
from headway.events import ignore
from headway.resource import Key, pb
from tests.helpers.resources import (
    ACCOUNT,
    TEAM,
    at,
    bookmark,
    changes,
    chunk,
    end,
    key,
    put,
    removed,
    stored,
)

COLOUR = indexes.by(TEAM, "colour", lambda team: team.metadata["colour"])


@query(TEAM)
def versions(cache: CacheReader) -> list[str]:
    return [team.version for team in cache.list(TEAM)]


def painted(name: str, version: int, colour: str = "red") -> pb.Resource:
    return stored(name, version, metadata={"colour": colour} if colour else {})


def _ignore_failure(name: str, key: Key, error: BaseException) -> None:
    """Ignore the failure, which these tests don't check."""


class Two:
    """A cache of two types, both primed at 10 with ada, whose accounts are complete up to ``accounts_at``."""

    def __init__(self, *, colour: str = "red", accounts_at: int = 10) -> None:
        self.teams, self.accounts = Informer(TEAM, ignore), Informer(ACCOUNT, ignore)
        self.teams.feed(chunk(painted("ada", 5, colour)))
        self.teams.feed(end(10))
        self.accounts.feed(chunk(stored("ada", 6, type=ACCOUNT)))
        self.accounts.feed(end(accounts_at))
        self.cache = Cache("teams", TEAM, [ACCOUNT], [versions])
        self.cache.open(
            {
                TEAM.name: self.teams.subscribe([COLOUR], _ignore_failure),
                ACCOUNT.name: self.accounts.subscribe([], _ignore_failure),
            }
        )


async def test_view_is_unchanged_while_the_cache_advances() -> None:
    """This holds for reads, queries and the revision."""
    two = Two()
    async with two.cache.view(TEAM, ACCOUNT) as view:
        two.teams.feed(changes(put(painted("ada", 11)), put(painted("grace", 12))))
        two.accounts.feed(changes(removed(stored("ada", 6, type=ACCOUNT), 12)))
        await trio.lowlevel.checkpoint()
        two.teams.reply(key("ada"), None, at(13))
        assert [team.version for team in view.list(TEAM)] == view.query(versions) == ["5"]
        assert view.get(ACCOUNT, "ada") is not None
        assert view.get(TEAM, "grace") is None
        assert view.pinned_at == view.revision(TEAM) == view.revision(ACCOUNT) == 10
        assert two.cache.query(versions) == ["12"]
        assert two.cache.get(ACCOUNT, "ada") is None


async def test_opening_a_view_waits_for_the_lagging_type(nursery: trio.Nursery) -> None:
    """Changes of the other type that are newer than the view's revision are not in the view."""
    two = Two()
    two.teams.feed(changes(put(painted("ada", 12))))
    view = await opened_after(
        two,
        nursery,
        lambda: two.teams.feed(changes(put(painted("ada", 14)))),
        lambda: two.accounts.feed(changes(put(stored("ada", 11, type=ACCOUNT)))),
        lambda: two.accounts.feed(changes(put(stored("grace", 13, type=ACCOUNT)))),
    )
    assert view.pinned_at == 12
    assert [team.version for team in view.list(TEAM)] == ["12"]
    assert [account.version for account in view.list(ACCOUNT)] == ["11"]
    nursery.cancel_scope.cancel()


async def opened_after(two: Two, nursery: trio.Nursery, *steps: Callable[[], object]) -> View:
    """Return an open view of both types. Only the last of the steps allows it to open."""
    opened: list[View] = []

    async def look() -> None:
        async with two.cache.view(ACCOUNT, TEAM) as view:
            opened.append(view)
            await trio.sleep_forever()

    nursery.start_soon(look)
    for step in steps:
        await trio.testing.wait_all_tasks_blocked()
        assert not opened
        step()
    await trio.testing.wait_all_tasks_blocked()
    return opened[0]


async def test_repair_of_a_false_bookmark_does_not_change_a_view() -> None:
    """A snapshot has a hidden change whose revision is older than the view's."""
    two = Two()
    async with two.cache.view(TEAM) as view:
        two.teams.feed(chunk(painted("ada", 7), painted("grace", 8)))
        two.teams.feed(end(15))
        assert two.cache.query(versions) == ["7", "8"]
        assert view.query(versions) == ["5"]


@pytest.mark.parametrize(("before", "after", "complete"), [("red", "", True), ("", "red", False)])
async def test_view_of_an_index_stays_as_complete_as_it_was(before: str, after: str, complete: bool) -> None:
    """A later failure of the index function doesn't affect the view. A failure from before the view still does."""
    two = Two(colour=before)
    async with two.cache.view(TEAM) as view:
        two.teams.feed(changes(put(painted("ada", 11, after))))
        for reader, whole in ((view, complete), (two.cache, not complete)):
            if whole:
                assert [team.name for team in reader.index(COLOUR, "red")] == ["ada"]
            else:
                with pytest.raises(IndexIncomplete, match="lacks 1 resources"):
                    reader.index(COLOUR, "red")


async def test_view_covers_only_the_requested_types() -> None:
    """A view needs at least one type. All must be types of the controller."""
    two = Two()
    async with two.cache.view(TEAM) as view:
        with pytest.raises(NotWatched, match=r"opened without staff.v1.Account"):
            view.list(ACCOUNT)
    with pytest.raises(InvalidArgument, match=r"cache.view\(TEAM, ACCOUNT\)"):
        await AsyncExitStack().enter_async_context(two.cache.view())
    with pytest.raises(NotWatched):
        await AsyncExitStack().enter_async_context(Cache("teams", TEAM, []).view(ACCOUNT))
    with pytest.raises(NotPrimed):
        await AsyncExitStack().enter_async_context(Cache("teams", TEAM, []).view(TEAM))


async def test_state_overtaken_by_a_reply_is_in_a_view_that_waited_for_it(nursery: trio.Nursery) -> None:
    """The cache never has that state, but the store had it at the view's revision."""
    two = Two(accounts_at=14)
    view = await opened_after(
        two,
        nursery,
        lambda: two.teams.reply(key("ada"), painted("ada", 16), at(16)),
        lambda: two.teams.reply(key("grace"), painted("grace", 18), at(18)),
        lambda: two.teams.feed(changes(put(painted("ada", 12)))),
        lambda: two.teams.feed(changes(put(painted("mary", 13)), put(painted("grace", 14)), put(painted("ada", 15)))),
    )
    assert view.pinned_at == 14
    assert [(team.name, team.version) for team in view.list(TEAM)] == [("ada", "12"), ("grace", "14"), ("mary", "13")]
    assert [team.name for team in view.index(COLOUR, "red")] == ["ada", "grace", "mary"]
    assert two.cache.query(versions) == ["16", "18", "13"]
    nursery.cancel_scope.cancel()


async def test_state_overwritten_before_the_view_is_not_in_it(nursery: trio.Nursery) -> None:
    """This holds however late the stream delivers the state, and also if the reply itself comes late."""
    two = Two(accounts_at=14)
    two.teams.reply(key("ada"), painted("ada", 12), at(12))
    view = await opened_after(
        two,
        nursery,
        lambda: two.teams.reply(key("grace"), None, at(13)),
        lambda: two.teams.feed(changes(put(painted("ada", 11)), put(painted("grace", 12)))),
        lambda: two.teams.feed(bookmark(15)),
    )
    assert [(team.name, team.version) for team in view.list(TEAM)] == [("ada", "12")]
    nursery.cancel_scope.cancel()


async def test_snapshot_past_the_revision_moves_the_view_to_a_new_one(nursery: trio.Nursery) -> None:
    """The states in between are not in the view."""
    two = Two(accounts_at=14)

    def leap() -> None:
        two.teams.feed(chunk(painted("ada", 15)))
        two.teams.feed(end(16))

    view = await opened_after(two, nursery, leap, lambda: two.accounts.feed(bookmark(17)))
    assert view.pinned_at == 16
    assert view.query(versions) == ["15"]
    nursery.cancel_scope.cancel()


async def test_view_after_the_data_became_void_opens_only_at_what_has_arrived() -> None:
    """The run goes on until it has noticed. It does not wait for what will not come."""
    two = Two()
    two.teams.feed(changes(put(painted("ada", 12))))
    for informer in (two.teams, two.accounts):
        informer.void(StoreChanged("replaced"), replaced=True)
    with trio.fail_after(30):
        async with two.cache.view(TEAM) as view:
            assert view.query(versions) == ["12"]
        with pytest.raises(StoreChanged):
            await AsyncExitStack().enter_async_context(two.cache.view(TEAM, ACCOUNT))


@pytest.mark.parametrize("how", ["block", "run"])
async def test_view_ends_with_its_block_and_with_its_run(how: str) -> None:
    """The states of the view are no longer kept, so reads raise."""
    two = Two()
    subscription = two.cache._subscription(TEAM)
    async with two.cache.view(TEAM) as view:
        if how == "run":
            two.cache.close()
            with pytest.raises(NotPrimed, match="its run, had ended"):
                view.list(TEAM)
    with pytest.raises(NotPrimed, match="after its block"):
        view.get(TEAM, "ada")
    assert subscription.pins == []


@pytest.mark.parametrize("how", ["void", "run", "cancelled"])
async def test_view_that_cannot_be_opened_leaves_nothing_behind(how: str, nursery: trio.Nursery) -> None:
    """The waiting caller gets the reason."""
    two = Two()
    two.teams.feed(bookmark(20))
    told: list[Any] = []
    subscriptions = [two.cache._subscription(type) for type in (TEAM, ACCOUNT)]
    scope = trio.CancelScope()

    async def look() -> None:
        with scope:
            try:
                async with two.cache.view(TEAM, ACCOUNT):
                    pytest.fail("the view was opened")
            except (StoreChanged, NotPrimed) as error:
                told.append(type(error))

    nursery.start_soon(look)
    await trio.testing.wait_all_tasks_blocked()
    assert [len(each.pins) for each in subscriptions] == [1, 1]
    if how == "void":
        two.accounts.void(StoreChanged("replaced"), replaced=True)
    elif how == "run":
        two.cache.close()
    else:
        scope.cancel()
    await trio.testing.wait_all_tasks_blocked()
    assert told == {"void": [StoreChanged], "run": [NotPrimed], "cancelled": []}[how]
    assert [len(each.pins) for each in subscriptions] == [0, 0]


@headway.message(name="tests.Transfer")
class Transfer:
    amount: int = headway.field(1)


async def test_reconciler_sees_two_types_at_one_revision(
    autojump_clock: MockClock,
) -> None:
    """A writer moves an amount between the two types all the time, and the sum is always the same."""
    app = headway.App("bank")
    debit = app.type("bank", "v1", "Debit", Transfer)
    credit = app.type("bank", "v1", "Credit", Transfer)
    sums: list[tuple[int, int]] = []

    @app.controller(manages=debit, watches=[headway.watch(credit, headway.mappers.same_name())])
    async def add_up(rt: headway.Runtime, _: headway.Request) -> None:
        async with rt.cache.view(debit, credit) as view:
            before = view.get(debit, "it")
            await trio.sleep(0.25)
            after = view.get(credit, "it")
            if before is not None and after is not None:
                sums.append((before.data.amount, after.data.amount))

    async with headway.open_engine("memory:", app) as engine:
        one = await engine.client.apply(debit.new("it", Transfer(amount=50)))
        other = await engine.client.apply(credit.new("it", Transfer(amount=50)))
        for number in range(40):
            one.data.amount, other.data.amount = 50 - number, 50 + number
            one, other = await engine.client.write(one), await engine.client.write(other)
            await trio.sleep(0.1)
        await engine.wait_idle()
    assert len(set(sums)) > 3
    # The move takes two commits. Between them, the sum is one too low.
    assert {one + other for one, other in sums} <= {100, 99}
    assert sums[-1] == (11, 89)
    assert autojump_clock.current_time() > 4
