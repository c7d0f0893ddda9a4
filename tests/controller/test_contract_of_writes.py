"""C5 for every way in which a write's outcome can be unknown, and every time at which the write may land."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from grpclib import GRPCError
from trio.testing import MockClock

from headway.events import WriteSettled, WriteUnknown
from headway.service import FENCED
from headway.testing import Fault
from tests.helpers.rig import Rig
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
async def test_c5_an_unknown_write_is_settled_before_any_key_is_reconciled(
    autojump_clock: MockClock, setting: Setting, how: str, lands: str
) -> None:
    """Raising the fence fails for a while: no key is reconciled. After it a write that arrives is refused."""
    rig = Rig(autojump_clock, setting=setting, deadline=DEADLINE)
    async with rig.open():
        await rig.write_pool("a")
        await rig.write_pool("b")
        await rig.settle()
        rig.channel.writes(UNKNOWN[how, lands])
        rig.channel.raises(*[Fault.FAILED] * 4)
        await rig.write_member("m", "a")
        await _until_unknown(rig)
        assert ("a" in await rig.summaries()) is (lands == "before")

        before = len(rig.names)
        await rig.write_member("n", "b")
        while not rig.witness.heard(WriteSettled):
            assert len(rig.names) == before
            await trio.sleep(0.01)
        await rig.settle()
        assert await rig.summaries() == {"a": ["m"], "b": ["n"]}

        if lands == "after":
            [late] = await rig.channel.run_late()
            assert late.error is not None
            assert (late.error.message or "").startswith(FENCED)
            assert await rig.summaries() == {"a": ["m"], "b": ["n"]}
        assert len(rig.witness.heard(WriteUnknown)) == len(rig.witness.heard(WriteSettled)) == 1


async def _until_unknown(rig: Rig) -> None:
    with trio.fail_after(60):
        while not rig.witness.heard(WriteUnknown):
            assert not rig.witness.heard(WriteSettled)
            await trio.sleep(0.01)
    # What a write that landed has done is there for everybody by now.
    await rig.quiet()


# --- the same where the network itself does it ---

TIMEOUT = 2.0
"""Of the channel, for the kind "deadline"."""


class Mistreated:
    """An interceptor by which a server mistreats the next write of a controller.

    A call that lands late is kept from its end on the server's side, as one that is still on its way would be.
    """

    def __init__(self, setting: Setting, how: str, lands: str) -> None:
        self._setting, self._how, self._lands = setting, how, lands
        self.armed = False
        self.release, self.landed = trio.Event(), trio.Event()
        self.refusal: GRPCError | None = None

    async def __call__(self, path: str, stream: Any, handler: Callable[[Any], Awaitable[None]]) -> None:
        if not self.armed or not path.endswith("/Write"):
            await handler(stream)
            return
        self.armed = False
        unanswered = _Unanswered(await stream.recv_message())
        if self._lands == "before":
            await handler(unanswered)
        if self._how == "error":
            for connection in list(self._setting.servers[0]._connections):
                connection.give_up()
        if self._lands == "after":
            with trio.CancelScope(shield=True):
                await self.release.wait()
                await self._land(handler, unanswered)
        await trio.sleep_forever()

    async def _land(self, handler: Callable[[Any], Awaitable[None]], unanswered: _Unanswered) -> None:
        try:
            await handler(unanswered)
        except GRPCError as error:
            self.refusal = error
        self.landed.set()


class _Unanswered:
    """A handler's stream whose answer goes nowhere."""

    def __init__(self, request: Any) -> None:
        self.metadata: dict[str, str] = {}
        self._request = request

    async def recv_message(self) -> Any:
        return self._request

    async def send_message(self, message: Any) -> None:
        pass


@pytest.mark.parametrize("setting", OVER_THE_NETWORK, indirect=True)
@pytest.mark.parametrize(("how", "lands"), UNKNOWN)
async def test_c5_what_a_network_leaves_unknown_is_settled(
    autojump_clock: MockClock, setting: Setting, how: str, lands: str
) -> None:
    """The channel's deadline passes, the reconcile's does, or the connection breaks; nothing of it is scripted."""
    server = Mistreated(setting, how, lands)
    setting.interceptors.append(server)
    setting.timeout = TIMEOUT if how == "deadline" else 30.0
    rig = Rig(autojump_clock, setting=setting, deadline=DEADLINE)
    async with rig.open():
        await rig.write_pool("a")
        await rig.settle()
        server.armed = True
        rig.channel.raises(*[Fault.FAILED] * 4)
        await rig.write_member("m", "a")
        await _until_unknown(rig)
        assert ("a" in await rig.summaries()) is (lands == "before")

        before = len(rig.names)
        while not rig.witness.heard(WriteSettled):
            assert len(rig.names) == before
            await trio.sleep(0.01)
        await rig.settle()
        if lands == "after":
            server.release.set()
            await server.landed.wait()
            assert server.refusal is not None
            assert (server.refusal.message or "").startswith(FENCED)
        assert await rig.summaries() == {"a": ["m"]}
        assert len(rig.witness.heard(WriteUnknown)) == len(rig.witness.heard(WriteSettled)) == 1
