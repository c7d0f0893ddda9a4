"""C5 of the contract: first by the fewest steps, then for all the ways to lose a write's outcome."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway.api import Call, Handler, Reason
from headway.errors import Fenced, HeadwayError
from headway.events import WriteResolved, WriteUnknown
from headway.testing import Fault
from tests.helpers.pools import Member, Summary
from tests.helpers.rig import Rig
from tests.helpers.service_errors import reason_of
from tests.helpers.settings import OVER_THE_NETWORK, Setting

DEADLINE = 5.0
"""Of a reconcile; a write that is never answered is cancelled by it."""

UNKNOWN = {
    ("deadline", "before"): Fault.LOST,
    ("deadline", "after"): Fault.LATE,
    ("deadline", "never"): Fault.LATE,
    ("cancellation", "before"): Fault.SILENT,
    ("cancellation", "after"): Fault.LATE_SILENT,
    ("cancellation", "never"): Fault.LATE_SILENT,
    ("error", "before"): Fault.BROKEN,
    ("error", "after"): Fault.LATE_BROKEN,
    ("error", "never"): Fault.FAILED,
}
"""(how the outcome became unknown, when the write lands: before it is settled, after that, or never)."""


@pytest.mark.parametrize(("how", "lands"), UNKNOWN)
async def test_c5_unknown_write_is_resolved_before_any_key_is_reconciled(
    autojump_clock: MockClock, setting: Setting, how: str, lands: str
) -> None:
    """While raising the fence fails, no key is reconciled. A write that arrives after the raise is rejected."""
    rig = Rig(autojump_clock, setting=setting, deadline=DEADLINE)
    async with rig.open():
        await rig.write_pool("a")
        await rig.write_pool("b")
        await rig.wait_idle()
        rig.channel.writes(UNKNOWN[how, lands])
        rig.channel.raises(*[Fault.FAILED] * 4)
        await rig.write_member("m", "a")
        await _until_unknown(rig)
        assert ("a" in await rig.summaries()) is (lands == "before")

        before = len(rig.names)
        await rig.write_member("n", "b")
        while not rig.witness.events_of(WriteResolved):
            assert len(rig.names) == before
            await trio.sleep(0.01)
        await rig.wait_idle()
        assert await rig.summaries() == {"a": ["m"], "b": ["n"]}

        if lands == "after":
            [late] = await rig.channel.run_late()
            assert late.error is not None
            assert reason_of(late.error) is Reason.FENCED
            assert await rig.summaries() == {"a": ["m"], "b": ["n"]}
        assert len(rig.witness.events_of(WriteUnknown)) == len(rig.witness.events_of(WriteResolved)) == 1


async def test_c5_run_begins_with_the_writes_of_its_initialiser_in_the_cache(
    autojump_clock: MockClock, setting: Setting
) -> None:
    """The run waits for a replica that has the raise of the fence but not yet the initialiser's write."""
    rig = Rig(autojump_clock, setting=setting)
    pools, channel = rig.pools, rig.channel
    pools.at_start = ["a"]
    for type in pools.types:
        channel.old_snapshot(type, 1)
        channel.hold(type)

    async def initialiser(rt: headway.Runtime) -> None:
        await rt.client.apply(pools.member.new("m", Member(pool="a")))

    async def look(rt: headway.Runtime, _: headway.Request) -> None:
        seen.append(rt.cache.get(pools.member, "m") is not None)

    seen: list[bool] = []
    pools.replace(look, initialiser=initialiser)
    async with rig.open():
        await trio.sleep(10)
        assert seen == []
        for type in pools.types:
            channel.release(type)
        await rig.wait_idle()
    assert set(seen) == {True}


