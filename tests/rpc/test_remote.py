"""The client, a watch and a controller over the network behave as they do in the process."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from grpclib.const import Status

import headway
from headway import rpc
from headway.client import Client, HeldLease
from headway.controller import GrowingDefinition
from headway.errors import HeadwayError, InvalidArgument, Unavailable
from headway.events import StreamOpened
from headway.informers import Informers
from headway.pauses import PAUSE
from headway.reconcile import Gate
from headway.resource import Changes, EndOfSnapshot, SnapshotChunk, pb
from headway.rpc import HealthCheckRequest, HealthCheckResponse
from headway.run import EveryKey, Owed, Run, Supervisor
from headway.service import WATCH_LIST
from tests.helpers.service_errors import status_of
from tests.rpc.rpc_kit import COUNT, DECODERS, ECHO, TEXTS, THING, Served, Text, app, served

READ = "/headway.resource.v1.ResourceService/Read"


@asynccontextmanager
async def clients() -> AsyncIterator[tuple[Served, Client, rpc.RemoteChannel]]:
    async with served() as it, rpc.open_channel(it.where, decoders=DECODERS) as channel:
        yield it, Client(channel, app.registry), channel


async def test_client_works_over_the_network() -> None:
    """Write, read, list, apply, delete, and each refusal by its own error."""
    async with clients() as (_, client, _):
        created = await client.write(THING.new("a", Text(text="1")))
        assert created.version
        read = await client.read(THING, "a")
        assert (read.data.text, read.version, read.id.uid) == ("1", created.version, created.id.uid)
        read.data.text = "2"
        await client.write(read)
        with pytest.raises(headway.Conflict):
            await client.write(read)
        assert [each.data.text for each in await client.list(THING)] == ["2"]
        await client.delete(await client.apply(THING.new("a", Text(text="3"))))
        assert await client.get(THING, "a") is None
        with pytest.raises(headway.NotFound):
            await client.read(THING, "a")
        with pytest.raises(InvalidArgument):
            await client.read(THING, "Not A Name")


def _everything() -> pb.WatchListRequest:
    return pb.WatchListRequest(type=THING.name.message(), tenancy=pb.Tenancy(partition="*", namespace="*"))


class Copier:
    """An app with a controller that copies every Thing, and a record of its reconciles."""

    def __init__(self) -> None:
        self.app = headway.App("controlled")
        self.source = self.app.type("test", "v1", "Thing", Text)
        self.target = self.app.type("test", "v1", "Copy", Text)
        self.events: list[object] = []
        self._changed = trio.Event()

        @self.app.controller(manages=self.source, watches=[headway.watch(self.target, headway.mappers.same_name())])
        async def copier(rt: headway.Runtime, request: headway.Request) -> None:
            thing = rt.cache.get(self.source, request.id)
            if thing is not None:
                await rt.client.apply(self.target.new(request.id.name, Text(text=thing.data.text)))
            self._changed.set()
            self._changed = trio.Event()

    async def run_on(self, channel: rpc.Channel, nursery: trio.Nursery) -> None:
        """Start the controller like an engine would, on any channel."""
        informers = Informers(channel, nursery, self.events.append, lag_limit=30.0)
        definition = self.app.controllers["copier"]
        growing = GrowingDefinition(definition, self.app.registry)

        def make(owed: Owed, lease: HeldLease | None) -> Run:
            return Run(
                growing,
                informers=informers,
                channel=channel,
                registry=self.app.registry,
                report=self.events.append,
                fence_name="copier",
                gate=Gate("copier"),
                ownership=EveryKey(definition),
                lease=lease,
                owed=owed,
            )

        nursery.start_soon(Supervisor("copier", make, self.events.append).supervise)

    async def until_copied(self, client: Client, name: str, text: str) -> None:
        while True:
            changed = self._changed
            copy = await client.get(self.target, name)
            if copy is not None and copy.data.text == text:
                return
            await changed.wait()


async def test_controller_runs_over_the_network() -> None:
    """It primes, reconciles existing and new resources, and sees its own writes."""
    copier = Copier()
    async with served(apps=[copier.app]) as it, rpc.open_channel(it.where, decoders=DECODERS) as channel:
        client = Client(channel, copier.app.registry)
        await client.write(copier.source.new("before", Text(text="1")))
        async with trio.open_nursery() as nursery:
            await copier.run_on(channel, nursery)
            await copier.until_copied(client, "before", "1")
            await client.write(copier.source.new("after", Text(text="2")))
            await copier.until_copied(client, "after", "2")
            nursery.cancel_scope.cancel()


async def test_controller_moves_to_another_server_when_its_server_stops() -> None:
    """Its streams resume at another server of the same store without a snapshot, and miss nothing."""
    copier = Copier()
    async with served(apps=[copier.app]) as it:
        local = Client(rpc.InProcessChannel(it.services), copier.app.registry)
        await local.write(copier.source.new("before", Text(text="1")))
        gone, stopped = trio.Event(), trio.Event()

        async def first(task_status: trio.TaskStatus[str]) -> None:
            async with rpc.open_server(it.services, ["127.0.0.1:0"]) as server:
                task_status.started(server.addresses[0])
                await gone.wait()
            stopped.set()

        async with trio.open_nursery() as servers:
            where = [await servers.start(first), it.where]
            async with rpc.open_channel(where, decoders=DECODERS) as channel, trio.open_nursery() as nursery:
                await copier.run_on(channel, nursery)
                await copier.until_copied(local, "before", "1")
                assert it.server.connections == 0
                gone.set()
                await stopped.wait()
                await local.write(copier.source.new("after", Text(text="2")))
                await copier.until_copied(local, "after", "2")
                assert it.server.connections > 0
                nursery.cancel_scope.cancel()
    opened = [event for event in copier.events if isinstance(event, StreamOpened) and event.type != PAUSE.name]
    # Each of the two types is opened with a snapshot once. The other streams resume at their last position.
    assert [event.resume_after is None for event in opened].count(True) == 2
    assert len(opened) > 2


async def test_unreachable_server_is_unavailable() -> None:
    """The error names its address. A write was certainly not sent, so its outcome is not unknown."""
    async with rpc.open_channel("127.0.0.1:1") as channel:
        with pytest.raises(HeadwayError, match=r"127\.0\.0\.1:1") as caught:
            await channel.unary(ECHO, Text(), Text)
        assert status_of(caught.value) is Status.UNAVAILABLE
        client = Client(channel, app.registry)
        with pytest.raises(Unavailable):
            await client.read(THING, "a")
        with pytest.raises(Unavailable):
            await client.write(THING.new("a", Text()))


async def test_unreachable_server_is_skipped_for_the_next_one() -> None:
    """A server that stops is left, too."""
    async with served() as one, served() as other:
        where = f"127.0.0.1:1,{one.where},{other.where}"
        async with rpc.open_channel(where) as channel:
            await channel.unary(ECHO, Text(text="a"), Text)
            assert (one.server.connections, other.server.connections) == (1, 0)
    async with served() as other, trio.open_nursery() as nursery:
        gone = trio.Event()

        async def first(task_status: trio.TaskStatus[str]) -> None:
            async with served() as it:
                task_status.started(it.where)
                await gone.wait()

        where = await nursery.start(first)
        async with rpc.open_channel([where, other.where]) as channel:
            await channel.unary(ECHO, Text(text="a"), Text)
            assert other.server.connections == 0
            gone.set()
            while other.server.connections == 0:
                with contextlib.suppress(HeadwayError):
                    await channel.unary(ECHO, Text(text="a"), Text)
            assert (await channel.unary(ECHO, Text(text="b"), Text)).text == "b"


async def test_another_connection_is_opened_before_streams_run_out() -> None:
    """grpclib alone would wait forever at the server's limit."""
    limits = rpc.Limits(wire=rpc.WireLimits(streams=10))
    async with (
        served(limits=limits) as it,
        rpc.open_channel(it.where, decoders=TEXTS) as channel,
        trio.open_nursery() as nursery,
    ):

        async def watch() -> None:
            async with channel.stream(COUNT, Text(text="0")) as items:
                async for _ in items:
                    pass

        for _ in range(35):
            nursery.start_soon(watch)
        await it.echo.until_waiting(35)
        assert it.server.connections == 4
        assert (await channel.unary(ECHO, Text(text="a"), Text)).text == "a"
        # Calls never wait behind watches: they have a connection of their own.
        assert it.server.connections == 5
        nursery.cancel_scope.cancel()


