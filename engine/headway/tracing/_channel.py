"""The spans of a client's writes, and the context that they send with the call."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from opentelemetry.trace import SpanKind

from headway.resource import Key, pb, type_name
from headway.rpc import Channel, Metadata, timeout_of
from headway.service import RESOURCE_SERVICE, WATCH_LIST
from headway.tracing._tracer import SafeTracer
from headway.tracing._tracing import PREFIX, about, sampled_span, trace_of
from headway.tracing._wire import TRACES_HEADER

Reply = TypeVar("Reply")

VERBS = ("Write", "WriteStatus", "Delete")
_WRITES = {f"/{RESOURCE_SERVICE}/{verb}": verb for verb in VERBS}


class TracedChannel(Channel):
    """A channel whose writes have spans, if the caller's span is sampled.

    Args:
        remote: True if the service is in another process, so that the context travels in the call's metadata.
        asks: True if watches ask for the contexts of commits.
    """

    def __init__(self, inner: Channel, tracer: SafeTracer, *, remote: bool = False, asks: bool = False) -> None:
        self._inner = inner
        self._tracer = tracer
        self._remote = remote
        self._asks = asks
        # Looked for by `LeaseClient.lasting`.
        self.lasting_leases = bool(getattr(inner, "lasting_leases", False))

    @property
    def knows_outcomes(self) -> bool:
        """True if the inner channel knows the outcome of every call."""
        return self._inner.knows_outcomes

    @property
    def timeout(self) -> float:
        """The timeout of the inner channel's calls."""
        return timeout_of(self._inner)

    async def unary(
        self, path: str, request: object, reply_type: type[Reply], *, metadata: Metadata | None = None
    ) -> Reply:
        """Make a call. A write has a span if the caller's span is sampled."""
        verb = _WRITES.get(path)
        if verb is None or sampled_span() is None:
            return await self._inner.unary(path, request, reply_type, metadata=metadata)
        return await self._write(verb, path, request, reply_type, metadata)

    async def _write(
        self, verb: str, path: str, request: Any, reply_type: type[Reply], metadata: Metadata | None
    ) -> Reply:
        written = request.resource if verb == "Write" else request
        id = None if written is None else written.id
        attributes = {"headway.verb": verb}
        if id is not None and id.type is not None:
            attributes |= about(type_name(id.type), _key(id))
        with self._tracer.start_as_current_span(f"{PREFIX}write", kind=SpanKind.CLIENT, attributes=attributes) as span:
            context = span.get_span_context()
            if self._remote and context.trace_flags.sampled:
                trace = trace_of(context)
                metadata = {**(metadata or {}), "traceparent": trace.traceparent}
                if trace.tracestate:
                    metadata["tracestate"] = trace.tracestate
            return await self._inner.unary(path, request, reply_type, metadata=metadata)

    def stream(
        self, path: str, request: object, *, metadata: Metadata | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        """Open a stream. A watch asks for the contexts of commits, if the channel does."""
        if self._asks and path == WATCH_LIST:
            metadata = {**(metadata or {}), TRACES_HEADER: "1"}
        return self._inner.stream(path, request, metadata=metadata)


def _key(id: pb.Id) -> Key:
    tenancy = id.tenancy or pb.Tenancy()
    return (tenancy.partition, tenancy.namespace, id.name)
