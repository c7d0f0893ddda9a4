"""The streams of one process: whether it may have any, and the state of each peering's stream."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import trio

from headway._gen.headway.peering import v1 as wire
from headway.base import Bucket
from headway.errors import Closed
from headway.peering.stream import Copying
from headway.resource import Resource

ACCEPT_KEY = "acceptSession"
"""The metadata key of a Peering by which an operator accepts that the other store was rolled back.

Its value is the session that the condition `COPIED` names.
"""


_OPENED = 10
"""The number of streams that a dialer may open at once, and then one a second."""


class StreamEnded(Exception):
    """A stream has ended, for a reason that the condition `CONNECTED` shows.

    Attributes:
        reason: one word.
        hostile: True if the peer has broken the protocol, so that it is reported and dialed rarely.
    """

    def __init__(self, reason: str, text: str, *, hostile: bool = False) -> None:
        super().__init__(text)
        self.reason = reason
        self.hostile = hostile


NOT_LEADING, REPLACED, CLOSED, SILENT, BREACH, STORE, TERMINATED, DELETED, REFUSED, UNREACHABLE, INVALID_EXPORTS = (
    *("NotLeading", "Replaced", "Closed", "Silent", "ProtocolViolated", "StoreFailed", "Terminated", "Deleted"),
    *("Refused", "Unreachable", "ExportsInvalid"),
)
"""The reasons of a `StreamEnded`."""


class Progress(NamedTuple):
    """The state of a stream, for the conditions of its Peering."""

    copying: Copying
    held: str
    exports_refused: tuple[str, ...]
    resources_refused: tuple[str, ...]
    refusals: tuple[str, ...]
    replaced: int
    source_problem: str


class Entry:
    """A peering in the process that leads.

    Attributes:
        peering: the newest state of the Peering.
        connected: True while a stream is open.
        ended: why the last stream has ended; None before one has.
        progress: the state of the last stream; None before one has begun.
        terminated: True once the other side has said that it deleted its peering.
        leaving: True once this Peering is being deleted. Streams are then opened only to notify the other side.
        notified: True once the other side knows of the deletion, or no longer accepts the secret of the peering.
        replaced: the number of times that the other store was replaced by another one.
        changed: set whenever the Peering changes.
        loaded: True once a stream has begun to receive the first copy.
        opening: bounds the streams that the dialer opens. Each of them reads all copies.
    """

    def __init__(self, peering: Resource[wire.Peering], enqueue: Callable[[], None]) -> None:
        self.peering = peering
        self.connected = False
        self.ended: StreamEnded | None = None
        self.progress: Progress | None = None
        self.terminated = False
        self.leaving = False
        self.notified = False
        self.loaded = False
        self.changed = trio.Event()
        self.opening = Bucket(_OPENED, 1.0, 0.0)
        self._enqueue = enqueue
        self._closed: StreamEnded | None = None
        self._end: Callable[[StreamEnded], None] | None = None
        self._tell: Callable[[], None] | None = None
        self._free = trio.Event()
        self._free.set()

    def update(self, peering: Resource[wire.Peering]) -> None:
        """Set the newest state of the Peering."""
        before, self.peering = self.peering, peering
        if before.data != peering.data or before.metadata != peering.metadata:
            self.changed.set()
            self.changed = trio.Event()

    def note(self) -> None:
        """Wake the task that writes the conditions."""
        # A stream may end after the run of the controller. The next run reconciles every peering.
        with suppress(Closed):
            self._enqueue()

    async def begin(self, end: Callable[[StreamEnded], None], tell: Callable[[], None]) -> None:
        """Take the place of the peering's only stream. An earlier stream ends first.

        Args:
            end: ends the new stream.
            tell: makes the new stream send Terminated and then end.

        Raises:
            StreamEnded: the entry was closed.
        """
        while self._end is not None:
            self._end(StreamEnded(REPLACED, "a newer stream of this peering was opened"))
            await self._free.wait()
        if self._closed is not None:
            raise self._closed
        self._end, self._tell = end, tell
        self._free = trio.Event()
        self.connected, self.ended = True, None
        if self.leaving:
            # The deletion has begun while this stream was being opened.
            tell()
        self.note()

    def finish(self, ended: StreamEnded | None) -> None:
        """Leave the place of the peering's only stream."""
        self._end = self._tell = None
        self._free.set()
        self.connected, self.ended = False, ended
        self.note()

    def end(self, ended: StreamEnded) -> None:
        """End the stream, if there is one."""
        if self._end is not None:
            self._end(ended)

    def close(self, ended: StreamEnded) -> None:
        """End the stream, and let no other begin: one may still be loading the copies."""
        self._closed = ended
        self.end(ended)

    async def terminate(self) -> None:
        """Have the stream send Terminated, if there is one, and wait for its end."""
        self.leaving = True
        self.changed.set()
        self.changed = trio.Event()
        if self._tell is not None:
            self._tell()
            await self._free.wait()


class PeerStreams:
    """The peerings of the process that leads; none in other processes.

    Attributes:
        leading: True while this process may have streams.
        entries: the entries by the uid of the Peering.
    """

    def __init__(self) -> None:
        self.leading = False
        self.entries: dict[str, Entry] = {}

    def lead(self) -> None:
        """Begin to lead."""
        self.leading = True

    def resign(self) -> None:
        """End all streams, because another process may lead now."""
        self.leading = False
        entries, self.entries = self.entries, {}
        for entry in entries.values():
            entry.close(StreamEnded(NOT_LEADING, "this process no longer serves peers"))