async def test_c5_acknowledged_write_is_seen_by_the_next_reconcile(autojump_clock: MockClock, setting: Setting) -> None:
    """This holds before the stream has delivered the write, and for a deletion too."""
    rig = Rig(autojump_clock, setting=setting)
    pools, channel = rig.pools, rig.channel
    seen: list[bool] = []

    async def toggle(rt: headway.Runtime, _: headway.Request) -> headway.RequeueAfter | None:
        there = rt.cache.get(pools.summary, "x")
        seen.append(there is not None)
        if len(seen) == 1:
            channel.hold(pools.summary)
            await rt.client.apply(pools.summary.new("x", Summary(members=["m"])))
        elif there is not None:
            await rt.client.delete(there)
        return headway.requeue_after(1) if len(seen) < 3 else None

    pools.replace(toggle)
    async with rig.open() as engine:
        # What is written while the run begins may be reconciled twice.
        await engine.wait_idle()
        await engine.client.apply(pools.pool.new("a"))
        await trio.sleep(10)

    assert seen == [False, True, False]


async def test_c5_lost_answer_holds_every_key_until_it_is_resolved(autojump_clock: MockClock, setting: Setting) -> None:
    """No key is reconciled until the fence has been raised above the write."""
    rig = Rig(autojump_clock, setting=setting)
    async with rig.open():
        await rig.write_pool("a")
        await rig.write_pool("b")
        await rig.wait_idle()
        rig.channel.writes(Fault.LOST)
        rig.channel.raises(*[Fault.FAILED] * 5)
        before = len(rig.names)
        await rig.write_member("m", "a")
        await trio.sleep(0.05)
        await rig.write_member("n", "b")
        while not rig.witness.events_of(WriteResolved):
            assert len(rig.names) == before + 1
            await trio.sleep(0.01)
        await rig.wait_idle()
        assert await rig.summaries() == {"a": ["m"], "b": ["n"]}


async def test_c5_late_write_is_refused_once_it_is_resolved(autojump_clock: MockClock, setting: Setting) -> None:
    """A write that seemed lost arrives after its resolution and changes nothing."""
    rig = Rig(autojump_clock, setting=setting)
    async with rig.open():
        await rig.write_pool("a")
        await rig.wait_idle()
        rig.channel.writes(Fault.LATE)
        await rig.write_member("m", "a")
        await rig.wait_idle()

        (late,) = await rig.channel.run_late()

        assert late.error is not None
        assert reason_of(late.error) is Reason.FENCED
        assert await rig.summaries() == {"a": ["m"]}


async def test_c5_resolution_waits_until_the_cache_has_reached_the_commit(
    autojump_clock: MockClock, setting: Setting
) -> None:
    """After a lost answer the keys wait until every type's cache has the commit that raised the fence."""
    rig = Rig(autojump_clock, setting=setting)
    async with rig.open():
        await rig.write_pool("a")
        await rig.write_member("m", "")
        await rig.wait_idle()
        rig.channel.writes(Fault.LOST)
        await rig.write_member("m", "a")
        rig.pools.pause = 1.0
        await trio.sleep(0.5)
        rig.channel.hold(rig.pools.summary)
        rig.pools.enqueue("a")
        await trio.sleep(0.6)
        before = len(rig.names)
        await trio.sleep(20)
        assert len(rig.names) == before

        rig.channel.release(rig.pools.summary)
        await rig.wait_idle()
        assert await rig.summaries() == {"a": ["m"]}


async def test_c5_write_lost_during_a_resolution_is_resolved_too(autojump_clock: MockClock, setting: Setting) -> None:
    """The raise that resolves the first write is below the second write, so the keys wait for another raise."""
    rig = Rig(autojump_clock, setting=setting, concurrency=2)
    channel = rig.channel
    async with rig.open():
        await rig.write_pool("a")
        await rig.write_pool("b")
        await rig.wait_idle()
        channel.writes(Fault.LATE, Fault.LATE)
        rig.pools.pause = 2.0
        await rig.write_member("m", "a")
        await trio.sleep(1)
        await rig.write_member("n", "b")
        await trio.sleep(0.5)
        # A commit at 2 s resolves the first write. The keys still wait for it when the second write is lost.
        channel.hold(rig.pools.summary)
        await trio.sleep(1)
        assert len(channel.unknown) == 1
        channel.raises(*[Fault.FAILED] * 4)
        await trio.sleep(1.5)
        assert len(channel.unknown) == 2
        rig.pools.pause = 0.0
        before = len(rig.names)
        channel.release(rig.pools.summary)
        while not rig.witness.events_of(WriteResolved):
            assert len(rig.names) == before
            await trio.sleep(0.01)
        late = await channel.run_late()
        assert [reason_of(call.error) is Reason.FENCED for call in late if call.error] == [True, True]
        await rig.wait_idle()
        assert await rig.summaries() == {"a": ["m"], "b": ["n"]}


