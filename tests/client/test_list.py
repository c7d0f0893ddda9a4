"""A client's list over a network, which reads the snapshot of a watch, or calls List without the right to watch."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from grpclib.const import Status

import headway
from headway.api import Call, Handler
from headway.client import Client
from headway.errors import HeadwayError, InvalidArgument, PermissionDenied, Unavailable
from headway.resource import ResourceId, SnapshotChunk, TypeName, pb, resource_key
from headway.rpc import Services, open_channel, open_server, timeout_of
from headway.service import WATCH_LIST, Decision, ResourceService, WatchDecoder, WatchEncoder
from headway.storage import MemoryBackend, Put
from tests.helpers.declared import NOTE, NOTE_V2, a_note, an_id, registry
from tests.helpers.service_errors import failed
from tests.helpers.wrapped_services import WrappedServices, admitting

COUNT = 1500


class Rights:
    """An authorizer that allows all but some verbs, and records the calls."""

    def __init__(self) -> None:
        self.denied: set[str] = set()
        self.called: list[str] = []

    def may_know(self, type: TypeName) -> bool:  # noqa: ARG002 - the protocol's
        return True

    def may_read(self, id: ResourceId, resource: object) -> Decision:  # noqa: ARG002 - likewise
        return Decision.ALLOWED

    def may_write(self, id: ResourceId, resource: object) -> bool:  # noqa: ARG002 - likewise
        return True

    def may_delete(self, id: ResourceId) -> bool:  # noqa: ARG002 - likewise
        return True

    def may_take_lease(self, name: str) -> bool:  # noqa: ARG002 - likewise
        return True

    def may_list(self, type: TypeName, partition: str, namespace: str) -> bool:  # noqa: ARG002 - likewise
        return self.called[-1] not in self.denied

    def wrap(self, path: str, handler: Handler) -> Handler:
        async def note(_: Call) -> None:
            self.called.append(path.rpartition("/")[2])

        return handler._replace(admit=admitting(note))


def puts(count: int) -> list[Put]:
    made = []
    for number in range(count):
        # Store the last name first, so that the order of names is not the order of creation.
        name = f"n{count - number}"
        resource = a_note(name, metadata={"odd": str(number % 2)})
        resource.id = an_id(name, partition="default", namespace="default", uid=name)
        made.append(Put(NOTE.kind, resource_key(resource), resource, ""))
    return made


@asynccontextmanager
async def serving(rights: Rights, count: int = COUNT) -> AsyncIterator[tuple[MemoryBackend, Client]]:
    backend = MemoryBackend()
    if count:
        await backend.commit(puts(count))
    offered = WrappedServices(rights.wrap, ResourceService(backend, registry(), rights))
    services = Services(offered, encoders={WATCH_LIST: WatchEncoder()})
    async with (
        open_server(services, ["127.0.0.1:0"]) as server,
        open_channel(server.addresses, decoders={WATCH_LIST: WatchDecoder}) as channel,
    ):
        yield backend, Client(channel, registry())


async def test_list_over_a_network_is_the_snapshot_of_a_watch() -> None:
    """The list is ordered, has only this version of the kind, and follows filter and prefix.

    The stream ends by itself.
    """
    rights = Rights()
    async with serving(rights) as (backend, client):
        other = an_id("n", NOTE_V2, partition="default", namespace="default", uid="other")
        await backend.commit([Put(NOTE.kind, ("default", "default", "n"), pb.Resource(id=other), "")])
        names = [each.name for each in await client.list(NOTE)]
        assert names == sorted(f"n{number + 1}" for number in range(COUNT))
        odd = [each.name for each in await client.list(NOTE, filter="odd=1", name_prefix="n12")]
        assert odd == [name for name in names if name.startswith("n12") and (COUNT - int(name[1:])) % 2]
        assert rights.called == ["WatchList", "WatchList"]
        with pytest.raises(InvalidArgument, match="is not a valid term"):
            await client.list(NOTE, filter="!!")


async def test_list_below_min_revision_is_refused() -> None:
    """The call List is refused in the same way."""
    async with serving(Rights()) as (backend, client):
        here = backend.position.revision
        assert len(await client.list(NOTE, min_revision=here)) == COUNT
        with pytest.raises(Unavailable, match=f"the server is at revision {here}"):
            await client.list(NOTE, min_revision=here + 1)


async def test_list_falls_back_to_the_call_list_without_the_right_to_watch() -> None:
    """A caller without either right gets PermissionDenied for List."""
    rights = Rights()
    rights.denied = {"WatchList"}
    async with serving(rights) as (_, client):
        assert len(await client.list(NOTE)) == COUNT
        assert rights.called == ["WatchList", "List"]
        rights.denied = {"WatchList", "List"}
        with pytest.raises(PermissionDenied, match="you may not list"):
            await client.list(NOTE)


async def test_list_too_large_for_one_reply_is_refused_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call is refused before the reply is built. Pages and a snapshot return all of it."""
    monkeypatch.setattr("headway.service._pages.MAX_REPLY", 64 << 10)
    rights = Rights()
    rights.denied = {"WatchList"}
    async with serving(rights) as (_, client):
        with pytest.raises(HeadwayError, match=r"RESOURCE_EXHAUSTED: .*page_size.*--prefix"):
            await client.list(NOTE)
        sizes = [len(page) async for page in client.pages(NOTE, size=COUNT)]
        assert sum(sizes) == COUNT
        assert len(sizes) > 2
        assert len(await client.list(NOTE, name_prefix="n12")) == 111
        rights.denied = set()
        assert len(await client.list(NOTE)) == COUNT


class Silent:
    """A channel to a server that never answers."""

    knows_outcomes = False
    timeout = 30.0
    ends = False

    async def unary(self, *_: Any, **__: Any) -> Any:
        raise failed(Status.UNIMPLEMENTED, "only watches here")

    @asynccontextmanager
    async def stream(self, path: str, request: object, *, metadata: Any = None) -> AsyncIterator[AsyncIterator[Any]]:  # noqa: ARG002
        async def nothing() -> AsyncIterator[Any]:
            if not self.ends:
                await trio.sleep_forever()
            yield SnapshotChunk([a_note("first")])

        yield nothing()


async def test_list_without_data_times_out(autojump_clock: trio.testing.MockClock) -> None:
    """The list fails after the channel's timeout without data. A whole list may take longer than that."""
    client = Client(Silent(), registry())
    began = autojump_clock.current_time()
    with pytest.raises(Unavailable, match=r"timed out: no data of the list for 30.0 s"):
        await client.list(NOTE)
    assert autojump_clock.current_time() - began == pytest.approx(30.0)


async def test_list_whose_stream_ends_early_is_an_error() -> None:
    """The part that arrived is not returned."""
    channel = Silent()
    channel.ends = True
    with pytest.raises(Unavailable, match="ended before the whole list had arrived"):
        await Client(channel, registry()).list(NOTE)


async def test_list_of_a_connected_client_does_not_wait_for_ever_either() -> None:
    """The timeout is that of the connection, through whatever wraps it."""
    app = headway.App("empty")
    async with headway.open_engine("memory:", app, network=headway.Network(["127.0.0.1:0"], insecure=True)) as engine:
        async with headway.connect(engine.addresses, app, timeout=7.0) as client:
            assert timeout_of(client._channel) == 7.0
        assert timeout_of(engine.client._channel) == math.inf
