"""A channel with faulty streams on command, as from a bad network, a lagging replica or a wrong server."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import trio
from grpclib.const import Status
from typing_extensions import override

from headway._gen.headway.lease import v1 as lease_pb
from headway._gen.headway.store import v1 as store_pb
from headway.resource import ANY_VERSIONS, Kind, ResourceType, pb
from headway.rpc import Metadata
from headway.service import POSITION, WATCH_LIST
from headway.testing import Fault, ScriptedChannel
from tests.helpers.faulty_stream import FaultyStream, KindStreams
from tests.helpers.service_errors import failed
from tests.helpers.stream_beginnings import Begins, Unreachable
from tests.helpers.truth import Record

_ENOUGH = 200
"""The maximum number of streams that an engine may open after all faults have ended. A correct engine opens a few."""


class FaultyChannel(ScriptedChannel):
    """A `ScriptedChannel` with faulty streams. A fault belongs to one stream and lasts until the engine leaves it.

    A stream that hangs or lags never recovers, so the engine must leave it. The streams by which a run reads the
    history of deletions have no faults.
    """

    def __init__(self, record: Record, lag_limit: float) -> None:
        super().__init__()
        self.record = record
        self._lag_limit = lag_limit
        # The number of streams that may still be opened; None for any.
        self._left: int | None = None
        self._kinds: dict[Kind, KindStreams] = {}
        # The faults of the next writes of statuses, before those of all writes.
        self._status_faults: deque[Fault] = deque()
        # What happens just before the store raises the next fence of the app's controller.
        self.before_raise: Callable[[], Awaitable[None]] | None = None

    def statuses(self, *faults: Fault) -> None:
        """Apply these faults to the next writes of statuses, one each."""
        self._status_faults.extend(faults)

    def streams(self, type: ResourceType[Any]) -> KindStreams:
        """Return the streams of a type, open and future ones."""
        return self._of_kind(type.kind)

    def begin(self, type: ResourceType[Any], *begins: Begins) -> None:
        """Apply these faults to the beginnings of the type's next streams, one each."""
        self.streams(type).beginnings.extend(begins)

    def end_faults(self) -> None:
        """Let all later calls and streams succeed. Streams that are open keep their faults."""
        self.heal()
        self._status_faults.clear()
        self._left = _ENOUGH
        for streams in self._kinds.values():
            streams.beginnings.clear()
            streams.false_bookmarks = streams.repeats = 0

    def allow_faults(self) -> None:
        """Allow any number of streams again, because further faults follow."""
        self._left = None

    def end_calls(self) -> None:
        """End the calls that are held back: answer the slow ones, and lose those that are late."""
        self.answer_slow()
        self._late.clear()

    def forget(self) -> None:
        """Forget all calls and streams so far, because the store was replaced."""
        self.done.clear()
        self.unknown.clear()
        self.opened.clear()
        self.forget_delivered()
        for streams in self._kinds.values():
            streams.drop()

    def forget_delivered(self) -> None:
        """Forget what the streams have delivered, because no cache has it any more."""
        for streams in self._kinds.values():
            streams.delivered = streams.false_up_to = 0

    def end_process(self) -> None:
        """Forget what the streams of the process have delivered, because the next one begins without it."""
        self.opened.clear()
        self.forget_delivered()
        for streams in self._kinds.values():
            assert not streams.open, f"C10: {len(streams.open)} streams of {streams.kind[1]} are left"
            streams.beginnings.clear()

    def check(self) -> None:
        """Raise AssertionError if a stream lagged for longer than the engine may wait."""
        for kind, streams in self._kinds.items():
            late = streams.longest_below
            assert late <= self._lag_limit + 1, f"a stream of {kind[1]} remained below the frontier for {late:.0f} s"
            # The engine asks the store after half of the limit without an advance, and leaves the stream one limit
            # later at most.
            stuck = streams.longest_stuck
            assert stuck <= 1.5 * self._lag_limit + 1, f"a stream of {kind[1]} brought nothing new for {stuck:.0f} s"

    @override
    def is_honest(self, type: ResourceType[Any]) -> bool:
        return not self.streams(type).false_up_to

    @override
    async def unary(
        self, path: str, request: object, reply_type: type[Any], *, metadata: Metadata | None = None
    ) -> Any:
        if path == POSITION and isinstance(request, store_pb.PositionRequest) and request.type is not None:
            streams = self._of_kind((request.type.group, request.type.kind))
            coming = streams.beginnings
            # An endpoint that serves a stream can be reached. It may otherwise never be left (seed 729194).
            if coming and isinstance(coming[0], Unreachable) and not streams.open:
                raise failed(Status.UNAVAILABLE, "the endpoint refuses the connection")
        before = self.before_raise
        if before is not None and isinstance(request, lease_pb.RaiseRequest) and request.controller.startswith("test/"):
            self.before_raise = None
            await before()
        if self._status_faults and path.endswith("/WriteStatus"):
            self._faults["write"].appendleft(self._status_faults.popleft())
        return await super().unary(path, request, reply_type, metadata=metadata)

    @override
    def stream(self, path: str, request: object, **options: Any) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        if path != WATCH_LIST or not isinstance(request, pb.WatchListRequest) or request.type is None:
            return self._inner.stream(path, request, **options)
        if self._left is not None:
            self._left -= 1
            assert self._left, f"{_ENOUGH} streams were opened after the last fault"
        kind = (request.type.group, request.type.kind)
        after = request.resume_after
        self.opened.append((kind, after is not None))
        if after is not None and after.versions == ANY_VERSIONS:
            return self._inner.stream(path, request, **options)
        streams = self._of_kind(kind)
        begins = streams.beginnings.popleft() if streams.beginnings else None
        return FaultyStream(self._inner, request, self.record, streams, begins)

    def _of_kind(self, kind: Kind) -> KindStreams:
        if kind not in self._kinds:
            self._kinds[kind] = KindStreams(kind, deque(), trio.lowlevel.ParkingLot())
        return self._kinds[kind]
