"""Streams over the network end with their identity, even if they are idle."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from grpclib.const import Status

import headway
from headway import rpc
from headway.access import CHANGED, REFUSED, Access, Authorizer, Policy, Rule, Token, new_token
from headway.errors import HeadwayError
from headway.resource import Changes, EndOfSnapshot, pb
from headway.service import WATCH_LIST, WatchDecoder
from tests.helpers.plain_types import Team
from tests.helpers.service_errors import status_of

app = headway.App("staff")
TEAM = app.type("staff", "v1", "Team", Team)


def policy(*verbs: str) -> Policy:
    return Policy("readers", [Rule(verbs=verbs, type="staff.v1.Team", partition="*", namespace="*")])


@asynccontextmanager
async def watched(access: Authorizer, text: str) -> AsyncIterator[tuple[headway.Engine, rpc.RemoteChannel, Any]]:
    """Open a watch that has sent its snapshot and is idle."""
    with trio.fail_after(20):
        async with (
            headway.open_engine("memory:", app, network=headway.Network(["127.0.0.1:0"], access=access)) as engine,
            rpc.open_channel(engine.addresses, decoders={WATCH_LIST: WatchDecoder}) as channel,
        ):
            await engine.wait_idle()
            async with watch(channel, text) as items:
                yield engine, channel, items


@asynccontextmanager
async def watch(channel: rpc.RemoteChannel, text: str) -> AsyncIterator[Any]:
    request = pb.WatchListRequest(type=TEAM.name.message(), tenancy=pb.Tenancy(partition="*", namespace="*"))
    async with channel.stream(WATCH_LIST, request, metadata={"x-consul-token": text} if text else None) as items:
        while not isinstance(await anext(items), EndOfSnapshot):
            pass
        yield items


async def ended(items: Any) -> tuple[Status, str | None]:
    """Return the error that ends the stream. Fail if the stream sends anything before it."""
    with pytest.raises(HeadwayError) as caught:
        await anext(items)
    return status_of(caught.value), str(caught.value)


async def test_idle_stream_ends_when_its_token_expires() -> None:
    """The stream ends at the expiry, not at the next change, with a status that asks for another token."""
    text, token = new_token(["readers"], expires_at=0.3)
    now = 0.0
    # The clock stands still, so that the test may take its time. The remaining time counts from the stream's opening.
    access = Authorizer(Access([policy("view")], [token]), clock=lambda: now)
    async with watched(access, text) as (_, channel, _):
        began = trio.current_time()
        async with watch(channel, text) as items:
            assert await ended(items) == (Status.UNAUTHENTICATED, REFUSED)
        assert trio.current_time() - began >= 0.3
        now = 0.3
        with pytest.raises(HeadwayError) as caught:
            async with watch(channel, text):
                pytest.fail("the stream was accepted")
        assert (status_of(caught.value), str(caught.value)) == (Status.UNAUTHENTICATED, REFUSED)


@pytest.mark.parametrize("revoked", [True, False])
async def test_idle_stream_ends_when_its_token_is_revoked_or_removed(revoked: bool) -> None:
    """After that, the server follows no identity."""
    text, token = new_token(["readers"])
    access = Authorizer(Access([policy("view")], [token]))
    async with watched(access, text) as (_, _, items):
        left = [Token(accessor=token.accessor, hash=token.hash, policies=["readers"], revoked=True)] if revoked else []
        access.replace(Access([policy("view")], left))
        assert await ended(items) == (Status.UNAUTHENTICATED, REFUSED)
    assert access.followed == 0


@pytest.mark.parametrize("has_token", [True, False])
async def test_idle_stream_ends_when_its_policies_change(has_token: bool) -> None:
    """The caller is asked to retry, and then gets the answer of the new policies."""
    text, token = new_token(["readers"])
    given = text if has_token else ""

    def saying(*verbs: str) -> Access:
        anyone = Policy("anonymous", policy(*verbs).rules)
        return Access([policy(*verbs), anyone], [token])

    access = Authorizer(saying("view"))
    async with watched(access, given) as (_, channel, items):
        access.replace(saying("view", "edit"))
        assert await ended(items) == (Status.UNAVAILABLE, CHANGED)
        async with watch(channel, given) as again:
            access.replace(saying("edit"))
            assert await ended(again) == (Status.UNAVAILABLE, CHANGED)
        with pytest.raises(HeadwayError) as caught:
            async with watch(channel, given):
                pytest.fail("the stream was accepted")
        assert status_of(caught.value) is Status.PERMISSION_DENIED


async def test_stream_continues_if_nothing_has_changed_for_it() -> None:
    """The file may be read any number of times, and other tokens may be added and removed."""
    text, token = new_token(["readers"])
    access = Authorizer(Access([policy("view")], [token]))
    async with watched(access, text) as (engine, _, items):
        for _ in range(3):
            access.replace(Access([policy("view")], [token, new_token(["readers"])[1]]))
        await engine.client.write(TEAM.new("core"))
        item = await anext(items)
        assert isinstance(item, Changes)
        assert access.followed == 1


async def test_closed_stream_is_no_longer_followed() -> None:
    """The server remembers only open streams."""
    text, token = new_token(["readers"])
    access = Authorizer(Access([policy("view")], [token]))
    async with watched(access, text) as (_, channel, _):
        for _ in range(5):
            async with watch(channel, text):
                assert access.followed == 2
            while access.followed > 1:
                # Wait until the server has noticed the end of the stream.
                await channel.unary("/grpc.health.v1.Health/Check", pb.ReadRequest(), pb.ReadResponse, metadata={})
    assert access.followed == 0


async def test_caller_with_too_many_open_streams_is_refused_until_one_ends() -> None:
    """Another caller is not. Without the limit, one caller could fill the memory, and slow every commit."""
    (text, token), (other, another) = new_token(["readers"]), new_token(["readers"])
    access = Authorizer(Access([policy("view")], [token, another]), max_streams=2)
    async with watched(access, text) as (_, channel, _):
        async with watch(channel, text):
            with pytest.raises(HeadwayError) as caught:
                async with watch(channel, text):
                    pytest.fail("the stream was accepted")
            assert status_of(caught.value) is Status.RESOURCE_EXHAUSTED
            assert str(caught.value) == "you have 2 streams open on this server: end one first"
            async with watch(channel, other):
                assert access.streams.total() == 3
        while access.streams.total() > 1:
            # Wait until the server has noticed the end of the streams.
            await channel.unary("/grpc.health.v1.Health/Check", pb.ReadRequest(), pb.ReadResponse, metadata={})
        async with watch(channel, text):
            pass
    assert not access.streams


async def test_status_reaches_a_client_through_a_forwarder() -> None:
    """The upstream knows when the token expires. The forwarder need not."""
    text, token = new_token(["readers"], expires_at=0.3)
    access = Authorizer(Access([policy("view")], [token]), clock=lambda: 0.0)
    async with (
        watched(access, text) as (engine, _, _),
        rpc.open_forwarder(engine.addresses, ["127.0.0.1:0"]) as server,
        headway.connect(server.addresses, app, token=text) as client,
        client.watch(TEAM) as events,
    ):
        assert isinstance(await anext(events), headway.client.SnapshotEnd)
        with pytest.raises(headway.errors.PermissionDenied, match="expired"):
            await _exhaust(events)


async def _exhaust(events: Any) -> None:
    async for _ in events:
        pass
