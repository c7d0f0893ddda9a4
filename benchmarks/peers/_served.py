"""A server of Headway for the network's rows: ``python -m benchmarks.peers._served COUNT``.

It prints its address when it has stored the resources, and serves them until its standard input ends. The engine is
what `headway serve` opens on the store in memory without an access file.
"""

from __future__ import annotations

import sys

import trio

import headway
from benchmarks._message import Note, built_many, fill
from headway.events import ignore
from headway.storage import MemoryBackend


async def serve(count: int) -> None:
    """Serve ``count`` resources until standard input ends."""
    app = headway.App("bench")
    note_type = app.type("bench", "v1", "Note", Note)
    backend = MemoryBackend()
    await fill(backend, note_type, built_many(note_type, count))
    listen = ["127.0.0.1:0"]
    async with headway.open_engine(
        backend, app, network=headway.Network(listen, insecure=True), report=ignore
    ) as engine:
        print(engine.addresses[0], flush=True)
        await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)


if __name__ == "__main__":
    trio.run(serve, int(sys.argv[1]))
