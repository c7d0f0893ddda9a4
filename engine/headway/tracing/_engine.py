"""An engine with tracing: what stands in each of its places."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from opentelemetry.trace import TracerProvider
from typing_extensions import override

from headway.controller import Definition
from headway.engine import Around
from headway.rpc import Channel, Services, StreamDecoder
from headway.run import ChangeMapper
from headway.storage import Backend
from headway.tracing._channel import TracedChannel
from headway.tracing._mapper import TracedMapper
from headway.tracing._reconcile import traced_definition
from headway.tracing._server import traced_services
from headway.tracing._store import traced_store
from headway.tracing._tracing import Tracing, apart
from headway.tracing._wire import TracedWatchDecoder


class Traced(Around):
    """An engine with tracing."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracing = Tracing(provider)

    @override
    def store(self, backend: Backend) -> Backend:
        return traced_store(backend, self._tracing)

    @override
    def channel(self, channel: Channel, *, remote: bool = False, asks: bool = False) -> Channel:
        return TracedChannel(channel, self._tracing.tracer, remote=remote, asks=asks)

    @override
    def services(self, services: Services) -> Services:
        return traced_services(services, self._tracing)

    @override
    def definition(self, definition: Definition) -> Definition:
        return traced_definition(definition, self._tracing.tracer)

    @property
    @override
    def new_mapper(self) -> Callable[..., ChangeMapper]:
        return partial(TracedMapper, self._tracing)

    @property
    @override
    def decoder(self) -> Callable[[], StreamDecoder]:
        return lambda: TracedWatchDecoder(self._tracing.traces)

    @override
    def forget(self) -> None:
        self._tracing.traces.clear()

    @override
    def apart(self) -> AbstractContextManager[None]:
        return apart()
