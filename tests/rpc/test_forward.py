"""A server that answers by asking another: a client notices no difference."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Any

import pytest
import trio
from grpclib import GRPCError
from grpclib.const import Status

import headway
from headway import rpc
from headway.access import Access, Authorizer, Policy, Rule, new_token
from headway.client import Client
from headway.errors import OutcomeUnknown, Unavailable
from headway.resource import Bookmark, EndOfSnapshot, SnapshotChunk, pb
from headway.rpc._health import NOT_SERVING, SERVING, HealthCheckRequest, HealthCheckResponse
from headway.service import WATCH_LIST
from tests.rpc.forward_kit import BREAK, CHANGE_MIND, DEAF, HALVES, LEFT, REFUSE, Odd, Restarting, forwarded
from tests.rpc.rpc_kit import (
    COUNT,
    DECODERS,
    ECHO,
    FAIL,
    FLOOD,
    META,
    TEXTS,
    THING,
    WAIT,
    Text,
    app,
    certificates,
    served,
)

CHECK = "/grpc.health.v1.Health/Check"
WRITE = "/headway.resource.v1.ResourceService/Write"


@pytest.mark.parametrize("hops", [1, 2])
async def test_a_client_does_through_a_forwarder_what_it_does_without(hops: int) -> None:
    """Write, read, list, apply, statuses, watch, delete, and each refusal by its own error."""
    async with forwarded(hops) as (_, where), headway.connect(where, app) as client:
        created = await client.write(THING.new("a", Text(text="1")))
        read = await client.read(THING, "a")
        assert (read.data.text, read.version, read.id.uid) == ("1", created.version, created.id.uid)
        read.data.text = "2"
        await client.write(read)
        with pytest.raises(headway.Conflict):
            await client.write(read)
        assert [each.data.text for each in await client.list(THING)] == ["2"]
        async with client.watch(THING) as events:
            assert isinstance(await anext(events), headway.Upserted)
            assert isinstance(await anext(events), headway.SnapshotEnd)
            applied = await client.apply(THING.new("a", Text(text="3")))
            condition = headway.Condition(type="Ready", state=headway.ConditionState.TRUE)
            await client.write_status(applied, "tests", [condition])
            await client.delete(await client.read(THING, "a"))
            seen: list[type] = []
            while headway.Deleted not in seen:
                seen.append(type(await anext(events)))
            assert seen.count(headway.Upserted) == 2
        with pytest.raises(headway.NotFound):
            await client.read(THING, "a")
        with pytest.raises(headway.InvalidArgument, match="name"):
            await client.read(THING, "Not A Name")


async def test_a_watch_resumes_through_another_forwarder() -> None:
    """The end of its stream passes through as UNAVAILABLE; elsewhere it goes on, without a snapshot."""
    async with served() as it, trio.open_nursery() as nursery:
        local = Client(rpc.InProcessChannel(it.services), app.registry)
        await local.write(THING.new("a", Text(text="1")))
        end = await _position_through_one_that_stops(it.where, nursery)
        await local.write(THING.new("b", Text(text="2")))
        async with (
            rpc.open_forwarder(it.where, ["127.0.0.1:0"]) as second,
            rpc.open_channel(second.addresses, decoders=DECODERS) as channel,
            channel.stream(WATCH_LIST, _everything(end.position)) as items,
        ):
            assert await anext(items) == Bookmark(end.position, resumed=True)
            changes = await anext(items)
            assert [change.resource.id.name for change in changes.changes] == ["b"]


async def _position_through_one_that_stops(where: str, nursery: trio.Nursery) -> EndOfSnapshot:
    """Where a watch stood when the forwarder that it went through stopped."""
    stop = trio.Event()

    async def forward(task_status: trio.TaskStatus[list[str]]) -> None:
        async with rpc.open_forwarder(where, ["127.0.0.1:0"]) as server:
            task_status.started(server.addresses)
            await stop.wait()

    addresses = await nursery.start(forward)
    async with (
        rpc.open_channel(addresses, decoders=DECODERS) as channel,
        channel.stream(WATCH_LIST, _everything()) as items,
    ):
        assert isinstance(await anext(items), SnapshotChunk)
        end = await anext(items)
        assert isinstance(end, EndOfSnapshot)
        stop.set()
        with pytest.raises(GRPCError) as caught:
            await anext(items)
        assert (caught.value.status, caught.value.message) == (Status.UNAVAILABLE, "the server is stopping")
    return end


def _everything(after: Any = None) -> pb.WatchListRequest:
    return pb.WatchListRequest(
        type=THING.name.message(),
        tenancy=pb.Tenancy(partition="*", namespace="*"),
        resume_after=None if after is None else after.message(),
    )


async def test_the_end_of_the_upstreams_streams_passes_through(tmp_path: Path) -> None:
    """A client is told to come again, and does so through the same forwarder, when the upstream restarts."""
    async with served() as it, trio.open_nursery() as nursery:
        upstream = Restarting(it, str(tmp_path / "up"))
        await upstream.start(nursery)
        async with (
            rpc.open_forwarder(upstream.where, ["127.0.0.1:0"]) as server,
            rpc.open_channel(server.addresses, decoders=TEXTS) as channel,
        ):
            for _ in range(2):
                async with channel.stream(COUNT, Text(text="0")) as items:
                    assert (await anext(items)).text == "waiting"
                    nursery.start_soon(upstream.stop)
                    with pytest.raises(GRPCError) as caught:
                        await anext(items)
                assert (caught.value.status, caught.value.message) == (Status.UNAVAILABLE, "the server is stopping")
                await upstream.stop()
                await upstream.start(nursery)
            assert (await channel.unary(ECHO, Text(text="again"), Text)).text == "again"
        await upstream.stop()


@pytest.mark.parametrize(
    ("path", "text", "status", "message"),
    [
        (FAIL, "known", Status.ABORTED, "não — 100 %"),
        (FAIL, "unknown", Status.UNKNOWN, "Internal Server Error"),
        ("/nobody.Has/This", "", Status.UNIMPLEMENTED, "Method not found: /nobody.Has/This"),
    ],
)
async def test_failures_come_as_the_upstream_said_them(path: str, text: str, status: Status, message: str) -> None:
    """With their words, and with nothing reported by who only passes them on."""
    reported: list[object] = []
    async with (
        served() as it,
        rpc.open_forwarder(it.where, ["127.0.0.1:0"], report=lambda *said: reported.append(said)) as server,
        rpc.open_channel(server.addresses) as channel,
    ):
        with pytest.raises(GRPCError) as caught:
            await channel.unary(path, Text(text=text), Text)
    assert (caught.value.status, caught.value.message, reported) == (status, message, [])


async def test_metadata_reaches_the_upstream() -> None:
    """Through two of them."""
    async with forwarded(2) as (_, where), rpc.open_channel(where) as channel:
        assert (await channel.unary(META, Text(), Text, metadata={"x-consul-token": "s3cret"})).text == "s3cret"


async def test_the_upstream_decides_who_may_do_what() -> None:
    """A token passes through; the forwarder has no rights of its own to lend."""
    rule = Rule(verbs=["view"], type="test.v1.Thing", partition="*", namespace="*")
    text, token = new_token(["readers"])
    access = Authorizer(Access([Policy("readers", [rule])], [token]))
    async with (
        headway.open_engine("memory:", app, listen=["127.0.0.1:0"], access=access) as engine,
        rpc.open_forwarder(engine.addresses, ["127.0.0.1:0"]) as server,
    ):
        await engine.client.write(THING.new("a", Text(text="1")))
        async with headway.connect(server.addresses, app, token=text) as reader:
            assert (await reader.read(THING, "a")).data.text == "1"
            with pytest.raises(headway.PermissionDenied):
                await reader.write(THING.new("b", Text()))
        async with headway.connect(server.addresses, app) as nobody:
            with pytest.raises(headway.PermissionDenied):
                await nobody.read(THING, "a")


async def test_what_is_left_of_a_deadline_goes_through() -> None:
    """Not more than the client gave; and none where it gave none."""
    async with forwarded(2) as (it, where):
        it.services.add(Odd())
        async with rpc.open_channel(where, timeout=25) as channel:
            left = float((await channel.unary(LEFT, Text(), Text)).text)
            assert 20 < left <= 25
        async with rpc.open_channel(where, timeout=float("inf")) as channel:
            with trio.fail_after(20):
                left = float((await channel.unary(LEFT, Text(), Text)).text)
            assert 10 < left <= 20


async def test_a_deadline_that_passes_ends_the_call_upstream() -> None:
    """Whoever notices first."""
    async with forwarded() as (it, where), rpc.open_channel(where, timeout=0.2) as channel:
        with pytest.raises(GRPCError) as caught:
            await channel.unary(WAIT, Text(), Text)
        assert caught.value.status is Status.DEADLINE_EXCEEDED
        await it.echo.until_waiting(0)
        assert it.echo.cancelled == 1


async def test_who_goes_away_is_not_worked_for() -> None:
    """A call that is cancelled and a stream that is left end at the upstream, and its connection goes on."""
    async with forwarded(2) as (it, where), rpc.open_channel(where, decoders=TEXTS) as channel:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.unary, WAIT, Text(), Text)
            await it.echo.until_waiting(1)
            nursery.cancel_scope.cancel()
        await it.echo.until_waiting(0)
        async with channel.stream(COUNT, Text(text="0")) as items:
            assert (await anext(items)).text == "waiting"
            await it.echo.until_waiting(1)
        await it.echo.until_waiting(0)
        assert it.echo.cancelled == 2
        assert it.server.connections == 1


async def test_a_lost_client_is_not_worked_for() -> None:
    """Its connection is gone without a word."""
    async with served() as it, rpc.open_forwarder(it.where, ["127.0.0.1:0"]) as server:
        async with trio.open_nursery() as nursery, rpc.open_channel(server.addresses) as channel:

            async def call() -> None:
                with pytest.raises(GRPCError):
                    await channel.unary(WAIT, Text(), Text)

            nursery.start_soon(call)
            await it.echo.until_waiting(1)
            for protocol in list(server._connections):
                protocol.give_up()
        await it.echo.until_waiting(0)
        assert it.echo.cancelled == 1


async def test_who_does_not_read_slows_its_own_stream_alone() -> None:
    """What waits for it is bounded, and other calls of the same client go on."""
    async with forwarded() as (it, where), rpc.open_channel(where, decoders=TEXTS) as channel:
        async with channel.stream(FLOOD, Text()) as items:
            await anext(items)
            before = -1
            # Until nothing more was sent while fifty calls were answered.
            while before != it.echo.sent:
                before = it.echo.sent
                for _ in range(50):
                    await channel.unary(ECHO, Text(text="a"), Text)
            # The client's window of a MiB, the forwarder's of 256 KiB, and what is on its way between.
            assert before * (16 << 10) < 2 << 20
            for _ in range(200):
                await anext(items)
            assert it.echo.sent > before
        await it.echo.flood_ended.wait()


async def test_messages_larger_than_any_window_go_through() -> None:
    """In both directions; and what is too large for the upstream is refused by it, in its words."""
    async with forwarded() as (_, where), rpc.open_channel(where) as channel:
        text = "x" * 3_000_000
        assert (await channel.unary(ECHO, Text(text=text), Text)).text == text
    async with (
        forwarded(2, limits=rpc.Limits(message_size=1 << 20)) as (_, where),
        headway.connect(where, app) as client,
    ):
        with pytest.raises(headway.TooLarge) as caught:
            await client.write(THING.new("a", Text(text=text)))
        assert (caught.value.size > len(text), caught.value.limit) == (True, 1 << 20)


async def test_many_calls_at_once_each_get_their_own_answer() -> None:
    """However the connections of the clients and of the upstream are shared."""
    answers: dict[int, str] = {}

    async def call(channel: rpc.RemoteChannel, number: int) -> None:
        answers[number] = (await channel.unary(ECHO, Text(text=f"{number}" * 1000), Text)).text

    async with forwarded() as (_, where), rpc.open_channel(where) as channel, trio.open_nursery() as nursery:
        for number in range(300):
            nursery.start_soon(call, channel, number)
    assert answers == {number: f"{number}" * 1000 for number in range(300)}


async def test_a_stop_lets_calls_finish_and_ends_streams() -> None:
    """Which is which shows in what has been answered; a reply on its way is not cut off."""
    async with served() as it, trio.open_nursery() as nursery:
        odd = Odd()
        it.services.add(odd)
        stop, replies, ended = trio.Event(), [], []

        async def forward(task_status: trio.TaskStatus[list[str]]) -> None:
            async with rpc.open_forwarder(it.where, ["127.0.0.1:0"], grace=20) as server:
                task_status.started(server.addresses)
                await stop.wait()

        async def call(channel: rpc.RemoteChannel, path: str) -> None:
            replies.append((await channel.unary(path, Text(text="late" * 1000), Text)).text)

        addresses = await nursery.start(forward)
        async with rpc.open_channel(addresses, decoders=TEXTS) as channel, trio.open_nursery() as calls:
            calls.start_soon(call, channel, WAIT)
            calls.start_soon(call, channel, HALVES)
            async with channel.stream(COUNT, Text(text="0")) as items:
                assert (await anext(items)).text == "waiting"
                await odd.half_sent.wait()
                await it.echo.until_waiting(2)
                stop.set()
                with pytest.raises(GRPCError) as caught:
                    await anext(items)
                ended.append((caught.value.status, caught.value.message))
            it.echo.release.set()
            odd.go_on.set()
    assert (ended, replies) == ([(Status.UNAVAILABLE, "the server is stopping")], ["late" * 1000] * 2)


async def test_an_upstream_that_is_away_is_named_at_once() -> None:
    """By every call, while it isn't tried again too; and a write is known not to have been done."""
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
        # Waiting as a channel does would take a minute.
        assert time.monotonic() - began < 10


