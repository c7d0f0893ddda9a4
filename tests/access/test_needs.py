"""`Hooks.needs`: rights that a caller needs because of what a resource contains."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest

import headway
from headway import Hooks, Need, field
from headway.access import Access, Authorizer, Policy, Rule, new_token
from headway.errors import DeclarationError, PermissionDenied
from headway.resource import TypeName


@headway.message
class Room:
    floor: int = field(1)


@headway.message
class Desk:
    room: str = field(1)
    near: list[str] = field(2)


app = headway.App("office")
ROOM = app.type("office", "v1", "Room", Room)


def rights(verb: Literal["read", "write"], desk: headway.Resource[Desk]) -> Iterator[Need]:
    """A desk is read and written by those who read and write its room, and written by those who read the rooms near."""
    yield Need(verb, ROOM.id(desk.data.room))
    if verb == "write":
        for prefix in desk.data.near:
            # It may be empty, which no name of a resource is.
            yield Need("read", ROOM.id("any")._replace(name=prefix))


DESK = app.type("office", "v1", "Desk", Desk, hooks=Hooks(needs=rights))


@asynccontextmanager
async def office(*rules: Rule) -> AsyncIterator[tuple[headway.Engine, headway.Client]]:
    """Open an engine, and a client of it with these rules."""
    text, token = new_token(["some"])
    access = Authorizer(Access([Policy("some", rules)], [token]))
    async with (
        headway.open_engine("memory:", app, listen=["127.0.0.1:0"], access=access) as engine,
        headway.connect(engine.addresses, app, token=text) as client,
    ):
        yield engine, client


def rule(*verbs: str, type: str = "office.v1.Desk", name_prefix: str = "") -> Rule:
    return Rule(verbs=verbs, type=type, partition="*", namespace="*", name_prefix=name_prefix)


ROOMS = "office.v1.Room"
ALL_OF_DESKS = rule("view", "edit")
WRITER = rule("write", type=ROOMS)


async def test_resource_is_visible_to_those_who_may_read_what_it_needs() -> None:
    """A read, a list and a watch leave out the same resources."""
    async with office(ALL_OF_DESKS, rule("read", type=ROOMS, name_prefix="a")) as (engine, client):
        for name, room in (("mine", "a1"), ("theirs", "b1")):
            await engine.client.write(DESK.new(name, Desk(room=room)))
        mine = await client.get(DESK, "mine")
        assert mine is not None
        assert mine.data.room == "a1"
        assert await client.get(DESK, "theirs") is None
        assert [each.name for each in await client.list(DESK)] == ["mine"]
        async with client.watch(DESK) as watch:
            seen = [await anext(watch), await anext(watch)]
        assert [type(each).__name__ for each in seen] == ["Upserted", "SnapshotEnd"]


@pytest.mark.parametrize(
    ("rules", "desk", "lacks"),
    [
        ([rule("write", "read", type=ROOMS, name_prefix="a")], Desk(room="a1"), None),
        ([rule("read", type=ROOMS)], Desk(room="a1"), "write"),
        ([rule("write", "read", type=ROOMS, name_prefix="a")], Desk(room="b1"), "write"),
        (
            [rule("write", type=ROOMS), rule("read", type=ROOMS, name_prefix="a")],
            Desk(room="a1", near=["a", "a1"]),
            None,
        ),
        ([rule("write", type=ROOMS), rule("read", type=ROOMS, name_prefix="ab")], Desk(room="a1", near=["a"]), "read"),
        ([rule("write", type=ROOMS), rule("read", type=ROOMS, name_prefix="a")], Desk(room="a1", near=[""]), "read"),
    ],
)
async def test_writer_has_every_right_that_the_resource_needs(rules: list[Rule], desk: Desk, lacks: str | None) -> None:
    """A need for a prefix is met by a rule for the whole prefix, not by one for a part of it."""
    async with office(ALL_OF_DESKS, *rules) as (engine, client):
        if lacks is None:
            await client.write(DESK.new("mine", desk))
            return
        with pytest.raises(PermissionDenied, match=rf"may not write Desk mine: .*\{{verbs: \[{lacks}\], type: {ROOMS}"):
            await client.write(DESK.new("mine", desk))
        assert await engine.client.list(DESK) == []


async def test_needs_are_no_rights_to_the_resource_itself() -> None:
    async with office(rule("view", "edit", type=ROOMS)) as (engine, client):
        await engine.client.write(DESK.new("mine", Desk(room="a1")))
        with pytest.raises(PermissionDenied, match=r"none of your rules covers type office\.v1\.Desk"):
            await client.get(DESK, "mine")


async def test_reader_of_everything_needs_no_data_to_decide() -> None:
    """The function that fails is not called."""
    everything = Rule(verbs=["view"], type="*", partition="*", namespace="*")
    async with office(everything) as (engine, client):
        await engine.client.write(DESK.new("mine", Desk(room="Not a name")))
        assert [each.name for each in await client.list(DESK)] == ["mine"]


async def test_failing_function_writes_nothing() -> None:
    """An invalid name in the payload makes this one fail."""
    async with office(ALL_OF_DESKS, rule("*", type=ROOMS)) as (engine, client):
        with pytest.raises(headway.HeadwayError, match="the authorizer failed"):
            await client.write(DESK.new("mine", Desk(room="Not a name")))
        assert await engine.client.list(DESK) == []


def test_changed_rights_to_what_is_needed_are_noticed() -> None:
    """A watch of the type then begins with a snapshot: its digest covers rules of other types."""
    from headway.access import Caller

    def digest(*rules: Rule) -> str:
        identity = Authorizer(Access([Policy("anonymous", rules)])).identify({})
        return Caller(identity, "WatchList", app.registry).rights_to_read(DESK.name)

    before = digest(ALL_OF_DESKS, rule("read", type=ROOMS, name_prefix="a"))
    assert before == digest(ALL_OF_DESKS, rule("read", type=ROOMS, name_prefix="a"))
    assert before != digest(ALL_OF_DESKS, rule("read", type=ROOMS, name_prefix="b"))


async def _waits(_verb: Any, _desk: Any) -> list[Need]:
    return []


@pytest.mark.parametrize("needs", [_waits, lambda _: [], "read"])
def test_function_of_another_form_is_refused(needs: Any) -> None:
    with pytest.raises(DeclarationError, match=r"the needs hook .*: headway\.Hooks\(needs=rights\)"):
        Hooks(needs=needs)


def test_needs_survive_the_hooks_that_headway_adds() -> None:
    """Hooks of its own go before those of partitions, namespaces and types with secrets."""

    @headway.message
    class Key:
        text: str = field(1, secret=True)

    def none(_verb: Any, _key: Any) -> list[Need]:
        return []

    assert app.registry.find(TypeName("office", "v1", "Desk")) is DESK
    assert headway.ResourceType("office", "v1", "Key", Key, hooks=Hooks(needs=none)).hooks.needs is none
