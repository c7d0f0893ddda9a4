"""A channel that records what passes through it, as the facts of a history."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

from typing_extensions import override

from headway.api import PassingChannel
from headway.client import client_error
from headway.errors import HeadwayError, OutcomeUnknown
from headway.resource import Bookmark, Changes, EndOfSnapshot, Key, Kind, ScopeConfirmed, SnapshotChunk, pb, selected
from headway.rpc import Metadata
from headway.testing.history._facts import (
    BookmarkDelivered,
    ChangesDelivered,
    Fact,
    ReadAnswered,
    SnapshotDelivered,
    SnapshotEnded,
    WatchOpened,
    WriteAnswered,
    WriteSent,
    delivered_change,
    delivered_resource,
    digest_of,
)

Record = Callable[[Fact], object]
"""A function that is called with each fact as it is seen. It must not block."""


class RecordingChannel(PassingChannel):
    """A channel over another one that records its watches, writes and reads as facts.

        history = History()
        channel = RecordingChannel("web-1", history.add)
        async with headway.testing.open_engine("sqlite:staff.db", app, wrap_channel=channel.over) as engine: ...

    Args:
        who: a unique name for this life of this process.
        record: called with each fact: `History.add`, or a function that writes `fact_line` to a file.
        clock: returns seconds, by a clock that all processes of the history share; by default the machine's monotonic
            clock.
    """

    def __init__(self, who: str, record: Record, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._who = who
        self._record = record
        self._clock = clock
        self._watches = 0

    @override
    async def unary(self, path: str, request: Any, reply_type: type[Any], *, metadata: Metadata | None = None) -> Any:
        """Pass a call on, and record it if it is a write or a read."""
        method = path.rpartition("/")[2]
        sent = self._clock()
        if method not in ("Write", "WriteStatus", "Delete", "Read"):
            return await self.inner.unary(path, request, reply_type, metadata=metadata)
        # Taken now, because the service may fill in fields.
        digest = digest_of(request.resource) if method == "Write" else ""
        id = request.resource.id if method == "Write" else request.id
        if method != "Read":
            self._record(WriteSent(self._who, *_place(id), digest))
        try:
            reply = await self.inner.unary(path, request, reply_type, metadata=metadata)
        except HeadwayError as error:
            if method != "Read":
                self._wrote(id, request, sent, self._outcome(error), digest, None)
            raise
        except BaseException:
            if method != "Read":
                self._wrote(id, request, sent, "unknown", digest, None)
            raise
        if method == "Read":
            version = int(reply.resource.version) if reply.resource is not None else 0
            answer = (self._who, *_place(id), (sent, self._clock()), reply.position.revision, version)
            # A read by uid asks for one incarnation and says nothing about another one of the same name.
            if not id.uid:
                self._record(ReadAnswered(*answer))
        else:
            self._wrote(id, request, sent, "acknowledged", digest, reply)
        return reply

    def _outcome(self, error: HeadwayError) -> str:
        raised = client_error(error, write=True, knows_outcomes=self.inner.knows_outcomes)
        return "unknown" if isinstance(raised, OutcomeUnknown) else "refused"

    def _wrote(self, id: pb.Id, request: Any, sent: float, outcome: str, digest: str, reply: Any) -> None:
        fence = None if request.fence is None else (request.fence.controller, request.fence.member, request.fence.term)
        kind, key = _place(id)
        named: str = request.resource.version if hasattr(request, "resource") else request.version
        # A version that is not a number does not come from a store, and the service rejects it.
        expected = int(named) if named.isdecimal() else 0
        write = WriteAnswered(self._who, kind, key, (sent, self._clock()), fence, outcome, digest, expected=expected)
        if reply is not None:
            stored = None if reply.resource is None else delivered_resource(reply.resource)
            if stored is not None:
                # Taken from the store, because the request may have left the tenancy to the server.
                write = write._replace(key=stored.key)
            write = write._replace(revision=reply.position.revision, stored=stored)
        self._record(write)

    @override
    def stream(
        self, path: str, request: Any, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        """Open a stream, and record it if it is a watch.

        A watch by metadata is recorded once the server has confirmed its filter. Its reader accepts nothing before.
        """
        opened = self.inner.stream(path, request, metadata=metadata)
        if path.rpartition("/")[2] != "WatchList":
            return opened
        self._watches += 1
        watch = f"{self._who}.{self._watches}"
        return _RecordedStream(opened, request, watch, self._record, self.inner.knows_outcomes)


class _RecordedStream:
    def __init__(
        self,
        opened: AbstractAsyncContextManager[AsyncIterator[Any]],
        request: pb.WatchListRequest,
        watch: str,
        record: Record,
        knows_outcomes: bool,
    ) -> None:
        self._opened = opened
        self._knows_outcomes = knows_outcomes
        self._request = request
        self._watch = watch
        self._record = record
        self._recorded = False

    @property
    def call(self) -> Any:
        """The call of a stream that may lag, which its reader can ask how far it is. Its answer is an item."""
        return None if self._knows_outcomes else getattr(self._items, "call", None)

    async def __aenter__(self) -> AsyncIterator[Any]:
        self._items = await self._opened.__aenter__()
        if not self._request.metadata_filter:
            self._note_opened()
        return self

    def _note_opened(self, selector: str = "") -> None:
        request, tenancy = self._request, self._request.tenancy or pb.Tenancy()
        type = request.type or pb.Type()
        after = None if request.resume_after is None else request.resume_after.revision
        within = (tenancy.partition, tenancy.namespace, request.name_prefix)
        self._record(WatchOpened(self._watch, (type.group, type.kind), within, after, selected(selector)))
        self._recorded = True

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._opened.__aexit__(kind, error, traceback)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        item = await self._items.__anext__()
        match item:
            case ScopeConfirmed(selector) if not self._recorded and selector == self._request.metadata_filter:
                self._note_opened(selector)
            case _ if not self._recorded:
                pass
            case SnapshotChunk(resources):
                self._record(SnapshotDelivered(self._watch, tuple(map(delivered_resource, resources))))
            case EndOfSnapshot(position):
                self._record(SnapshotEnded(self._watch, position.store_id, position.revision))
            case Changes(changes):
                self._record(ChangesDelivered(self._watch, tuple(map(delivered_change, changes))))
            case Bookmark(position, resumed):
                self._record(BookmarkDelivered(self._watch, position.store_id, position.revision, resumed))
        return item


def _place(id: pb.Id) -> tuple[Kind, Key]:
    type, tenancy = id.type or pb.Type(), id.tenancy or pb.Tenancy()
    return (type.group, type.kind), (tenancy.partition, tenancy.namespace, id.name)
