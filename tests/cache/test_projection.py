"""Projections: the fields that they keep, the changes that they report, and the protection of whole resources."""

from __future__ import annotations

import copy
import gc
import re
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events, field, indexes, testing
from headway.cache import Applied, Cache, Informer, Projected, Projection, Subscription, projection
from headway.client import Client
from headway.errors import DeclarationError, IndexIncomplete, InvalidArgument, PayloadError
from headway.resource import Condition, Key, Resource, ResourceType, pb
from headway.storage import MemoryBackend
from headway.testing import ScriptedChannel
from tests.helpers.resources import ACCOUNT, TEAM, Account, Team, at, changes, chunk, end, key, put, removed, stored


@headway.message
class Size:
    members: int = field(1)
    limits: dict[str, int] = field(2)


def size_of(team: Resource[Team]) -> Size:
    if "broken" in team.data.members:
        raise ValueError("broken")
    return Size(members=len(team.data.members))


SIZE = projection(TEAM, Size, size_of, metadata=["colour"], status=["sizes"])
BY_SIZE = indexes.by(SIZE, "size", lambda size: size.data.members)


def team(name: str, version: int, *members: str, **more: Any) -> pb.Resource:
    return stored(name, version, data=Team(members=list(members)), **more)


def _ignore_failure(name: str, key: Key, error: BaseException) -> None:
    """Ignore the failure, which these tests don't check."""


class Sizes:
    """A cache of a projection, primed at 10, that has ada with two members."""

    def __init__(self, *there: pb.Resource) -> None:
        self.heard: list[object] = []
        self.informer = Informer(SIZE, self.heard.append)
        self.informer.feed(chunk(*(there or (team("ada", 5, "x", "y"),))))
        self.informer.feed(end(10))
        self.subscription: Subscription = self.informer.subscribe([BY_SIZE], _ignore_failure)
        self.cache = Cache("sizes", SIZE, [])
        self.cache.open({SIZE.name: self.subscription})

    def drained(self) -> list[Applied]:
        return self.subscription.drain()

    def one(self, name: str = "ada") -> Projected[Size]:
        found = self.cache.get(SIZE, name)
        assert found is not None
        return found


# --- the fields that are kept ---------------------------------------------------


def test_cache_holds_the_projection_and_its_identity() -> None:
    """The cache keeps id, owner, version and generation, and the declared metadata and statuses."""
    boss = ACCOUNT.id("boss", partition="default", namespace="default", uid="boss1")
    status = pb.Status(conditions=[Condition(type="Ready")])
    whole = team("ada", 7, "x", owner=boss, metadata={"colour": "red", "more": "text"}, uid="ada3")
    whole.status = {"sizes": status, "others": status}
    size = Sizes(whole).one()
    assert (size.name, size.uid, size.version, size.generation) == ("ada", "ada3", "7", whole.generation)
    assert (size.id, size.owner) == (TEAM.id("ada", uid="ada3"), boss)
    assert size.data == Size(members=1)
    assert size.metadata == {"colour": "red"}
    assert size.status == {"sizes": status}
    assert (size.finalizers, size.is_deleting) == (frozenset(), False)


def test_deletion_mark_and_finalizers_are_always_kept() -> None:
    marked = team("ada", 7, metadata={"finalizers": "mine theirs", "deletionTimestamp": "2026-01-01T00:00:00Z"})
    size = Sizes(marked).one()
    assert size.finalizers == {"mine", "theirs"}
    assert size.is_deleting


def test_whole_resource_is_never_kept() -> None:
    """This holds for a snapshot, a change and a reply."""
    wholes = [team("ada", 7, "x"), team("grace", 11, "x"), team("mary", 13, "x")]
    held = [weakref.ref(each.data) for each in wholes if each.data]
    sizes = Sizes(wholes[0])
    sizes.informer.feed(changes(put(wholes[1])))
    sizes.informer.reply(key("mary"), wholes[2], at(13))
    wholes.clear()
    gc.collect()
    assert [each() for each in held] == [None, None, None]
    assert len(sizes.cache.list(SIZE)) == 3


