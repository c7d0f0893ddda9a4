"""Headway's server and channel: every course that a call can take."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
import trio
from grpclib.const import Status

from headway import rpc
from headway.errors import HeadwayError
from tests.helpers.service_errors import answer_of, status_of
from tests.rpc.rpc_kit import COUNT, ECHO, FAIL, META, TEXTS, WAIT, Served, Text, certificates, served

ADDRESSES = ["127.0.0.1:0", "[::1]:0", "unix"]


@pytest.mark.parametrize("listen", ADDRESSES)
async def test_call_is_answered_on_every_kind_of_address(listen: str, tmp_path: Path) -> None:
    """TCP over IPv4 and IPv6, and a Unix socket, whose file is removed afterwards."""
    where = f"unix:{tmp_path}/socket" if listen == "unix" else listen
    async with served([where]) as it, rpc.open_channel(it.server.addresses) as channel:
        reply = await channel.unary(ECHO, Text(text="ha"), Text)
        assert reply.text == "ha"
        assert await channel.unary(ECHO, Text(text="y" * 1_000_000), Text) == Text(text="y" * 1_000_000)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("full", [False, True])
async def test_unix_socket_of_a_server_that_listens_is_left_to_it(full: bool, tmp_path: Path) -> None:
    """Also if its queue is full. The socket that a killed server has left is replaced."""
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as waiting:
        listening.bind(path)
        listening.listen(0)
        if full:
            waiting.connect(path)
        with pytest.raises(OSError, match=f"cannot listen on unix:{path}: another process listens there"):
            async with rpc.open_server(rpc.Services(), [f"unix:{path}"]):
                pytest.fail("it listens")
        assert os.listdir(tmp_path) == ["socket"]
    async with served([f"unix:{path}"]) as it, rpc.open_channel(it.server.addresses) as channel:
        assert (await channel.unary(ECHO, Text(text="ha"), Text)).text == "ha"


async def test_server_that_ends_leaves_the_unix_socket_of_its_successor(tmp_path: Path) -> None:
    """The successor has taken the place of a file that somebody has removed."""
    where, end, ended = f"unix:{tmp_path}/socket", trio.Event(), trio.Event()

    async def serve(task_status: trio.TaskStatus[None]) -> None:
        async with served([where]):
            task_status.started()
            await end.wait()
        ended.set()

    async with trio.open_nursery() as nursery:
        await nursery.start(serve)
        (tmp_path / "socket").unlink()
        async with served([where]):
            end.set()
            await ended.wait()
            async with rpc.open_channel(where) as channel:
                assert (await channel.unary(ECHO, Text(text="ha"), Text)).text == "ha"


async def test_host_that_cannot_be_resolved_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server listens on several addresses, and the resolver's error names none."""

    async def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(trio.socket, "getaddrinfo", unknown)
    said = "cannot listen on nosuch.invalid:7070: Name or service not known"
    with pytest.raises(socket.gaierror, match=said):
        async with rpc.open_server(rpc.Services(), ["nosuch.invalid:7070"]):
            pytest.fail("it listens")


async def test_server_sends_small_frames_at_once() -> None:
    """With Nagle's algorithm, a stream of small replies would wait 40 ms for each acknowledgment."""
    async with served() as it, rpc.open_channel(it.where) as channel:
        await channel.unary(ECHO, Text(text="a"), Text)
        (protocol,) = it.server._connections
        accepted = protocol._transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_metadata_reaches_the_handler() -> None:
    """The handler can see a client's token."""
    async with served() as it, rpc.open_channel(it.where) as channel:
        reply = await channel.unary(META, Text(), Text, metadata={"x-consul-token": "s3cret"})
        assert reply.text == "s3cret"


@pytest.mark.parametrize(
    ("path", "text", "status", "message"),
    [
        (FAIL, "known", Status.ABORTED, "não — 100 %"),
        (FAIL, "with details", Status.ABORTED, "its own"),
        (FAIL, "half a character", Status.ABORTED, r"caf\udce9"),
        (FAIL, "unknown", Status.UNKNOWN, "Internal Server Error"),
        ("/test.Echo/Nothing", "", Status.UNIMPLEMENTED, "Method not found: /test.Echo/Nothing"),
    ],
)
async def test_handler_errors_become_statuses(path: str, text: str, status: Status, message: str) -> None:
    """A GRPCError is sent unchanged. Any other error is reported at the server and hidden from the client."""
    reported: list[tuple[str, BaseException]] = []
    async with served(report=lambda *said: reported.append(said)) as it, rpc.open_channel(it.where) as channel:
        with pytest.raises(HeadwayError) as caught:
            await channel.unary(path, Text(text=text), Text)
    assert (status_of(caught.value), answer_of(caught.value)) == (status, message)
    assert [(where, str(error)) for where, error in reported] == (
        [(FAIL, "a secret of the server")] if text == "unknown" else []
    )


