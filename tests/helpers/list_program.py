"""A server over gRPC and HTTP whose store has one large list. It stops at the end of its input."""

from __future__ import annotations

import sys

import trio

import headway
from headway import field
from headway.rpc import Limits

MIB = 1 << 20
COUNT, SIZE = 2_000, 4 << 10
"""The number of resources, and the bytes of each: the list has 8 MiB."""
BUDGET = 48 * MIB
"""The memory for replies that wait for their clients, of all together."""


@headway.message
class Page:
    text: str = field(1)


app = headway.App("lists")
PAGE = app.type("lists", "v1", "Page", Page)


async def main(store: str) -> None:
    """Serve until the input ends. Print the addresses first, as the only line of the errors."""
    limits = Limits(replies_size=BUDGET, server_replies_size=BUDGET)
    network = {"listen": ["127.0.0.1:0"], "http": "127.0.0.1:0", "insecure": True, "limits": limits}
    async with headway.open_engine(store, app, **network) as engine:  # type: ignore[arg-type]  # options by name
        for begin in range(0, COUNT, 100):
            async with trio.open_nursery() as nursery:
                for number in range(begin, begin + 100):
                    nursery.start_soon(engine.client.write, PAGE.new(f"n{number:05}", Page(text="x" * SIZE)))
        # Not on the standard output, which has the log.
        print(engine.addresses[0], engine.http, file=sys.stderr, flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
