"""The spans of a change's delivery and mapping, and the reasons that carry them to the reconciles."""

from __future__ import annotations

from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind
from typing_extensions import override

from headway.cache import Applied
from headway.queue import LIVE, Priority
from headway.reconcile import Reason
from headway.resource import Key, TypeName, redact_error, secret_types
from headway.run import ChangeMapper, Fight
from headway.storage import CommitTrace
from headway.tracing._reason import TracedReason
from headway.tracing._tracing import PREFIX, Tracing, about, child_of, context_of, note_error, now

MOST_FAILED = 10_000
"""The number of failed changes to remember. A retry of any other change makes a second span of its delivery."""


class TracedMapper(ChangeMapper):
    """Maps changes. Changes of traced commits have spans."""

    def __init__(self, tracing: Tracing, *given: Any) -> None:
        super().__init__(*given)
        self._tracing = tracing
        self._secret = secret_types(self._definition.types)
        # The span of the mapping in progress; None if it is not traced.
        self._span: Span | None = None
        self._failed: dict[tuple[TypeName, Key, int], None] = {}

    @override
    def map_change(self, type: TypeName, applied: Applied, *, backlog: bool) -> None:
        trace = None if backlog else self._tracing.of(applied.revision)
        if trace is None:
            super().map_change(type, applied, backlog=backlog)
        else:
            self._map_traced(trace, type, applied)

    def _map_traced(self, trace: CommitTrace, type: TypeName, applied: Applied) -> None:
        tracer, began, change = self._tracing.tracer, now(), (type, applied.key, applied.revision)
        attributes: dict[str, str | int] = {
            **about(type, applied.key),
            "headway.controller": self._definition.full_name,
            "headway.revision": applied.revision,
        }
        parent = context_of(trace)
        if change in self._failed:
            # It was delivered at the first attempt.
            del self._failed[change]
        else:
            parent = self._delivered(parent, attributes, min(trace.committed_at or began, began), began)
        spanned = tracer.start_as_current_span(
            f"{PREFIX}map",
            parent,
            attributes=attributes,
            start_time=began,
            record_exception=False,
            set_status_on_exception=False,
        )
        with spanned as span:
            self._span = span if span.get_span_context().trace_flags.sampled else None
            try:
                super().map_change(type, applied, backlog=False)
            except BaseException as error:
                if (secret := self._secret.get(type)) is not None:
                    # The report redacts the error too, but only after the span has ended.
                    redact_error(error, [secret.view(each) for each in (applied.old, applied.new) if each is not None])
                note_error(span, error)
                if len(self._failed) < MOST_FAILED:
                    self._failed[change] = None
                raise
            finally:
                self._span = None

    def _delivered(self, parent: Context, attributes: dict[str, str | int], committed: int, reached: int) -> Context:
        """Make the span of the delivery, and return the context that makes the mapping its child."""
        delivery = self._tracing.tracer.start_span(
            f"{PREFIX}deliver", parent, kind=SpanKind.CONSUMER, attributes=attributes, start_time=committed
        )
        self._tracing.tracer.end(delivery, reached)
        return child_of(delivery.get_span_context())

    @override
    def add(self, key: Key, reason: Reason, priority: Priority = LIVE, fight: Fight | None = None) -> None:
        if self._span is not None:
            reason = TracedReason.of(reason, self._span.get_span_context(), now())
        super().add(key, reason, priority, fight)
