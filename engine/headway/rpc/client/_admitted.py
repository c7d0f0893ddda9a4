"""New connections of a channel that carry its calls only once something has admitted them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

import trio
from grpclib import GRPCError
from grpclib.const import Status
from typing_extensions import override

from headway.api import Code, Interrupted, Metadata
from headway.rpc._told import told
from headway.rpc._wire import Codec
from headway.rpc.client._call import RemoteCall

Reply = TypeVar("Reply")

OpensCall = Callable[[], AbstractContextManager[RemoteCall]]
"""A function that opens a call on one connection."""


class Admission(Protocol):
    """Decides which of a channel's calls may use a connection."""

    def admits(self, request: object) -> bool:
        """Return True if a call with this request may use the connection at once."""
        ...

    async def admit(self, request: object, metadata: Metadata | None) -> None:
        """Return once this call may use the connection, or raise."""
        ...


class UnaryCalls(Protocol):
    """What an admission may do with a connection: make unary calls on it."""

    async def unary(
        self, path: str, request: object, reply_type: type[Reply], *, metadata: Metadata | None = None
    ) -> Reply:
        """Make a call. Raises HeadwayError."""
        ...


Admits = Callable[[UnaryCalls], Admission]
"""A function that returns the admission of a new connection."""


class OneConnection(UnaryCalls):
    """One connection of a channel, for unary calls. A call that fails is not repeated, since there is no other one."""

    def __init__(self, opens_call: OpensCall, codec: Codec, timeout: float) -> None:
        self._opens_call = opens_call
        self._codec = codec
        self.timeout = timeout

    @override
    async def unary(
        self, path: str, request: object, reply_type: type[Reply], *, metadata: Metadata | None = None
    ) -> Reply:
        body = self._codec.encode(request)
        ends = trio.current_time() + self.timeout
        try:
            with trio.CancelScope(deadline=ends), self._opens_call() as call:
                await call.begin(path, body, metadata, min(ends, trio.current_effective_deadline()))
                return reply_of(self._codec, path, await call.one_message(), reply_type)
        except GRPCError as error:
            raise told(error) from error
        # If the caller's own deadline has passed, this raises Cancelled.
        await trio.lowlevel.checkpoint()
        raise Interrupted(Code.DEADLINE_EXCEEDED, f"{path} timed out after {self.timeout:g} s")


def reply_of(codec: Codec, path: str, body: bytes, reply_type: type[Reply]) -> Reply:
    """Return a decoded reply. Raises GRPCError if it is invalid."""
    try:
        reply: Reply = codec.decode(reply_type, body)
    except ValueError as error:
        raise GRPCError(Status.INTERNAL, f"invalid reply from {path}: {error}") from error
    return reply
