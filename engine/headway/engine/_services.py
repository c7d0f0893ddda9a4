"""The services of an engine: for its own process, and for clients on the network with their rights."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from headway.access import Audit, Authorizer, Caller, Guarded
from headway.events import HandlerFailed, Report
from headway.resource import Registry
from headway.rpc import InProcessChannel, Services
from headway.service import (
    ConsulService,
    LeaseService,
    LeaseWaits,
    MigrationService,
    OpenSubscriptions,
    ResourceService,
    StoreService,
    SubscribeService,
    TypesService,
    Versions,
    watch_encoders,
)
from headway.storage import Backend
from headway.subscription import Topic


class EngineServices:
    """The services in front of a store."""

    def __init__(
        self, backend: Backend, registry: Registry, report: Report, topics: Mapping[str, Topic[Any]] | None = None
    ) -> None:
        self._registry = registry
        self._waits = LeaseWaits()
        self._streams = OpenSubscriptions()
        versions = Versions(registry, report)
        self._shared: list[Callable[..., Any]] = [
            partial(ResourceService, backend, registry, versions=versions),
            partial(ConsulService, backend, registry, versions=versions),
            partial(LeaseService, backend, waits=self._waits),
            partial(StoreService, backend, registry),
            partial(SubscribeService, backend, registry, topics or {}, versions=versions, streams=self._streams),
        ]
        self._migration = partial(MigrationService, backend, registry)
        self._own = Services(*(service() for service in self._shared), encoders=watch_encoders())

    @asynccontextmanager
    async def open_channel(self, report: Report, *, lasting_leases: bool) -> AsyncIterator[InProcessChannel]:
        """Open a channel for the engine's own process, which may do everything."""

        def failed(path: str, error: BaseException) -> None:
            report(HandlerFailed(path, error))

        channel = InProcessChannel(self._own, report=failed, lasting_leases=lasting_leases)
        try:
            yield channel
        finally:
            channel.close()

    def for_clients(self, access: Authorizer | None, audit: Audit) -> Services:
        """Return the services for clients on the network. Without ``access``, every client may do everything."""
        registry = self._registry
        if access is None:
            self._own.add(TypesService(registry))
            self._own.add(self._migration())
            return self._own

        def types(caller: Caller) -> TypesService:
            # A caller without any right to a type must not learn its schema.
            return TypesService(registry, caller.may_know)

        everything: list[Callable[[Caller], Any]] = [*self._shared, self._migration, types]
        guarded = (Guarded(service, access, registry, audit) for service in everything)
        return Services(*guarded, encoders=watch_encoders())

    def end_waits(self) -> None:
        """Answer the calls that wait for a lease, and end the subscriptions, because the engine ends."""
        self._waits.end()
        self._streams.end()
