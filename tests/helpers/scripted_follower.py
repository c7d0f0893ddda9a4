"""A follower of teams over a scripted channel, under virtual time."""

from __future__ import annotations

from itertools import pairwise

import trio
import trio.testing
from grpclib.const import Status

from headway.cache import Informer
from headway.errors import StoreChanged, StoreRolledBack
from headway.events import StreamOpened
from headway.informers import Follower
from headway.resource import Position
from tests.helpers.resources import TEAM, at, key
from tests.helpers.scripted_channel import Line, ScriptedChannel
from tests.helpers.service_errors import failed

LAG_LIMIT = 30.0
GONE = failed(Status.OUT_OF_RANGE, "history is gone")
NOT_OURS = failed(Status.DATA_LOSS, "that position is not one of this store's")
DOWN = failed(Status.UNAVAILABLE, "down")


def down(times: int) -> list[list[Line]]:
    return [[DOWN] for _ in range(times)]


async def never(_: Informer) -> StoreChanged:
    """Wait for another store, which these tests never have."""
    await trio.sleep_forever()
    raise AssertionError("unreachable")


class Following:
    """A follower, its scripted channel, and a record of its events."""

    def __init__(
        self, *scripts: list[Line], store: Position | Exception | None = None, lost: Position | None = None
    ) -> None:
        self.events: list[object] = []
        self.channel = ScriptedChannel(scripts)
        self.informer = Informer(TEAM, self.events.append)
        self._store = at(1000) if store is None else store
        # A position that the store reports as lost.
        self._lost = lost
        self.linearizable_reads = 0
        self.answer_after_first_opening: Position | None = None
        # The position of a reply that comes in the tenth second.
        self.answer_late: Position | None = None

    def follow(self, seconds: float = 1000.0) -> None:
        """Follow for ``seconds`` of virtual time, or until the follower raises."""
        follower = Follower(
            self.channel, self.informer, self._record, self._linearizable, LAG_LIMIT, another_store=never
        )

        async def until_then() -> None:
            trio.lowlevel.spawn_system_task(self._answer_late)
            with trio.move_on_after(seconds):
                await follower.run()

        try:
            trio.run(until_then, clock=trio.testing.MockClock(autojump_threshold=0))
        finally:
            assert self.channel.open == 0

    async def _answer_late(self) -> None:
        if self.answer_late is not None:
            await trio.sleep(10)
            self.informer.reply(key("ada"), None, self.answer_late)

    def _record(self, event: object) -> None:
        self.events.append(event)
        if isinstance(event, StreamOpened) and self.answer_after_first_opening is not None:
            self.informer.reply(key("ada"), None, self.answer_after_first_opening)

    async def _linearizable(self, known: Position | None) -> Position:
        self.linearizable_reads += 1
        await trio.lowlevel.checkpoint()
        if known is not None and known == self._lost:
            raise StoreRolledBack(f"it has lost {known}")
        if isinstance(self._store, Exception):
            raise self._store
        return self._store

    @property
    def resumed(self) -> list[int | None]:
        """For each stream, the revision to resume after."""
        return [None if each.resume_after is None else each.resume_after.revision for each in self.channel.openings]

    @property
    def known(self) -> list[int | None]:
        """For each stream, the revision of its `known` position, if the request had one."""
        return [None if each.known is None else each.known.revision for each in self.channel.openings]

    @property
    def waits(self) -> list[float]:
        """The seconds between consecutive openings."""
        return [after.time - before.time for before, after in pairwise(self.channel.openings)]

    def count(self, event: type) -> int:
        return sum(isinstance(each, event) for each in self.events)