def test_projection_that_is_read_may_be_mutated() -> None:
    """The mutation reaches no other reader (C9)."""
    sizes = Sizes(team("ada", 7, metadata={"colour": "red"}, status={"sizes": pb.Status()}))
    mine = sizes.one()
    mine.data.members = 7
    mine.metadata["colour"] = "blue"
    mine.status["sizes"].conditions.append(Condition(type="Mine"))
    assert copy.deepcopy(mine.status) == mine.status
    theirs = sizes.one()
    assert (theirs.data.members, theirs.metadata, theirs.status) == (0, {"colour": "red"}, {"sizes": pb.Status()})


# --- the changes that are reported ----------------------------------------------


@pytest.mark.parametrize("by", ["stream", "reply", "snapshot"])
def test_change_outside_the_projection_is_not_reported(by: str) -> None:
    """The version still advances, so the resource can be deleted by that version."""
    sizes = Sizes()
    other = team("ada", 12, "grace", "mary", metadata={"more": "text"}, status={"others": pb.Status()})
    if by == "stream":
        sizes.informer.feed(changes(put(other)))
    elif by == "reply":
        sizes.informer.reply(key("ada"), other, at(12))
    else:
        sizes.informer.feed(chunk(other))
        sizes.informer.feed(end(12))
    assert sizes.drained() == []
    assert sizes.one().version == "12"
    assert [each.version for each in sizes.cache.index(BY_SIZE, 2)] == ["12"]


async def test_view_keeps_the_version_at_its_revision() -> None:
    """A change outside the projection doesn't reach a view that was opened before it."""
    sizes = Sizes()
    async with sizes.cache.view(SIZE) as view:
        sizes.informer.feed(changes(put(team("ada", 12, "grace", "mary"))))
        assert [each.version for each in view.list(SIZE)] == ["5"]
        assert sizes.one().version == "12"


@pytest.mark.parametrize(
    "change",
    [
        team("ada", 12, "x"),
        team("ada", 12, "x", "y", metadata={"colour": "red"}),
        team("ada", 12, "x", "y", metadata={"finalizers": "mine"}),
        team("ada", 12, "x", "y", status={"sizes": pb.Status(observed_generation="7")}),
        team("ada", 12, "x", "y", owner=ACCOUNT.id("boss", uid="boss1")),
        team("ada", 12, "x", "y", uid="ada2"),
        team("ada", 12, "broken"),
    ],
    ids=["data", "metadata", "finalizers", "status", "owner", "uid", "broken"],
)
async def test_change_inside_the_projection_is_reported_with_old_and_new_state(change: pb.Resource) -> None:
    """A new incarnation is reported as a deletion and a creation."""
    sizes = Sizes()
    sizes.informer.feed(changes(put(change)))
    drained = sizes.drained()
    assert [each.revision for each in drained] == [12] * (2 if change.id and change.id.uid == "ada2" else 1)
    assert drained[0].old is not None
    assert drained[-1].new is sizes.informer.store.entries[key("ada")]
    sizes.informer.feed(changes(removed(change, 13)))
    assert [(each.new, each.revision) for each in sizes.drained()] == [(None, 13)]


