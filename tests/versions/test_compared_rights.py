"""Types that the caller of a connection's first call had no rights to are compared before a later call uses them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from grpclib.const import Status

import headway
from headway._gen.headway.lease import v1 as lease_pb
from headway.access import Access, Authorizer, Policy, Rule, new_token
from headway.errors import PermissionDenied
from headway.resource import ResourceType, describe, pb
from tests.helpers.compared import OWNER, SAID, TEAM, WRONG, Compared, Lists, Wrong
from tests.helpers.service_errors import failed

Uses = Callable[[headway.Client], Awaitable[None]]


def program(type: ResourceType[Any]) -> headway.App:
    app = headway.App("staff")
    app.registry.register(type)
    app.registry.register(OWNER)
    return app


async def reads(client: headway.Client) -> None:
    await client.read(WRONG, "core")


async def writes(client: headway.Client) -> None:
    await client.write(WRONG.new("core", Wrong(members="a")))


async def lists_by_owner(client: headway.Client) -> None:
    await client.list_by_owner(OWNER.id("boss")._replace(uid="01hzzzzzzzzzzzzzzzzzzzzzzz"))


async def watches(client: headway.Client) -> None:
    async with client.watch(WRONG) as events:
        await anext(events)


async def subscribes(client: headway.Client) -> None:
    async with client.subscribe([WRONG]) as batches:
        await anext(batches)


@pytest.mark.parametrize("granted", ["another token", "other policies"])
@pytest.mark.parametrize("use", [reads, writes, lists_by_owner, watches, subscribes])
async def test_type_is_compared_once_the_caller_gets_rights_to_it(granted: str, use: Uses) -> None:
    """The connections stay open. The first call on each of them had no rights to the type."""
    first, none = new_token(["none"])
    second, all = new_token(["all"])
    everything = Rule(verbs=["*"], type="*", partition="*", namespace="*")
    elsewhere = Rule(verbs=["*"], type="staff.v1.Owner", partition="*", namespace="*")

    def access(of_first: Rule) -> Access:
        return Access([Policy("none", [of_first]), Policy("all", [everything])], [none, all])

    authorizer, token = Authorizer(access(elsewhere)), first
    async with (
        headway.open_engine(
            "memory:", program(TEAM), network=headway.Network(["127.0.0.1:0"], access=authorizer)
        ) as engine,
        headway.connect(engine.addresses, program(WRONG), token=lambda: token) as client,
    ):
        await client.list(OWNER)
        async with client.watch(OWNER) as events:
            await anext(events)
        with pytest.raises(PermissionDenied):
            await client.read(WRONG, "core")
        if granted == "another token":
            token = second
        else:
            authorizer.replace(access(everything))
        with pytest.raises(headway.errors.SchemaMismatch) as caught:
            await use(client)
        assert str(caught.value) == SAID
        assert await engine.client.get(TEAM, "core") is None


async def test_only_calls_about_types_that_were_not_described_compare_again() -> None:
    """A caller without rights to one of its types makes all other calls without a delay."""
    lists = Lists(describe([OWNER]), describe([OWNER]), failed(Status.PERMISSION_DENIED, "no"), describe([TEAM]))
    lists.may_answer.set()
    channel = Compared(lists, TEAM, OWNER)

    async def read(type: ResourceType[Any]) -> int:
        request = pb.ReadRequest(id=type.id("core").message())
        assert await channel.unary("/a/Read", request, str) == "answered"
        return lists.asked

    assert [await read(OWNER), await read(OWNER)] == [1, 1]
    assert await channel.unary("/a/Acquire", lease_pb.AcquireRequest(name="one"), str) == "answered"
    assert [await read(TEAM), await read(OWNER), await read(TEAM), await read(TEAM), await read(TEAM)] == [
        2,
        2,
        3,
        4,
        4,
    ]
