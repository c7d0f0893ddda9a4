"""The asyncio loop inside a Trio task that carries grpclib's transports. Nothing of it leaves this room."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol, TypeVar

import trio
import trio_asyncio
from trio_asyncio import _loop

from headway._trio import check_trio

T = TypeVar("T")

# Importing trio-asyncio makes every new loop of the process one that runs Trio inside, also where Trio isn't running. A
# program's own `asyncio.run`, in which Trio may be the guest, then fails. Outside of Trio, asyncio stays what it was,
# in every thread that has not set a policy of its own.
_loop._FakedPolicy.policy = _loop._original_policy


class Loop(Protocol):
    """The part of trio-asyncio's loop (which has no types) that is used here."""

    async def run_aio_coroutine(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run asyncio's coroutine; Trio's cancellation cancels it."""
        ...

    async def synchronize(self) -> None:
        """Wait until every callback that is due has run."""
        ...

    async def create_connection(self, factory: Callable[[], Any], *args: Any, **options: Any) -> tuple[Any, Any]:
        """asyncio's."""
        ...

    async def create_unix_connection(self, factory: Callable[[], Any], *args: Any, **options: Any) -> tuple[Any, Any]:
        """asyncio's."""
        ...

    def _make_socket_transport(self, sock: socket.socket, protocol: Any, *, extra: dict[str, Any]) -> Any:
        """asyncio's. It is private; `connect_accepted_socket` needs a task of asyncio for each connection."""
        ...


class Carrier(NamedTuple):
    """A running loop, and the nursery of the tasks beside it."""

    loop: Loop
    nursery: trio.Nursery


@asynccontextmanager
async def open_carrier(
    report: Callable[[str, BaseException], None], closing: Callable[[Carrier], Awaitable[None]]
) -> AsyncIterator[Carrier]:
    """A loop that runs until the block ends and ``closing``, which must be bounded in time, has returned.

    It is shielded: a cancellation from outside ends the block, and what the block carried then ends in order. An
    error in one of the loop's callbacks is reported and ends nothing else.
    """
    check_trio("headway.rpc")
    ended = trio.Event()
    try:
        async with trio.open_nursery() as outer:
            carrier = await outer.start(_carry, report, ended, closing, name="rpc loop")
            try:
                yield carrier
            finally:
                ended.set()
    except BaseExceptionGroup as group:
        # The block's own error comes out as it went in.
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from group.exceptions[0].__cause__


async def _carry(
    report: Callable[[str, BaseException], None],
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
