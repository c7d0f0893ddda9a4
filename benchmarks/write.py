"""`write`: one Write by the in-process client.

Measured: ``await client.write(resource)`` on the memory store, called by one task, for each of 20,000 creations and as
many updates. A creation writes the result of ``TYPE.new``. An update writes the result of a creation, with another
payload and another metadata entry. The time includes copying the caller's resource, encoding the changed payload, the
channel, the service's checks, the version and the uid, the commit with its history, the wake-up of watchers (there are
none), the checkpoints, and the copy-on-look view that is returned. It excludes ``TYPE.new``, and changing the resource
before the update.

Against: building the same message once by its constructors, with its id, type, tenancy and the Any of its payload, from
existing texts and bytes.

The message has one metadata entry and 120 bytes of payload. No channel buffer is involved.
"""

from __future__ import annotations

import time

import trio

import headway
from benchmarks._harness import Row, Scenario, interleaved
from benchmarks._message import TEXT, Note, built, texts
from headway.events import ignore
from headway.protobuf import encode
from headway.resource import ResourceType


def measure(size: int, rounds: int) -> Row:
    """Create ``size`` resources and update them."""
    app = headway.App("bench")
    type = app.type("bench", "v1", "Managed", Note)
    ours, against = interleaved(lambda: trio.run(_written, app, type, size), lambda: _built(type, size), rounds)
    return Row("write", ours / size * 1e6, against / size * 1e6, "us", 15.0)


async def _written(app: headway.App, type: ResourceType[Note], size: int) -> float:
    """Return the seconds for ``size`` writes, one half of them creations, the other half updates."""
    given = [texts(number) for number in range(size)]
    new = [type.new(text.name, Note(text=TEXT), metadata={"group": text.group}) for text in given]
    async with headway.open_engine("memory:", app, report=ignore) as engine:
        client = engine.client
        begin = time.perf_counter()
        stored = [await client.write(resource) for resource in new]
        created = time.perf_counter() - begin
        for resource in stored:
            resource.data.text = TEXT[::-1]
            resource.metadata["group"] = "group-0"
        begin = time.perf_counter()
        for resource in stored:
            await client.write(resource)
        return (created + time.perf_counter() - begin) / 2


def _built(type: ResourceType[Note], size: int) -> float:
    value = encode(Note(text=TEXT))
    given = [texts(number) for number in range(size)]
    begin = time.perf_counter()
    for text in given:
        built(type, text, value)
    return time.perf_counter() - begin


SCENARIO = Scenario("write", 15.0, measure, size=20_000, rounds=7, quick=5_000)
