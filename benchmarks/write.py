"""`write`: one Write by the in-process client.

Measured: ``await client.write(resource)`` on the memory store, called by one task, for each of 20,000 creations and as
many updates. A creation writes the result of ``TYPE.new``. An update writes the result of a creation, with another
payload and another metadata entry. The time includes copying the caller's resource, encoding the changed payload, the
channel, the service's checks, the version and the uid, the commit with its history, the wake-up of watchers (there are
none), the checkpoints, and the copy-on-look view that is returned. It excludes ``TYPE.new``, and changing the resource
before the update.

Against: the least that a store in Python does. For each creation and each update, the same message is built once by
its constructors, with its id, type, tenancy and the Any of its payload, from existing texts and bytes. It is kept under
its key, and in a list of all changes. So both sides work through as much memory as they keep, which is what a write
costs most on some processors: a message that is dropped at once never leaves the nearest cache.

The message has one metadata entry and 120 bytes of payload. No channel buffer is involved.
"""

from __future__ import annotations

import time

import trio

import headway
from benchmarks._harness import Row, Scenario, collected, interleaved
from benchmarks._message import TEXT, Note, built, texts
from headway.events import ignore
from headway.protobuf import encode
from headway.resource import Key, ResourceType, pb

BOUND = 8.0


def measure(size: int, rounds: int) -> Row:
    """Create ``size`` resources and update them."""
    app = headway.App("bench")
    type = app.type("bench", "v1", "Managed", Note)
    ours, against = interleaved(
        collected(lambda: trio.run(_written, app, type, size)), collected(lambda: _kept(type, size)), rounds
    )
    return Row("write", ours / size * 1e6, against / size * 1e6, "us", BOUND)


async def _written(app: headway.App, type: ResourceType[Note], size: int) -> float:
    """Return the seconds for ``size`` writes, one half of them creations, the other half updates."""
    given = [texts(number) for number in range(size)]
    new = [type.new(text.name, Note(text=TEXT), metadata={"group": text.group}) for text in given]
    async with headway.open_engine("memory:", app, report=ignore) as engine:
        client = engine.client
        begin = time.process_time()
        stored = [await client.write(resource) for resource in new]
        created = time.process_time() - begin
        for resource in stored:
            resource.data.text = TEXT[::-1]
            resource.metadata["group"] = "group-0"
        begin = time.process_time()
        for resource in stored:
            await client.write(resource)
        return (created + time.process_time() - begin) / 2


def _kept(type: ResourceType[Note], size: int) -> float:
    """Return the same for a dict and a list."""
    value = encode(Note(text=TEXT))
    given = [texts(number) for number in range(size)]
    stored: dict[Key, pb.Resource] = {}
    history: list[pb.Resource] = []
    begin = time.process_time()
    for _ in ("creations", "updates"):
        for text in given:
            resource = built(type, text, value)
            stored["default", "default", text.name] = resource
            history.append(resource)
    return (time.process_time() - begin) / 2


SCENARIO = Scenario("write", BOUND, measure, size=20_000, rounds=7, quick=20_000)
