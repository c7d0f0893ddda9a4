"""A process that forks once per life; each fork writes to a store until it is killed.

The parent has imported everything once, so a life starts within milliseconds. For each line on stdin (the number of a
life) it forks, and reports when that life has ended. In between, the life prints its acknowledgements, one per line.
Each line is written by one call, so it is whole however the life ends.

Every writer has one operation in flight at a time, and each operation follows from the writer's earlier ones. A reader
of the acknowledgements therefore knows which operation can have been in flight at the end.
"""

from __future__ import annotations

import os
import sys

import trio

import headway
from headway import field
from headway.client import Client
from headway.errors import NotFound
from headway.protobuf import decode
from headway.resource import ResourceType, pb
from headway.rpc import InProcessChannel
from headway.service import LeaseService, ResourceService
from headway.storage import Backend, Put, open_sqlite
from headway.testing.conformance import thing

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
    """Return the name that a writer's operation is about and the text to store; None deletes the name."""
    return f"n{writer}-{index % KEYS}", None if index % 7 == 6 else f"{life}.{writer}.{index} " + "x" * (index % 400)


async def write(client: Client, life: int, writer: int) -> None:
    """Create, update and delete the writer's own names through the service."""
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
    """Commit two resources with the same text at a time."""
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
    """Acquire and release leases, and raise fences and checkpoints, which only grow."""
    for index in range(1_000_000):
        acquired = await backend.acquire_lease("keeper", f"life-{life}", 3600, f"{life}.{index}")
        if not acquired.acquired:
            # The previous life was killed while it held the lease, and its ttl is an hour.
            await backend.release_lease("keeper", acquired.held.lease.holder, acquired.held.lease.term)
            continue
        term = acquired.held.lease.term
        say("term", term, acquired.position.revision)
        raised = await backend.raise_fence("keeper", "", term, index + 1)
        say("fence", raised.fence.term, raised.fence.number, raised.position.revision)
        await backend.record_checkpoint(raised.fence, raised.position.revision - 1)
        say("checkpoint", raised.position.revision - 1)


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
    """Return the text of a stored note."""
    assert resource.data is not None
    return decode(Note, resource.data.value).text


if __name__ == "__main__":
    main()
