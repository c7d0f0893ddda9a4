"""A call of the service for a request over HTTP, with deadlines."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import trio
from typing_extensions import override

from headway.api import Call, DeadlineExceeded, Handler, MethodNotFound, ProgramFailed
from headway.errors import HeadwayError, Unavailable
from headway.http._bounds import UNREAD, HeldReply
from headway.protobuf import decode
from headway.resource import pb
from headway.rpc import Encoded, Services

Requested = Callable[[], Awaitable[Any]]
"""A function that makes the request's message. A guard calls it only after it has authenticated the caller."""
Failed = Callable[[str, BaseException], None]
"""A function that is called with a method or path and the unexpected error of its handler."""
Sent = Callable[[Any], Awaitable[None]]


class Caller:
    """The origin of a request: its metadata, such as a token, and its address.

    Attributes:
        metadata: the headers that the service knows, by lower-case name.
        address: the host and the port; None if the connection is lost already.
        called: the method and the path of the request, for reports.
    """

    def __init__(self, metadata: Mapping[str, str], address: tuple[str, int] | None, called: str = "") -> None:
        self.called = called
        self.metadata = metadata
        self.address = address

    def addr(self) -> tuple[str, int]:
        """Return the address, as the peers of calls over gRPC do."""
        return self.address or ("", 0)


class ServedCall(Call):
    """A call for a request over HTTP. Requests and replies are passed as they are, except for lists.

    A list takes less memory encoded, and is limited as over gRPC.

    Args:
        requested: makes the request's message.
        hold: sets the number of bytes of the answer that are held; it may end the call.
        announced: a message with what is known before the request is received, such as the id in its path; or None. It
            has the request's type, partition and namespace as far as they are known, and limits count the call by
            them.
    """

    encodes = True

    def __init__(
        self, caller: Caller, requested: Requested, hold: Callable[[int], None], announced: Any = None
    ) -> None:
        super().__init__(caller.metadata)
        self.peer, self.called = caller, caller.called
        self.announced = announced
        self._requested = requested
        self._hold = hold
        self._scope = trio.CancelScope()
        self._error: HeadwayError | None = None

    @override
    def hold(self, size: int) -> None:
        self._hold(size)

    @override
    def end_after(self, seconds: float, error: HeadwayError) -> None:
        at = trio.current_time() + seconds
        if at < self._scope.deadline:
            self._error = error
            self._scope.deadline = at

    async def run(self, services: Services, path: str, failed: Failed, sent: Sent) -> None:
        """Call a method, and pass each of its replies to ``sent``.

        Raises:
            HttpRefusal: the request has no valid message.
            HeadwayError: the service refused the request, or the call was ended.
        """
        handler = services.handler(path)
        if handler is None:
            raise MethodNotFound(f"Method not found: {path}")
        try:
            with self._scope:
                async with nullcontext() if handler.admit is None else handler.admit(self):
                    await self._answer(handler, sent)
        except ProgramFailed as error:
            failed(path, error.cause)
            raise
        if self._scope.cancelled_caught:
            assert self._error is not None
            raise self._error

    async def _answer(self, handler: Handler, sent: Sent) -> None:
        request = await self._received()
        if handler.cardinality.server_streaming:
            async with handler.func(self, request) as items:
                async for item in items:
                    await sent(item)
        else:
            await sent(await handler.func(self, request))

    async def _received(self) -> Any:
        # The time for the request to arrive doesn't count as the service's.
        deadline, self._scope.deadline = self._scope.deadline, math.inf
        began = trio.current_time()
        request = await self._requested()
        self._scope.deadline = min(self._scope.deadline, deadline + trio.current_time() - began)
        return request


async def unary(
    services: Services,
    path: str,
    caller: Caller,
    requested: Requested,
    failed: Failed,
    *,
    timeout: float,
    reply: HeldReply,
    announced: Any = None,
) -> Any:
    """Call a unary method and return its reply, which is shared and must not be changed. A list is `Encoded`.

    Raises:
        HeadwayError: the service refused the request.
        DeadlineExceeded: it did not answer within ``timeout`` seconds.
        Unavailable: unread answers take too much memory.
    """
    replies: list[Any] = []

    async def keep(message: Any) -> None:
        replies.append(message)

    call = ServedCall(caller, requested, reply.hold, announced)
    call.end_after(timeout, DeadlineExceeded(f"the server did not answer within {timeout:g} s"))
    # A request may make several calls, and goes on after each.
    before, reply.end = reply.end, partial(call.end_after, 0, Unavailable(UNREAD))
    try:
        await call.run(services, path, failed, keep)
    finally:
        reply.end = before
    if reply.dropped:
        raise Unavailable(UNREAD)
    return replies[0]


def resources_in(reply: Encoded | pb.ListResponse | pb.ListByOwnerResponse) -> Iterator[pb.Resource]:
    """Return the resources of a list. Each encoded piece is decoded when its first one is requested."""
    if not isinstance(reply, Encoded):
        yield from reply.resources
        return
    for piece in reply.pieces[1:-1]:
        yield from decode(pb.ListResponse, piece).resources
