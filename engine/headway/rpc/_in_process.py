"""A channel to grpclib handlers in the same process: nothing is serialised, nothing is copied.

A handler is a coroutine that takes a stream and calls `recv_message` and `send_message` on it. Here it runs in
the caller's own task. A unary call simply awaits it. A server stream *drives* it: each `send_message` suspends
the handler and hands the message to whoever iterates, as an async generator's `yield` would. So there is no
task, no queue and no copy between the two, a slow reader holds up nobody but its own handler, and a cancelled
reader cancels the handler at the very await it stands on.

A handler that streams must therefore not send from inside a nursery or cancel scope that it opened itself.
"""

from __future__ import annotations

import types
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import grpclib
from grpclib.const import Handler, Status

from headway.rpc._channel import Metadata
from headway.rpc._errors import ChannelClosed
from headway.rpc._fault import HandlerFault

ANSWER = "answer"
"""The attribute of a handler of one question and one answer: the handler itself, and the function that answers.

What is wrapped around such a handler may have the attribute, too, but isn't the handler that it names.
"""

Reply = TypeVar("Reply")
Reporter = Callable[[str, BaseException], None]

# What grpclib answers when a handler raises something that is no GRPCError: a caller in the process gets the same.
_UNEXPECTED = "Internal Server Error"


def _ignore(path: str, error: BaseException) -> None:
    """Report to nobody."""


class InProcessChannel:
    """Calls the handlers of ``services`` (objects with grpclib's ``__mapping__``).

    What a handler sends is handed over as it is: callers must not change it, or must copy it first.
    ``report(path, error)`` hears of handlers that raised something unexpected. ``lasting_leases``: see `LeaseClient`.
    """

    knows_outcomes = True

    def __init__(self, *services: Any, report: Reporter = _ignore, lasting_leases: bool = False) -> None:
        self.lasting_leases = lasting_leases
        self._handlers: dict[str, Handler] = {}
        for service in services:
            self._handlers.update(service.__mapping__())
        self._answers = {path: answer for path, handler in self._handlers.items() if (answer := _answer_of(handler))}
        self._report = report
        self._closed = False

    def close(self) -> None:
        """Make every later call fail with ChannelClosed. No call asks: it finds no handler any more."""
        self._closed = True
        self._handlers.clear()
        self._answers.clear()

    async def unary(
        self, path: str, request: object, reply_type: type[Reply], *, metadata: Metadata | None = None
    ) -> Reply:
        """Call a unary method. Raises GRPCError with the status and message that the wire would carry."""
        try:
            if path in self._answers:
                reply = await self._answers[path](request)
            else:
                stream = _UnaryStream(request, metadata or {})
                await self._handler(path)(stream)
                reply = stream.reply
            if not isinstance(reply, reply_type):
                raise TypeError(f"{path} sent {reply!r}, not a {reply_type.__name__}")
        except grpclib.GRPCError as error:
            if isinstance(error, HandlerFault):
                self._report(path, error.cause)
            raise
        except Exception as error:
            raise self._unexpected(path, error) from error
        return reply

    def stream(
        self, path: str, request: object, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        """Open a server stream; the handler starts at the first item asked for.

        Entering the block raises GRPCError when there is no such method.
        """
        stream = _DrivenStream(request, metadata or {})
        return _Driven(stream, lambda: self._handler(path)(stream), lambda error: self._unexpected(path, error))

    def _handler(self, path: str) -> Callable[[Any], Coroutine[Any, Any, None]]:
        handler = self._handlers.get(path)
        if handler is None:
            if self._closed:
                raise ChannelClosed
            raise grpclib.GRPCError(Status.UNIMPLEMENTED, f"Method not found: {path}")
        # grpclib's type says Awaitable; what its generated services have there are coroutine functions.
        function: Callable[[Any], Coroutine[Any, Any, None]] = handler.func
        return function

    def _unexpected(self, path: str, error: BaseException) -> grpclib.GRPCError:
        self._report(path, error)
        return grpclib.GRPCError(Status.UNKNOWN, _UNEXPECTED)


def _answer_of(handler: Handler) -> Callable[[object], Awaitable[object]] | None:
    """What answers without a stream, if anything does."""
    named, answer = getattr(handler.func, ANSWER, (None, None))
    return answer if named is handler.func else None


class _UnaryStream:
    """What a unary handler is given."""

    __slots__ = ("metadata", "reply", "request")

    def __init__(self, request: object, metadata: Metadata) -> None:
        self.request = request
        self.metadata = metadata
        self.reply: object = None

    async def recv_message(self) -> object:
        return self.request

    async def send_message(self, message: object) -> None:
        self.reply = message


_SENT = object()
"""The trap by which `send_message` reaches the iterating reader through the coroutine chain."""


class _HandOver:
    """An await that suspends once, with that trap; one for all sends, as a tuple's iterator is all it takes."""

    def __await__(self) -> Any:
        return iter((_SENT,))


_HAND_OVER = _HandOver()


class _DrivenStream:
    """What a streaming handler is given. ``sent`` is what it sends while the reader has not taken it."""

    __slots__ = ("metadata", "request", "sent")

    def __init__(self, request: object, metadata: Metadata) -> None:
        self.request = request
        self.metadata = metadata
        self.sent: object = None

    async def recv_message(self) -> object:
        return self.request

    def send_message(self, message: object) -> Awaitable[None]:
        self.sent = message
        return _HAND_OVER


class _Driven:
    """The reader's side of a driven handler: an async context manager that is its own iterator."""

    def __init__(
        self,
        stream: _DrivenStream,
        call: Callable[[], Coroutine[Any, Any, None]],
        unexpected: Callable[[BaseException], grpclib.GRPCError],
    ) -> None:
        self._stream = stream
        self._call = call
        self._unexpected = unexpected
        # Made on entry, so that a stream that is never entered leaves no coroutine behind.
        self._coroutine: Coroutine[Any, Any, None] | None = None

    async def __aenter__(self) -> _Driven:
        self._coroutine = self._call()
        return self

    async def __aexit__(self, *_: object) -> None:
        # Runs the handler's own clean-up (GeneratorExit at its send), which must not await anything.
        coroutine, self._coroutine = self._coroutine, None
        if coroutine is not None:
            coroutine.close()

    def __aiter__(self) -> _Driven:
        return self

    # Not one coroutine around another: every event of every watcher comes through here.
    @types.coroutine
    def __anext__(self) -> Generator[Any, Any, object]:
        """Run the handler up to its next send; every other trap (a checkpoint, a sleep) goes on to Trio."""
        coroutine = self._coroutine
        if coroutine is None:
            raise StopAsyncIteration
        try:
            trap = coroutine.send(None)
            while trap is not _SENT:
                try:
                    answer = yield trap
                except BaseException as error:  # noqa: BLE001  # whatever Trio throws in is the handler's to see
                    trap = coroutine.throw(error)
                else:
                    trap = coroutine.send(answer)
        except BaseException as error:
            self._coroutine = None
            if isinstance(error, StopIteration):
                raise StopAsyncIteration from None
            if isinstance(error, HandlerFault):
                self._unexpected(error.cause)
            if isinstance(error, grpclib.GRPCError) or not isinstance(error, Exception):
                raise
            raise self._unexpected(error) from error
        sent, self._stream.sent = self._stream.sent, None
        return sent
