"""`peering`: a peer's first copy of 100,000 resources over a Unix socket, per resource.

Measured: the processor time from connecting two memory stores until the receiving one has stored every copy, and knows
that the first copy is complete. Both ends are in one process. It includes the secret, the messages, the checks of each
resource, and the commits. Nothing in it waits but for the other end, and in many seconds of wall time, other programs
would have the processor.

Against: priming a controller from such a store (`memory_prime`), and writing the same resources in process.

Both sides treat Python's garbage collector as `headway serve` does: each turn begins without garbage, and with all
existing objects excluded from collections. Priming collects nothing. The first copy collects only young objects, and
is excluded at its end. The writes have the collector of a running engine.

The message has one metadata entry and 120 bytes of payload.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import trio

import headway
from benchmarks._harness import Row, Scenario, interleaved
from benchmarks._message import TEXT, Note, texts
from benchmarks._primed import filled, one_type, primed_after
from headway import events, rpc
from headway.engine import EngineServices, Host
from headway.engine._collector import GcFreeze
from headway.peering import PEERING, Peering, PeeringHost, PeerLimits, PeerStreamService, Role, ensure_partition, export
from headway.peering._hub import Entry
from headway.peering.links import Dialer
from headway.peering.stream import Copying
from headway.resource import ResourceType
from headway.storage import MemoryBackend
from headway.subscribing import subscribing_extension

BOUND = 1.5


def measure(size: int, rounds: int) -> Row:
    """Copy ``size`` resources."""
    app, type = one_type()
    store = MemoryBackend()
    trio.run(filled, store, type, size)
    ours, against = interleaved(
        lambda: trio.run(_copied, store, app, type),
        lambda: trio.run(_primed, store, app) + trio.run(_written, app, type, size),
        rounds,
    )
    return Row("peering", ours / size * 1e6, against / size * 1e6, "us", BOUND)


@asynccontextmanager
async def _frozen() -> AsyncIterator[GcFreeze]:
    """Exclude everything that exists from collections, as an engine does after its first pass."""
    with GcFreeze(wanted=True) as freeze:
        await freeze.first_pass(())
        yield freeze


async def _primed(store: MemoryBackend, app: headway.App) -> float:
    """Return the seconds until a controller is primed."""
    return await primed_after(store, app, time.process_time)


async def _written(app: headway.App, type: ResourceType[Note], size: int) -> float:
    """Return the seconds that it takes to write the resources."""
    made = [type.new(texts(number).name, Note(text=TEXT), metadata={"group": "0"}) for number in range(size)]
    services = EngineServices(Host(MemoryBackend(), app.registry, events.ignore))
    async with services.open_channels(lasting_leases=True) as (channel, _), _frozen():
        client = headway.Client(channel, app.registry)
        begin = time.process_time()
        for each in made:
            await client.write(each)
        return time.process_time() - begin


async def _copied(store: MemoryBackend, app: headway.App, type: ResourceType[Note]) -> float:
    """Return the seconds until the copy is complete."""
    with tempfile.TemporaryDirectory() as folder:
        where = f"unix:{folder}/peer"
        async with (
            _host(store, app) as accepts,
            _host(MemoryBackend(), app) as dials,
            _frozen() as freeze,
            rpc.open_server(rpc.Services(PeerStreamService(accepts)), [where]),
            trio.open_nursery() as nursery,
        ):
            accepting = Peering(role=Role.ACCEPTS, exports=[export(type, partition="default")], plain_text=True)
            peering = await accepts.client.create(PEERING.new(f"p{time.monotonic_ns()}", accepting))
            await ensure_partition(store, accepts.client, peering)
            await accepts.secrets.put_token(peering, "token")
            _, secret = await accepts.secrets.exchange(peering.id.uid, "token", "attempt", "dialer", plain_text=True)
            accepts.streams.lead()
            accepts.streams.entries[peering.id.uid] = Entry(peering, lambda: None)
            dialing = Peering(role=Role.DIALS, addresses=[where], peer_id=peering.id.uid, plain_text=True)
            mine = await dials.client.create(PEERING.new("peer", dialing))
            await ensure_partition(dials.backend, dials.client, mine)
            entry = Entry(mine, lambda: noted())
            complete = trio.Event()

            def noted() -> None:
                if entry.progress is not None and entry.progress.copying is Copying.CURRENT:
                    complete.set()

            dials.loads = freeze.load
            begin = time.process_time()
            nursery.start_soon(partial(Dialer(dials, entry, PeerLimits())._attempt, secret))
            await complete.wait()
            seconds = time.process_time() - begin
            nursery.cancel_scope.cancel()
    return seconds


@asynccontextmanager
async def _host(store: MemoryBackend, app: headway.App) -> AsyncIterator[PeeringHost]:
    host = Host(store, app.registry, events.ignore)
    async with EngineServices(host, [subscribing_extension(host)]).open_channels(lasting_leases=True):
        yield PeeringHost(host)


SCENARIO = Scenario("peering", BOUND, measure, size=100_000, rounds=3, quick=10_000)