async def test_the_next_upstream_is_asked_when_one_is_away() -> None:
    """Any of the endpoints serves."""
    async with (
        served() as it,
        rpc.open_forwarder(["127.0.0.1:1", it.where], ["127.0.0.1:0"]) as server,
        rpc.open_channel(server.addresses) as channel,
    ):
        assert (await channel.unary(ECHO, Text(text="a"), Text)).text == "a"


async def test_a_write_whose_reply_is_lost_behind_the_forwarder_is_unknown() -> None:
    """It has happened; nobody says that it hasn't, and nobody does it again."""
    writes: list[str] = []
    server: Any = None

    async def die_before_the_reply(path: str, stream: Any, handler: Any) -> None:
        if path != WRITE:
            await handler(stream)
            return
        writes.append(path)
        await handler(_Dying(stream, server))

    async with served(interceptors=[die_before_the_reply]) as it:
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


class _Dying:
    """A stream whose server loses all connections just before it replies."""

    def __init__(self, stream: Any, server: Any) -> None:
        self._stream = stream
        self._server = server

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def send_message(self, message: Any) -> None:
        for protocol in list(self._server._connections):
            protocol.give_up()
        await self._stream.send_message(message)


async def test_a_reply_without_a_status_is_no_success() -> None:
    """The message has come, that it was all has not: to a client that is a lost reply."""
    odd = Odd()
    async with forwarded(2) as (it, where), rpc.open_channel(where) as channel:
        it.services.add(odd)
        with pytest.raises(GRPCError, match=it.where) as caught:
            await channel.unary(BREAK, Text(text="a"), Text)
        assert (type(caught.value), caught.value.status, odd.calls) == (GRPCError, Status.UNAVAILABLE, 1)


