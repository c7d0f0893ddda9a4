"""Subscriptions and caches through a forwarder: rights, errors, resumed positions, and lost servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from grpclib.const import Status

import headway
from headway import field, rpc
from headway._gen.headway.subscribe import v1 as subscribe_pb
from headway.access import CHANGED, Access, Authorizer, Policy, Rule, new_token
from headway.errors import HeadwayError, PermissionDenied, StoreChanged
from headway.subscribing import SUBSCRIBE, SubscribeDecoder
from headway.subscription import SnapshotComplete
from tests.helpers.service_errors import status_of

PATIENCE = 50.0


@headway.message(name="forwarded.v1.Team")
class Team:
    note: str = field(1)


app = headway.App("forwarded")
TEAM = app.type("forwarded", "v1", "Team", Team)
SITE = app.type("forwarded", "v1", "Site", Team)
RATES = app.topic("rates", snapshot=lambda _: {"EUR": b"1", "CHF": b"2"}, wildcard=True)
TEXT, TOKEN = new_token(["readers"])


def access(prefix: str = "", *, revoked: bool = False) -> Access:
    """Return rights to what begins with a prefix: teams, and subjects of the topic."""
    teams = Rule(verbs=["watch"], type="forwarded.v1.Team", partition="*", namespace="*")
    some = Rule(verbs=["read"], type="forwarded.v1.Team", partition="*", namespace="*", name_prefix=prefix)
    topic = Rule(verbs=["watch"], type="internal.v1.Topic", partition="", namespace="", name_prefix="rates/")
    rates = Rule(verbs=["read"], type="internal.v1.Topic", partition="", namespace="", name_prefix="rates/E")
    return Access([Policy("readers", [teams, some, topic, rates])], [] if revoked else [TOKEN])


@asynccontextmanager
async def forwarded(rights: Authorizer | None = None) -> AsyncIterator[tuple[headway.Engine, Any]]:
    """Serve the app behind a forwarder. The second value is the forwarder."""
    network = headway.Network(["127.0.0.1:0"], access=rights, insecure=rights is None)
    with trio.fail_after(PATIENCE):
        async with (
            headway.open_engine("memory:", app, network=network) as engine,
            rpc.open_forwarder(engine.addresses, ["127.0.0.1:0"]) as forwarder,
        ):
            await engine.wait_idle()
            yield engine, forwarder


def names(batch: headway.subscribing.SubscriptionBatch) -> list[str]:
    return sorted(
        event.subject if isinstance(event, headway.subscribing.Published) else event.resource.name
        for event in batch.events
    )


async def test_caller_sees_through_a_forwarder_what_its_rights_show() -> None:
    """The right to each subject is checked behind it, and changed rights begin the subscription anew."""
    rights = Authorizer(access("a"))
    async with (
        forwarded(rights) as (engine, forwarder),
        headway.connect(forwarder.addresses, app, token=TEXT) as client,
    ):
        for name in ("a", "b"):
            await engine.client.create(TEAM.new(name))
        with pytest.raises(PermissionDenied, match=r"none of your rules covers type forwarded\.v1\.Site"):
            async with client.subscribe([TEAM, SITE]) as batches:
                await anext(batches)
        async with client.subscribe([TEAM, RATES]) as batches:
            assert names(await anext(batches)) == ["EUR", "a"]
            RATES.publish({"CHF": b"3", "EUR": b"4"})
            assert names(await anext(batches)) == ["EUR"]
            rights.replace(access("b"))
            batch = await anext(batches)
            assert (batch.snapshot, names(batch)) == (True, ["EUR", "b"])
            rights.replace(access("b", revoked=True))
            with pytest.raises(PermissionDenied, match="the token is not valid here"):
                await anext(batches)


@pytest.mark.parametrize(
    ("subject", "status", "message"),
    [
        (subscribe_pb.Subject(topic="ghosts", everything=subscribe_pb.Everything()), Status.INVALID_ARGUMENT, "ghosts"),
        (subscribe_pb.Subject(topic="rates"), Status.INVALID_ARGUMENT, "send named or everything"),
        (None, Status.INVALID_ARGUMENT, "subjects has 0 entries"),
    ],
)
async def test_errors_of_the_subscribe_service_pass_through_a_forwarder(
    subject: subscribe_pb.Subject | None, status: Status, message: str
) -> None:
    async with (
        forwarded() as (_, forwarder),
        rpc.open_channel(forwarder.addresses, decoders={SUBSCRIBE: SubscribeDecoder}) as channel,
    ):
        request = subscribe_pb.SubscribeRequest(subjects=[] if subject is None else [subject])
        async with channel.stream(SUBSCRIBE, request) as items:
            with pytest.raises(HeadwayError, match=message) as caught:
                await anext(items)
        assert status_of(caught.value) is status


async def test_changed_policy_is_aborted_through_a_forwarder() -> None:
    """Subscribers in other languages depend on the status and the position."""
    rights = Authorizer(access())
    async with (
        forwarded(rights) as (_, forwarder),
        rpc.open_channel(forwarder.addresses, decoders={SUBSCRIBE: SubscribeDecoder}) as channel,
    ):
        subjects = [subscribe_pb.Subject(type=TEAM.name.message(), everything=subscribe_pb.Everything())]
        request = subscribe_pb.SubscribeRequest(subjects=subjects)
        async with channel.stream(SUBSCRIBE, request, metadata={"x-consul-token": TEXT}) as items:
            while not isinstance(await anext(items), SnapshotComplete):
                pass
            rights.replace(access("a"))
            with pytest.raises(HeadwayError, match=CHANGED) as caught:
                async for _ in items:
                    pass
        assert status_of(caught.value) is Status.ABORTED


class Life:
    """A server or a forwarder that can be ended and begun again, in a task of its own."""

    def __init__(self, nursery: trio.Nursery, begin: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        self._nursery = nursery
        self._begin = begin
        self._end = self._ended = trio.Event()

    async def begin(self) -> Any:
        """Begin, and return what runs."""
        self._end, self._ended = trio.Event(), trio.Event()
        return await self._nursery.start(self._run)

    async def end(self) -> None:
        """End, and wait for that."""
        self._end.set()
        await self._ended.wait()

    async def _run(self, task_status: trio.TaskStatus[Any]) -> None:
        async with self._begin() as running:
            task_status.started(running)
            await self._end.wait()
        self._ended.set()


async def test_subscription_resumes_when_the_server_behind_a_forwarder_restarts(tmp_path: Path) -> None:
    """No second snapshot is sent, whichever of the two ends. A position that was kept is resumed, too."""
    store, listen, before = f"sqlite:{tmp_path}/forwarded.db", ["127.0.0.1:0"], ["127.0.0.1:0"]

    def engine_on() -> AbstractAsyncContextManager[Any]:
        return headway.open_engine(store, app, network=headway.Network(listen, insecure=True))

    def forwarder_before() -> AbstractAsyncContextManager[Any]:
        return rpc.open_forwarder(["127.0.0.1:1", *listen], before)

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            server, between = Life(nursery, engine_on), Life(nursery, forwarder_before)
            engine = await server.begin()
            listen[:] = engine.addresses
            before[:] = (await between.begin()).addresses
            async with headway.connect(before, app) as client, client.subscribe([TEAM]) as batches:
                assert (await anext(batches)).snapshot
                for number in range(2):
                    await server.end()
                    engine = await server.begin()
                    await engine.client.create(TEAM.new(f"team-{number}"))
                    batch = await anext(batches)
                    assert (batch.snapshot, names(batch)) == (False, [f"team-{number}"])
                await between.end()
                await engine.client.create(TEAM.new("later"))
                await between.begin()
                batch = await anext(batches)
                assert (batch.snapshot, names(batch)) == (False, ["later"])
                await engine.client.delete(TEAM.id("later"))
                async with client.subscribe([TEAM], resume_after=batch.position) as resumed:
                    batch = await anext(resumed)
                    assert (batch.snapshot, names(batch)) == (False, ["later"])
            await between.end()
            await server.end()


async def test_cache_is_primed_and_kept_through_a_forwarder() -> None:
    """It follows changes, and a right that is lost ends its block."""
    rights = Authorizer(access())
    async with forwarded(rights) as (engine, forwarder):
        await engine.client.create(TEAM.new("core"))
        with pytest.raises(PermissionDenied, match=r"forwarded\.v1\.Team"):
            await follow_until_denied(engine, rights, forwarder.addresses)


async def follow_until_denied(engine: headway.Engine, rights: Authorizer, where: list[str]) -> None:
    async with (
        headway.open_cache(where, app, watches=[TEAM], token=TEXT) as cache,
        cache.notify() as updates,
    ):
        teams = updates.list(TEAM)
        await updates.primed()
        assert [team.name for team in teams.value] == ["core"]
        await engine.client.create(TEAM.new("docs"))
        while len(teams.value) < 2:
            await anext(updates)
        rights.replace(Access([Policy("readers", [])], [TOKEN]))
        async for _ in updates:
            pass


async def test_position_of_another_store_is_refused_through_a_forwarder() -> None:
    """The status of the server behind, DATA_LOSS, becomes a named error."""
    async with (
        forwarded() as (_, forwarder),
        headway.connect(forwarder.addresses, app) as client,
        client.subscribe([TEAM]) as batches,
    ):
        position = (await anext(batches)).position
    async with (
        forwarded() as (_, forwarder),
        headway.connect(forwarder.addresses, app) as client,
        client.subscribe([TEAM], resume_after=position) as batches,
    ):
        with pytest.raises(StoreChanged, match="to accept that store, subscribe without resume_after="):
            await anext(batches)
