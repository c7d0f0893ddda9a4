"""An engine that serves its services on the network, with health and reflection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import trio

from headway.engine._offer import Offer
from headway.engine._services import Guard
from headway.resource import Registry
from headway.rpc import Budget, DescribedFiles, Health, Limits, OpenStreams, Reflection, Services, open_server
from headway.service import DescribedPayloads
from headway.subscription import Topic

if TYPE_CHECKING:
    from headway.engine._extension import Caller

_LAST_STATUS = 0.5
"""The time limit, in seconds, for sending the last status to watchers of the health service."""


@asynccontextmanager
async def listening(
    offer: Offer, services: Services, guard: Guard | None, limits: Limits, replies: Budget | None
) -> AsyncIterator[Sequence[str]]:
    """Serve the services at the addresses, and yield the addresses with their actual ports.

    ``replies`` is the budget for unread replies, if a server of HTTP shares it.
    """
    host = offer.host
    network = host.network
    health = _add_standard_services(services, host.registry, offer.topics, guard)
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


def _add_standard_services(
    services: Services, registry: Registry, topics: Mapping[str, Topic[Any]], guard: Guard | None
) -> Health:
    """Add health and reflection to the services of a server, and return its health.

    Every caller sees the same health. Reflection describes a payload only to a caller with some right to its type or
    topic.
    """
    described = DescribedFiles.of_set((files("headway._gen") / "descriptors.bin").read_bytes())
    payloads = DescribedPayloads(registry, described, topics)
    streams = OpenStreams()
    health = Health(streams=streams)

    def reflection(caller: Caller) -> Reflection:
        return Reflection(services, described, partial(payloads.of, caller.may_know, caller.may_know_topic), streams)

    services.add(health)
    services.add(Reflection(services, described, payloads.of, streams) if guard is None else guard(reflection))
    health.add(services.names)
    return health
