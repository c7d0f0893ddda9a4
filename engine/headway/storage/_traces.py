"""The trace contexts of commits, kept in memory beside a store's history. Pure: no Trio, no I/O, no clock.

A context is W3C's ``traceparent`` and ``tracestate``. It names the span of a commit, so that the deliveries, mappings
and reconciles that the commit causes join its trace. Only sampled contexts are kept. Text from outside is checked by
`sampled_trace`, which ignores what is not valid.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextvars import ContextVar
from typing import NamedTuple, Protocol, runtime_checkable

MOST_TRACES = 10_000
"""The number of commits whose contexts are kept. An entry takes at most about a kilobyte."""

LONGEST_TRACESTATE = 512
"""The characters of a ``tracestate`` that W3C asks to pass on. A longer one is left out."""

_LONGEST_TRACEPARENT = 256
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_KEY = r"(?:[a-z][_0-9a-z*/-]{0,255}|[a-z0-9][_0-9a-z*/-]{0,240}@[a-z][_0-9a-z*/-]{0,13})"
_MEMBER = _KEY + r"=[ -+\--<>-~]{0,255}[!-+\--<>-~]"
_TRACESTATE = re.compile(rf"(?:{_MEMBER}(?:,{_MEMBER}){{0,31}})?", re.ASCII)


class CommitTrace(NamedTuple):
    """The trace context of a commit. It is always sampled.

    Attributes:
        traceparent: W3C's ``traceparent``, in version 00.
        tracestate: W3C's ``tracestate``; empty without one.
        committed_at: the time of the commit in nanoseconds since 1970, by the clock of the process that made it; 0 if
            it is unknown.
    """

    traceparent: str
    tracestate: str = ""
    committed_at: int = 0

    @property
    def trace_id(self) -> str:
        """The id of the trace, as 32 hexadecimal digits."""
        return self.traceparent[3:35]

    @property
    def span_id(self) -> str:
        """The id of the span, as 16 hexadecimal digits."""
        return self.traceparent[36:52]


def sampled_trace(traceparent: object, tracestate: object = "", committed_at: object = 0) -> CommitTrace | None:
    """Return the context that these values say, or None if they are invalid or not sampled.

    The values may come from anyone. An invalid ``tracestate`` or time is left out, and the rest stays.
    """
    if not isinstance(traceparent, str) or len(traceparent) > _LONGEST_TRACEPARENT:
        return None
    parts = _TRACEPARENT.fullmatch(traceparent)
    if parts is None:
        return None
    version, trace_id, span_id, flags, rest = parts.groups()
    # A later version may add fields, but ff is never one.
    if version == "ff" or (version == "00" and rest) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    if not int(flags, 16) & 1:
        return None
    state = tracestate if isinstance(tracestate, str) and len(tracestate) <= LONGEST_TRACESTATE else ""
    at = committed_at if type(committed_at) is int and 0 <= committed_at < 2**63 else 0
    return CommitTrace(f"00-{trace_id}-{span_id}-01", state if _TRACESTATE.fullmatch(state) else "", at)


class CommitTraces:
    """The contexts of the latest traced commits, by revision.

    Args:
        limit: the number of commits to keep. The contexts that were put first are dropped first.

    Attributes:
        store_id: the id of the store whose commits they are, where a process learns it from streams; otherwise empty.
    """

    __slots__ = ("_found", "_limit", "store_id")

    def __init__(self, limit: int = MOST_TRACES) -> None:
        self.store_id = ""
        self._limit = limit
        self._found: dict[int, CommitTrace] = {}

    def __len__(self) -> int:
        return len(self._found)

    def put(self, revision: int, trace: CommitTrace) -> None:
        """Keep the context of a commit, unless it is known."""
        if revision not in self._found:
            self._found[revision] = trace
            if len(self._found) > self._limit:
                del self._found[next(iter(self._found))]

    def of(self, revision: int) -> CommitTrace | None:
        """Return the context of a commit, or None if it has none, or if it is no longer kept."""
        return self._found.get(revision)

    def begin(self, store_id: str) -> None:
        """Note that a stream of this store has begun. The contexts of another store's commits are forgotten."""
        if store_id != self.store_id:
            self.clear()
            self.store_id = store_id

    def clear(self) -> None:
        """Forget everything until the next stream begins, because its revisions are of another history."""
        self.store_id = ""
        self._found.clear()


@runtime_checkable
class KeepsTraces(Protocol):
    """A store that several engines share, and that keeps the contexts of the traced commits of all of them."""

    @property
    def traces(self) -> CommitTraces:
        """The contexts by revision."""
        ...


class Committing:
    """A traced commit that is being made.

    Attributes:
        trace: the context of its span, with the time when it began.
        kept: True once the context is kept.
    """

    __slots__ = ("_now", "_traces", "kept", "trace")

    def __init__(self, trace: CommitTrace, traces: CommitTraces, now: Callable[[], int]) -> None:
        self.trace = trace
        self.kept = False
        self._traces = traces
        self._now = now

    def made(self, revision: int) -> None:
        """Keep the context for the revision of the commit. A store calls this before it wakes its watchers."""
        self.kept = True
        self._traces.put(revision, self.trace._replace(committed_at=self._now()))


COMMITTING: ContextVar[Committing | None] = ContextVar("headway.committing", default=None)
"""The traced commit that a task is making. Set around `Backend.commit`, only for a sampled context."""
