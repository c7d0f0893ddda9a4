"""The services of an engine: for its own process, and for clients on the network with their rights."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from headway.base import CallerTurns, KeyTurns
from headway.client import Client
from headway.engine._extension import Extension, Host
from headway.events import HandlerFailed
from headway.rpc import InProcessChannel, Services
from headway.service import (
    ConsulService,
    DescribedTypes,
    LeaseService,
    LeaseWaits,
    ResourceEncodings,
    ResourceService,
    StoreService,
    TypesService,
    watch_encoders,
)
from headway.storage import reads_copies

if TYPE_CHECKING:
    from headway.engine._extension import Caller


class Guard(Protocol):
    """Guards a service for clients on the network, where each caller has its own rights."""

    def __call__(self, serve: Callable[[Any], Any], /, *, serves_strangers: bool = True) -> Any:
        """Return the guarded service. ``serve`` makes it for a caller."""
        ...


_READS = 8
"""The number of lists and snapshots for the network that hold a part of the store decoded, at once, if the store
decodes it for each of them. None waits for its client meanwhile. A part of an SQLite store takes one or two MiB, or
twice the size of a single large resource.
"""


class EngineServices:
    """The services in front of a store."""

    def __init__(
        self,
        host: Host,
        own: Sequence[Extension] = (),
        extensions: Sequence[Extension] = (),
    ) -> None:
        self._host = host
        backend, registry = host.backend, host.registry
        self._registry = registry
        self._topics = host.topics
        self._waits = LeaseWaits()
        # Shared by all callers: it holds the bytes of stored resources. Rights are checked before it is asked.
        self._encodings = ResourceEncodings(snapshots=not reads_copies(backend))
        every = (*own, *extensions)
        of_resources: dict[str, Any] = {
            "rules": [rules for each in every for rules in each.rules],
            "forms": host.forms,
            "journal": None if host.journal is None else host.journal.writes,
            "encodings": self._encodings,
            "turns": KeyTurns(),
            "reads": CallerTurns(_READS) if reads_copies(backend) else None,
        }
        resources = partial(ResourceService, backend, registry, **of_resources)
        self._shared: list[Callable[..., Any]] = [
            resources,
            partial(ConsulService, backend, registry, **of_resources),
            partial(LeaseService, backend, waits=self._waits),
            partial(StoreService, backend, registry),
            *(partial(service, host) for each in own for service in each.services),
        ]
        host.ending.callback(self._waits.end)
        self._added: list[Callable[..., Any]] = [
            partial(service, host) for each in extensions for service in each.services
        ]
        self._open = [partial(service, host) for each in every for service in each.open_services]
        self._encoders = dict(watch_encoders(self._encodings))
        for encoders in (encoders for each in every for encoders in each.encoders):
            self._encoders |= encoders(self._encodings)
        self._wraps = [wrap for each in every for wrap in each.wraps]
        others = [service(None) for service in (*self._shared[1:], *self._added)]
        self._own = self._services(resources(), *others)
        self._privileged = self._services(resources(privileged=True), *others)

    def _services(self, *services: Any) -> Services:
        return Services(*map(self._wrapped, services), encoders=self._encoders)

    def _wrapped(self, service: Any) -> Any:
        for wrap in self._wraps:
            service = wrap(service)
        return service

    @asynccontextmanager
    async def open_channels(self, *, lasting_leases: bool) -> AsyncIterator[tuple[InProcessChannel, InProcessChannel]]:
        """Open channels for the engine's own process, which may do everything, and for Headway's own controllers.

        Rules of extensions may let only the latter write some resources.
        """
        host = self._host

        def failed(path: str, error: BaseException) -> None:
            host.report(HandlerFailed(path, error))

        channel = InProcessChannel(self._own, report=failed, lasting_leases=lasting_leases)
        privileged = InProcessChannel(self._privileged, report=failed, lasting_leases=lasting_leases)
        host.serving, host.channel = Client(channel, self._registry), privileged
        try:
            yield channel, privileged
        finally:
            channel.close()
            privileged.close()

    def for_clients(self, guard: Guard | None) -> Services:
        """Return the services for clients on the network. Without a guard, every client may do everything."""
        registry = self._registry
        if guard is None:
            further = [TypesService(registry, self._topics), *(service() for service in self._open)]
            for each in further:
                self._own.add(self._wrapped(each))
            return self._own

        replies = DescribedTypes(registry, self._topics)

        def types(caller: Caller) -> TypesService:
            # A caller without any right to a type or topic must not learn its schema.
            return TypesService(registry, self._topics, caller.may_know, caller.may_know_topic, replies=replies)

        everything: list[Callable[..., Any]] = [*self._shared, types]
        guarded = [guard(service) for service in everything]
        guarded += [guard(service, serves_strangers=False) for service in self._added]
        return self._services(*guarded, *(service() for service in self._open))
