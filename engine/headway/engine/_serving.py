"""An engine that serves clients on the network, by gRPC and over HTTP, with their rights."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import trio

from headway.access import Audit
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
            audit = Audit(report)
            if access is not None:
                from headway.access import keep_keys

                nursery.start_soon(audit.report_rest, name="audit")
                await nursery.start(keep_keys, access, report, name="keys of issuers")
            offered = offer.tracing.services(offer.services.for_clients(access, audit))
            limits = network.limits or Limits()
            replies: Budget | None = None
            # Network code is imported only for an engine that listens.
            if network.http is not None:
                from headway.engine._http import beside_http, serving_http

                http, replies = await servers.enter_async_context(serving_http(offer, offered, audit, nursery))
                served = served._replace(http=http)
                limits = beside_http(limits)
            if network.listen:
                from headway.engine._network import listening

                grpc = await servers.enter_async_context(listening(offer, offered, limits, replies))
                served = served._replace(grpc=grpc)
                host.addresses = grpc
        host.listening.set()
        if access is not None:
            servers.callback(access.subscribe(report))
        yield served
