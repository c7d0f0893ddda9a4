"""A program that founds each store whose URL it reads, at the same moment as others, and prints what became of it.

It opens an engine, writes resources of a type that all programs declare and of one of its own, asks for a lease, and
makes a token for a peer. Then it prints "opened" and the holder of the lease, or the error. It keeps the store open
until the next line. Its argument is the number of the program.
"""

from __future__ import annotations

import sys

import trio

import headway
from headway import field
from headway.errors import HeadwayError
from headway.peering import generate_token


@headway.message
class Shared:
    """A payload that all programs declare."""

    text: str = field(1)


@headway.message
class Own:
    """A payload of a type that only one program declares."""

    text: str = field(1)


async def main(number: int) -> None:
    """Run the program."""
    app = headway.App("founding")
    shared = app.type("founding", "v1", "Shared", Shared)
    own = app.type("founding", "v1", f"Own{number}", Own)
    lines = trio.wrap_file(sys.stdin)
    line = await lines.readline()
    while line:
        try:
            async with headway.open_engine(line.strip(), app, report=lambda _: None) as engine:
                await engine.client.apply(shared.new(f"of-{number}"))
                await engine.client.apply(own.new("core"))
                leader = (await engine.client.leases.acquire("founding/leader", str(number), 60)).holder
                await generate_token(engine.client, "west", addresses=["127.0.0.1:1"], plain_text=True)
                print("opened", leader, flush=True)
                line = await lines.readline()
        except HeadwayError as error:
            print(f"{type(error).__name__}: {error}", flush=True)
            line = await lines.readline()


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]))
