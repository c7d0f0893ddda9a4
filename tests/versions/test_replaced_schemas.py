"""Types without stored resources whose schema is replaced by an incompatible one, and their history before that."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import trio

import headway
from headway.engine import open_engine
from headway.errors import ConversionFailed, HistoryCompacted, StoreChanged
from headway.events import DeletionsUnknown, MappingFailed
from headway.protobuf import copy_message, field, message
from headway.resource import ANY_VERSIONS, Position, ResourceType, Scope, pb
from headway.storage import (
    SCHEMA_KIND,
    Backend,
    MemoryBackend,
    Put,
    Remove,
    Within,
    copy_store,
)
from headway.subscription import SubscriptionPosition
from headway.versions import record_schemas
from tests.versions.schema_kit import Reopened, program, running, team


@message
class Badge:
    text: str = field(1)


@message
class Signed:
    title: str = field(1)
    floor: int = field(2, kind="sint64")


@message
class Unsigned:
    title: str = field(1)
    floor: int = field(2)


@message
class Taller:
    title: str = field(1)
    floor: int = field(2, kind="sint64")
    roof: str = field(3)


@message
class Later:
    title: str = field(1)
    floor: int = field(2)


@message
class LaterSigned:
    title: str = field(1)
    floor: int = field(2, kind="sint64")


UNSIGNED, SIGNED, TALLER = team(Unsigned), team(Signed), team(Taller)


async def left_off(client: headway.Client, type: ResourceType[Any]) -> Position:
    """Return the position of a watch that has received everything."""
    async with client.watch(type) as items:
        async for item in items:
            if isinstance(item, headway.client.SnapshotEnd):
                return item.position
    raise AssertionError("the watch ended before its snapshot")


async def deleted_before(store: AbstractAsyncContextManager[Backend], type: ResourceType[Any]) -> Position:
    """Write and delete a team, and return a position before that."""
    async with running(store, type) as engine:
        position = await left_off(engine.client, type)
        stored = await engine.client.write(type.new("core", type.payload(title="Core", floor=77)))
        await engine.client.delete(stored)
        return position


async def deleted_after(client: headway.Client, type: ResourceType[Any], after: Position) -> headway.Resource[Any]:
    """Return the last state of the first resource whose deletion a resumed watch delivers."""
    async with client.watch(type, resume_after=after) as items:
        async for item in items:
            if isinstance(item, headway.client.Deleted):
                return item.resource
    raise AssertionError("the watch ended before a deletion")


async def test_watch_does_not_resume_before_the_schema_was_replaced(reopened: Reopened) -> None:
    """The states in the history would be misread. Later programs with the new schema are refused it as well."""
    before = await deleted_before(reopened(), UNSIGNED)
    for type in (SIGNED, TALLER):
        async with running(reopened(), type) as engine:
            with pytest.raises(HistoryCompacted, match=r"v1\.Team had an incompatible schema.*begin with a snapshot"):
                async with engine.client.watch(type, resume_after=before) as items:
                    await anext(items)
            position = SubscriptionPosition(before)
            async with engine.client.subscribe([type], resume_after=position) as subscription:
                assert (await anext(subscription)).snapshot
            after = await left_off(engine.client, type)
            stored = await engine.client.write(type.new("later", type.payload(floor=77)))
            await engine.client.delete(stored)
            assert (await deleted_after(engine.client, type, after)).data.floor == 77


async def test_watch_resumes_at_the_last_revision_of_the_replaced_schema_and_not_below() -> None:
    store = MemoryBackend()
    before = await deleted_before(store, UNSIGNED)
    last = (await record_schemas(store, [SIGNED]))["staff.v1.Team"]
    async with running(store, SIGNED) as engine:
        stored = await engine.client.write(SIGNED.new("later", Signed(floor=77)))
        await engine.client.delete(stored)
        assert (await deleted_after(engine.client, SIGNED, before._replace(revision=last))).data.floor == 77
        with pytest.raises(HistoryCompacted, match=f"up to revision {last}, .*resume after {last - 1}"):
            await deleted_after(engine.client, SIGNED, before._replace(revision=last - 1))


async def test_watch_of_several_versions_resumes_after_all_their_replaced_schemas() -> None:
    """The schema of each version was replaced at another time."""
    store = MemoryBackend()
    later = team(LaterSigned, version="v2")
    replaced = list[int]()
    for before, after in ((UNSIGNED, SIGNED), (team(Later, version="v2"), later)):
        await deleted_before(store, before)
        replaced += (await record_schemas(store, [after])).values()
    app = program(SIGNED, later)
    app.converter(SIGNED, later, up=lambda _: LaterSigned(), down=lambda _: Signed())
    async with open_engine(store, app) as engine:
        for type in (SIGNED, later):
            here = await left_off(engine.client, type)
            with pytest.raises(HistoryCompacted, match=f"up to revision {replaced[1]}, "):
                await deleted_after(engine.client, type, here._replace(revision=replaced[0]))


async def test_position_that_the_store_never_had_is_refused_whatever_was_replaced(reopened: Reopened) -> None:
    """The store is an older copy, without the session. A snapshot would take the reader back unnoticed."""
    before = await deleted_before(reopened(), UNSIGNED)
    async with running(reopened(), SIGNED) as engine:
        elsewhere = before._replace(session="another")
        with pytest.raises(StoreChanged):
            async with engine.client.watch(SIGNED, resume_after=elsewhere) as items:
                await anext(items)
        with pytest.raises(StoreChanged):
            async with engine.client.subscribe([SIGNED], resume_after=SubscriptionPosition(elsewhere)) as subscription:
                await anext(subscription)


async def test_watch_resumes_if_every_program_could_read_the_history(reopened: Reopened) -> None:
    before = await deleted_before(reopened(), SIGNED)
    async with running(reopened(), TALLER) as engine:
        assert (await deleted_after(engine.client, TALLER, before)).data.floor == 77


async def test_changed_scope_replaces_the_schema() -> None:
    """The ids in the history have a namespace, which the type no longer has."""
    store = MemoryBackend()
    before = await deleted_before(store, UNSIGNED)
    wide = team(Unsigned, Scope.CLUSTER)
    async with running(store, wide) as engine:
        with pytest.raises(HistoryCompacted, match="had an incompatible schema"):
            async with engine.client.watch(wide, resume_after=before) as items:
                await anext(items)


async def test_conversion_of_a_misread_state_fails() -> None:
    """The state is of another version, whose schema was replaced. A resumed watch by any versions has its key only."""
    store = MemoryBackend()
    before = await deleted_before(store, UNSIGNED)
    later = team(Later, version="v2")
    app = program(SIGNED, later)
    app.converter(
        SIGNED,
        later,
        up=lambda old: Later(title=old.title, floor=old.floor),
        down=lambda new: Signed(title=new.title, floor=new.floor),
    )
    async with open_engine(store, app) as engine:
        for type in (SIGNED, later):
            deleted = await deleted_after(engine.client, type, before._replace(versions=ANY_VERSIONS))
            assert deleted.name == "core"
            with pytest.raises(ConversionFailed, match=f"staff.{type.name.version}.Team had an incompatible schema"):
                _ = deleted.data


def controlled(type: ResourceType[Any], calls: list[object]) -> headway.App:
    """Return a program whose controllers manage teams, and map them to badges of their floor."""
    app = program(type)
    badge = app.type("staff", "v1", "Badge", Badge)

    def badges_of(found: headway.Resource[Any], _: headway.CacheReader) -> list[headway.ResourceId]:
        calls.append(found.data)
        return [badge.id("any")]

    @app.controller(manages=badge, watches=[headway.watch(type, badges_of)])
    async def badges(_: headway.Runtime, __: headway.Request[Any]) -> None:
        """Do nothing."""

    @app.controller(manages=type)
    async def teams(_: headway.Runtime, request: headway.Request[Any]) -> None:
        calls.append(request.id.name)

    return app


async def test_mapper_does_not_misread_a_deletion_from_before_the_schema_was_replaced(reopened: Reopened) -> None:
    """Its controller reports that it may have missed the deletion. The controller of the type reconciles the key."""
    calls: list[object] = []
    heard: list[object] = []
    async with open_engine(reopened(), controlled(UNSIGNED, calls)) as engine:
        await engine.wait_idle()
    await deleted_before(reopened(), UNSIGNED)
    async with open_engine(reopened(), controlled(SIGNED, calls), report=heard.append) as engine:
        with trio.fail_after(30):
            await engine.wait_idle()
    assert calls == ["core"]
    (unknown,) = (each for each in heard if isinstance(each, DeletionsUnknown))
    assert unknown.controller.endswith("/badges")
    assert unknown.why.startswith("1 of 1 deleted resources, ")
    assert not any(isinstance(each, MappingFailed) for each in heard)


async def test_copy_has_no_history_of_a_replaced_schema() -> None:
    """The copy has revisions of its own. A revision of its source means nothing there."""
    async with MemoryBackend() as source, MemoryBackend() as target:
        for _ in range(10):
            await deleted_before(source, UNSIGNED)
        assert list(await record_schemas(source, [SIGNED])) == ["staff.v1.Team"]
        await copy_store(source, target)
        assert list(await record_schemas(source, [SIGNED])) == ["staff.v1.Team"]
        assert await record_schemas(target, [SIGNED]) == {}


async def later_revisions(backend: Backend) -> None:
    """Raise the revision of a store by resources of another type, of which none is left."""
    kind, key = ("staff", "Badge"), ("", "", "any")
    type = pb.Type(group="staff", group_version="v1", kind="Badge")
    for number in range(40):
        badge = pb.Resource(id=pb.Id(uid=str(number), name="any", type=type, tenancy=pb.Tenancy()))
        version = (await backend.commit([Put(kind, key, badge, "")])).revision
        await backend.commit([Remove(kind, key, str(number), str(version))])


async def test_copy_whose_revisions_are_above_its_source_has_no_history_of_a_replaced_schema() -> None:
    async with MemoryBackend() as source, MemoryBackend() as target:
        await deleted_before(source, UNSIGNED)
        assert list(await record_schemas(source, [SIGNED])) == ["staff.v1.Team"]
        await later_revisions(target)
        await copy_store(source, target)
        assert await record_schemas(target, [SIGNED]) == {}


async def test_mark_from_another_store_does_not_count_after_the_record_was_written_again() -> None:
    """An earlier Headway copied the mark of a replaced schema. A later program then raises the record above it."""
    async with MemoryBackend() as source, MemoryBackend() as target:
        await deleted_before(source, UNSIGNED)
        await record_schemas(source, [SIGNED])
        ((record,), _) = await source.list(SCHEMA_KIND, Within())
        copied = copy_message(record)
        copied.version = ""
        await target.commit([Put(SCHEMA_KIND, ("", "", "staff.v1.Team"), copied, "")])
        assert await record_schemas(target, [SIGNED]) == {}
        await later_revisions(target)
        for _ in range(2):
            assert await record_schemas(target, [TALLER]) == {}


async def test_mark_stays_when_the_record_is_written_again() -> None:
    async with MemoryBackend() as source:
        await deleted_before(source, UNSIGNED)
        replaced = await record_schemas(source, [SIGNED])
        await later_revisions(source)
        for _ in range(2):
            assert await record_schemas(source, [TALLER]) == replaced != {}


async def test_schema_of_the_last_program_is_remembered_after_many_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening the store again writes nothing."""
    monkeypatch.setattr("headway.versions._records.MOST_SEEN", 1)
    async with MemoryBackend() as store:
        for type in (SIGNED, TALLER):
            await record_schemas(store, [type])
        here = store.position
        await record_schemas(store, [TALLER])
        assert store.position == here
