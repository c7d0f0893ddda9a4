"""The trace contexts of commits on the wire: changes with contexts, for watchers that ask for them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headway.protobuf import decode, encode
from headway.resource import Bookmark, Change, Changes, EndOfSnapshot, pb
from headway.rpc import StreamEncoder, framed
from headway.service import WatchDecoder, event_content
from headway.storage import CommitTrace, CommitTraces, sampled_trace

TRACES_HEADER = "headway-traces"
"""The metadata with which a client asks a watch for the contexts of commits. Its value is ``1``."""

_PREFIX = 5


@dataclass(frozen=True, slots=True)
class TracedChanges:
    """Changes, some of whose commits are traced.

    Attributes:
        changes: the changes, as in `Changes`.
        traces: the contexts of the traced commits, by revision.
    """

    changes: list[Change]
    traces: Mapping[int, CommitTrace]


def traced_encoder(encoder: StreamEncoder) -> StreamEncoder:
    """Return an encoder of what ``encoder`` encodes, and of `TracedChanges`. Other items cost one check of a type."""

    def encoded(item: Any) -> Iterable[bytes]:
        return _pieces(encoder, item) if type(item) is TracedChanges else encoder(item)

    return encoded


def _pieces(encoder: StreamEncoder, item: TracedChanges) -> Iterator[bytes]:
    told = 0
    for change in item.changes:
        whole = b"".join(encoder(Changes([change])))
        trace = item.traces.get(change.revision)
        # The other events of a commit need no context.
        if trace is not None and change.revision != told:
            told = change.revision
            whole = framed(whole[_PREFIX:] + encode(pb.WatchEvent(trace=pb.CommitTrace(*trace))))
        yield whole


class TracedWatchDecoder(WatchDecoder):
    """A decoder of one stream's WatchEvents that keeps the contexts of commits.

    Args:
        traces: keeps the context of each traced commit, before its changes are returned. All streams of a process
            share it.
    """

    def __init__(self, traces: CommitTraces) -> None:
        super().__init__()
        self._traces = traces
        self._store_id = ""

    def _event(self, body: bytes) -> Any:
        change = self._quick(body)
        if change is not None:
            return change
        event = decode(pb.WatchEvent, body)
        if event.trace is not None and event.revision:
            told = event.trace
            trace = sampled_trace(told.traceparent, told.tracestate, told.committed_at)
            # A server of a replaced store may still have open streams.
            if trace is not None and self._store_id == self._traces.store_id:
                self._traces.put(event.revision, trace)
        content = event_content(event)
        if not self._store_id and isinstance(content, EndOfSnapshot | Bookmark):
            # One of them comes before the first change.
            self._store_id = content.position.store_id
            self._traces.begin(self._store_id)
        return content
