"""The engine process of the peering tests: `python -m tests.helpers.peer_program STORE SOCKET`.

It prints a line when it serves, and another for each event that a test may want to see.
"""

from __future__ import annotations

import sys

import trio

import headway
from headway import events
from tests.helpers.peers import app


def say(event: object) -> None:
    """Print the events about peers."""
    if isinstance(event, events.PeerRefused):
        print(type(event).__name__, event.why, flush=True)


async def main(store: str, socket: str) -> None:
    """Run until the process is ended."""
    async with headway.open_engine(store, app, network=headway.Network([f"unix:{socket}"], insecure=True), report=say):
        print("serves", flush=True)
        await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2])
