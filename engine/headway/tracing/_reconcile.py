"""The spans of a key's wait in the queue and of its reconcile, inside which its writes make theirs."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import trio
from opentelemetry.trace import Link, Span, Status, StatusCode

from headway.base import all_are, leaves, of_controller, only_error
from headway.controller import Definition
from headway.errors import PermanentFailure
from headway.reconcile import RECONCILING, Request, RequeueAfter, Runtime, redact_reads
from headway.run import invalid_result
from headway.tracing._reason import TracedReason
from headway.tracing._tracer import SafeTracer
from headway.tracing._tracing import PREFIX, about, child_of, note_error, now


def traced_definition(definition: Definition, tracer: SafeTracer) -> Definition:
    """Return a controller whose reconciles have spans, if a traced change has caused them."""
    reconcile, name = definition.reconcile, definition.full_name

    @functools.wraps(reconcile)
    async def traced(rt: Runtime, request: Request[Any]) -> Any:
        causes = [each for each in request.reasons if isinstance(each, TracedReason)]
        if not causes:
            return await reconcile(rt, request)
        first, began = causes[0], now()
        attributes: dict[str, str | int] = {
            **about(request.id.type, request.id.key),
            "headway.controller": definition.full_name,
            "headway.attempt": request.attempt,
        }
        wait = tracer.start_span(
            f"{PREFIX}wait", child_of(first.cause), attributes=attributes, start_time=min(first.since, began)
        )
        tracer.end(wait, began)
        links = [Link(each.cause) for each in causes] if len(causes) > 1 else []
        parent = child_of(wait.get_span_context())
        spanned = tracer.start_as_current_span(
            f"{PREFIX}reconcile",
            parent,
            attributes=attributes,
            links=links,
            start_time=began,
            record_exception=False,
            set_status_on_exception=False,
        )
        try:
            with spanned as span:
                try:
                    result = await reconcile(rt, request)
                except BaseException as error:
                    _note_failure(span, error)
                    raise
                _note_result(span, name, result)
                return result
        finally:
            # If there is a next attempt, it waits from here on.
            ended = now()
            for each in causes:
                each.since = ended

    return dataclasses.replace(definition, reconcile=traced)


def _note_result(span: Span, name: str, result: object) -> None:
    reconciling = RECONCILING.get()
    if (invalid := invalid_result(name, result)) is not None:
        _note_failure(span, invalid)
    elif reconciling is not None and reconciling.scope.cancel_called:
        # The reconciler has caught the cancellation, or has not reached a checkpoint since.
        _note_canceled(span)
    else:
        span.set_attribute("headway.outcome", "requeue" if isinstance(result, RequeueAfter) else "done")


def _note_canceled(span: Span) -> None:
    span.set_attribute("headway.outcome", "canceled")
    span.set_status(Status(StatusCode.ERROR, "canceled: its deadline has passed, or the run has ended"))


def _note_failure(span: Span, raised: BaseException) -> None:
    # A nursery groups a failure with the cancellations of the tasks beside it.
    failed, ending = of_controller(raised)
    if failed is None and ending is not None and all(isinstance(each, trio.Cancelled) for each in leaves(ending)):
        _note_canceled(span)
        return
    error = only_error(failed or raised)
    permanent = all_are(error, PermanentFailure)
    span.set_attribute("headway.outcome", "permanent" if permanent else "failed")
    # The worker redacts the error too, but only after the span has ended.
    redact_reads(error)
    note_error(span, error)