async def test_a_request_of_which_something_is_lost_is_not_passed_on_as_whole() -> None:
    """Where too much is held of requests that come in part; what the upstream has of it isn't said to be nothing."""
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
            with pytest.raises(GRPCError, match="thrown away") as caught:
                await channel.unary(DEAF, Text(text="x" * 3_000_000), Text)
            assert (type(caught.value), caught.value.status) == (GRPCError, Status.RESOURCE_EXHAUSTED)
            await odd.deaf_ended.wait()


@pytest.mark.parametrize("size", [1, 1_000_000])
async def test_a_call_that_was_certainly_not_begun_is_sent_again(size: int) -> None:
    """By the forwarder where it has all of it; else it tells the client so, which sends it again."""
    odd = Odd()
    odd.refusals = 2
    async with forwarded() as (it, where), rpc.open_channel(where) as channel:
        it.services.add(odd)
        assert (await channel.unary(REFUSE, Text(text="x" * size), Text)).text == "x" * size
        assert odd.calls == 3


async def test_a_server_that_always_refuses_is_named() -> None:
    """After a few attempts."""
    odd = Odd()
    odd.refusals = 100
    async with forwarded() as (it, where), rpc.open_channel(where) as channel:
        it.services.add(odd)
        with pytest.raises(rpc.NotBegun, match=f"{it.where} refused") as caught:
            await channel.unary(REFUSE, Text(text="a"), Text)
        assert (caught.value.status, odd.calls) == (Status.UNAVAILABLE, 3)


