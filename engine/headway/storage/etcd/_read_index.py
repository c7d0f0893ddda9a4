"""Requests to etcd that are shared by all tasks that need one at the same time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from headway.errors import HeadwayError, Unavailable


class _Batch:
    """The tasks that share one request."""

    __slots__ = ("done", "failure")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.failure: HeadwayError | None = None


class Confirmations:
    """Shared requests. Each task waits for a request that begins after the task asked for it.

    One request is under way at a time. All tasks that ask during it share the next one. So etcd gets few requests, even
    from many tasks.

    Args:
        nursery: the nursery of the task that makes the requests.
        question: makes the request. All tasks that share it raise its HeadwayErrors.
    """

    def __init__(self, nursery: trio.Nursery, question: Callable[[], Awaitable[None]]) -> None:
        self._nursery = nursery
        self._question = question
        self._next: _Batch | None = None
        self._asking = False

    async def ask(self) -> None:
        """Wait for the answer to a request that begins after this call."""
        batch = self._next
        if batch is None:
            batch = self._next = _Batch()
            if not self._asking:
                self._asking = True
                self._nursery.start_soon(self._run, name="etcd: read the revision")
        await batch.done.wait()
        if batch.failure is not None:
            # Each task raises its own error object, because raising adds a traceback to it.
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
            # Wake all waiting tasks, even after a cancellation.
            self._asking = False
            for left in (batch, self._next):
                if left is not None and not left.done.is_set():
                    left.failure = Unavailable("the store is being closed")
                    left.done.set()
            self._next = None
