"""A server that forwards calls to an upstream: the client receives the upstream's answers."""

from __future__ import annotations

import functools

import pytest
import trio
from grpclib.const import Status

import headway
from headway import rpc
from headway.access import Access, Authorizer, Policy, Rule, new_token
from headway.errors import HeadwayError
from headway.rpc import HealthCheckRequest, HealthCheckResponse
from tests.helpers.service_errors import answer_of, status_of
from tests.rpc.forward_kit import LEFT, Odd, forwarded
from tests.rpc.rpc_kit import ECHO, FAIL, META, THING, WAIT, Text, app, served

CHECK = "/grpc.health.v1.Health/Check"


@pytest.mark.parametrize("hops", [1, 2])
async def test_every_client_operation_works_through_a_forwarder(hops: int) -> None:
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
            assert isinstance(await anext(events), headway.client.Upserted)
            assert isinstance(await anext(events), headway.client.SnapshotEnd)
            applied = await client.apply(THING.new("a", Text(text="3")))
            condition = headway.Condition(type="Ready", state=headway.ConditionState.TRUE)
            await client.write_status(applied, "tests", [condition])
            await client.delete(await client.read(THING, "a"))
            seen: list[type] = []
            while headway.client.Deleted not in seen:
                seen.append(type(await anext(events)))
            assert seen.count(headway.client.Upserted) == 2
        with pytest.raises(headway.NotFound):
            await client.read(THING, "a")
        with pytest.raises(headway.errors.InvalidArgument, match="name"):
            await client.read(THING, "Not A Name")


@pytest.mark.parametrize(
    ("path", "text", "status", "message"),
    [
        (FAIL, "known", Status.ABORTED, "não — 100 %"),
        (FAIL, "unknown", Status.UNKNOWN, "Internal Server Error"),
        ("/nobody.Has/This", "", Status.UNIMPLEMENTED, "Method not found: /nobody.Has/This"),
    ],
)
async def test_errors_of_the_upstream_pass_through_unchanged(
    path: str, text: str, status: Status, message: str
) -> None:
    """The messages are the upstream's, and the forwarder reports nothing."""
    reported: list[object] = []
    async with (
        served() as it,
        rpc.open_forwarder(it.where, ["127.0.0.1:0"], report=lambda *said: reported.append(said)) as server,
        rpc.open_channel(server.addresses) as channel,
    ):
        with pytest.raises(HeadwayError) as caught:
            await channel.unary(path, Text(text=text), Text)
    assert (status_of(caught.value), answer_of(caught.value), reported) == (status, message, [])


async def test_metadata_reaches_the_upstream_through_two_forwarders() -> None:
    async with forwarded(2) as (_, where), rpc.open_channel(where) as channel:
        assert (await channel.unary(META, Text(), Text, metadata={"x-consul-token": "s3cret"})).text == "s3cret"


async def test_upstream_decides_about_permissions() -> None:
    """The token passes through. The forwarder has no rights of its own to lend."""
    rule = Rule(verbs=["view"], type="test.v1.Thing", partition="*", namespace="*")
    text, token = new_token(["readers"])
    access = Authorizer(Access([Policy("readers", [rule])], [token]))
    async with (
        headway.open_engine("memory:", app, network=headway.Network(["127.0.0.1:0"], access=access)) as engine,
        rpc.open_forwarder(engine.addresses, ["127.0.0.1:0"]) as server,
    ):
        await engine.client.write(THING.new("a", Text(text="1")))
        async with headway.connect(server.addresses, app, token=text) as reader:
            assert (await reader.read(THING, "a")).data.text == "1"
            with pytest.raises(headway.errors.PermissionDenied):
                await reader.write(THING.new("b", Text()))
        async with headway.connect(server.addresses, app) as nobody:
            with pytest.raises(headway.errors.PermissionDenied):
                await nobody.read(THING, "a")


