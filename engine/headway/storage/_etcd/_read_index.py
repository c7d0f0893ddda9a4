"""Questions to etcd which those who ask at one time share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from headway.errors import HeadwayError, Unavailable


class _Batch:
    """Those who asked before one question was put."""

    __slots__ = ("done", "failure")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.failure: HeadwayError | None = None


class Confirmations:
    """Puts a question for each who asks, after they asked.

    One is under way at a time; whoever comes meanwhile shares the next one. So many who ask cost etcd little.

    Args:
        nursery: of the task that asks.
        question: is put; its HeadwayErrors are what those who share it are told.
    """

    def __init__(self, nursery: trio.Nursery, question: Callable[[], Awaitable[None]]) -> None:
        self._nursery = nursery
        self._question = question
        self._next: _Batch | None = None
        self._asking = False

    async def ask(self) -> None:
        """Return when a question was answered that was put after this was called."""
        batch = self._next
        if batch is None:
            batch = self._next = _Batch()
            if not self._asking:
                self._asking = True
                self._nursery.start_soon(self._run, name="etcd: where the store stands")
        await batch.done.wait()
        if batch.failure is not None:
            # Everybody raises an error of their own: a traceback is added to each.
            raise type(batch.failure)(*batch.failure.args) from batch.failure

    async def _run(self) -> None:
        batch: _Batch | None = None
        try:
            while self._next is not None:
                batch, self._next = self._next, None
                try:
                    await self._question()
                except HeadwayError as error:
                    batch.failure = error
                batch.done.set()
        finally:
            # When it is cancelled, too, nobody is left waiting.
            self._asking = False
            for left in (batch, self._next):
                if left is not None and not left.done.is_set():
                    left.failure = Unavailable("the store is being closed")
                    left.done.set()
            self._next = None
