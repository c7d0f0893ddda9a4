"""The context that a call brings, and the contexts that a watch sends to a client that asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from opentelemetry.context import Context

from headway.resource import Changes
from headway.rpc import Services
from headway.service import CONSUL_SERVICE, RESOURCE_SERVICE, TRACES_HEADER, WATCH_LIST, TracedChanges, traced_encoder
from headway.storage import CommitTraces, sampled_trace
from headway.tracing._channel import VERBS
from headway.tracing._tracing import Tracing, attached, context_of

_WRITES = frozenset(f"/{service}/{verb}" for service in (RESOURCE_SERVICE, CONSUL_SERVICE) for verb in VERBS)


def traced_services(services: Services, tracing: Tracing) -> Services:
    """Return the services for the network, whose calls bring and receive contexts.

    A context alone makes no span. The first span belongs to the commit, after all checks of the caller's rights.
    """

    async def around(path: str, stream: Any, handler: Callable[[Any], Awaitable[None]]) -> None:
        if path in _WRITES:
            given = stream.metadata
            trace = sampled_trace(given.get("traceparent"), given.get("tracestate", ""))
            # The task of a call may have inherited the span that was current when the server started.
            with attached(Context() if trace is None else context_of(trace)):
                await handler(stream)
        elif path == WATCH_LIST and stream.metadata.get(TRACES_HEADER) == "1":
            await handler(_AskingStream(stream, tracing.traces))
        else:
            await handler(stream)

    encoders = {path: traced_encoder(encoder) for path, encoder in services.encoders.items()}
    return Services(services, encoders=encoders, interceptors=[around])


class _AskingStream:
    """The stream of a watch whose client has asked for contexts."""

    def __init__(self, inner: Any, traces: CommitTraces) -> None:
        self._inner = inner
        self._traces = traces

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def send_message(self, item: Any) -> None:
        if isinstance(item, Changes):
            of = self._traces.of
            found = {each.revision: trace for each in item.changes if (trace := of(each.revision)) is not None}
            if found:
                item = TracedChanges(item.changes, found)
        await self._inner.send_message(item)
