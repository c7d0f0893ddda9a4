"""A tracer that never raises. A failure of a program's tracing must not fail what is traced."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, Tracer, get_current_span, use_span

from headway.base import say


class SafeTracer:
    """Starts and ends spans. Exceptions of the program's sampler and span processors are not propagated.

    The SDK catches those of exporters alone. The first one is written to standard error.
    """

    def __init__(self, inner: Tracer) -> None:
        self._start: Callable[..., Span] = inner.start_span
        self._told = False

    def start_span(self, name: str, context: Context | None = None, **options: Any) -> Span:
        """Start a span. If that fails, return one that records nothing and continues the trace of its parent."""
        try:
            return self._start(name, context, **options)
        except Exception as error:  # noqa: BLE001  # a program's function may raise anything
            self._tell(error)
            return NonRecordingSpan(get_current_span(context).get_span_context())

    @contextmanager
    def start_as_current_span(
        self,
        name: str,
        context: Context | None = None,
        *,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
        **options: Any,
    ) -> Iterator[Span]:
        """Return a block that starts a span, makes it the task's current one, and ends it."""
        span = self.start_span(name, context, **options)
        try:
            with use_span(
                span, record_exception=record_exception, set_status_on_exception=set_status_on_exception
            ) as current:
                yield current
        finally:
            self.end(span)

    def end(self, span: Span, at: int | None = None) -> None:
        """End a span, now or at a time in nanoseconds since 1970."""
        try:
            span.end(at)
        except Exception as error:  # noqa: BLE001  # as above
            self._tell(error)

    def _tell(self, error: Exception) -> None:
        if not self._told:
            self._told = True
            text = "".join(traceback.format_exception(error))
            say(f"headway: the program's tracing has failed; the engine continues, and says this once:\n{text}")
