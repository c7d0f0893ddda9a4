"""The comparison of the servers' types and topics with the program's, before the calls that use them."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

import trio

from headway.api import Call, Code, Interrupted, NotBegun, NotServed, TypesApi, code_of
from headway.errors import HeadwayError, PayloadError, SchemaMismatch, SchemaProblem
from headway.queue import Backoff
from headway.resource import ResourceType, TypeName, is_builtin, pb, type_name, types_pb
from headway.rpc import Channel, Metadata
from headway.subscription import Topic
from headway.versions._differences import differences

if TYPE_CHECKING:
    from headway.rpc import Admits, UnaryCalls

_LIST = "/headway.types.v1.TypesService/List"
_PAUSES = Backoff(0.5, 30.0)
"""The delays between requests to a server that does not answer."""


class Comparison:
    """The comparison of a program's types and topics with those of the servers of a channel, which are asked for them.

    Each new connection is compared before its first call: since the last one, the server may have been restarted with
    another program, or it may be another server. Later calls on the same connection cost nothing, unless they use a
    type or topic that was not described to an earlier caller.
    """

    def __init__(self, types: Iterable[ResourceType[Any]], topics: Iterable[Topic[Any]] = ()) -> None:
        self.types = [type for type in types if not is_builtin(type)]
        self.topics = [topic.described() for topic in topics]
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
        if not self.types and not self.topics:
            return
        failures = 0
        while not self._refused.is_set():
            try:
                # Any call will do, because the comparison comes before it.
                await TypesApi.over(channel).list(Call(), types_pb.ListRequest())
            except HeadwayError as error:
                if code_of(error) is None and not isinstance(error, PayloadError):
                    raise
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
    """A connection that admits calls if its server and the program read each other's resources and events alike.

    The first call asks the server for its types, and other calls wait for the answer. They raise SchemaMismatch if the
    two would misread each other, and the next call asks again: behind a proxy, another server may answer on the same
    connection. If the server cannot be asked, the waiting calls fail without having begun, and the next asks again.

    A server does not describe a type or topic to a caller without rights to it. Another token may have such rights, and
    the rights may change. So a call that uses one which was not described yet asks again first. The server refuses such
    calls for as long as it does not describe it. So only refused calls cost more, and those of ListByOwner, whose
    answer may contain any type.
    """

    def __init__(self, comparison: Comparison, connection: UnaryCalls) -> None:
        self._comparison = comparison
        self._connection = connection
        self._attempt: _Attempt | None = None
        self._problems: list[SchemaProblem] = []
        # True once the server was asked. Until then no call is admitted, whatever it uses.
        self._asked = False
        # The types and topics that were not compared on this connection yet.
        self._types = {each.name: each for each in comparison.types}
        self._topics = {each.name: each for each in comparison.topics}

    def admits(self, request: object) -> bool:
        """Return True if everything that a call with this request may use was compared, and all of it fits together."""
        if not self._types and not self._topics:
            return True
        return self._asked and not self._problems and not _uses_any(request, self._types, self._topics)

    async def admit(self, request: object, metadata: Metadata | None) -> None:
        """Return once what this caller may know was compared. Raise SchemaMismatch if it does not fit."""
        answered = False
        while not answered and not self.admits(request):
            attempt = self._attempt
            if attempt is not None:
                await attempt.ended.wait()
                if attempt.error is not None:
                    raise _not_begun(attempt.error)
                # The answer to another caller may describe other types and topics.
                answered = attempt.answered and attempt.metadata == dict(metadata or {})
                continue
            # Copied, because the caller may change the token in it for its next call.
            attempt = self._attempt = _Attempt(dict(metadata or {}))
            try:
                await self._ask(attempt.metadata)
                answered = attempt.answered = True
            except HeadwayError as error:
                if code_of(error) is None:
                    raise
                attempt.error = error
                raise _not_begun(error) from error
            finally:
                self._attempt = None
                attempt.ended.set()
        if self._problems:
            raise SchemaMismatch("the server", self._problems)

    async def _ask(self, metadata: Metadata) -> None:
        request = types_pb.ListRequest()
        try:
            found = await self._connection.unary(_LIST, request, types_pb.ListResponse, metadata=metadata)
        except HeadwayError as error:
            if not _says_nothing(error):
                raise
            if isinstance(error, NotServed):
                # This server describes its types and topics to no caller.
                self._types.clear()
                self._topics.clear()
            found = types_pb.ListResponse()
        self._problems = differences(found, self._types.values(), self._topics.values())
        if self._problems:
            self._comparison.refuse(self._problems)
            return
        self._asked = True
        for each in found.types:
            self._types.pop(type_name(each.type), None)
        for topic in found.topics:
            self._topics.pop(topic.name, None)


def _uses_any(request: Any, types: Collection[TypeName], topics: Collection[str]) -> bool:
    """Return True if a request, or the answer to it, may contain resources of these types or events of these topics."""
    if isinstance(request, pb.ListByOwnerRequest):
        # The owned resources may be of any type.
        return bool(types)
    holder = getattr(request, "resource", None) or request
    about = getattr(holder, "id", None) or request
    return any(
        type_name(getattr(each, "type", None)) in types or getattr(each, "topic", None) in topics
        for each in (about, *getattr(request, "subjects", ()))
    )


def _says_nothing(error: HeadwayError) -> bool:
    return isinstance(error, NotServed) or code_of(error) is Code.PERMISSION_DENIED


class _Attempt:
    """A request to the server, and its result for the calls that wait for it."""

    def __init__(self, metadata: Metadata) -> None:
        self.metadata = metadata
        self.ended = trio.Event()
        self.answered = False
        self.error: HeadwayError | None = None


def _not_begun(error: HeadwayError) -> HeadwayError:
    """Return the error of a call that waited for the comparison, whose own request was not sent."""
    if isinstance(error, Interrupted):
        return NotBegun(error.args[0], str(error))
    # Each caller raises a copy of its own.
    return copy.copy(error)


def _meets_the_protocol(comparison: Comparison) -> Admits:
    return comparison
