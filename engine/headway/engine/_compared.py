"""The comparison of the servers' types with the program's, before the first call on each connection."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import trio
from grpclib import GRPCError
from grpclib.const import Status

from headway.errors import PayloadError, SchemaMismatch, SchemaProblem
from headway.protobuf import compare_schemas
from headway.queue import Backoff
from headway.resource import ResourceType, described, is_builtin, type_name, types_pb
from headway.rpc import Channel, ChannelClosed, Limited, Metadata, NotBegun, NotGrpc, NotHttp2

if TYPE_CHECKING:
    from headway.rpc import Admits, UnaryCalls

_LIST = "/headway.types.v1.TypesService/List"
_SAYS_NOTHING = (Status.UNIMPLEMENTED, Status.PERMISSION_DENIED)
"""The responses of a server without a description of its types, or without one for this caller."""

_PAUSES = Backoff(0.5, 30.0)
"""The delays between requests to a server that does not answer."""


class Comparison:
    """The comparison of a program's types with those of the servers of a channel, which are asked for them.

    Each new connection is compared before its first call: since the last one, the server may have been restarted with
    another program, or it may be another server. Calls on the same connection cost nothing.
    """

    def __init__(self, types: Iterable[ResourceType[Any]]) -> None:
        self.types = [type for type in types if not is_builtin(type)]
        self._problems: list[SchemaProblem] = []
        self._refused = trio.Event()

    def __call__(self, connection: UnaryCalls) -> ComparedConnection:
        """Return the admission of a new connection."""
        return ComparedConnection(self, connection)

    def refuse(self, problems: list[SchemaProblem]) -> None:
        """End `wait_refused`, because a server and the program would misread each other."""
        self._problems = problems
        self._refused.set()

    async def wait_refused(self, channel: Channel) -> None:
        """Make a first call. Raise SchemaMismatch once a connection of the channel was refused.

        A server that cannot be asked is retried without limit. Return at once if there is nothing to compare.
        """
        if not self.types:
            return
        failures = 0
        while not self._refused.is_set():
            try:
                # Any call will do, because the comparison comes before it.
                await channel.unary(_LIST, types_pb.ListRequest(), types_pb.ListResponse)
            except (GRPCError, PayloadError) as error:
                if _says_nothing(error):
                    break
                with trio.move_on_after(_PAUSES.delay(failures)):
                    # A call may ask in the meantime.
                    await self._refused.wait()
                failures += 1
            else:
                break
        await self._refused.wait()
        raise SchemaMismatch("the server", self._problems)


class ComparedConnection:
    """A connection that admits calls if its server and the program read each other's resources alike.

    The first call asks the server for its types, and other calls wait for the answer. Every call raises SchemaMismatch
    if the two would misread each other. If the server cannot be asked, the waiting calls fail without having begun, and
    the next call asks again.
    """

    def __init__(self, comparison: Comparison, connection: UnaryCalls) -> None:
        self._comparison = comparison
        self._connection = connection
        self._attempt: _Attempt | None = None
        self._problems: list[SchemaProblem] = []
        self.admitted = not comparison.types

    async def admit(self, metadata: Metadata | None) -> None:
        """Return once the types were compared. Raise SchemaMismatch if they do not fit together."""
        while not self.admitted and not self._problems:
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
        if self._problems:
            raise SchemaMismatch("the server", self._problems)

    async def _ask(self, metadata: Metadata | None) -> None:
        request = types_pb.ListRequest()
        try:
            found = await self._connection.unary(_LIST, request, types_pb.ListResponse, metadata=metadata)
        except GRPCError as error:
            if not _says_nothing(error):
                raise
            found = types_pb.ListResponse()
        self._problems = differences(found, self._comparison.types)
        if self._problems:
            self._comparison.refuse(self._problems)
        else:
            self.admitted = True


def _says_nothing(error: Exception) -> bool:
    if not isinstance(error, GRPCError) or isinstance(error, NotHttp2 | NotGrpc):
        return False
    return error.status in _SAYS_NOTHING


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
                problems += compare_schemas(their, described(type), both_ways=True)
    except (LookupError, ValueError) as error:
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
    if isinstance(error, NotHttp2 | NotGrpc | Limited):
        # These errors describe a server that is not an engine, or say when to repeat the call. Each caller raises a
        # copy of its own.
        return copy.copy(error)
    return NotBegun(error.status, error.message, error.details)


def _meets_the_protocol(comparison: Comparison) -> Admits:
    return comparison
