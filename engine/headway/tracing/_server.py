"""The context that a call brings, and the contexts that a watch sends to a client that asks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any, NamedTuple

from opentelemetry.context import Context

from headway.api import Call, Handler, stream
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
    handlers = {path: _traced(path, handler, tracing.traces) for path, handler in services.handlers.items()}
    encoders = {path: traced_encoder(encoder) for path, encoder in services.encoders.items()}
    return Services(_Handlers(handlers), encoders=encoders)


class _Handlers(NamedTuple):
    by_path: Mapping[str, Handler]

    def __mapping__(self) -> Mapping[str, Handler]:
        return self.by_path


def _traced(path: str, handler: Handler, traces: CommitTraces) -> Handler:
    answer = handler.func

    async def write(call: Call, request: Any) -> Any:
        given = call.metadata
        trace = sampled_trace(given.get("traceparent"), given.get("tracestate", ""))
        # The task of a call may have inherited the span that was current when the server started.
        with attached(Context() if trace is None else context_of(trace)):
            return await answer(call, request)

    @stream
    async def watch(call: Call, request: Any) -> AsyncGenerator[Any, None]:
        asks = call.metadata.get(TRACES_HEADER) == "1"
        async with answer(call, request) as items:
            async for item in items:
                yield _with_traces(item, traces) if asks else item

    if path in _WRITES:
        return handler._replace(func=write)
    return handler._replace(func=watch) if path == WATCH_LIST else handler


def _with_traces(item: Any, traces: CommitTraces) -> Any:
    if not isinstance(item, Changes):
        return item
    found = {each.revision: trace for each in item.changes if (trace := traces.of(each.revision)) is not None}
    return TracedChanges(item.changes, found) if found else item
