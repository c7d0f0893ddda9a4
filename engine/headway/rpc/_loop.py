"""The asyncio loop, inside a Trio task, that runs grpclib's transports. Only this package uses it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol, TypeVar

import trio
import trio_asyncio
from trio_asyncio import _loop

from headway.base import check_trio
from headway.rpc._channel import Report

T = TypeVar("T")

# Importing trio-asyncio changes asyncio's policy: every new loop in the process becomes a trio-asyncio loop, even
# outside Trio. A program's own `asyncio.run` then fails, even if it runs Trio as a guest. Undo that, so that outside
# Trio asyncio works as before in every thread that has not set its own policy.
_loop._FakedPolicy.policy = _loop._original_policy


class Loop(Protocol):
    """The part of trio-asyncio's untyped loop that is used here."""

    async def run_aio_coroutine(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run an asyncio coroutine. Trio's cancellation cancels it."""
        ...

    async def synchronize(self) -> None:
        """Wait until every callback that is due has run."""
        ...

    async def create_connection(self, factory: Callable[[], Any], *args: Any, **options: Any) -> tuple[Any, Any]:
        """Open a TCP connection, as asyncio's method does."""
        ...

    async def create_unix_connection(self, factory: Callable[[], Any], *args: Any, **options: Any) -> tuple[Any, Any]:
        """Open a connection to a Unix socket, as asyncio's method does."""
        ...


class Carrier(NamedTuple):
    """A running loop, and the nursery for tasks that use it."""

    loop: Loop
    nursery: trio.Nursery


@asynccontextmanager
async def open_carrier(report: Report, closing: Callable[[Carrier], Awaitable[None]]) -> AsyncIterator[Carrier]:
    """Run an asyncio loop until the block has ended and ``closing`` has returned.

    The loop is shielded. Cancellation from outside ends the block, and ``closing`` then shuts the connections down in
    order; it must be bounded in time. An error in one of the loop's callbacks is reported and ends nothing else.
    """
    check_trio("headway.rpc")
    ended = trio.Event()
    try:
        async with trio.open_nursery() as outer:
            # Shielded: under a cancellation, `started` would not return the loop here, and no task would end it.
            with trio.CancelScope(shield=True):
                carrier = await outer.start(_carry, report, ended, closing, name="rpc loop")
            try:
                yield carrier
            finally:
                ended.set()
    except BaseExceptionGroup as group:
        # Raise the block's own error without the group.
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from group.exceptions[0].__cause__


async def _carry(
    report: Report,
    ended: trio.Event,
    closing: Callable[[Carrier], Awaitable[None]],
    *,
    task_status: trio.TaskStatus[Carrier],
) -> None:
    def handle(_: object, context: dict[str, Any]) -> None:
        report("asyncio", context.get("exception") or RuntimeError(str(context.get("message"))))

    with trio.CancelScope(shield=True):
        async with trio_asyncio.open_loop() as loop, trio.open_nursery() as nursery:
            loop.set_exception_handler(handle)
            carrier = Carrier(loop, nursery)
            task_status.started(carrier)
            await ended.wait()
            await closing(carrier)
            nursery.cancel_scope.cancel()
