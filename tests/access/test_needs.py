"""`Hooks.needs`: rights that a caller needs because of what a resource contains."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
import trio

import headway
from headway import Hooks, Need, field
from headway.access import Access, Authorizer, Policy, Rule, new_token
from headway.client import Deleted, SnapshotEnd, Upserted, WatchStream
from headway.errors import DeclarationError, HistoryCompacted, PermissionDenied
from headway.resource import TypeName


@headway.message
class Room:
    floor: int = field(1)


@headway.message
class Desk:
    room: str = field(1)
    near: list[str] = field(2)


PATIENCE = 60.0

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
        headway.open_engine("memory:", app, network=headway.Network(["127.0.0.1:0"], access=access)) as engine,
        headway.connect(engine.addresses, app, token=text) as client,
    ):
        yield engine, client


def rule(*verbs: str, type: str = "office.v1.Desk", name_prefix: str = "") -> Rule:
    return Rule(verbs=verbs, type=type, partition="*", namespace="*", name_prefix=name_prefix)


ROOMS = "office.v1.Room"
ALL_OF_DESKS = rule("view", "edit")


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


FLOOR_A = rule("read", type=ROOMS, name_prefix="a")


async def test_resource_that_a_change_hides_is_deleted_for_its_watcher() -> None:
    """It is deleted in the state that the watcher has. A cache would otherwise keep it for ever."""
    async with office(ALL_OF_DESKS, FLOOR_A) as (engine, client), client.watch(DESK) as watch:
        await engine.client.write(DESK.new("mine", Desk(room="a1")))
        seen = [await _next_seen(watch)]
        for room in ("b1", "b2", "a2"):
            await engine.client.apply(DESK.new("mine", Desk(room=room)))
        await engine.client.delete(DESK.id("mine"))
        seen += [await _next_seen(watch) for _ in range(3)]
        assert seen == [("Upserted", "a1"), ("Deleted", "a1"), ("Upserted", "a2"), ("Deleted", "a2")]


async def test_watch_resumes_unless_a_change_has_hidden_what_the_reader_may_have() -> None:
    """Only a snapshot says whether the reader has it. What was hidden all the time is not revealed."""
    async with office(ALL_OF_DESKS, FLOOR_A) as (engine, client):
        for name, room in (("mine", "a1"), ("theirs", "b1")):
            await engine.client.write(DESK.new(name, Desk(room=room)))
        async with client.watch(DESK) as watch:
            _, end = await anext(watch), await anext(watch)
        assert isinstance(end, SnapshotEnd)
        await engine.client.delete(DESK.id("theirs"))
        await engine.client.apply(DESK.new("mine", Desk(room="a2")))
        async with client.watch(DESK, resume_after=end.position) as watch:
            assert await _next_seen(watch) == ("Upserted", "a2")
            # This stream has sent it, so it knows.
            await engine.client.apply(DESK.new("mine", Desk(room="b1")))
            assert await _next_seen(watch) == ("Deleted", "a2")
            await engine.client.apply(DESK.new("mine", Desk(room="b2")))
            await engine.client.apply(DESK.new("other", Desk(room="a3")))
            assert await _next_seen(watch) == ("Upserted", "a3")
        async with client.watch(DESK) as watch:
            _, end = await anext(watch), await anext(watch)
        assert isinstance(end, SnapshotEnd)
        await engine.client.apply(DESK.new("other", Desk(room="b1")))
        hidden = "depends on what it contains, and a change has hidden a resource"
        async with client.watch(DESK, resume_after=end.position) as watch:
            with pytest.raises(HistoryCompacted, match=hidden):
                await _next_seen(watch)


async def _next_seen(watch: WatchStream[Desk]) -> tuple[str, str]:
    """Return the next event of a resource, and its room."""
    with trio.fail_after(PATIENCE):
        while True:
            event = await anext(watch)
            if isinstance(event, Upserted | Deleted):
                return type(event).__name__, event.resource.data.room


async def test_cache_loses_what_was_hidden_while_it_was_cut_off(tmp_path: Path) -> None:
    """Its stream cannot resume, and begins with a snapshot."""
    text, token = new_token(["some"])
    access = Authorizer(Access([Policy("some", [ALL_OF_DESKS, FLOOR_A])], [token]))
    store = f"sqlite:{tmp_path / 'office.db'}"
    cut, ended = trio.Event(), trio.Event()

    async def serve_until_cut(task_status: trio.TaskStatus[headway.Engine]) -> None:
        async with headway.open_engine(store, app, network=headway.Network(["127.0.0.1:0"], access=access)) as engine:
            await engine.client.write(DESK.new("mine", Desk(room="a1")))
            task_status.started(engine)
            await cut.wait()
        ended.set()

    async with trio.open_nursery() as nursery:
        engine = await nursery.start(serve_until_cut)
        async with headway.open_cache(engine.addresses, app, watches=[DESK], token=text) as cache:
            assert [each.name for each in cache.list(DESK)] == ["mine"]
            cut.set()
            await ended.wait()
            async with headway.open_engine(store, app) as alone:
                moved = await alone.client.apply(DESK.new("mine", Desk(room="b1")))
            async with headway.open_engine(store, app, network=headway.Network(engine.addresses, access=access)):
                with trio.fail_after(PATIENCE):
                    await cache.wait_for(moved)
                assert cache.list(DESK) == []


async def test_subscription_deletes_what_a_change_hides() -> None:
    """If it resumes after the last batch before the change, it begins with a snapshot instead."""
    async with office(ALL_OF_DESKS, FLOOR_A) as (engine, client):
        await engine.client.write(DESK.new("mine", Desk(room="a1")))
        await engine.client.write(DESK.new("yours", Desk(room="a1")))
        with trio.fail_after(PATIENCE):
            async with client.subscribe([DESK]) as batches:
                first = await anext(batches)
                assert first.snapshot
                await engine.client.apply(DESK.new("mine", Desk(room="b1")))
                (event,) = (await anext(batches)).events
                assert isinstance(event, Deleted)
                assert (event.resource.name, event.resource.data.room) == ("mine", "a1")
            async with client.subscribe([DESK], resume_after=first.position) as batches:
                batch = await anext(batches)
                assert batch.snapshot
                assert [each.resource.name for each in batch.events if isinstance(each, Upserted)] == ["yours"]


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
        with pytest.raises(headway.HeadwayError, match=r"the needs hook of office\.v1\.Desk failed"):
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


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "read",
        ["read"],
        Need("read", ROOM.id("a1")),
        [Need],
        [Need("raed", ROOM.id("a1"))],  # type: ignore[arg-type]  # the mistake
        LookupError("of the hook"),
    ],
)
async def test_needs_hook_that_fails_refuses_the_caller_and_is_named(answer: Any) -> None:
    """Otherwise an operator would look for the fault in the access file."""

    def broken(*_: object) -> Any:
        if answer is LookupError:
            raise LookupError
        return answer

    other = headway.App("office")
    desk = other.type("office", "v1", "Desk", Desk, hooks=Hooks(needs=broken))
    text, token = new_token(["some"])
    access = Authorizer(Access([Policy("some", [ALL_OF_DESKS])], [token]))
    heard: list[Any] = []
    async with (
        headway.open_engine(
            "memory:", other, network=headway.Network(["127.0.0.1:0"], access=access), report=heard.append
        ) as engine,
        headway.connect(engine.addresses, other, token=text) as client,
    ):
        await engine.client.write(desk.new("one"))
        said = r"the needs hook of office\.v1\.Desk failed"
        with pytest.raises(headway.errors.RemoteError, match=said):
            await client.get(desk, "one")
        with pytest.raises(headway.errors.RemoteError, match=said):
            await client.write(desk.new("two"))
        assert await engine.client.get(desk, "two") is None
    (first, *_) = [event for event in heard if isinstance(event, headway.events.HandlerFailed)]
    (note,) = first.error.__notes__
    assert note.startswith("raised by the needs hook test_needs_hook_that_fails")
    assert note.endswith(f"({__file__}, line {broken.__code__.co_firstlineno}) of office.v1.Desk")
