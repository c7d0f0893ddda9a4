"""What stores remember of the types of the programs that open them, and which programs they refuse."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

import headway
from headway.engine import Engine, open_engine
from headway.resource import ResourceType, Scope, field, message, types_pb
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
    plan_schemas,
    read_schemas,
    record_schemas,
    restore_store,
    verify_store,
)
from tests.helpers.fake_etcd import serving_etcd

Reopened = Callable[[], AbstractAsyncContextManager[Backend]]


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


def team(payload: type[Any], scope: Scope = Scope.NAMESPACE, version: str = "v1") -> ResourceType[Any]:
    return ResourceType("staff", version, "Team", payload, scope=scope)


FIRST, SECOND, WRONG, WIDE = team(First), team(Second), team(Wrong), team(First, Scope.CLUSTER)


def program(*types: ResourceType[Any]) -> headway.App:
    app = headway.App("staff")
    for type in types:
        app.registry.register(type)
    return app


@pytest.fixture(params=["memory", "sqlite", "etcd"])
async def reopened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Reopened]:
    """A store of each sort, opened as often as it is asked for."""
    if request.param == "etcd":
        async with serving_etcd() as (_, endpoint):
            yield lambda: EtcdBackend(f"etcd://{endpoint}/staff")
        return
    memory = MemoryBackend()
    yield lambda: memory if request.param == "memory" else open_store(f"sqlite:{tmp_path / 'staff.db'}")


@asynccontextmanager
async def running(store: AbstractAsyncContextManager[Backend], *types: ResourceType[Any]) -> AsyncIterator[Engine]:
    async with open_engine(store, program(*types)) as engine:
        yield engine


async def refused(store: AbstractAsyncContextManager[Backend], *types: ResourceType[Any]) -> list[str]:
    with pytest.raises(headway.errors.SchemaMismatch) as caught:
        async with running(store, *types):
            pass
    return [str(each) for each in caught.value.problems]


async def recorded(store: AbstractAsyncContextManager[Backend]) -> dict[str, types_pb.SchemaRecord]:
    async with store as backend:
        return await read_schemas(backend)


async def test_a_program_that_would_misread_is_refused(reopened: Reopened) -> None:
    """Every field is named, and nothing is written; the next program that reads everything is let in."""
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


async def test_an_older_program_runs_on_and_loses_nothing(reopened: Reopened) -> None:
    """Rolled back, or the old half of a rolling upgrade: fields that it doesn't know survive its writes."""
    async with running(reopened(), FIRST) as engine:
        await engine.client.write(FIRST.new("core", First(title="Core", color="red")))
    async with running(reopened(), SECOND) as engine:
        held = await engine.client.read(SECOND, "core")
        held.data.size = 7
        await engine.client.write(held)
    async with running(reopened(), FIRST) as engine:
        old = await engine.client.read(FIRST, "core")
        assert (old.data.title, old.data.color) == ("Core", "red")
        old.data.title = "Kernel"
        await engine.client.write(old)
    async with running(reopened(), SECOND) as engine:
        new = await engine.client.read(SECOND, "core")
        assert (new.data.name, new.data.size) == ("Kernel", 7)
    assert len((await recorded(reopened()))["staff.v1.Team"].seen) == 2


async def test_a_type_of_which_nothing_is_stored_can_change(reopened: Reopened) -> None:
    """In any way. What programs had before is no longer known then: it is compared like any other one's."""
    async with running(reopened(), FIRST) as engine:
        stored = await engine.client.write(FIRST.new("core", First(title="Core", color="red")))
        await engine.client.delete(stored)
    async with running(reopened(), WRONG) as engine:
        await engine.client.write(WRONG.new("core", Wrong(title=1)))
    assert len(await refused(reopened(), FIRST)) == 2


async def test_another_version_of_the_kind_is_another_type(reopened: Reopened) -> None:
    """What is stored as v2 keeps nobody from changing v1."""

    @message
    class Later:
        text: bytes = field(1)

    later = team(Later, version="v2")
    async with running(reopened(), FIRST, later) as engine:
        await engine.client.write(later.new("core", Later(text=b"x")))
    async with running(reopened(), WRONG, later):
        pass


async def test_a_changed_scope_leaves_no_ghosts(reopened: Reopened) -> None:
    """It is refused while anything of the kind is stored, as another version too; and back again likewise."""
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


async def test_a_changed_scope_hides_no_field(reopened: Reopened) -> None:
    """One refusal names the scope and every field, so that one change of the program is enough."""
    wrong = team(Wrong, Scope.CLUSTER)
    async with running(reopened(), FIRST) as engine:
        await engine.client.write(FIRST.new("core", First()))
    said = await refused(reopened(), wrong)
    assert [each.partition(": ")[0] for each in said] == [
        "staff.v1.Team",
        "staff.v1.Team.title (field 1)",
        "staff.v1.Team.shade (field 2)",
    ]


async def test_a_store_without_records_takes_those_of_the_next_program(reopened: Reopened) -> None:
    """One of an earlier version; but for a scope that its resources don't have."""
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


async def test_programs_that_open_one_store_at_a_time_are_all_recorded() -> None:
    """Each has types of its own and one in common, of which they have different fields."""

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
    # The one that comes later lacks the other's field; nothing of the type is stored, so that this is let pass.
    assert [each.number for each in common.schema.messages[0].fields] == [1, 10, 11]


async def test_planning_writes_nothing() -> None:
    """And says what would be written."""
    async with MemoryBackend() as backend:
        plan = await plan_schemas(backend, [FIRST])
        assert (plan.problems, list(plan.changes)) == ([], ["staff.v1.Team"])
        assert backend.position.revision == 0
        await record_schemas(backend, [FIRST])
        assert (await plan_schemas(backend, [FIRST])).changes == {}
        revision = backend.position.revision
        await record_schemas(backend, [FIRST])
        assert backend.position.revision == revision


async def test_a_store_forgets_the_oldest_programs() -> None:
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


async def test_copies_and_backups_have_the_records(tmp_path: Path) -> None:
    """And a check finds nothing wrong with them; an empty store that was opened before can be copied into."""
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