async def test_c5_canceled_write_is_resolved_like_a_lost_one(autojump_clock: MockClock, setting: Setting) -> None:
    """A write that the reconcile's deadline cancels may have been stored. The keys wait for its resolution."""
    rig = Rig(autojump_clock, setting=setting, deadline=5.0)
    async with rig.open():
        await rig.write_pool("a")
        await rig.wait_idle()
        rig.channel.writes(Fault.SILENT)
        await rig.write_member("m", "a")
        await rig.wait_idle()

        assert len(rig.witness.events_of(WriteResolved)) == 1
        assert await rig.summaries() == {"a": ["m"]}


async def _until_unknown(rig: Rig) -> None:
    with trio.fail_after(60):
        while not rig.witness.events_of(WriteUnknown):
            assert not rig.witness.events_of(WriteResolved)
            await trio.sleep(0.01)
    # By now every reader sees the effect of a write that was stored.
    await rig.run_until_blocked()


# --- the same faults, caused by the network itself ---

TIMEOUT = 2.0
"""Of the channel, for the kind "deadline"."""


class Mistreated:
    """A wrapper through which a server mishandles the next write of a controller.

    A late call is kept after it has ended on the server's side, like a call that is still in flight.
    """

    def __init__(self, setting: Setting, how: str, lands: str) -> None:
        self._setting, self._how, self._lands = setting, how, lands
        self.armed = False
        self.release, self.landed = trio.Event(), trio.Event()
        self.refusal: HeadwayError | None = None

    def __call__(self, path: str, handler: Handler) -> Handler:
        async def write(call: Call, request: Any) -> Any:
            if not self.armed:
                return await handler.func(call, request)
            self.armed = False
            return await self._mistreat(partial(handler.func, Call(), request))

        return handler._replace(func=write) if path.endswith("/Write") else handler

    async def _mistreat(self, answer: Callable[[], Awaitable[Any]]) -> Any:
        if self._lands == "before":
            await answer()
        if self._how == "error":
            for connection in list(self._setting.servers[0]._connections):
                connection.abort()
        if self._lands == "after":
            with trio.CancelScope(shield=True):
                await self.release.wait()
                await self._land(answer)
        await trio.sleep_forever()

    async def _land(self, answer: Callable[[], Awaitable[Any]]) -> None:
        try:
            await answer()
        except HeadwayError as error:
            self.refusal = error
        self.landed.set()


@pytest.mark.parametrize("setting", OVER_THE_NETWORK, indirect=True)
@pytest.mark.parametrize(("how", "lands"), UNKNOWN)
async def test_c5_write_left_unknown_by_a_network_is_resolved(
    autojump_clock: MockClock, setting: Setting, how: str, lands: str
) -> None:
    """On a real connection, the channel's or the reconcile's deadline passes, or the connection breaks."""
    server = Mistreated(setting, how, lands)
    setting.wrap = server
    setting.timeout = TIMEOUT if how == "deadline" else 30.0
    rig = Rig(autojump_clock, setting=setting, deadline=DEADLINE)
    async with rig.open():
        await rig.write_pool("a")
        await rig.wait_idle()
        server.armed = True
        rig.channel.raises(*[Fault.FAILED] * 4)
        await rig.write_member("m", "a")
        await _until_unknown(rig)
        assert ("a" in await rig.summaries()) is (lands == "before")

        before = len(rig.names)
        while not rig.witness.events_of(WriteResolved):
            assert len(rig.names) == before
            await trio.sleep(0.01)
        await rig.wait_idle()
        if lands == "after":
            server.release.set()
            await server.landed.wait()
            assert isinstance(server.refusal, Fenced)
        assert await rig.summaries() == {"a": ["m"]}
        assert len(rig.witness.events_of(WriteUnknown)) == len(rig.witness.events_of(WriteResolved)) == 1
