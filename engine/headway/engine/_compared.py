"""A channel that compares the server's types with the program's before the first call."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

import trio
from grpclib import GRPCError
from grpclib.const import Status

from headway.errors import PayloadError, SchemaMismatch, SchemaProblem
from headway.protobuf import compare_schemas
from headway.queue import Backoff
from headway.resource import ResourceType, describe, is_builtin, type_name, types_pb
from headway.rpc import Channel, ChannelClosed, Metadata, NotBegun, NotGrpc, NotHttp2, timeout_of

Reply = TypeVar("Reply")

_LIST = "/headway.types.v1.TypesService/List"
_SAYS_NOTHING = (Status.UNIMPLEMENTED, Status.PERMISSION_DENIED)
"""The responses of a server without a description of its types, or without one for this caller."""

_PAUSES = Backoff(0.5, 30.0)
"""The delays between requests to a server that does not answer."""


class ComparedChannel:
    """An implementation of `Channel`. The first call asks the server for its types; other calls wait for the answer.

    Every call raises SchemaMismatch if the program and the server would misread each other. If the server cannot be
    asked, the waiting calls fail without having begun, and the next call asks again.
    """

    def __init__(self, inner: Channel, types: Iterable[ResourceType[Any]]) -> None:
        self._inner = inner
        self._types = [type for type in types if not is_builtin(type)]
        self._attempt: _Attempt | None = None
        self._compared = not self._types
        self._problems: list[SchemaProblem] = []
        self._refused = trio.Event()

    @property
    def knows_outcomes(self) -> bool:
        """True if the inner channel knows the outcome of every call."""
        return self._inner.knows_outcomes

    @property
    def timeout(self) -> float:
        """The timeout of the inner channel's calls."""
        return timeout_of(self._inner)

    async def unary(
        self, path: str, request: object, reply_type: type[Reply], *, metadata: Metadata | None = None
    ) -> Reply:
        """Make a call, after the types have been compared."""
        if not self._compared:
            await self._compare(metadata)
        return await self._inner.unary(path, request, reply_type, metadata=metadata)

    def stream(
        self, path: str, request: object, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        """Open a stream, after the types have been compared."""
        if self._compared:
            return self._inner.stream(path, request, metadata=metadata)
        return self._first_stream(path, request, metadata)

    @asynccontextmanager
    async def _first_stream(
        self, path: str, request: object, metadata: Metadata | None
    ) -> AsyncIterator[AsyncIterator[Any]]:
        await self._compare(metadata)
        async with self._inner.stream(path, request, metadata=metadata) as items:
            yield items

    async def wait_refused(self) -> None:
        """Compare the types even if no call is made. Raises SchemaMismatch if they do not fit together.

        A server that cannot be asked is retried without limit.
        """
        failures = 0
        while not self._compared:
            try:
                await self._compare(None)
            except (GRPCError, PayloadError):
                with trio.move_on_after(_PAUSES.delay(failures)):
                    # A call may ask in the meantime.
                    await self._refused.wait()
                failures += 1

    def _mismatch(self) -> SchemaMismatch:
        return SchemaMismatch("the server", self._problems)

    async def _compare(self, metadata: Metadata | None) -> None:
        while not self._compared and not self._refused.is_set():
            attempt = self._attempt
            if attempt is not None:
                await attempt.ended.wait()
                if attempt.error is not None:
                    raise _not_begun(attempt.error)
                continue
            attempt = self._attempt = _Attempt()
            try:
                await self._ask(metadata)
            except GRPCError as error:
                attempt.error = error
                raise _not_begun(error) from error
            finally:
                self._attempt = None
                attempt.ended.set()
        if self._refused.is_set():
            raise self._mismatch()

    async def _ask(self, metadata: Metadata | None) -> None:
        request = types_pb.ListRequest()
        try:
            found = await self._inner.unary(_LIST, request, types_pb.ListResponse, metadata=metadata)
        except GRPCError as error:
            if error.status not in _SAYS_NOTHING or isinstance(error, NotHttp2 | NotGrpc):
                raise
            found = types_pb.ListResponse()
        self._problems = differences(found, self._types)
        if self._problems:
            self._refused.set()
        else:
            self._compared = True


def differences(found: types_pb.ListResponse, types: Iterable[ResourceType[Any]]) -> list[SchemaProblem]:
    """Return the differences through which a program and a server with this description would misread each other.

    Raises PayloadError for an invalid description.
    """
    theirs = {type_name(each.type): each for each in found.types}
    problems: list[SchemaProblem] = []
    try:
        for type in types:
            if type.name in theirs and not is_builtin(type):
                their = types_pb.ListResponse(types=[theirs[type.name]], messages=found.messages, enums=found.enums)
                problems += compare_schemas(their, describe([type]), both_ways=True)
    except (LookupError, RecursionError, ValueError) as error:
        raise PayloadError(f"the server's description of its types can't be read: {error}") from error
    return problems


class _Attempt:
    """A request to the server, and its result for the calls that wait for it."""

    def __init__(self) -> None:
        self.ended = trio.Event()
        self.error: GRPCError | None = None


def _not_begun(error: GRPCError) -> GRPCError:
    """Return the error of a call that waited for the comparison, whose own request was not sent."""
    if isinstance(error, ChannelClosed):
        return ChannelClosed()
    if isinstance(error, NotHttp2 | NotGrpc):
        # These errors describe a server that is not an engine. Each caller raises a copy of its own.
        return copy.copy(error)
    return NotBegun(error.status, error.message, error.details)


def _meets_the_protocol(inner: Channel) -> Channel:
    return ComparedChannel(inner, ())
