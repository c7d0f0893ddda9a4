"""Everything that a registrar runs: the checks, always, and the writing, while it holds its lease."""

from __future__ import annotations

from collections.abc import Sequence

import trio

import headway
from catalog.registrar import marks
from catalog.registrar.definitions import Registered
from catalog.registrar.publishing import Publisher
from catalog.registrar.watching import Watched
from catalog.types import WORKLOAD


async def run(client: headway.Client, name: str, registered: Sequence[Registered], *, ttl: float) -> None:
    """Register workloads and write their health until canceled.

    Args:
        client: a client of the catalog.
        name: the unique name of the registrar. It must be the same after a restart.
        registered: the workloads and their checks.
        ttl: the time in seconds, at least 1, until the workloads count as critical if the registrar is gone.
    """
    watched = [Watched(each) for each in registered]
    async with trio.open_nursery() as nursery:
        for each in watched:
            nursery.start_soon(each.run)
        while True:
            try:
                async with headway.hold_lease(client.leases, marks.LEASES + name, holder=name, ttl=ttl) as lease:
                    print(f"registering in term {lease.term}", flush=True)
                    await _publish(client, name, lease.term, watched)
            except headway.errors.LeaseLost as error:
                print(f"the lease is lost: {error}", flush=True)


async def _publish(client: headway.Client, name: str, term: int, watched: Sequence[Watched]) -> None:
    async with trio.open_nursery() as nursery:
        for each in watched:
            nursery.start_soon(Publisher(client, name, term, each).run)
        nursery.start_soon(_remove_others, client, name, {each.registered.workload.id.key for each in watched})


async def _remove_others(client: headway.Client, name: str, kept: set[tuple[str, str, str]]) -> None:
    """Delete the workloads that an earlier file of this registrar had."""
    while True:
        try:
            for stored in await client.list(WORKLOAD, filter=f"{marks.REGISTRAR}={name}"):
                if stored.id.key not in kept:
                    await client.delete(stored, version=stored.version)
                    print(f"{stored.name}: deregistered, since the file no longer has it", flush=True)
        except headway.HeadwayError as error:
            print(f"the earlier workloads: {error}", flush=True)
            await trio.sleep(1)
        else:
            return
