"""A channel to the services of this process, without serialization or copies.

A method runs in the caller's own task: there is no task, queue or copy between the two. A unary call simply awaits it.
A stream runs as far as its reader asks for, so a slow reader delays only its own stream, and canceling the reader
cancels the service at its current await.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import Any, TypeVar

from trio.lowlevel import current_trio_token, in_trio_task

from headway.api import (
    Call,
    Channel,
    Code,
    Handler,
    Interrupted,
    Metadata,
    MethodNotFound,
    ProgramFailed,
    answered,
    closed,
)
from headway.base import check_trio, current_run
from headway.errors import HeadwayError
from headway.rpc._channel import Report, ignore_error

Reply = TypeVar("Reply")


class InProcessChannel(Channel):
    """A channel to services in this process. Its errors are the same as over a network.

    Messages are passed without a copy: a caller must not modify a reply, or must copy it first.

    Args:
        services: objects whose ``__mapping__`` returns handlers by path, such as an `Api`.
        report: called with the path and the error when a service raises what it may not raise.
        lasting_leases: True if leases held through this channel don't expire. See `LeaseClient.lasting`.
    """

    knows_outcomes = True

    def __init__(self, *services: Any, report: Report = ignore_error, lasting_leases: bool = False) -> None:
        self.lasting_leases = lasting_leases
        self._handlers: dict[str, Handler] = {}
        for service in services:
            self._handlers.update(service.__mapping__())
        self._report = report
        self._closed = False
        self._home = current_run()

    def close(self) -> None:
        """Close the channel, so that every later call raises Closed."""
        self._closed = True

    async def unary(
        self, path: str, request: object, reply_type: type[Reply], *, metadata: Metadata | None = None
    ) -> Reply:
        """Call a unary method and return its reply."""
        return await self._answer(path, self._handlers.get(path), reply_type, Call(metadata), request)

    def direct(self, path: str) -> Callable[[Call, Any], Awaitable[Any]] | None:
        """Return what answers a unary method, without a look-up for each call; None if it was not found."""
        handler = self._handlers.get(path)
        return None if handler is None else partial(self._answer, path, handler, handler.reply_type)

    def stream(
        self, path: str, request: object, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        """Open a server stream. Its first item is made when it is requested."""
        return _Reader(self, path, request, Call(metadata))

    async def _answer(
        self, path: str, handler: Handler | None, reply_type: type[Reply], call: Call, request: object
    ) -> Reply:
        handler = self._found(path, handler)
        try:
            if handler.admit is None:
                reply = await handler.func(call, request)
            else:
                # A caller may use one `Call` for all requests, and a guard notes in it whom it has admitted.
                call = Call(call.metadata)
                async with handler.admit(call):
                    reply = await handler.func(call, request)
            if not isinstance(reply, reply_type):
                raise TypeError(f"{path} returned {reply!r}, not a {reply_type.__name__}")
        except Exception as error:
            raise self._seen(path, error) from error
        return reply

    def _found(self, path: str, handler: Handler | None) -> Handler:
        """Return the handler. Refuse a call from another run than the channel's, after the end, or of no method."""
        if self._closed:
            raise closed()
        if not in_trio_task() or current_trio_token() is not self._home:
            check_trio("a client of Headway", self._home)
        if handler is None:
            raise self._seen(path, MethodNotFound(f"Method not found: {path}"))
        return handler

    def _seen(self, path: str, error: Exception) -> HeadwayError:
        """Return an error as the caller sees it, and report what is not a refusal."""
        found = answered(error)
        if found is None or isinstance(error, ProgramFailed):
            self._report(path, error.cause if isinstance(error, ProgramFailed) else error)
        # The message of a gRPC server whose service fails in an unexpected way.
        return found or Interrupted(Code.UNKNOWN, "Internal Server Error")


class _Reader:
    """The reader's side of a stream: an async context manager and its own iterator."""

    __slots__ = ("_blocks", "_channel", "_items", "_path", "_request", "call")

    def __init__(self, channel: InProcessChannel, path: str, request: object, call: Call) -> None:
        self._channel, self._path, self._request, self.call = channel, path, request, call
        self._blocks = AsyncExitStack()
        self._items: AsyncIterator[Any] | None = None

    async def __aenter__(self) -> _Reader:
        channel, path = self._channel, self._path
        handler = channel._found(path, channel._handlers.get(path))
        try:
            async with AsyncExitStack() as opening:
                if handler.admit is not None:
                    await opening.enter_async_context(handler.admit(self.call))
                self._items = await opening.enter_async_context(handler.func(self.call, self._request))
                self._blocks = opening.pop_all()
        except Exception as error:
            raise channel._seen(path, error) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        if getattr(self._items, "ag_running", False):
            raise RuntimeError("another task waits for the next item of this stream: cancel it first")
        # The error of the block is the reader's own.
        try:
            await self._blocks.aclose()
        except Exception as error:
            raise self._channel._seen(self._path, error) from error

    def __aiter__(self) -> _Reader:
        return self

    async def __anext__(self) -> Any:
        if self._items is None:
            raise StopAsyncIteration
        try:
            return await self._items.__anext__()
        except StopAsyncIteration:
            raise
        except Exception as error:
            raise self._channel._seen(self._path, error) from error
