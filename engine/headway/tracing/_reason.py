"""A reason that carries the span of the change's mapping to the reconcile."""

from __future__ import annotations

from opentelemetry.trace import SpanContext, format_trace_id
from typing_extensions import override

from headway.reconcile import Reason


class TracedReason(Reason):
    """A reason whose change is traced. Each key has its own.

    Attributes:
        cause: the context of the span that covers the mapping of the change to the key.
        since: when the key began to wait for this reason, in nanoseconds since 1970.
    """

    cause: SpanContext
    since: int

    @classmethod
    def of(cls, reason: Reason, cause: SpanContext, since: int) -> TracedReason:
        """Return a traced reason that equals an untraced one."""
        made = cls(*reason)
        made.cause, made.since = cause, since
        return made

    @property
    @override
    def trace_id(self) -> str:
        return format_trace_id(self.cause.trace_id)
