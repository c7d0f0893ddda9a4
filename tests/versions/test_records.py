"""The types that a store remembers of the programs that opened it, and the programs that it refuses."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import trio

import headway
from headway.protobuf import encode, field, message
from headway.resource import ResourceType, Scope, types_pb
from headway.storage import (
    SCHEMA_KIND,
    Backend,
    EtcdBackend,
    MemoryBackend,
    Remove,
    Within,
    backup_store,
    copy_store,
    open_store,
    restore_store,
    verify_store,
)
from headway.versions import plan_schemas, read_schemas, record_schemas
from tests.helpers.fake_etcd import serving_etcd
from tests.versions.schema_kit import Reopened, running, team


@message
class First:
    title: str = field(1)
    color: str = field(2)


@message(reserved={2: "color"}, renamed={1: "title"})
class Second:
    name: str = field(1)
    size: int = field(3)


@message
class Wrong:
    title: int = field(1)
    shade: str = field(2)


FIRST, SECOND, WRONG, WIDE = team(First), team(Second), team(Wrong), team(First, Scope.CLUSTER)


async def refused(store: AbstractAsyncContextManager[Backend], *types: ResourceType[Any]) -> list[str]:
    with pytest.raises(headway.errors.SchemaMismatch) as caught:
        async with running(store, *types):
            pass
    return [str(each) for each in caught.value.problems]


async def recorded(store: AbstractAsyncContextManager[Backend]) -> dict[str, types_pb.SchemaRecord]:
    async with store as backend:
        return await read_schemas(backend)


async def test_program_that_would_misread_the_store_is_refused(reopened: Reopened) -> None:
    """The error names every field, and nothing is written. The next program that reads every field is accepted."""
    async with running(reopened(), FIRST) as engine:
        await engine.client.write(FIRST.new("core", First(title="Core", color="red")))
    before = await recorded(reopened())
    assert list(before) == ["staff.v1.Team"]
    assert await refused(reopened(), WRONG) == [
        "staff.v1.Team.title (field 1): expected string as stored, got int64; "
        "keep string, or use a new number, such as field(3)",
        "staff.v1.Team.shade (field 2): expected the name 'color' as stored, got 'shade'; if it is the same field, "
        "declare @headway.message(renamed={2: 'color'}) for Team; otherwise use a new number, such as field(3)",
    ]
    assert await recorded(reopened()) == before
    async with running(reopened(), SECOND) as engine:
        read = await engine.client.read(SECOND, "core")
        assert (read.data.name, read.data.size) == ("Core", 0)
    assert len((await recorded(reopened()))["staff.v1.Team"].seen) == 2


async def test_type_without_stored_resources_can_change(reopened: Reopened) -> None:
    """Any change is accepted.

    The earlier programs' schemas are forgotten, so those programs are compared like any other.
    """
    async with running(reopened(), FIRST) as engine:
        stored = await engine.client.write(FIRST.new("core", First(title="Core", color="red")))
        await engine.client.delete(stored)
    async with running(reopened(), WRONG) as engine:
        await engine.client.write(WRONG.new("core", Wrong(title=1)))
    assert len(await refused(reopened(), FIRST)) == 2


async def test_versions_of_a_kind_are_separate_types(reopened: Reopened) -> None:
    """Resources stored as v2 do not prevent a change of v1."""

    @message
    class Later:
        text: bytes = field(1)

    later = team(Later, version="v2")
    async with running(reopened(), FIRST, later) as engine:
        await engine.client.write(later.new("core", Later(text=b"x")))
    async with running(reopened(), WRONG, later):
        pass


async def test_scope_cannot_change_while_resources_are_stored(reopened: Reopened) -> None:
    """The change is refused while any version of the kind has a stored resource, in both directions."""
    async with running(reopened(), FIRST) as engine:
        await engine.client.write(FIRST.new("core", First()))
    said = (
        "staff.v1.Team: expected the scope NAMESPACE as stored, got CLUSTER; "
        "keep Scope.NAMESPACE, or delete all resources of the type with the older program first"
    )
    assert await refused(reopened(), WIDE) == [said]

    @message
    class Later:
        title: str = field(1)

    assert await refused(reopened(), team(Later, Scope.CLUSTER, "v2")) == [said.replace("v1", "v2")]
    async with running(reopened(), FIRST) as engine:
        await engine.client.delete(FIRST.id("core"))
    async with running(reopened(), WIDE) as engine:
        await engine.client.write(WIDE.new("core", First()))
        assert [each.name for each in await engine.client.list(WIDE)] == ["core"]
    assert "expected the scope CLUSTER as stored, got NAMESPACE" in (await refused(reopened(), FIRST))[0]
    async with running(reopened(), WIDE) as engine:
        await engine.client.delete(WIDE.id("core"))
    async with running(reopened(), FIRST):
        pass


async def test_store_without_records_takes_those_of_the_next_program(reopened: Reopened) -> None:
    """An earlier version leaves no records. A scope that the stored resources do not have is still refused."""
    async with running(reopened(), FIRST) as engine:
        await engine.client.write(FIRST.new("core", First(title="Core")))
    async with reopened() as backend:
        await forget(backend)
    assert "expected the scope NAMESPACE as stored, got CLUSTER" in (await refused(reopened(), WIDE))[0]
    assert await recorded(reopened()) == {}
    async with running(reopened(), FIRST):
        pass
    assert list(await recorded(reopened())) == ["staff.v1.Team"]


async def forget(backend: Backend) -> None:
    for each in (await backend.list(SCHEMA_KIND, Within()))[0]:
        assert each.id is not None
        await backend.commit([Remove(SCHEMA_KIND, ("", "", each.id.name), each.id.uid, each.version)])


async def test_programs_that_open_a_store_in_turn_are_all_recorded() -> None:
    """Each has types of its own, and all share one type with different fields."""

    def types(number: int) -> list[ResourceType[Any]]:
        @message
        class Own:
            text: str = field(1)

        class Common:
            text: str = field(1)

        Common.__annotations__ |= {f"own{number}": int}
        setattr(Common, f"own{number}", field(number + 10))
        return [ResourceType("own", "v1", f"Kind{number}", Own), ResourceType("own", "v1", "Common", message(Common))]

    async with serving_etcd() as (_, endpoint), trio.open_nursery() as nursery:

        async def opened(number: int) -> None:
            async with EtcdBackend(f"etcd://{endpoint}/staff") as backend:
                ready[number].set()
                for each in ready:
                    await each.wait()
                await record_schemas(backend, types(number))

        ready = [trio.Event() for _ in range(2)]
        async with trio.open_nursery() as programs:
            for number in range(2):
                programs.start_soon(opened, number)
        records = await recorded(EtcdBackend(f"etcd://{endpoint}/staff"))
        assert sorted(records) == ["own.v1.Common", "own.v1.Kind0", "own.v1.Kind1"]
        nursery.cancel_scope.cancel()
    common = records["own.v1.Common"]
    assert common.schema is not None
    # The later program lacks a field of the earlier one. It is accepted because no resource of the type is stored.
    assert [each.number for each in common.schema.messages[0].fields] == [1, 10, 11]


async def test_planning_writes_nothing() -> None:
    """The plan lists what would be written."""
    async with MemoryBackend() as backend:
        plan = await plan_schemas(backend, [FIRST])
        assert (plan.problems, list(plan.changes)) == ([], ["staff.v1.Team"])
        assert backend.position.revision == 0
        await record_schemas(backend, [FIRST])
        assert (await plan_schemas(backend, [FIRST])).changes == {}
        revision = backend.position.revision
        await record_schemas(backend, [FIRST])
        assert backend.position.revision == revision


async def test_store_forgets_the_oldest_programs() -> None:
    """It keeps the schemas of the last hundred."""
    async with MemoryBackend() as backend:
        for number in range(1, 103):

            class Growing:
                pass

            for each in range(1, number + 1):
                Growing.__annotations__[f"field{each}"] = int
                setattr(Growing, f"field{each}", field(each))
            await record_schemas(backend, [team(message(Growing))])
        (record,) = (await read_schemas(backend)).values()
    assert len(set(record.seen)) == 100


@pytest.mark.parametrize("room", [0, -1])
async def test_record_larger_than_a_store_accepts_is_refused(monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """Records grow with each program. The error names the type, and nothing is written."""
    async with MemoryBackend() as backend:
        await record_schemas(backend, [FIRST])
        (planned,) = (await plan_schemas(backend, [SECOND])).changes.values()
        size = len(encode(planned))
        monkeypatch.setattr("headway.versions._records.MOST_BYTES", size + room)
        if room == 0:
            await record_schemas(backend, [SECOND])
            return
        before = backend.position
        with pytest.raises(headway.errors.SchemaMismatch) as caught:
            await record_schemas(backend, [SECOND])
        assert [str(each) for each in caught.value.problems] == [
            f"staff.v1.Team: expected a record of at most {size - 1} bytes of the schemas of all programs, got {size} "
            "bytes; keep the nested messages of the earlier programs, or declare a new version of the type"
        ]
        assert backend.position == before
        await record_schemas(backend, [FIRST])


async def test_copies_and_backups_have_the_records(tmp_path: Path) -> None:
    """A check finds no problem in them, and an empty store that was opened before can be the target of a copy."""
    store, copied, restored = (f"sqlite:{tmp_path / name}" for name in ("staff.db", "copy.db", "restored.db"))
    async with running(open_store(store), FIRST) as engine:
        await engine.client.write(FIRST.new("core", First(title="Core")))
    records = await recorded(open_store(store))
    async with open_store(copied) as target:
        await record_schemas(target, [WRONG])
        async with open_store(store) as source:
            await copy_store(source, target)
    await backup_store(store, tmp_path / "backup")
    await restore_store(tmp_path / "backup", restored)
    for url in (copied, restored):
        assert await recorded(open_store(url)) == records
        async with open_store(url) as backend:
            assert (await verify_store(backend)).problems == []
        assert len(await refused(open_store(url), WRONG)) == 2