async def test_one_registry_serves_every_interface() -> None:
    """In process, the objects are shared. Over the network, each caller has its own."""
    async with served() as it, rpc.open_channel(it.where, decoders=DECODERS) as remote:
        shared = rpc.InProcessChannel(it.services)
        await Client(shared, app.registry).write(THING.new("a", Text(text="1")))
        assert (shared.knows_outcomes, remote.knows_outcomes) == (True, False)
        channels: list[rpc.Channel] = [shared, remote]
        seen: list[pb.Resource] = []
        for channel in channels:
            async with channel.stream(WATCH_LIST, _everything()) as items:
                chunk = await anext(items)
                assert isinstance(chunk, SnapshotChunk)
                seen += chunk.resources
                while not isinstance(await anext(items), EndOfSnapshot):
                    pass
        again = await shared.unary(READ, pb.ReadRequest(id=seen[0].id), pb.ReadResponse)
        assert again.resource is seen[0]
        assert seen[1] is not seen[0]
        assert seen[0] == seen[1]
        mine = await remote.unary(READ, pb.ReadRequest(id=seen[0].id), pb.ReadResponse)
        assert mine.resource is not None
        mine.resource.metadata["changed"] = "yes"
        assert "changed" not in seen[0].metadata


async def test_engine_with_listen_serves_writes_and_health(tmp_path: Path) -> None:
    """Its controllers reconcile writes of network clients."""
    listening = headway.App("listening")
    source = listening.type("test", "v1", "Source", Text)
    target = listening.type("test", "v1", "Target", Text)

    @listening.controller(manages=source)
    async def copier(rt: headway.Runtime, request: headway.Request) -> None:
        thing = rt.cache.get(source, request.id)
        if thing is not None:
            await rt.client.apply(target.new(request.id.name, Text(text=thing.data.text.upper())))

    where = ["127.0.0.1:0", f"unix:{tmp_path}/headway.sock"]
    async with headway.open_engine("memory:", listening, network=headway.Network(where, insecure=True)) as engine:
        assert engine.addresses[1] == where[1]
        for address in engine.addresses:
            async with rpc.open_channel(address, decoders=DECODERS) as channel:
                client = Client(channel, listening.registry)
                await client.write(source.new("a", Text(text=address)))
                await engine.wait_idle()
                assert (await client.read(target, "a")).data.text == address.upper()
                request = HealthCheckRequest(service="hashicorp.consul.resource.ResourceService")
                reply = await channel.unary("/grpc.health.v1.Health/Check", request, HealthCheckResponse)
                assert reply.status == 1


