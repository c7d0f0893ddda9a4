"""Types that the caller of a connection's first call had no rights to are compared before a later call uses them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing
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


async def test_server_that_describes_its_types_to_no_caller_is_asked_once() -> None:
    lists = Lists(failed(Status.UNIMPLEMENTED, "no such method"))
    lists.may_answer.set()
    channel = Compared(lists, WRONG)
    for _ in range(2):
        request = pb.ReadRequest(id=WRONG.id("core").message())
        assert await channel.unary("/a/Read", request, str) == "answered"
    assert lists.asked == 1


@pytest.mark.parametrize(("second", "asked"), [("one", 1), ("two", 2)])
async def test_comparison_is_shared_by_calls_with_the_same_token(
    nursery: trio.Nursery, second: str, asked: int
) -> None:
    """The answer to another caller may lack a type that this one has rights to."""
    lists = Lists(describe([OWNER]), describe([OWNER, TEAM]))
    channel = Compared(lists, WRONG, OWNER)
    ended: list[str] = []

    async def read(token: str) -> None:
        request = pb.ReadRequest(id=WRONG.id("core").message())
        try:
            ended.append(await channel.unary("/a/Read", request, str, metadata={"x-consul-token": token}))
        except headway.errors.SchemaMismatch:
            ended.append("refused")

    nursery.start_soon(read, "one")
    await trio.testing.wait_all_tasks_blocked()
    nursery.start_soon(read, second)
    await trio.testing.wait_all_tasks_blocked()
    lists.may_answer.set()
    await trio.testing.wait_all_tasks_blocked()
    assert (lists.asked, ended) == (asked, ["answered", "answered" if asked == 1 else "refused"])
