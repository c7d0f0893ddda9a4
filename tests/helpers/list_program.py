"""A server over gRPC and HTTP whose store has one large list, of many pages or of a few large ones.

It stops at the end of its input.
"""

from __future__ import annotations

import sys

import trio

import headway
from headway import field
from headway.rpc import Limits, WireLimits

MIB = 1 << 20
COUNT, SIZE = 2_000, 4 << 10
"""The number of pages, and the bytes of each: the list has 8 MiB."""
LARGE_COUNT, LARGE_SIZE = 15, 3_900_000
"""The number of large pages, and the bytes of each: the list has 56 MiB. The first one owns the others."""
BUDGET = 48 * MIB
"""The memory for replies that wait for their clients, of all together."""


@headway.message
class Page:
    text: str = field(1)


app = headway.App("lists")
PAGE = app.type("lists", "v1", "Page", Page)


async def main(store: str, large: str = "") -> None:
    """Serve until the input ends. Print the addresses and the owner's uid first, as the only line of the errors."""
    limits = Limits(server_replies_size=BUDGET, wire=WireLimits(replies_size=BUDGET))
    network = headway.Network(["127.0.0.1:0"], http="127.0.0.1:0", insecure=True, limits=limits)
    async with headway.open_engine(store, app, network=network) as engine:
        owner = None
        for number in range(LARGE_COUNT if large else 0):
            page = PAGE.new(f"n{number:05}", Page(text="x" * LARGE_SIZE), owner=owner)
            written = await engine.client.write(page)
            owner = owner or written
        for begin in range(0, 0 if large else COUNT, 100):
            async with trio.open_nursery() as nursery:
                for number in range(begin, begin + 100):
                    nursery.start_soon(engine.client.write, PAGE.new(f"n{number:05}", Page(text="x" * SIZE)))
        # Not on the standard output, which has the log.
        print(engine.addresses[0], engine.http, owner.uid if owner else "-", file=sys.stderr, flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)


if __name__ == "__main__":
    trio.run(main, sys.argv[1], "".join(sys.argv[2:]))
