"""A process that makes lives: each is a fork of it that writes to a store until it is killed.

It has imported everything once, so that a life takes milliseconds to begin. For each line on stdin (a life's number) it
forks, and says when that life has ended; what the life says in between are its acknowledgements, one a line, each
written by one call, so that a line is whole however the life ends.

Every writer has one operation under way at a time, and what it does next follows from what it did before; so who
reads the acknowledgements knows what the one that was under way at the end can have been.
"""

from __future__ import annotations

import os
import sys

import trio

import headway
from headway import field
from headway.client import Client
from headway.errors import NotFound
from headway.resource import ResourceType, decode, pb
from headway.rpc import InProcessChannel
from headway.service import LeaseService, ResourceService
from headway.storage import Backend, Put, open_sqlite
from headway.testing._conformance_tools import thing

KEYS = 5
"""Names that one writer writes in turn, again and again."""

WRITERS = 4
MAX_CHANGES = 3000
PAIR = ("crash", "Pair")


@headway.message
class Note:
    text: str = field(1)


app = headway.App("crash")
NOTE: ResourceType[Note] = app.type("crash", "v1", "Note", Note)


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def step(life: int, writer: int, index: int) -> tuple[str, str | None]:
    """The name that a writer's operation is about, and the text that it gives it; None: it deletes it."""
    return f"n{writer}-{index % KEYS}", None if index % 7 == 6 else f"{life}.{writer}.{index} " + "x" * (index % 400)


async def write(client: Client, life: int, writer: int) -> None:
    """Through the service: creations, updates and deletions of its own names."""
    for index in range(1_000_000):
        name, text = step(life, writer, index)
        try:
            stored = await client.read(NOTE, name)
        except NotFound:
            stored = None
        if text is not None:
            resource = stored or NOTE.new(name, Note())
            resource.data.text = text
            say("wrote", writer, index, (await client.write(resource)).version)
        elif stored is not None:
            await client.delete(stored)
            say("deleted", writer, index, 0)
        else:
            say("skipped", writer, index, 0)


async def write_pairs(backend: Backend, life: int) -> None:
    """Two resources in each commit, with one text."""
    versions = ["", ""]
    for side, name in enumerate(("left", "right")):
        stored, _ = await backend.read(PAIR, ("default", "default", name))
        versions[side] = "" if stored is None else stored.version
    for index in range(1_000_000):
        pair = [thing(name, f"{life}.{index}", uid=name, kind=PAIR) for name in ("left", "right")]
        at = await backend.commit(
            [
                Put(PAIR, ("default", "default", name), each, version)
                for name, each, version in zip(("left", "right"), pair, versions, strict=True)
            ]
        )
        versions = [str(at.revision)] * 2
        say("pair", index, at.revision)


async def hold_leases(backend: Backend, life: int) -> None:
    """Terms, fences and settled marks, which only grow."""
    for index in range(1_000_000):
        acquired = await backend.acquire_lease("keeper", f"life-{life}", 3600, f"{life}.{index}")
        if not acquired.acquired:
            # The life before this one was killed while it held it, and it has an hour to come back.
            await backend.release_lease("keeper", acquired.held.lease.holder, acquired.held.lease.term)
            continue
        term = acquired.held.lease.term
        say("term", term, acquired.position.revision)
        raised = await backend.raise_fence("keeper", "", term, index + 1)
        say("fence", raised.fence.term, raised.fence.number, raised.position.revision)
        await backend.record_checkpoint(raised.fence, raised.position.revision - 1)
        say("settled", raised.position.revision - 1)


async def live(path: str, life: int) -> None:
    async with open_sqlite(path, max_changes=MAX_CHANGES) as backend:
        here = backend.position
        say("open", here.store_id, here.session, here.revision)
        client = Client(InProcessChannel(ResourceService(backend, app.registry), LeaseService(backend)), app.registry)
        async with trio.open_nursery() as nursery:
            for writer in range(WRITERS):
                nursery.start_soon(write, client, life, writer)
            nursery.start_soon(write_pairs, backend, life)
            nursery.start_soon(hold_leases, backend, life)


def main() -> None:
    path = sys.argv[1]
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            say("life", os.getpid())
            trio.run(live, path, int(line))
        os.waitpid(pid, 0)
        say("ended")


def text_of(resource: pb.Resource) -> str:
    """The text of a stored note."""
    assert resource.data is not None
    return decode(Note, resource.data.value).text


if __name__ == "__main__":
    main()
