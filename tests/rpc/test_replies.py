"""Replies that wait for clients to read: the memory that they hold, and the effect of a large call on others."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import trio
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import Event, ResponseReceived, TrailersReceived
from h2.settings import SettingCodes

from headway import rpc
from headway.api import Call, Cardinality, Handler
from headway.client import Client
from headway.protobuf import decode, encode, field, message
from headway.resource import pb
from headway.rpc import InProcessChannel, Limits, Services, WireLimits
from headway.service import _encodings, _pages
from tests.rpc.hostile_bytes import REQUEST
from tests.rpc.raw_kit import tcp
from tests.rpc.rpc_kit import ECHO, THING, Text, app, served

LIST = "/headway.resource.v1.ResourceService/List"
GIVE = "/test.Replies/Give"
PATIENCE = 20.0
KIB = 1 << 10


@message
class Size:
    size: int = field(1)


@message
class Blob:
    data: bytes = field(1)


class Replies:
    """A service that returns the requested number of bytes."""

    def __mapping__(self) -> dict[str, Handler]:
        return {GIVE: Handler(self._give, Cardinality.UNARY_UNARY, Size, Blob)}

    async def _give(self, _: Call, request: Size) -> Blob:
        return Blob(data=b"x" * request.size)


class Unread:
    """A connection with closed windows: replies wait until they are opened."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._h2 = H2Connection(H2Configuration(header_encoding="utf-8"))
        self._h2.initiate_connection()
        self._h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
        self.statuses: dict[int, str] = {}
        self.answered: set[int] = set()

    async def ask(self, size: int) -> int:
        """Request a reply of this many bytes, and return the stream's number."""
        number = self._h2.get_next_available_stream_id()
        body = encode(Size(size=size))
        headers = [(name, GIVE if name == ":path" else value) for name, value in REQUEST]
        self._h2.send_headers(number, headers)
        self._h2.send_data(number, b"\0" + len(body).to_bytes(4, "big") + body, end_stream=True)
        await self._stream.send_all(self._h2.data_to_send())
        return number

    async def until(self, condition: Any) -> None:
        """Read until the condition holds."""
        with trio.fail_after(PATIENCE):
            while not condition():
                for event in self._h2.receive_data(await self._stream.receive_some()):
                    self._note(event)
                if left := self._h2.data_to_send():
                    await self._stream.send_all(left)

    def _note(self, event: Event) -> None:
        if isinstance(event, ResponseReceived | TrailersReceived):
            assert event.stream_id is not None
            self.answered.add(event.stream_id)
            if status := dict[Any, Any](event.headers or ()).get("grpc-status"):
                self.statuses[event.stream_id] = str(status)


async def test_waiting_replies_of_a_connection_are_bounded() -> None:
    """The largest reply is given up, and small ones continue. After the connection has closed, nothing is held."""
    limits = Limits(server_replies_size=1000 * KIB, wire=WireLimits(replies_size=300 * KIB))
    async with rpc.open_server(Services(Replies()), ["127.0.0.1:0"], limits=limits) as server:
        async with tcp(server.addresses[0]) as stream:
            peer = Unread(stream)
            small = [await peer.ask(20 * KIB) for _ in range(5)]
            await peer.until(lambda: peer.answered >= set(small))
            large = await peer.ask(250 * KIB)
            await peer.until(lambda: large in peer.statuses)
            assert peer.statuses == {large: "8"}
            held = server._replies.taken
            assert 5 * 20 * KIB <= held <= 5 * 21 * KIB
        with trio.fail_after(PATIENCE):
            while server._replies.taken:
                await trio.lowlevel.checkpoint()


async def test_waiting_replies_of_a_server_are_bounded() -> None:
    """The bound holds for any number of connections. Another client is answered."""
    limits = Limits(server_replies_size=400 * KIB, wire=WireLimits(replies_size=300 * KIB))
    async with (
        rpc.open_server(Services(Replies()), ["127.0.0.1:0"], limits=limits) as server,
        tcp(server.addresses[0]) as one,
        tcp(server.addresses[0]) as other,
        rpc.open_channel(server.addresses) as channel,
    ):
        first, second = Unread(one), Unread(other)
        older = await first.ask(250 * KIB)
        await first.until(lambda: older in first.answered)
        newer = await second.ask(250 * KIB)
        await second.until(lambda: newer in second.answered)
        await first.until(lambda: first.statuses)
        assert (first.statuses, second.statuses) == ({older: "8"}, {})
        assert len((await channel.unary(GIVE, Size(size=100 * KIB), Blob)).data) == 100 * KIB


@pytest.mark.parametrize("size", [3 * KIB, 2000 * KIB])
async def test_reply_is_released_once_it_is_sent(size: int) -> None:
    """This holds for a reply that goes out at once and for one that had to wait."""
    async with rpc.open_server(Services(Replies()), ["127.0.0.1:0"]) as server:
        async with rpc.open_channel(server.addresses) as channel:
            assert len((await channel.unary(GIVE, Size(size=size), Blob)).data) == size
        with trio.fail_after(PATIENCE):
            while server._replies.taken:
                await trio.lowlevel.checkpoint()


async def test_large_reply_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """This includes one that does not fit into a frame with its headers, and a list that is encoded in pieces."""
    by_codec: list[str] = []
    in_pieces: list[str] = []

    class Counted:
        decode = staticmethod(decode)

        def encode(self, message: Any) -> bytes:
            by_codec.append(type(message).__name__)
            return encode(message)

    def piece(message: Any) -> bytes:
        in_pieces.append(type(message).__name__)
        return encode(message)

    every = pb.ListRequest(type=THING.name.message(), tenancy=pb.Tenancy(partition="*", namespace="*"))
    monkeypatch.setattr(_pages, "encode", piece)
    monkeypatch.setattr(_encodings, "encode", piece)
    async with served() as it, rpc.open_channel(it.where) as channel:
        it.services.codec = Counted()
        assert len((await channel.unary(ECHO, Text(text="x" * 500_000), Text)).text) == 500_000
        assert by_codec == ["Text"]
        local = Client(InProcessChannel(it.services), app.registry)
        for number in range(_pages.TURN + 1):
            await local.write(THING.new(f"n{number}", Text(text="x" * 400)))
            if number == 99:
                some = await channel.unary(LIST, every, pb.ListResponse)
        assert len(some.resources) == 100
        assert Counter(in_pieces) == {"Resource": 100, "ListResponse": 1}
        everything = await channel.unary(LIST, every, pb.ListResponse)
        assert len(everything.resources) == _pages.TURN + 1
        assert by_codec == ["Text"]
        assert Counter(in_pieces) == {"Resource": _pages.TURN + 1, "ListResponse": 2}