async def test_stream_delivers_every_message_in_order_and_ends() -> None:
    async with (
        served() as it,
        rpc.open_channel(it.where, decoders=TEXTS) as channel,
        channel.stream(COUNT, Text(text="1000")) as items,
    ):
        assert [item.text async for item in items] == [str(number) for number in range(1000)]


async def test_leaving_a_stream_cancels_its_handler() -> None:
    """The connection stays open."""
    async with served() as it, rpc.open_channel(it.where, decoders=TEXTS) as channel:
        async with channel.stream(COUNT, Text(text="0")) as items:
            assert (await anext(items)).text == "waiting"
            await it.echo.until_waiting(1)
        await it.echo.until_waiting(0)
        assert it.echo.cancelled == 1
        assert it.server.connections == 1


async def test_canceling_a_call_cancels_its_handler() -> None:
    async with served() as it, rpc.open_channel(it.where) as channel:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.unary, WAIT, Text(), Text)
            await it.echo.until_waiting(1)
            nursery.cancel_scope.cancel()
        await it.echo.until_waiting(0)
        assert it.echo.cancelled == 1


async def test_handler_has_the_deadline_of_its_caller() -> None:
    """The server receives it, and ends the handler by itself."""
    async with served() as it, rpc.open_channel(it.where) as channel:
        with trio.move_on_after(0.2) as scope:
            await channel.unary(WAIT, Text(), Text)
        assert scope.cancelled_caught
        await it.echo.until_waiting(0)
        assert it.echo.cancelled == 1


async def test_call_without_a_deadline_has_the_deadline_of_the_channel() -> None:
    """A call to a server that never answers times out."""
    async with served() as it, rpc.open_channel(it.where, timeout=0.2) as channel:
        with pytest.raises(HeadwayError) as caught:
            await channel.unary(WAIT, Text(), Text)
        assert status_of(caught.value) is Status.DEADLINE_EXCEEDED


async def test_stop_finishes_calls_and_ends_streams() -> None:
    """Calls within the grace are answered. A stream ends with a status that asks the client to try again."""
    ended: list[Any] = []
    replies: list[str] = []

    async def call(channel: rpc.RemoteChannel) -> None:
        replies.append((await channel.unary(WAIT, Text(text="late"), Text)).text)

    async def watch(it: Served, channel: rpc.RemoteChannel) -> None:
        async with channel.stream(COUNT, Text(text="0")) as items:
            assert (await anext(items)).text == "waiting"
            with pytest.raises(HeadwayError) as caught:
                await anext(items)
        ended.append((status_of(caught.value), answer_of(caught.value)))
        # A later call is not begun, although its connection is still open.
        with pytest.raises(HeadwayError) as caught:
            await channel.unary(ECHO, Text(text="too late"), Text)
        ended.append((status_of(caught.value), answer_of(caught.value)))
        it.echo.release.set()

    async def client(it: Served) -> None:
        async with rpc.open_channel(it.where, decoders=TEXTS) as channel, trio.open_nursery() as calls:
            calls.start_soon(call, channel)
            calls.start_soon(watch, it, channel)

    async with trio.open_nursery() as nursery:
        # The server is canceled from outside. It stops in order even so.
        with trio.CancelScope() as scope:
            async with served(grace=20) as it:
                nursery.start_soon(client, it)
                await it.echo.until_waiting(2)
                scope.cancel()
                await trio.sleep_forever()
    assert ended == [(Status.UNAVAILABLE, "the server is stopping")] * 2
    assert replies == ["late"]


async def test_tls_and_mutual_tls_verify_certificates(tmp_path: Path) -> None:
    """A client trusts only the right authority. A server that requires a certificate refuses a client without one."""
    made = certificates(tmp_path)
    async with served(tls=made.server) as it:
        async with rpc.open_channel(it.where, tls=made.client) as channel:
            assert (await channel.unary(ECHO, Text(text="z" * 300_000), Text)).text == "z" * 300_000
        async with rpc.open_channel(it.where, tls=made.stranger) as channel:
            with pytest.raises(HeadwayError, match="signed by an authority that is not trusted here"):
                await channel.unary(ECHO, Text(), Text)
    async with served(tls=made.server_mutual) as it:
        async with rpc.open_channel(it.where, tls=made.client_mutual) as channel:
            assert (await channel.unary(ECHO, Text(text="a"), Text)).text == "a"
        async with rpc.open_channel(it.where, tls=made.client) as channel:
            with pytest.raises(HeadwayError) as caught:
                await channel.unary(ECHO, Text(), Text)
            assert status_of(caught.value) is Status.UNAVAILABLE


async def test_error_in_the_block_propagates_without_a_group() -> None:
    async def block() -> None:
        async with served() as it, rpc.open_channel(it.where) as channel:
            await channel.unary(ECHO, Text(), Text)
            raise KeyError("mine")

    with pytest.raises(KeyError):
        await block()
