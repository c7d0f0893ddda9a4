"""The applies of a reconcile that make no call, and all that makes them ask the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import trio
from trio.testing import MockClock

import headway
from headway.api import Metadata
from headway.errors import Conflict, OutcomeUnknown
from headway.testing import Fault, ScriptedChannel
from tests.helpers.resources import Account, Team
from tests.helpers.staff import Staff

LOGIN = "ada"


class _Counting(ScriptedChannel):
    """A scripted channel that counts the reads of accounts and teams."""

    reads = 0

    async def unary(self, path: str, request: Any, reply_type: type[Any], *, metadata: Metadata | None = None) -> Any:
        self.reads += path.endswith("/Read")
        return await super().unary(path, request, reply_type, metadata=metadata)


class Applying(Staff):
    """A controller of teams that watches accounts, and does what a test says in its first reconcile of team "core".

    Its watch maps no account, so that nothing corrects what a reconcile has not done.
    """

    def __init__(self, work: Callable[[Applying, headway.Runtime], Awaitable[object]]) -> None:
        super().__init__()
        self.channel = _Counting()
        self.done = trio.Event()
        self.owner: headway.Resource[Team]

        @self.app.controller(manages=self.team, watches=[headway.watch(self.account, lambda *_: [])])
        async def applying(rt: headway.Runtime, _: headway.Request[Team]) -> None:
            if not self.done.is_set():
                await work(self, rt)
                self.done.set()

    def ada(self, login: str = LOGIN) -> headway.Resource[Account]:
        """Return account "ada" as the controller wants it."""
        return self.account.new("ada", Account(login=login), metadata={"color": "red"})

    async def by_another(self, login: str) -> headway.Resource[Account]:
        """Write the account as another writer, while the controller's cache does not hear of it."""
        self.channel.hold(self.account)
        return await self.engine.client.write(self.ada(login))

    async def stored(self) -> str:
        """Return the stored login of account "ada"."""
        return (await self.engine.client.read(self.account, "ada")).data.login

    async def run(self) -> None:
        """Create the account, and then run the work in a reconcile."""
        async with self.open(wrap_channel=self.channel.over):
            await self.engine.client.create(self.ada())
            await self.wait_idle()
            await self.write_team("core")
            with trio.move_on_after(300):
                await self.done.wait()
            assert self.errors() == []


async def test_unchanged_apply_makes_no_call_and_returns_the_cached_state(autojump_clock: MockClock) -> None:
    async def work(staff: Applying, rt: headway.Runtime) -> None:
        cached = rt.cache.get(staff.account, "ada")
        applied = await rt.client.apply(staff.ada())
        assert applied == cached
        assert staff.channel.reads == 0
        applied.data.login = "mine"
        assert (await rt.client.apply(staff.ada())).data.login == LOGIN

    await Applying(work).run()


async def test_unchanged_apply_leaves_what_it_is_given_and_what_is_cached(autojump_clock: MockClock) -> None:
    """It keeps the stored finalizers and the stored owner, which the given resource lacks."""

    async def work(staff: Applying, rt: headway.Runtime) -> None:
        account = rt.cache.get(staff.account, "ada")
        assert account is not None
        account.finalizers |= {"cleanup"}
        await rt.client.write(account)
        wanted = staff.ada()
        assert (await rt.client.apply(wanted)).finalizers == {"cleanup"}
        assert wanted == staff.ada()
        changed = staff.ada()
        changed.metadata["color"] = "blue"
        assert (await rt.client.apply(changed)).metadata["color"] == "blue"
        cached = rt.cache.get(staff.account, "ada")
        assert cached is not None
        assert cached.metadata == {"color": "blue", "finalizers": "cleanup"}

    await Applying(work).run()


async def test_apply_of_a_difference_is_written(autojump_clock: MockClock) -> None:
    """The next one finds the write in the cache (C5)."""

    async def work(staff: Applying, rt: headway.Runtime) -> None:
        written = await rt.client.apply(staff.ada("bob"))
        assert await staff.stored() == "bob"
        reads = staff.channel.reads
        assert (await rt.client.apply(staff.ada("bob"))).version == written.version
        assert staff.channel.reads == reads
        for other in (staff.account.new("ada", Account(login="bob")), staff.ada("carl")):
            assert (await rt.client.apply(other)).version != written.version

    await Applying(work).run()


async def test_apply_of_another_incarnation_asks_the_store(autojump_clock: MockClock) -> None:
    async def work(staff: Applying, rt: headway.Runtime) -> None:
        cached = rt.cache.get(staff.account, "ada")
        assert cached is not None
        other = staff.account.id("ada", uid="01HZZZZZZZZZZZZZZZZZZZZZZZ")
        await rt.client.apply(cached)
        assert staff.channel.reads == 0
        assert await rt.client.get(staff.account, other) is None

    await Applying(work).run()


async def test_apply_of_what_a_scope_or_no_watch_caches_asks_the_store(autojump_clock: MockClock) -> None:
    staff, reads = Staff(), list[int]()
    channel = _Counting()
    scoped = staff.account.within(metadata="color=blue")

    @staff.app.controller(manages=staff.team, watches=[headway.watch(scoped, lambda *_: [])])
    async def applying(rt: headway.Runtime, _: headway.Request[Team]) -> None:
        await rt.client.apply(staff.account.new("ada", Account(), metadata={"color": "red"}))
        reads.append(channel.reads)

    async with staff.open(wrap_channel=channel.over) as engine:
        await engine.client.create(staff.account.new("ada", Account(), metadata={"color": "red"}))
        await staff.write_team("core")
        await staff.wait_idle()
    assert reads == [1]


