"""The services of an engine: for its own process, and for clients on the network with their rights."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from headway.access import Audit, Authorizer, Caller, Guarded
from headway.base import CallerTurns, KeyTurns
from headway.client import Client
from headway.engine._extension import Extension, Host
from headway.events import HandlerFailed, Report
from headway.journal import Journal
from headway.resource import Registry, ResourceId, pb
from headway.rpc import InProcessChannel, Services
from headway.service import (
    ConsulService,
    DescribedTypes,
    LeaseService,
    LeaseWaits,
    MigrationService,
    OpenSubscriptions,
    QuotaService,
    ResourceEncodings,
    ResourceService,
    StoreService,
    SubscribeService,
    TypesService,
    Versions,
    watch_encoders,
)
from headway.storage import Backend, CurrentLease, is_shared, reads_copies
from headway.subscription import Topic

if TYPE_CHECKING:
    from headway.page import PageHost
    from headway.peering import PeerLinks
    from headway.why import Absences


_READS = 8
"""The number of lists and snapshots for the network that hold a part of the store decoded, at once, if the store
decodes it for each of them. None waits for its client meanwhile. A part of an SQLite store takes one or two MiB, or
twice the size of a single large resource.
"""


class EngineServices:
    """The services in front of a store."""

    def __init__(
        self,
        backend: Backend,
        registry: Registry,
        report: Report,
        topics: Mapping[str, Topic[Any]] | None = None,
        journal: Journal | None = None,
        replaced: Mapping[str, int] | None = None,
        extensions: Sequence[Extension] = (),
    ) -> None:
        self._backend = backend
        self._registry = registry
        self._topics = topics
        self._waits = LeaseWaits()
        self._streams = OpenSubscriptions()
        versions = Versions(registry, report, replaced=replaced)
        # Imported here, because a program that only connects to engines needs none of it.
        from headway.peering import PeeringHost, PeeringService, PeerStreamService
        from headway.why import ObserveHost, ObserveService

        async def read(id: ResourceId) -> pb.Resource | None:
            return (await backend.read(id.type.unversioned, id.key))[0]

        async def leases(name_prefix: str) -> Sequence[CurrentLease]:
            return (await backend.list_leases(name_prefix))[0]

        self.observe = ObserveHost(read, journal, leases)
        writes = None if journal is None else journal.writes

        self.peerings = PeeringHost(backend, registry, report)
        self._peerings = partial(PeeringService, self.peerings)
        self._peer_streams = PeerStreamService(self.peerings)
        # Shared by all callers: it holds the bytes of stored resources. Rights are checked before it is asked.
        self._encodings = ResourceEncodings(snapshots=not reads_copies(backend))
        of_resources: dict[str, Any] = {
            "versions": versions,
            "journal": writes,
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
            partial(QuotaService, backend, registry, elsewhere=self.observe.refused_elsewhere),
            partial(SubscribeService, backend, registry, topics or {}, versions=versions, streams=self._streams),
            self._peerings,
            partial(ObserveService, self.observe, registry),
        ]
        self._migration = partial(MigrationService, backend, registry)
        self.host = Host(backend, registry, report)
        self._wraps = [wrap for each in extensions for wrap in each.wraps]
        self._added = [partial(service, self.host) for each in extensions for service in each.services]
        others = [*(service() for service in self._shared[1:]), *(service(None) for service in self._added)]
        self._own = self._services(resources(), *others)
        self._privileged = self._services(resources(writes_copies=True), *others)

    def _services(self, *services: Any) -> Services:
        return Services(*map(self._wrapped, services), encoders=watch_encoders(self._encodings))

    def _wrapped(self, service: Any) -> Any:
        for wrap in self._wraps:
            service = wrap(service)
        return service

    @asynccontextmanager
    async def open_channels(
        self, report: Report, *, lasting_leases: bool
    ) -> AsyncIterator[tuple[InProcessChannel, InProcessChannel]]:
        """Open channels for the engine's own process, which may do everything, and for Headway's own controllers.

        Only the latter may write to the partitions with the copies of peerings.
        """

        def failed(path: str, error: BaseException) -> None:
            report(HandlerFailed(path, error))

        channel = InProcessChannel(self._own, report=failed, lasting_leases=lasting_leases)
        privileged = InProcessChannel(self._privileged, report=failed, lasting_leases=lasting_leases)
        self.peerings.client, self.peerings.channel = Client(privileged, self._registry), privileged
        self.host.serving = Client(channel, self._registry)
        try:
            yield channel, privileged
        finally:
            channel.close()
            privileged.close()

    def for_clients(self, access: Authorizer | None, audit: Audit) -> Services:
        """Return the services for clients on the network. Without ``access``, every client may do everything."""
        registry = self._registry
        if access is None:
            for service in (TypesService(registry, self._topics), self._migration(), self._peer_streams):
                self._own.add(self._wrapped(service))
            return self._own

        replies = DescribedTypes(registry, self._topics)

        def types(caller: Caller) -> TypesService:
            # A caller without any right to a type or topic must not learn its schema.
            return TypesService(registry, self._topics, caller.may_know, caller.may_know_topic, replies=replies)

        everything: list[Callable[[Caller], Any]] = [*self._shared, self._migration, types]
        guarded = [Guarded(service, access, registry, audit) for service in everything]
        guarded += [Guarded(service, access, registry, audit, serves_strangers=False) for service in self._added]
        # A stream brings the secret of its peering instead of a token.
        return self._services(*guarded, self._peer_streams)

    def for_page(self, page: PageHost, access: Authorizer | None, audit: Audit) -> Services:
        """Return the answers of the page, each with the rights of its caller."""
        from headway.page import PageService

        service = partial(PageService, page, self._registry)
        return Services(service() if access is None else Guarded(service, access, self._registry, audit))

    def absences(self, client: Client, report: Report) -> Absences:
        """Return what finds the controllers that run nowhere."""
        from headway.why import Absences

        backend = self._backend
        about = (self.observe, client, self._registry, backend.kinds)
        return Absences(*about, shared=is_shared(backend), report=report, ready=self.peerings.listening)

    def link_peers(self, links: PeerLinks) -> None:
        """Connect the engine with its peers by these links, in place of the network."""
        self.peerings.addresses = links.serve({**self._peerings().__mapping__(), **self._peer_streams.__mapping__()})
        self.peerings.open_channel = links.open_channel

    def end_waits(self) -> None:
        """Answer the calls that wait for a lease, and end the subscriptions, because the engine ends."""
        self._waits.end()
        self.peerings.streams.resign()
        self._streams.end()
        self.observe.end()