async def test_servers_that_forward_in_a_circle_say_so(tmp_path: Path) -> None:
    """A call would go round for ever."""
    one, other = f"unix:{tmp_path}/one", f"unix:{tmp_path}/other"
    async with (
        rpc.open_forwarder(other, [one]),
        rpc.open_forwarder(one, [other]),
        rpc.open_channel(one) as channel,
    ):
        with trio.fail_after(20), pytest.raises(GRPCError, match="in a circle") as caught:
            await channel.unary(ECHO, Text(), Text)
        assert caught.value.status is Status.FAILED_PRECONDITION


async def test_health_is_the_upstreams() -> None:
    """Of the whole and of each service; without an upstream there is no answer, which is no health either."""
    async with forwarded() as (it, where), rpc.open_channel(where) as channel:
        check = functools.partial(channel.unary, CHECK, reply_type=HealthCheckResponse)
        assert (await check(request=HealthCheckRequest())).status == SERVING
        it.health.set("headway.resource.v1.ResourceService", serving=False)
        request = HealthCheckRequest(service="headway.resource.v1.ResourceService")
        assert (await check(request=request)).status == NOT_SERVING
    async with (
        rpc.open_forwarder("127.0.0.1:1", ["127.0.0.1:0"]) as server,
        rpc.open_channel(server.addresses) as channel,
    ):
        with pytest.raises(GRPCError) as caught:
            await channel.unary(CHECK, HealthCheckRequest(), HealthCheckResponse)
        assert caught.value.status is Status.UNAVAILABLE


