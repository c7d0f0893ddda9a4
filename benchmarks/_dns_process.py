"""``python -m benchmarks._dns_process ADDRESS NUMBER``: the process of the DNS server in `dns_change`.

It asks for the services whose change has not arrived yet, the first `WINDOW` of them, each millisecond. When an answer
lacks a workload, it prints the number of the service and the time, by the monotonic clock that all processes share.
"""

from __future__ import annotations

import sys
import time

import dns.message
import trio

import headway
from benchmarks._catalog import service_name
from benchmarks._process import READY
from catalog import app
from catalog.dns import Responder, Source
from catalog.dns.zone import INDEXES, WATCHES
from catalog.types import SERVICE

WINDOW = 20
_LOOK = 0.001


async def main(address: str, number: int) -> None:
    """Print the arrival of one change of each of the first ``number`` services."""
    source = Source("consul")
    async with headway.connect(address, app) as client, trio.open_nursery() as nursery:
        opening = headway.open_cache(address, app, watches=WATCHES, indexes=INDEXES)
        nursery.start_soon(source.follow, opening, lambda: client.get(SERVICE, "none"))
        while source.zone() is None:  # noqa: ASYNC110  # once
            await trio.sleep(_LOOK)
        await look(Responder(source.zone), number)
        nursery.cancel_scope.cancel()


async def look(responder: Responder, number: int) -> None:
    """Ask until all changes have arrived."""
    waiting = {each: query(each) for each in range(number)}
    whole = {each: records(responder, packet) for each, packet in waiting.items()}
    print(READY, flush=True)
    while waiting:
        await trio.sleep(_LOOK)
        for each in list(waiting)[:WINDOW]:
            if records(responder, waiting[each]) < whole[each]:
                del waiting[each]
                print(each, time.monotonic(), flush=True)


def query(service: int) -> bytes:
    """Return a question for the addresses of a service."""
    return dns.message.make_query(f"{service_name(service)}.service.consul", "A").to_wire()


def records(responder: Responder, packet: bytes) -> int:
    """Return the number of records in an answer."""
    answer = responder.answer(packet)
    return int.from_bytes(answer[6:8], "big") if answer is not None else 0


if __name__ == "__main__":
    trio.run(main, sys.argv[1], int(sys.argv[2]))