async def test_remaining_deadline_is_forwarded() -> None:
    """It is never longer than the client's. If the client has no deadline, none is forwarded."""
    async with forwarded(2) as (it, where):
        it.services.add(Odd())
        async with rpc.open_channel(where, timeout=25) as channel:
            left = float((await channel.unary(LEFT, Text(), Text)).text)
            assert 20 < left <= 25
        async with rpc.open_channel(where, timeout=float("inf")) as channel:
            with trio.fail_after(20):
                left = float((await channel.unary(LEFT, Text(), Text)).text)
            assert 10 < left <= 20


async def test_expired_deadline_ends_the_call_at_the_upstream() -> None:
    """It does so whichever side notices first."""
    async with forwarded() as (it, where), rpc.open_channel(where, timeout=0.2) as channel:
        with pytest.raises(HeadwayError) as caught:
            await channel.unary(WAIT, Text(), Text)
        assert status_of(caught.value) is Status.DEADLINE_EXCEEDED
        await it.echo.until_waiting(0)
        assert it.echo.cancelled == 1


async def test_messages_larger_than_any_window_are_forwarded() -> None:
    """Both directions work. The upstream refuses a message that is too large, in its own words."""
    async with forwarded() as (_, where), rpc.open_channel(where) as channel:
        text = "x" * 3_000_000
        assert (await channel.unary(ECHO, Text(text=text), Text)).text == text
    async with (
        forwarded(2, limits=rpc.Limits(message_size=1 << 20)) as (_, where),
        headway.connect(where, app) as client,
    ):
        with pytest.raises(headway.errors.TooLarge) as caught:
            await client.write(THING.new("a", Text(text=text)))
        assert (caught.value.size > len(text), caught.value.limit) == (True, 1 << 20)


@pytest.mark.wide
async def test_concurrent_calls_each_receive_their_own_answer() -> None:
    """This holds however clients and upstream share connections."""
    answers: dict[int, str] = {}

    async def call(channel: rpc.RemoteChannel, number: int) -> None:
        answers[number] = (await channel.unary(ECHO, Text(text=f"{number}" * 1000), Text)).text

    async with forwarded() as (_, where), rpc.open_channel(where) as channel, trio.open_nursery() as nursery:
        for number in range(300):
            nursery.start_soon(call, channel, number)
    assert answers == {number: f"{number}" * 1000 for number in range(300)}


async def test_forwarder_reports_the_health_of_its_upstream() -> None:
    """This holds for the server and for each service.

    Without an upstream the call fails, which is not healthy either.
    """
    async with forwarded() as (it, where), rpc.open_channel(where) as channel:
        check = functools.partial(channel.unary, CHECK, reply_type=HealthCheckResponse)
        assert (await check(request=HealthCheckRequest())).status == 1
        it.health.set("headway.resource.v1.ResourceService", serving=False)
        request = HealthCheckRequest(service="headway.resource.v1.ResourceService")
        assert (await check(request=request)).status == 2
    async with (
        rpc.open_forwarder("127.0.0.1:1", ["127.0.0.1:0"]) as server,
        rpc.open_channel(server.addresses) as channel,
    ):
        with pytest.raises(HeadwayError) as caught:
            await channel.unary(CHECK, HealthCheckRequest(), HealthCheckResponse)
        assert status_of(caught.value) is Status.UNAVAILABLE


async def test_upstream_limits_the_size_of_forwarded_messages() -> None:
    """A message above the forwarder's own limit passes. The upstream refuses one above the upstream's limit."""
    limits = rpc.Limits(message_size=6 << 20)
    async with forwarded(limits=limits) as (_, where), rpc.open_channel(where) as channel:
        assert len((await channel.unary(ECHO, Text(text="x" * (5 << 20)), Text)).text) == 5 << 20
        with pytest.raises(headway.errors.TooLarge, match=str(limits.message_size)):
            await channel.unary(ECHO, Text(text="x" * (7 << 20)), Text)
