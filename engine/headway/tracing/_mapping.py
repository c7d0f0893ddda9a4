"""The spans of a change's delivery and mapping, and the reasons that carry them to the reconciles."""

from __future__ import annotations

from typing import Any

from opentelemetry.trace import Span, SpanKind
from typing_extensions import override

from headway.cache import Applied
from headway.mapper import FailedChanges
from headway.queue import LIVE, Priority
from headway.reconcile import Reason, TracedReason
from headway.resource import Key, TypeName
from headway.run import RunMapping
from headway.storage import CommitTrace
from headway.tracing._tracing import PREFIX, Tracing, about, child_of, context_of, now


class TracedMapping(RunMapping):
    """The mapping of a run, with spans for the changes of traced commits."""

    def __init__(self, tracing: Tracing, *given: Any) -> None:
        super().__init__(*given)
        self._tracing = tracing
        self._span: Span | None = None
        self._again = False

    @override
    def _map_change(self, type: TypeName, applied: Applied, *, backlog: bool) -> None:
        trace = None if backlog else self._tracing.of(applied.revision)
        if trace is None:
            super()._map_change(type, applied, backlog=backlog)
        else:
            self._map_traced(trace, type, applied)

    def _map_traced(self, trace: CommitTrace, type: TypeName, applied: Applied) -> None:
        tracer, began = self._tracing.tracer, now()
        attributes: dict[str, str | int] = {
            **about(type, applied.key),
            "headway.controller": self._definition.name,
            "headway.revision": applied.revision,
        }
        parent = context_of(trace)
        if not self._again:
            committed = min(trace.committed_at or began, began)
            delivery = tracer.start_span(
                f"{PREFIX}deliver", parent, SpanKind.CONSUMER, attributes=attributes, start_time=committed
            )
            delivery.end(began)
            parent = child_of(delivery.get_span_context())
        with tracer.start_as_current_span(f"{PREFIX}map", parent, attributes=attributes, start_time=began) as span:
            self._span = span if span.get_span_context().trace_flags.sampled else None
            try:
                super()._map_change(type, applied, backlog=False)
            finally:
                self._span = None

    @override
    def _map_again(self, kept: FailedChanges) -> None:
        # The change was delivered at the first attempt.
        self._again = True
        try:
            super()._map_again(kept)
        finally:
            self._again = False

    @override
    def add(self, key: Key, reason: Reason, priority: Priority = LIVE) -> None:
        if self._span is not None:
            context = self._span.get_span_context()
            reason = TracedReason.of(reason, context, f"{context.trace_id:032x}", now())
        super().add(key, reason, priority)
