"""A program that forks a child while it has an engine open, with its ports, and clients of them.

It is started with the path of its store, and "ends" or "stays". It prints its addresses and the process id of the
child, and, if it "ends" the engine, "reopened" once it has opened all of it again. The child prints what it hears when
it opens the store, and then waits to be killed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio

import headway
from headway.base import silence_in_forked_child
from headway.errors import StoreUnusable
from headway.storage import open_sqlite
from tests.helpers.etcd_server import free_ports
from tests.helpers.staff import Staff


def _say(*words: object) -> None:
    # In one piece, because the other process writes to the same pipe.
    os.write(1, f"{' '.join(map(str, words))}\n".encode())


def _wait(path: str) -> None:
    try:
        trio.run(_open, path)
    except StoreUnusable as error:
        _say(error)
    signal.pause()


async def _open(path: str) -> None:
    async with open_sqlite(path):
        _say("the child has opened the store")


@asynccontextmanager
async def _opened(path: str, listen: Sequence[str], http: str) -> AsyncIterator[headway.Engine]:
    staff = Staff()
    async with headway.open_engine(
        f"sqlite:{path}",
        staff.app,
        network=headway.Network(listen, http=http, insecure=True),
        report=staff.events.append,
    ) as engine:
        assert engine.http is not None
        host, _, port = engine.http.partition(":")
        async with (
            headway.connect(engine.addresses[0], staff.app, insecure=True) as client,
            await trio.open_tcp_stream(host, int(port)) as stream,
        ):
            # This end is the program's own.
            silence_in_forked_child(stream.socket)
            await client.apply(staff.team.new("core"))
            await stream.send_all(b"GET /v1/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            await stream.receive_some()
            yield engine


async def main(path: str, then: str) -> None:
    """Run the program."""
    ports = free_ports(2)
    listen, http = [f"127.0.0.1:{ports[0]}", f"unix:{path}.socket"], f"127.0.0.1:{ports[1]}"
    async with _opened(path, listen, http) as engine:
        child = multiprocessing.get_context("fork").Process(target=_wait, args=[path])
        # In a thread, because the child runs Trio.
        await trio.to_thread.run_sync(child.start)
        _say(*engine.addresses, engine.http, child.pid)
        if then == "stays":
            await trio.sleep_forever()
    async with _opened(path, listen, http):
        _say("reopened")
        await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2])