def test_order_of_a_map_is_not_a_change() -> None:
    """The bytes differ, but their meaning doesn't."""
    orders = iter([{"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 2, "b": 2}])
    limits = projection(TEAM, Size, lambda _: Size(limits=next(orders)))
    informer = Informer(limits, events.ignore)
    informer.feed(chunk(team("ada", 5)))
    informer.feed(end(10))
    subscription = informer.subscribe([], _ignore_failure)
    informer.feed(changes(put(team("ada", 11))))
    assert subscription.drain() == []
    informer.feed(changes(put(team("ada", 12))))
    assert len(subscription.drain()) == 1


# --- functions that raise ----------------------------------------------------


async def test_resource_whose_projection_raises_stays_in_the_cache_and_raises_when_read() -> None:
    """The resource is not taken for absent.

    Indexes leave it out and report it. The next good state ends the failure.
    """
    sizes = Sizes(team("ada", 5, "broken"))
    (failed,) = sizes.heard
    assert isinstance(failed, events.ProjectionFailed)
    assert (failed.type, failed.projection, failed.key) == (TEAM.name, "Size", key("ada"))
    assert sizes.one().version == "5"
    with pytest.raises(PayloadError, match=r"Team ada at version 5: the function of <Projection"):
        _ = sizes.one().data
    with pytest.raises(IndexIncomplete):
        sizes.cache.index(BY_SIZE, 2)
    sizes.informer.feed(changes(put(team("ada", 11, "broken"))))
    assert len(sizes.drained()) == 1
    sizes.informer.feed(changes(put(team("ada", 12, "x", "y"))))
    assert len(sizes.drained()) == 1
    assert len(sizes.cache.index(BY_SIZE, 2)) == 1


async def test_projection_that_returns_a_wrong_type_is_named() -> None:
    """The projection is reported like one that raises."""
    heard: list[events.ProjectionFailed] = []
    wrong = projection(TEAM, Size, lambda team: team.data)  # type: ignore[arg-type, return-value]  # what is tested
    informer = Informer(wrong, heard.append)  # type: ignore[arg-type]  # it hears nothing else
    informer.feed(chunk(team("ada", 5)))
    assert "returned Team(" in str(heard[0].error)
    assert "return a Size(...)" in str(heard[0].error)


# --- declaration and refusal ---------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("Team", Size, size_of), "of must be a resource type from app.type(...), not 'Team'"),
        ((SIZE, Size, size_of), "of must be a resource type from app.type(...), not <Projection"),
        ((TEAM, "Size", size_of), "needs a message class, not 'Size'"),
        ((TEAM, Size, "size_of"), "must be a function, not 'size_of'"),
        ((TEAM, Size, size_of, "colour"), "metadata must be a list of strings, such as ['team'], not 'colour'"),
        ((TEAM, Size, size_of, 7), "metadata must be a list of strings, such as ['team'], not 7"),
        ((TEAM, Size, size_of, [], [7]), "status[0] must be a string, as in ['accounts'], not 7"),
    ],
)
def test_invalid_projection_declaration_is_refused(arguments: Any, says: str) -> None:
    """The error shows a valid form."""
    of, payload, function, *keys = arguments
    named = dict(zip(("metadata", "status"), keys, strict=False))
    with pytest.raises(DeclarationError, match=re.escape(says)) as caught:
        projection(of, payload, function, **named)
    assert "headway.projection(REPORT, ReportName" in str(caught.value)


REFUSED = "(expect(ed|s)|must be) a .*[Rr]esource.*(<Projected Team ada as Size, read-only>|<Projection staff)"
CALLS: dict[str, Callable[[Client, Any], Any]] = {
    "write": lambda client, size: client.write(size),
    "apply": lambda client, size: client.apply(size),
    "delete": lambda client, size: client.delete(size),
    "write_status": lambda client, size: client.write_status(size, "sizes", []),
    "read": lambda client, _: client.read(SIZE, "ada"),  # type: ignore[arg-type]  # what is tested
    "get": lambda client, _: client.get(SIZE, TEAM.id("ada")),  # type: ignore[arg-type]  # likewise
    "list": lambda client, _: client.list(SIZE),  # type: ignore[arg-type]  # likewise
}


@pytest.mark.parametrize("call", CALLS)
async def test_client_refuses_a_projection_in_place_of_a_resource(call: str) -> None:
    """A projection can neither be written nor read by. It can be deleted by its id and version."""
    app = headway.App("staff")
    app.registry.register(TEAM)
    async with headway.open_engine("memory:", app) as engine:
        whole = await engine.client.write(TEAM.new("ada", Team(members=["x"])))
        size = SIZE.view(SIZE.project(whole.message()))
        with pytest.raises(InvalidArgument, match=REFUSED):
            await CALLS[call](engine.client, size)
        assert await engine.client.list(TEAM) == [whole]
        await engine.client.delete(size.id, version=size.version)
        assert await engine.client.list(TEAM) == []


# --- in controllers ----------------------------------------------------------


class SizesApp:
    """Controllers that watch one projection, each managing a type of its own.

    Controllers in ``whole`` watch whole resources.
    """

    def __init__(self, *names: str) -> None:
        self.app = headway.App("staff")
        self.app.registry.register(TEAM)
        self.seen: list[tuple[str, str, int]] = []
        self.mapped: list[tuple[str, object]] = []
        self.caches: dict[str, Cache] = {}
        for name in names:
            kept: ResourceType[Account] = self.app.type("staff", "v1", name.capitalize(), Account)
            self._controller(name, kept, TEAM if name.startswith("whole") else SIZE)

    def _controller(
        self, name: str, manages: ResourceType[Account], watched: Projection[Size] | ResourceType[Team]
    ) -> None:
        def same_name(size: Any, _: headway.CacheReader) -> list[headway.ResourceId]:
            self.mapped.append((name, size.data))
            return [manages.id(size.name)]

        @self.app.controller(manages=manages, watches=[headway.watch(watched, same_name)], name=name)
        async def look(rt: headway.Runtime, request: headway.Request) -> None:
            self.caches[name] = rt.cache
            if watched is SIZE:
                size = rt.cache.get(SIZE, request.id.name)
                self.seen.append((name, request.id.name, -1 if size is None else size.data.members))


async def test_controllers_with_the_same_projection_share_one_stream_and_one_copy(autojump_clock: MockClock) -> None:
    """Controllers of the whole type share another stream and copy."""
    sizes = SizesApp("one", "two", "whole", "whole2")
    channel = ScriptedChannel()
    async with testing.open_engine("memory:", sizes.app, report=events.ignore, wrap_channel=channel.over) as engine:
        await engine.client.write(TEAM.new("ada", Team(members=["x"])))
        await engine.wait_idle()
        # The streams that look for deletions in the history are not counted, because they resume.
        assert channel.opened.count((TEAM.kind, False)) == 2
        held = {name: cache._subscriptions[TEAM.name].store.entries[key("ada")] for name, cache in sizes.caches.items()}
        assert held["one"] is held["two"]
        assert held["whole"] is held["whole2"]
        assert held["one"] is not held["whole"]
    assert autojump_clock.current_time() < 60


async def test_change_outside_the_projection_triggers_no_reconcile(autojump_clock: MockClock) -> None:
    """A change inside the projection triggers a reconcile, and so does a deletion."""
    sizes = SizesApp("one")
    async with headway.open_engine("memory:", sizes.app, report=events.ignore) as engine:
        whole = await engine.client.write(TEAM.new("ada", Team(members=["x"])))
        await engine.wait_idle()
        whole.metadata["more"] = "text"
        whole.data.members = ["y"]
        whole = await engine.client.write(whole)
        await engine.wait_idle()
        assert sizes.seen == [("one", "ada", 1)]
        assert (size := sizes.caches["one"].get(SIZE, "ada")) is not None
        assert size.version == whole.version
        whole.data.members = ["y", "z"]
        await engine.client.delete(await engine.client.write(whole))
        await engine.wait_idle()
    assert sizes.seen[0] == ("one", "ada", 1)
    assert sizes.seen[-1] == ("one", "ada", -1)
    assert autojump_clock.current_time() < 60


async def test_own_write_is_in_the_projection_when_the_call_returns(
    autojump_clock: MockClock,
) -> None:
    """The controller writes the whole resource, and reads the projection (C5)."""
    app = headway.App("staff")
    app.registry.register(TEAM)
    read: list[int] = []

    @app.controller(manages=SIZE, indexes=[BY_SIZE])
    async def grow(rt: headway.Runtime, request: headway.Request) -> None:
        size = rt.cache.get(SIZE, request.id)
        if size is not None and size.data.members < 3:
            whole = await rt.client.read(TEAM, request.id)
            whole.data.members.append("x")
            await rt.client.write(whole)
            read.extend(each.data.members for each in rt.cache.index(BY_SIZE, size.data.members + 1))

    async with headway.open_engine("memory:", app, report=events.ignore) as engine:
        await engine.client.write(TEAM.new("ada"))
        with trio.fail_after(60):
            await engine.wait_idle()
    assert read == [1, 2, 3]
    assert autojump_clock.current_time() < 60


async def test_deletion_from_history_is_mapped_as_the_projection(autojump_clock: MockClock) -> None:
    """A deletion from before the engine started reaches the mapper in the form that it expects."""
    store = MemoryBackend()
    sizes = SizesApp("one")
    async with headway.open_engine(store, sizes.app, report=events.ignore) as engine:
        await engine.client.write(TEAM.new("ada", Team(members=["x"])))
        await engine.wait_idle()
    others = headway.App("others")
    others.registry.register(TEAM)
    async with headway.open_engine(store, others, report=events.ignore) as engine:
        await engine.client.delete(TEAM.id("ada"))
    sizes.mapped.clear()
    async with headway.open_engine(store, sizes.app, report=events.ignore) as engine:
        with trio.fail_after(30):
            await engine.wait_idle()
    assert sizes.mapped == [("one", Size(members=1))]
    assert autojump_clock.current_time() < 60
