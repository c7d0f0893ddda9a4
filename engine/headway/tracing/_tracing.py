"""The tracer of an engine, its table of traced commits, and the conversions between spans and W3C's contexts.

    headway.write       a client's Write, WriteStatus or Delete, in the process of the client
    headway.commit      the commit of the store, in the process of the engine
    headway.deliver     from the commit until every type of a controller has reached it
    headway.map         the mapping of the change to keys
    headway.wait        from the first cause of a key until its reconcile begins
    headway.reconcile   one attempt

Each span's parent is the one above it. The writes of a reconcile are its children. If several changes have caused a
reconcile, it is in the trace of the first, and has a link to the mapping of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from opentelemetry import context as otel_context
from opentelemetry import trace as otel
from opentelemetry.context import Context
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    TracerProvider,
    TraceState,
)

from headway.base import all_frames, error_text, story, wall_time
from headway.resource import Key, TypeName
from headway.storage import CommitTrace, CommitTraces
from headway.tracing._tracer import SafeTracer

PREFIX = "headway."
_SECOND = 10**9


class Tracing:
    """The tracing of one engine, or of one process of workers.

    Attributes:
        tracer: starts the spans.
        of: returns the context of a commit by its revision, or None if the commit is not traced.
    """

    def __init__(self, provider: TracerProvider) -> None:
        self.tracer = SafeTracer(provider.get_tracer("headway"))
        own = CommitTraces()
        self._kept: Callable[[], CommitTraces] = lambda: own
        # Every change of every controller is looked up.
        self.of: Callable[[int], CommitTrace | None] = own.of

    def share(self, kept: Callable[[], CommitTraces]) -> None:
        """Use the contexts that a store keeps, which are of all engines on it."""
        self._kept = kept
        self.of = lambda revision: kept().of(revision)

    @property
    def traces(self) -> CommitTraces:
        """The contexts of the traced commits that this process knows of, by revision."""
        return self._kept()


def now() -> int:
    """Return the time for a span, in nanoseconds since 1970."""
    return int(wall_time() * _SECOND)


def sampled_span() -> Span | None:
    """Return the task's current span if it is sampled."""
    span = otel.get_current_span()
    return span if span.get_span_context().trace_flags.sampled else None


def context_of(trace: CommitTrace) -> Context:
    """Return the context that makes a span a child of a commit, or of another process's span."""
    return child_of(
        SpanContext(
            int(trace.trace_id, 16),
            int(trace.span_id, 16),
            is_remote=True,
            trace_flags=TraceFlags(TraceFlags.SAMPLED),
            trace_state=TraceState.from_header([trace.tracestate]) if trace.tracestate else None,
        )
    )


def child_of(parent: SpanContext) -> Context:
    """Return the context that makes a span a child of another one, which may have ended."""
    return otel.set_span_in_context(NonRecordingSpan(parent), Context())


def trace_of(span: SpanContext, at: int = 0) -> CommitTrace:
    """Return a sampled span's context as W3C writes it."""
    parent = f"00-{otel.format_trace_id(span.trace_id)}-{otel.format_span_id(span.span_id)}-01"
    return CommitTrace(parent, span.trace_state.to_header() if span.trace_state else "", at)


def about(type: TypeName, key: Key) -> Mapping[str, str]:
    """Return the attributes of a span about a resource."""
    partition, namespace, name = key
    return {
        "headway.type": str(type),
        "headway.partition": partition,
        "headway.namespace": namespace,
        "headway.name": name,
    }


def note_error(span: Span, error: BaseException) -> None:
    """Record an exception that a program's function has raised. Its texts are those of the log, without secrets."""
    span.record_exception(error, {"exception.message": error_text(error), "exception.stacktrace": all_frames(error)})
    span.set_status(Status(StatusCode.ERROR, story(error)[:500]))


@contextmanager
def attached(context: Context) -> Iterator[None]:
    """Make a context the current one of the task, for a block."""
    token = otel_context.attach(context)
    try:
        yield
    finally:
        otel_context.detach(token)


def apart() -> AbstractContextManager[None]:
    """Return a block without a current span, for tasks that outlive the caller's span."""
    return attached(Context())