async def test_apply_after_a_read_is_compared_with_a_state_that_is_not_older(autojump_clock: MockClock) -> None:
    """Each of these reads has shown that the store differs from the cache."""

    async def by_read(staff: Applying, rt: headway.Runtime) -> None:
        assert (await rt.client.read(staff.account, "ada")).data.login == "bob"

    async def by_strong_read(staff: Applying, rt: headway.Runtime) -> None:
        assert (await rt.strong.read(staff.account, "ada")).data.login == "bob"

    async def by_list(staff: Applying, rt: headway.Runtime) -> None:
        assert [each.data.login for each in await rt.client.list(staff.account)] == ["bob"]

    async def by_pages(staff: Applying, rt: headway.Runtime) -> None:
        async for page in rt.client.pages(staff.account):
            assert [each.data.login for each in page] == ["bob"]

    async def by_owner(staff: Applying, rt: headway.Runtime) -> None:
        assert await rt.client.list_by_owner(staff.owner) == []

    async def by_watch(staff: Applying, rt: headway.Runtime) -> None:
        async with rt.client.watch(staff.account) as changes:
            assert isinstance(await anext(aiter(changes)), headway.client.Upserted)

    async def by_subscription(staff: Applying, rt: headway.Runtime) -> None:
        async with rt.client.subscribe([staff.account]) as batches:
            await anext(aiter(batches))

    async def by_refusal(staff: Applying, rt: headway.Runtime) -> None:
        cached = rt.cache.get(staff.account, "ada")
        assert cached is not None
        cached.data.login = "carl"
        with suppress(Conflict):
            await rt.client.write(cached)
            raise AssertionError("the version is outdated")

    for look in (by_read, by_strong_read, by_list, by_pages, by_owner, by_watch, by_subscription, by_refusal):

        async def work(
            staff: Applying,
            rt: headway.Runtime,
            look: Callable[[Applying, headway.Runtime], Awaitable[None]] = look,
        ) -> None:
            staff.owner = await staff.write_team("owner")
            await staff.by_another("bob")
            await look(staff, rt)
            await rt.client.apply(staff.ada())
            assert await staff.stored() == LOGIN, look

        await Applying(work).run()


async def test_apply_that_asks_after_a_failed_call_does_so_until_the_store_has_answered(
    autojump_clock: MockClock,
) -> None:
    async def work(staff: Applying, rt: headway.Runtime) -> None:
        assert await rt.client.get(staff.account, "nobody") is None
        await rt.client.apply(staff.ada())
        assert staff.channel.reads == 2
        await trio.sleep(1)
        await rt.client.apply(staff.ada())
        assert staff.channel.reads == 2

    await Applying(work).run()


async def test_apply_asks_while_the_outcome_of_a_write_is_unknown(autojump_clock: MockClock) -> None:
    """The write may still be stored. It stays unknown, because the fence cannot be raised."""

    async def work(staff: Applying, rt: headway.Runtime) -> None:
        staff.channel.raises(*[Fault.FAILED] * 20)
        staff.channel.writes(Fault.LATE)
        with suppress(OutcomeUnknown):
            await rt.client.write(staff.ada("bob"))
            raise AssertionError("the reply was not lost")
        for reads in range(1, 4):
            await rt.client.apply(staff.ada())
            assert staff.channel.reads == reads
            await trio.sleep(1)

    await Applying(work).run()


async def test_apply_asks_while_the_stream_of_the_type_is_interrupted(autojump_clock: MockClock) -> None:
    async def work(staff: Applying, rt: headway.Runtime) -> None:
        await rt.client.apply(staff.ada())
        assert staff.channel.reads == 0
        staff.channel.stall(staff.account)
        staff.channel.drop(staff.account)
        await trio.sleep(0.001)
        await rt.client.apply(staff.ada())
        assert staff.channel.reads == 1

    await Applying(work).run()


async def test_applies_without_a_call_let_other_tasks_run(autojump_clock: MockClock) -> None:
    """A reconcile with very many of them ends at its deadline."""

    async def work(staff: Applying, rt: headway.Runtime) -> None:
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(turn)
            for _ in range(80):
                await rt.client.apply(staff.ada())
            nursery.cancel_scope.cancel()
        assert turns >= 8
        with trio.CancelScope() as canceled:
            canceled.cancel()
            await rt.client.apply(staff.ada())
        assert canceled.cancelled_caught

    await Applying(work).run()


async def test_apply_of_an_ended_run_asks_the_store(autojump_clock: MockClock) -> None:
    """Nothing keeps its cache up any longer."""
    kept = list[headway.Runtime]()

    async def work(_: Applying, rt: headway.Runtime) -> None:
        kept.append(rt)

    staff = Applying(work)

    @staff.app.controller(manages=staff.account, name="other")
    async def other(rt: headway.Runtime, request: headway.Request[Account]) -> None: ...

    async with staff.open(wrap_channel=staff.channel.over) as engine:
        await engine.client.create(staff.ada())
        await staff.write_team("core")
        await staff.wait_idle()
        await kept[0].client.apply(staff.ada())
        assert staff.channel.reads == 0
        run: Any = engine.controllers["applying"].run
        run._cache.close()
        await kept[0].client.apply(staff.ada())
        assert staff.channel.reads == 1
