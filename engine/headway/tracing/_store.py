"""The span of a commit, and the context that the store keeps with its history."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, cast

from opentelemetry.trace import SpanKind

from headway.resource import Position
from headway.storage import COMMITTING, Backend, Committing, Fence, KeepsTraces, Operation, Put
from headway.tracing._tracing import PREFIX, Tracing, now, sampled_span, trace_of


def traced_store(backend: Backend, tracing: Tracing) -> Backend:
    """Return a store whose commits have spans, if the committing task's span is sampled."""
    if isinstance(backend, KeepsTraces):
        tracing.share(lambda: backend.traces)
    return cast("Backend", _TracedStore(backend, tracing))


class _TracedStore:
    """A store with another `commit` than the one it wraps. It has every other attribute of that store."""

    def __init__(self, inner: Backend, tracing: Tracing) -> None:
        self._inner = inner
        self._tracing = tracing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Awaitable[Position]:
        if sampled_span() is None:
            return self._inner.commit(operations, fence)
        return self._commit(operations, fence)

    async def _commit(self, operations: Sequence[Operation], fence: Fence | None) -> Position:
        inner, tracing = self._inner, self._tracing
        with tracing.tracer.start_as_current_span(f"{PREFIX}commit", kind=SpanKind.PRODUCER) as span:
            context = span.get_span_context()
            if not context.trace_flags.sampled:
                return await inner.commit(operations, fence)
            committing = Committing(trace_of(context, now()), tracing.traces, now)
            before = inner.position.revision
            token = COMMITTING.set(committing)
            try:
                position = await inner.commit(operations, fence)
            finally:
                COMMITTING.reset(token)
            if not committing.kept and _changed(operations, before, position.revision):
                committing.made(position.revision)
            span.set_attribute("headway.revision", position.revision)
            return position


def _changed(operations: Sequence[Operation], before: int, revision: int) -> bool:
    """Return True if a commit has made this revision. A removal of what is not stored makes none."""
    versions = [each.resource.version for each in operations if isinstance(each, Put)]
    return str(revision) in versions if versions else revision > before
