"""A forwarder whose upstream is unreachable, refuses calls, loses requests, or is another server."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import trio
from grpclib.const import Status

import headway
from headway import rpc
from headway.api import Call, Handler, Interrupted, NotBegun
from headway.errors import HeadwayError, OutcomeUnknown, Unavailable
from tests.helpers.service_errors import status_of
from tests.rpc.forward_kit import BREAK, CHANGE_MIND, DEAF, REFUSE, Odd, forwarded
from tests.rpc.rpc_kit import ECHO, THING, Text, app, certificates, served

WRITE = "/headway.resource.v1.ResourceService/Write"


async def test_unreachable_upstream_is_named_at_once() -> None:
    """Every call names it, also between two attempts. A write is known to have had no effect."""
    async with (
        rpc.open_forwarder("127.0.0.1:1", ["127.0.0.1:0"]) as server,
        headway.connect(server.addresses, app) as client,
    ):
        began = time.monotonic()
        for _ in range(20):
            with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1\b"):
                await client.read(THING, "a")
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1\b"):
            await client.write(THING.new("a", Text()))
        # A channel's own attempts to connect would take a minute.
        assert time.monotonic() - began < 10


async def test_next_upstream_is_used_if_one_is_unreachable() -> None:
    async with (
        served() as it,
        rpc.open_forwarder(["127.0.0.1:1", it.where], ["127.0.0.1:0"]) as server,
        rpc.open_channel(server.addresses) as channel,
    ):
        assert (await channel.unary(ECHO, Text(text="a"), Text)).text == "a"


async def test_write_with_a_lost_reply_behind_the_forwarder_is_unknown() -> None:
    """The write has happened. It is neither reported as failed nor repeated."""
    writes: list[str] = []
    server: Any = None

    def dying(path: str, handler: Handler) -> Handler:
        async def die_before_the_reply(call: Call, request: Any) -> Any:
            writes.append(path)
            reply = await handler.func(call, request)
            for protocol in list(server._connections):
                protocol.abort()
            return reply

        return handler._replace(func=die_before_the_reply) if path == WRITE else handler

    async with served(wrap=dying) as it:
        server = it.server
        async with (
            rpc.open_forwarder(it.where, ["127.0.0.1:0"]) as first,
            rpc.open_forwarder(first.addresses, ["127.0.0.1:0"]) as second,
            headway.connect(second.addresses, app) as client,
        ):
            with pytest.raises(OutcomeUnknown, match=it.where):
                await client.write(THING.new("a", Text(text="1")))
            assert (await client.read(THING, "a")).data.text == "1"
    assert writes == [WRITE]


async def test_reply_without_a_status_counts_as_lost() -> None:
    """The message has arrived, but not the confirmation that it is complete."""
    odd = Odd()
    async with forwarded(2) as (it, where), rpc.open_channel(where) as channel:
        it.services.add(odd)
        with pytest.raises(HeadwayError, match=it.where) as caught:
            await channel.unary(BREAK, Text(text="a"), Text)
        assert (type(caught.value), status_of(caught.value), odd.calls) == (Interrupted, Status.UNAVAILABLE, 1)


async def test_truncated_request_is_not_forwarded_as_complete() -> None:
    """The server holds too many partly received requests.

    The outcome of the part that reached the upstream stays unknown.
    """
    odd = Odd()
    async with served() as it, rpc.open_forwarder(it.where, ["127.0.0.1:0"]) as server:
        it.services.add(odd)
        async with rpc.open_channel(server.addresses) as channel, trio.open_nursery() as nursery:

            async def drop() -> None:
                await odd.deaf.wait()
                for calls in server._connections.values():
                    for stream in calls._calls:
                        stream.buffer.refuse()

            nursery.start_soon(drop)
            with pytest.raises(HeadwayError, match="were discarded") as caught:
                await channel.unary(DEAF, Text(text="x" * 3_000_000), Text)
            assert (type(caught.value), status_of(caught.value)) == (Interrupted, Status.RESOURCE_EXHAUSTED)
            await odd.deaf_ended.wait()


@pytest.mark.parametrize("size", [1, 1_000_000])
async def test_call_that_was_not_begun_is_sent_again(size: int) -> None:
    """The forwarder repeats it if it holds the whole request.

    Otherwise it reports this to the client, which sends the call again.
    """
    odd = Odd()
    odd.refusals = 2
    async with forwarded() as (it, where), rpc.open_channel(where) as channel:
        it.services.add(odd)
        assert (await channel.unary(REFUSE, Text(text="x" * size), Text)).text == "x" * size
        assert odd.calls == 3


async def test_server_that_always_refuses_is_named_after_three_attempts() -> None:
    """A partly received request is returned to the client, which has three attempts of its own."""
    odd = Odd()
    odd.refusals = 100
    async with forwarded() as (it, where), rpc.open_channel(where) as channel:
        it.services.add(odd)
        with pytest.raises(NotBegun, match=f"{it.where} refused") as caught:
            await channel.unary(REFUSE, Text(text="a"), Text)
        assert status_of(caught.value) is Status.UNAVAILABLE
        # More than three are possible if the server's turn ends between the headers of the request and its body.
        assert 3 <= odd.calls <= 9


async def test_forwarding_in_a_circle_is_detected(tmp_path: Path) -> None:
    """Otherwise a call would circulate forever."""
    one, other = f"unix:{tmp_path}/one", f"unix:{tmp_path}/other"
    async with (
        rpc.open_forwarder(other, [one]),
        rpc.open_forwarder(one, [other]),
        rpc.open_channel(one) as channel,
    ):
        with trio.fail_after(20), pytest.raises(HeadwayError, match="in a circle") as caught:
            await channel.unary(ECHO, Text(), Text)
        assert status_of(caught.value) is Status.FAILED_PRECONDITION


async def test_forwarder_verifies_the_certificate_of_its_upstream(tmp_path: Path) -> None:
    """Both hops use TLS. An upstream with another identity receives nothing."""
    made = certificates(tmp_path)
    async with served(tls=made.server) as it:
        for believed, works in ((made.client, True), (made.stranger, False)):
            async with (
                rpc.open_forwarder(it.where, ["127.0.0.1:0"], upstream_tls=believed, tls=made.server) as server,
                rpc.open_channel(server.addresses, tls=made.client) as channel,
            ):
                if works:
                    assert (await channel.unary(ECHO, Text(text="a"), Text)).text == "a"
                else:
                    with pytest.raises(HeadwayError, match="signed by an authority that is not trusted here"):
                        await channel.unary(ECHO, Text(text="a"), Text)


async def test_call_that_was_answered_does_not_count_as_refused() -> None:
    """Once headers have arrived, the call counts as begun, whatever follows."""
    odd = Odd()
    async with forwarded() as (it, where):
        it.services.add(odd)
        for to in (it.where, where):
            odd.calls = 0
            async with rpc.open_channel(to) as channel:
                with pytest.raises(HeadwayError) as caught:
                    await channel.unary(CHANGE_MIND, Text(text="a"), Text)
            assert (type(caught.value), status_of(caught.value), odd.calls) == (Interrupted, Status.UNAVAILABLE, 1)