async def test_calls_that_wait_for_a_connection_fail_together() -> None:
    """Separate attempts with backoff would keep the last of many calls waiting for minutes."""
    failures: list[Status] = []

    async def call(channel: rpc.RemoteChannel) -> None:
        with pytest.raises(HeadwayError) as caught:
            await channel.unary(ECHO, Text(), Text)
        failures.append(status_of(caught.value))

    with trio.fail_after(30):
        async with rpc.open_channel("127.0.0.1:1") as channel, trio.open_nursery() as nursery:
            for _ in range(200):
                nursery.start_soon(call, channel)
    assert failures == [Status.UNAVAILABLE] * 200


async def test_change_is_encoded_once_for_all_watchers() -> None:
    """A hundred watchers receive a snapshot and changes. Each resource is encoded a single time."""
    async with served() as it, rpc.open_channel(it.where, decoders=DECODERS) as channel:
        local = Client(rpc.InProcessChannel(it.services), app.registry)
        for number in range(10):
            await local.write(THING.new(f"thing-{number}", Text(text="1")))
        received: list[int] = []
        live = 0
        everybody = trio.Event()

        async def watch() -> None:
            nonlocal live
            async with channel.stream(WATCH_LIST, _everything()) as items:
                while not isinstance(await anext(items), EndOfSnapshot):
                    pass
                live += 1
                if live == 100:
                    everybody.set()
                while not isinstance(item := await anext(items), Changes):
                    pass
                received.append(item.changes[0].revision)

        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(watch)
            await everybody.wait()
            assert it.encodings.encoded == 10
            written = await local.write(THING.new("late", Text(text="1")))
        assert received == [int(written.version)] * 100
        assert it.encodings.encoded == 11