async def test_the_upstreams_certificate_is_verified(tmp_path: Path) -> None:
    """Both hops in TLS; an upstream that is somebody else gets nothing."""
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
                    with pytest.raises(GRPCError, match="certificate verify failed"):
                        await channel.unary(ECHO, Text(text="a"), Text)


async def test_a_call_that_was_answered_is_not_taken_for_refused() -> None:
    """Who has said something has begun, whatever is said after that."""
    odd = Odd()
    async with forwarded() as (it, where):
        it.services.add(odd)
        for to in (it.where, where):
            odd.calls = 0
            async with rpc.open_channel(to) as channel:
                with pytest.raises(GRPCError) as caught:
                    await channel.unary(CHANGE_MIND, Text(text="a"), Text)
            assert (type(caught.value), caught.value.status, odd.calls) == (GRPCError, Status.UNAVAILABLE, 1)


async def test_how_large_a_message_may_be_is_the_upstreams_to_say() -> None:
    """A larger one than the forwarder would take for itself, and the refusal of one that is too large there."""
    limits = rpc.Limits(message_size=6 << 20)
    async with forwarded(limits=limits) as (_, where), rpc.open_channel(where) as channel:
        assert len((await channel.unary(ECHO, Text(text="x" * (5 << 20)), Text)).text) == 5 << 20
        with pytest.raises(rpc.NotBegun, match=str(limits.message_size)):
            await channel.unary(ECHO, Text(text="x" * (7 << 20)), Text)
