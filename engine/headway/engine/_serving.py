"""An engine that serves clients on the network, by gRPC and over HTTP, with their rights."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import trio

from headway.engine._offer import Offer
from headway.rpc import Budget, Limits


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
            offered = offer.tracing.services(offer.services.for_clients(guard))
            limits = network.limits or Limits()
            replies: Budget | None = None
            if network.http is not None:
                from headway.page import beside_http, serving_http

                opened = serving_http(host, offer.apps, offered, guard, nursery)
                http, replies = await servers.enter_async_context(opened)
                served = served._replace(http=http)
                limits = beside_http(limits)
            if network.listen:
                from headway.engine._network import listening

                grpc = await servers.enter_async_context(listening(offer, offered, guard, limits, replies))
                served = served._replace(grpc=grpc)
                host.addresses = grpc
        host.listening.set()
        if access is not None:
            servers.callback(access.subscribe(report))
        yield served
