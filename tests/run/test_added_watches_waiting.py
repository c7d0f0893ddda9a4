"""`rt.watch` while it waits for a new type: the run goes on, and the wait ends with an error or with the next run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import trio
from grpclib.const import Status
from trio.testing import MockClock
from typing_extensions import override

import headway
from headway.errors import PermissionDenied, PrimingStalled
from headway.resource import EndOfSnapshot, Kind
from headway.service import WATCH_LIST
from headway.testing import ScriptedChannel
from tests.helpers.added_watches import runs, watch_accounts, write_account
from tests.helpers.items import taking
from tests.helpers.resources import Account
from tests.helpers.service_errors import failed
from tests.helpers.staff import Staff


async def test_run_goes_on_while_the_new_type_cannot_be_read(autojump_clock: MockClock) -> None:
    """The reconcile fails with the name of the type, and is tried again. Other keys are reconciled."""
    staff, done = Staff(), list[str]()
    channel = ScriptedChannel()

    @staff.app.controller(manages=staff.team, backoff=headway.Backoff(1.0, 1.0), concurrency=2)
    async def look(rt: headway.Runtime, request: headway.Request) -> None:
        if request.id.name == "wants":
            await rt.watch(watch_accounts(staff))
        done.append(request.id.name)

    channel.stall(staff.account)
    async with staff.open(wrap_channel=channel.over):
        await staff.write_team("wants")
        await trio.sleep(1)
        await staff.write_team("other")
        await trio.sleep(70)
        assert done == ["other"]
        assert runs(staff) == (0, 1, 0)
        assert f"{PrimingStalled.__name__}('priming staff.v1.Account stalled" in staff.errors()[0]
        channel.release(staff.account)
        await staff.wait_idle()
        assert runs(staff) == (1, 2, 1)
        assert done.count("wants") == 1


async def test_snapshot_that_takes_longer_than_a_reconcile_may_is_not_begun_anew(autojump_clock: MockClock) -> None:
    """A call that is canceled leaves the stream open, so a later call finds it further on."""
    staff, done = Staff(), list[str]()
    channel = _EndlessSnapshot(staff.account.kind)

    @staff.app.controller(manages=staff.team, deadline=2.0, backoff=headway.Backoff(1.0, 1.0))
    async def look(rt: headway.Runtime, request: headway.Request) -> None:
        await rt.watch(watch_accounts(staff))
        done.append(request.id.name)

    async with staff.open(wrap_channel=channel.over):
        await write_account(staff, "ada", "core")
        await staff.write_team("core")
        await trio.sleep(30)
        assert done == []
        channel.ends.set()
        await staff.wait_idle()
        assert done == ["core"]
    assert channel.opened.count((staff.account.kind, False)) == 1


class _EndlessSnapshot(ScriptedChannel):
    """A channel that holds back the end of a kind's snapshots until an event is set."""

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self.ends = trio.Event()
        self._kind = kind

    @override
    def stream(self, path: str, request: Any, **options: Any) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        inner = super().stream(path, request, **options)
        if path != WATCH_LIST or request.type is None or (request.type.group, request.type.kind) != self._kind:
            return inner
        return taking(inner, self._take)

    async def _take(self, items: AsyncIterator[Any]) -> Any:
        item = await anext(items)
        if isinstance(item, EndOfSnapshot):
            await self.ends.wait()
        return item


class _Denies(ScriptedChannel):
    """A channel whose server denies the streams of a kind."""

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self._kind = kind

    @override
    def stream(self, path: str, request: Any, **options: Any) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        opened = super().stream(path, request, **options)
        if path == WATCH_LIST and self.opened[-1][0] == self._kind:
            raise failed(Status.PERMISSION_DENIED, "not you")
        return opened


async def test_no_stream_is_kept_for_a_call_that_is_denied(autojump_clock: MockClock) -> None:
    """The streams of the denied type and of the other types of the call end with the call."""
    staff, raised = Staff(), list[str]()
    laptop = staff.app.type("staff", "v1", "Laptop", Account)
    channel = _Denies(staff.account.kind)

    @staff.app.controller(manages=staff.team)
    async def look(rt: headway.Runtime, _: headway.Request) -> None:
        try:
            await rt.watch(headway.watch(laptop, headway.mappers.owner()), watch_accounts(staff))
        except PermissionDenied as error:
            raised.append(str(error))

    async with staff.open(wrap_channel=channel.over):
        await staff.write_team("core")
        await staff.wait_idle()
        assert len(raised) == 1
        assert raised[0].startswith("staff.v1.Account cannot be watched")
        opened = len(channel.opened)
        channel.drop(laptop)
        await trio.sleep(600)
        # Those of the managed type are resumed now and then.
        assert {kind for kind, _ in channel.opened[opened:]} <= {staff.team.kind}
        assert runs(staff) == (0, 1, 0)


async def test_engine_that_stops_meanwhile_ends(autojump_clock: MockClock) -> None:
    staff, told = Staff(), list[str]()
    channel = ScriptedChannel()
    channel.stall(staff.account)

    @staff.app.controller(manages=staff.team, on_stop=lambda _, error: told.append(f"stopped {error}"))
    async def look(rt: headway.Runtime, _: headway.Request) -> None:
        try:
            await rt.watch(watch_accounts(staff))
        finally:
            told.append("ended")

    async with staff.open(wrap_channel=channel.over):
        await staff.write_team("core")
        await trio.sleep(1)
    assert told == ["ended", "stopped None"]
    assert runs(staff) == (0, 1, 0)
