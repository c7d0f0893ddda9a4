"""The context that a call brings, and the contexts that a watch sends to a client that asks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from opentelemetry.context import Context
from typing_extensions import override

from headway.api import Call, Stream, Wrapper, stream
from headway.resource import Changes
from headway.rpc import Services
from headway.service import CONSUL_SERVICE, RESOURCE_SERVICE, WATCH_LIST
from headway.storage import CommitTraces, sampled_trace
from headway.tracing._channel import VERBS
from headway.tracing._tracing import Tracing, attached, context_of
from headway.tracing._wire import TRACES_HEADER, TracedChanges, traced_encoder

_WRITES = frozenset(f"/{service}/{verb}" for service in (RESOURCE_SERVICE, CONSUL_SERVICE) for verb in VERBS)


def traced_services(services: Services, tracing: Tracing) -> Services:
    """Return the services for the network, whose calls bring and receive contexts.

    A context alone makes no span. The first span belongs to the commit, after all checks of the caller's rights.
    """
    encoders = {path: traced_encoder(encoder) for path, encoder in services.encoders.items()}
    return Services(_Traced(services, tracing.traces), encoders=encoders)


class _Traced(Wrapper):
    def __init__(self, inner: Services, traces: CommitTraces) -> None:
        super().__init__(inner)
        self._traces = traces

    @override
    async def unary(self, path: str, answer: Callable[[Call, Any], Awaitable[Any]], call: Call, request: Any) -> Any:
        if path not in _WRITES:
            return await answer(call, request)
        given = call.metadata
        trace = sampled_trace(given.get("traceparent"), given.get("tracestate", ""))
        # The task of a call may have inherited the span that was current when the server started.
        with attached(Context() if trace is None else context_of(trace)):
            return await answer(call, request)

    @override
    def streaming(self, path: str, opened: Callable[[Call, Any], Stream[Any]], call: Call, request: Any) -> Stream[Any]:
        items = opened(call, request)
        return self._with_traces(items) if path == WATCH_LIST and call.metadata.get(TRACES_HEADER) == "1" else items

    @stream
    async def _with_traces(self, opened: Stream[Any]) -> AsyncGenerator[Any, None]:
        of = self._traces.of
        async with opened as items:
            async for item in items:
                if not isinstance(item, Changes):
                    yield item
                    continue
                found = {each.revision: trace for each in item.changes if (trace := of(each.revision)) is not None}
                yield TracedChanges(item.changes, found) if found else item
