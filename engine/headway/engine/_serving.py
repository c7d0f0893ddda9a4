"""An engine that serves clients on the network, by gRPC and over HTTP, with their rights."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

import trio

from headway.controller import App
from headway.engine._around import Around
from headway.engine._extension import Host
from headway.engine._services import EngineServices, Guard
from headway.engine._store_health import StoreHealth
from headway.rpc import Budget, Limits, Services
from headway.service import DescribedPayloads

if TYPE_CHECKING:
    from headway.engine._extension import Caller
    from headway.rpc import Health, Reflection

_LAST_STATUS = 0.5
"""The time limit, in seconds, for sending the last status to watchers of the health service."""


@dataclass(frozen=True, kw_only=True)
class Offer:
    """The host of an engine, and the parts that its clients use."""

    host: Host
    apps: Sequence[App]
    services: EngineServices
    health: StoreHealth
    around: Around


class Addresses(NamedTuple):
    """The addresses of an engine, with the actual ports."""

    grpc: Sequence[str] = ()
    http: str | None = None


@asynccontextmanager
async def serving(offer: Offer, nursery: trio.Nursery) -> AsyncIterator[Addresses]:
    """Serve the clients until the block ends, and yield the addresses.

    Raises:
        DeclarationError: the libraries for HTTP are not installed.
        OSError: an address cannot be bound.
    """
    host = offer.host
    network, access, report = host.network, host.network.access, host.report
    async with AsyncExitStack() as servers:
        served = Addresses()
        if network.serves:
            # Access control and network code are imported only for an engine that needs them.
            guard = None
            if access is not None:
                from headway.access import start_guard

                guard = await start_guard(access, host.registry, report, nursery)
            offered = offer.around.services(offer.services.for_clients(guard))
            limits = network.limits or Limits()
            replies: Budget | None = None
            if network.http is not None:
                from headway.page import beside_http, serving_http

                opened = serving_http(host, offer.apps, offered, guard, nursery)
                http, replies = await servers.enter_async_context(opened)
                served = served._replace(http=http)
                limits = beside_http(limits)
            if network.listen:
                grpc = await servers.enter_async_context(_listening(offer, offered, guard, limits, replies))
                served = served._replace(grpc=grpc)
                host.addresses = grpc
        host.listening.set()
        if access is not None:
            servers.callback(access.subscribe(report))
        yield served


@asynccontextmanager
async def _listening(
    offer: Offer, services: Services, guard: Guard | None, limits: Limits, replies: Budget | None
) -> AsyncIterator[Sequence[str]]:
    """Serve the services at the addresses, and yield the addresses with their actual ports.

    ``replies`` is the budget for unread replies, if a server of HTTP shares it.
    """
    # Imported here, because an engine without an address needs none of it.
    from headway.rpc import open_server

    host, network = offer.host, offer.host.network
    health = _add_standard_services(services, host, guard)
    offer.health.follow(lambda problem: health.set_all(serving=problem is None))
    opened = open_server(
        services,
        network.listen,
        tls=network.tls,
        limits=limits,
        notify=host.report,
        share_ports=network.share_ports,
        replies=replies,
    )
    async with opened as server:
        try:
            yield server.addresses
        finally:
            health.end()
            # The server ends the watches at once. Clients that read must first learn that it no longer serves.
            with trio.move_on_after(_LAST_STATUS, shield=True):
                await health.wait_sent()


def _add_standard_services(services: Services, host: Host, guard: Guard | None) -> Health:
    """Add health and reflection to the services of a server, and return its health.

    Every caller sees the same health. Reflection describes a payload only to a caller with some right to its type or
    topic.
    """
    from headway.rpc import DescribedFiles, Health, OpenStreams, Reflection

    described = DescribedFiles.of_set((files("headway._gen") / "descriptors.bin").read_bytes())
    payloads = DescribedPayloads(host.registry, described, host.topics)
    streams = OpenStreams()
    health = Health(streams=streams)

    def reflection(caller: Caller) -> Reflection:
        return Reflection(services, described, partial(payloads.of, caller.may_know, caller.may_know_topic), streams)

    services.add(health)
    services.add(Reflection(services, described, payloads.of, streams) if guard is None else guard(reflection))
    health.add(services.names)
    return health
