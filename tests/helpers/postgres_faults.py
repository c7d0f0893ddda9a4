"""The faults of a PostgreSQL with a replica, in random order, under engines."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

import trio
from typing_extensions import override

from tests.helpers.fault_engines import EngineProcess
from tests.helpers.fault_plan import FaultPlan
from tests.helpers.fault_program import TTL
from tests.helpers.loopback_wires import OUTSIDE
from tests.helpers.postgres_pair import SCHEMA, PostgresPair

_END_ALL = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
)


class PostgresFaults(FaultPlan):
    """Faults of a primary and its synchronous replica: a failover loses nothing that was acknowledged."""

    def __init__(self, pair: PostgresPair, engines: Sequence[EngineProcess], nursery: trio.Nursery, seed: int) -> None:
        super().__init__(engines, nursery, seed)
        self._pair = pair
        self.faults = {
            "kill a backend": self._kill_backend,
            "kill the postmaster": self._kill_postmaster,
            "freeze the server": self._freeze,
            "restart the server": self._restart,
            "end all connections": self._end_connections,
            "cut off the clients": self._cut,
            "reset the connections": self._reset,
            "break a commit": self._break_commit,
            "lose the answer of a commit": self._lose_answer,
            "fail over": self._fail_over,
            "kill an engine": self._kill_engine,
            "stop an engine": self._stop_engine,
        }

    @override
    async def _healthy(self) -> None:
        await self._pair.healthy()

    async def _kill_backend(self) -> None:
        # The postmaster then ends all of them, and recovers.
        if backends := self._pair.primary.backends():
            os.kill(self._random.choice(backends), signal.SIGKILL)

    async def _kill_postmaster(self) -> None:
        await trio.to_thread.run_sync(self._pair.primary.kill)
        await self._last()
        self._pair.primary.start()

    async def _freeze(self) -> None:
        self._pair.primary.pause()
        await trio.sleep(self._random.uniform(0.5, 2.5) * TTL)
        self._pair.primary.resume()

    async def _restart(self) -> None:
        # In a thread, because a process does not end while the wires before it are not served.
        await trio.to_thread.run_sync(self._pair.primary.stop)
        self._pair.primary.start()

    async def _end_connections(self) -> None:
        for _ in range(self._random.randrange(1, 10)):
            self._pair.primary.sql(_END_ALL)
            await trio.sleep(self._random.uniform(0.0, 0.3))

    async def _cut(self) -> None:
        self._pair.wires.cut(self._pair.name(self._pair.primary), OUTSIDE)
        await self._last()
        self._pair.wires.mend()

    async def _reset(self) -> None:
        for _ in range(self._random.randrange(1, 10)):
            self._pair.wires.reset()
            await trio.sleep(self._random.uniform(0.0, 0.3))

    async def _break_commit(self) -> None:
        await self._break(delivered=False)

    async def _lose_answer(self) -> None:
        await self._break(delivered=True)

    async def _break(self, *, delivered: bool) -> None:
        # What each commit sends as a value: the channel of its notification.
        self._pair.wires.break_at(f"headway {SCHEMA}".encode(), delivered=delivered)
        with trio.move_on_after(5):
            await self._pair.wires.broken.wait()

    async def _fail_over(self) -> None:
        await self._pair.fail_over()
