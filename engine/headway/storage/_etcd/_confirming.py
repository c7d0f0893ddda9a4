"""Linearizable reads of where the store stands, which those who ask at one time share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from headway.errors import HeadwayError, Unavailable


class _Batch:
    """Those who asked before one read was sent."""

    __slots__ = ("done", "failure", "revision")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.revision = 0
        self.failure: HeadwayError | None = None


class Confirmations:
    """Answers each who asks with a revision that was read after they asked.

    One read is under way at a time; whoever comes meanwhile shares the next one. So many readers cost etcd little.

    Args:
        nursery: of the task that reads.
        read: makes one read. Its HeadwayErrors are what those who share it are told.
    """

    def __init__(self, nursery: trio.Nursery, read: Callable[[], Awaitable[int]]) -> None:
        self._nursery = nursery
        self._read = read
        self._next: _Batch | None = None
        self._reading = False

    async def revision(self) -> int:
        """Where the store stood at some moment since this was called."""
        batch = self._next
        if batch is None:
            batch = self._next = _Batch()
            if not self._reading:
                self._reading = True
                self._nursery.start_soon(self._run, name="etcd: where the store stands")
        await batch.done.wait()
        if batch.failure is not None:
            # Everybody raises an error of their own: a traceback is added to each.
            raise type(batch.failure)(*batch.failure.args) from batch.failure
        return batch.revision

    async def _run(self) -> None:
        batch: _Batch | None = None
        try:
            while self._next is not None:
                batch, self._next = self._next, None
                try:
                    batch.revision = await self._read()
                except HeadwayError as error:
                    batch.failure = error
                batch.done.set()
        finally:
            # When it is cancelled, too, nobody is left waiting.
            self._reading = False
            for left in (batch, self._next):
                if left is not None and not left.done.is_set():
                    left.failure = Unavailable("the store is being closed")
                    left.done.set()
            self._next = None
