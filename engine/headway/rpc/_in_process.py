"""A channel to the services of this process, without serialization or copies.

A handler is a coroutine function that takes a stream and calls `recv_message` and `send_message` on it. Here it runs in
the caller's own task. A unary call simply awaits it. A server stream *drives* it: each `send_message` suspends the
handler and passes the message to the iterating reader, like the `yield` of an async generator. So there is no task,
queue or copy between the two. A slow reader delays only its own handler. Canceling the reader cancels the handler at
its current await.

A streaming handler must therefore not send from inside a nursery or cancel scope that it opened itself.
"""

from __future__ import annotations

import types
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar, cast

from trio.lowlevel import current_trio_token, in_trio_task

from headway.api import Handler, MethodNotFound
from headway.base import check_trio, current_run
from headway.rpc._channel import Channel, ChannelClosed, Metadata, Report, ignore_error
from headway.rpc._refusals import refused
from headway.rpc._told import told

ANSWER = "answer"
"""The attribute of a unary handler that holds a pair: the handler itself, and a function from request to reply.

A wrapper around the handler may copy the attribute. The pair then names another handler than the wrapper, and the
function is not used.
"""

Reply = TypeVar("Reply")


class InProcessChannel(Channel):
    """A channel to services in this process.

    Messages are passed without a copy: a caller must not modify a reply, or must copy it first.

    Args:
        services: objects whose ``__mapping__`` returns handlers by path.
        report: called with the path and the error when a handler raises an unexpected exception.
        lasting_leases: True if leases held through this channel don't expire. See `LeaseClient.lasting`.
    """

    knows_outcomes = True

    def __init__(self, *services: Any, report: Report = ignore_error, lasting_leases: bool = False) -> None:
        self.lasting_leases = lasting_leases
        self._handlers: dict[str, Handler] = {}
        for service in services:
            self._handlers.update(service.__mapping__())
        self._answers: dict[str, Callable[[object], Awaitable[object]]] = {}
        for path, handler in self._handlers.items():
            named, answer = getattr(handler.func, ANSWER, (None, None))
            if answer is not None and named is handler.func:
                self._answers[path] = answer
        self._report = report
        self._closed = False
        self._home = current_run()

    def close(self) -> None:
        """Close the channel, so that every later call raises ChannelClosed.

        The handlers are removed: a call that finds its handler needs no check for a closed channel.
        """
        self._closed = True
        self._handlers.clear()
        self._answers.clear()

    async def unary(
        self, path: str, request: object, reply_type: type[Reply], *, metadata: Metadata | None = None
    ) -> Reply:
        """Call a unary method and return its reply.

        Raises:
            HeadwayError: the call failed. It is the same error as over a network.
        """
        if not in_trio_task() or current_trio_token() is not self._home:
            self._check_run()
        try:
            answer = self._answers.get(path)
            if answer is not None:
                reply = await answer(request)
            else:
                stream = _UnaryStream(request, metadata or {})
                await self._handler(path)(stream)
                reply = stream.sent
            if not isinstance(reply, reply_type):
                raise TypeError(f"{path} sent {reply!r}, not a {reply_type.__name__}")
        except Exception as error:
            raise told(refused(path, error, self._report)) from error
        return reply

    def stream(
        self, path: str, request: object, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        """Open a server stream. The handler starts when the first item is requested.

        Raises:
            NotServed: the method was not found. It is raised on entering the block.
        """
        return _Driven(self, path, _DrivenStream(request, metadata or {}))

    def _check_run(self) -> None:
        """Refuse a call from outside Trio, or from another run than the channel's own: see `check_trio`."""
        if not self._closed:
            check_trio("a client of Headway", self._home)

    def _handler(self, path: str) -> Callable[[Any], Coroutine[Any, Any, None]]:
        handler = self._handlers.get(path)
        if handler is None:
            if self._closed:
                raise ChannelClosed
            raise MethodNotFound(f"Method not found: {path}")
        # Declared as an Awaitable. All are coroutine functions.
        return cast("Callable[[Any], Coroutine[Any, Any, None]]", handler.func)


class _UnaryStream:
    """The stream that a unary handler receives. ``sent`` is the reply."""

    __slots__ = ("metadata", "request", "sent")

    def __init__(self, request: object, metadata: Metadata) -> None:
        self.request = request
        self.metadata = metadata
        self.sent: object = None

    async def recv_message(self) -> object:
        return self.request

    async def send_message(self, message: object) -> None:
        self.sent = message


_SENT = object()
"""The trap by which `send_message` reaches the iterating reader through the coroutine chain."""


class _HandOver:
    """An awaitable that suspends once and yields ``_SENT``. It has no state, so all sends share one instance."""

    def __await__(self) -> Any:
        return iter((_SENT,))


_HAND_OVER = _HandOver()


class _DrivenStream(_UnaryStream):
    """The stream that a streaming handler receives. ``sent`` is the message that the reader has not taken yet."""

    __slots__ = ()

    def send_message(self, message: object) -> Awaitable[None]:  # type: ignore[override]  # no coroutine, for speed
        self.sent = message
        return _HAND_OVER


class _Driven:
    """The reader's side of a driven handler: an async context manager and its own iterator."""

    __slots__ = ("_channel", "_coroutine", "_path", "_stream")

    def __init__(self, channel: InProcessChannel, path: str, stream: _DrivenStream) -> None:
        self._channel, self._path, self._stream = channel, path, stream
        # Created on entry, so that a stream that is never entered leaves no coroutine that was never awaited.
        self._coroutine: Coroutine[Any, Any, None] | None = None

    async def __aenter__(self) -> _Driven:
        self._channel._check_run()
        try:
            self._coroutine = self._channel._handler(self._path)(self._stream)
        except Exception as error:
            raise told(refused(self._path, error, self._channel._report)) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        # Run the handler's own cleanup (GeneratorExit at its send), which must not await anything.
        coroutine, self._coroutine = self._coroutine, None
        if coroutine is not None:
            coroutine.close()

    def __aiter__(self) -> _Driven:
        return self

    # A generator-based coroutine saves one coroutine per item. Every event of every watcher passes through here.
    @types.coroutine
    def __anext__(self) -> Generator[Any, Any, object]:
        """Run the handler up to its next send. Every other trap (a checkpoint, a sleep) is passed on to Trio."""
        coroutine = self._coroutine
        if coroutine is None:
            raise StopAsyncIteration
        try:
            trap = coroutine.send(None)
            while trap is not _SENT:
                try:
                    answer = yield trap
                except BaseException as error:  # whatever Trio throws in must reach the handler
                    if self._coroutine is not coroutine:
                        raise  # Another task has closed the stream.
                    trap = coroutine.throw(error)
                else:
                    if self._coroutine is not coroutine:
                        answer.unwrap()  # Trio sends a cancellation as the outcome of its trap.
                        raise StopIteration
                    trap = coroutine.send(answer)
        except BaseException as error:
            self._coroutine = None
            if isinstance(error, StopIteration):
                raise StopAsyncIteration from None
            if not isinstance(error, Exception):
                raise
            raise told(refused(self._path, error, self._channel._report)) from error
        sent, self._stream.sent = self._stream.sent, None
        return sent
