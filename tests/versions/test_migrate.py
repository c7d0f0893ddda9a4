"""Migration: stored payloads are rewritten to the storage version, and nothing else changes."""

from __future__ import annotations

import base64
import json
from functools import partial
from typing import Any

import pytest
import trio
from grpclib.const import Status

from headway._gen.headway.migration import v1 as migration_pb
from headway.access import Access, Authorizer, Guarded, Policy, Rule, new_token
from headway.api import Call
from headway.client import Client
from headway.errors import HeadwayError, InvalidArgument
from headway.protobuf import encode
from headway.resource import FINALIZERS, AnyMessage, Registry, ResourceType, pb, resource_key
from headway.rpc import InProcessChannel
from headway.storage import Backend, MemoryBackend, Put, Within, version_of
from headway.versions import MigrationService, _migrate, migrate
from tests.helpers.calls import Calls, Interrupted
from tests.helpers.declared import a_note, a_status, a_type, an_id, uid_of
from tests.helpers.service_errors import status_of
from tests.helpers.versions import ALONE, V1, V2, V3, Band, a_team, crew, data_of, roster, versions, without_converters
from tests.versions.test_shown import heard
from tests.versions.test_write_versions import UNKNOWN


async def everything(backend: Backend) -> list[pb.Resource]:
    found, _ = await backend.list(V1.kind, Within())
    return list(found)


async def filled(backend: Backend, count: int) -> Calls:
    """Store several complete resources as a program without converters would."""
    old = Calls(backend, without_converters())
    for number in range(count):
        await old.write(a_team(V1, roster(f"m{number}"), f"team-{number}", metadata={FINALIZERS: "hold", "n": "1"}))
    for number in (0, 1):
        uid = uid_of((await old.read(an_id(f"team-{number}", V1))).resource)
        await old.write_status(an_id(f"team-{number}", V1, uid=uid), a_status())
    await old.delete(an_id("team-0", V1))
    await old.write(a_note())
    return old


async def test_migration_changes_only_payloads_and_versions(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Migration works page by page, and watches report updates. A second migration changes nothing."""
    monkeypatch.setattr(_migrate, "PAGE", 7)
    monkeypatch.setattr(_migrate, "OPERATIONS", 3)
    await filled(backend, 20)
    before = await everything(backend)
    calls = Calls(backend, versions())
    seen: list[tuple[int, int]] = []
    async with calls.watch(a_type(V1)) as items:
        while version_of_end(await anext(items)):
            pass
        done = await migrate(backend, versions(), progress=lambda _, *numbers: seen.append(numbers))
        changes = await heard(items, calls.revision)
    assert (done.looked_at, done.rewritten, done.left, done.apart.total()) == (20, 20, [], 0)
    assert seen == [(7, 7), (14, 14), (20, 20)]
    assert sorted(resource_key(each.resource) for each in changes) == [resource_key(each) for each in before]
    assert not any(each.deleted for each in changes)
    after = await everything(backend)
    for old, new in zip(before, after, strict=True):
        assert version_of(new) == "v3"
        assert (new.generation, new.status, new.metadata, new.owner) == (
            old.generation,
            old.status,
            old.metadata,
            old.owner,
        )
        assert uid_of(new) == uid_of(old)
        assert [each.name for each in V3.view(new).data.members] == V1.view(old).data.names
    stands = backend.position
    again = await migrate(backend, versions())
    assert (again.looked_at, again.rewritten, backend.position) == (20, 0, stands)


def version_of_end(item: Any) -> bool:
    return not hasattr(item, "position")


async def test_migration_works_in_both_directions(backend: Backend) -> None:
    """For a rollback, everything that the older version can represent is rewritten to it.

    The rest is left, and reported.
    """
    calls = Calls(backend, versions())
    await calls.write(a_team(V3, Band(room="B12"), "a"))
    await calls.write(a_team(V2, crew(("ada", "")), "b"))
    done = await migrate(backend, versions(V1))
    assert (done.rewritten, [id.name for id, _ in done.left]) == (1, ["a"])
    assert [version_of(each) for each in await everything(backend)] == ["v3", "v1"]
    assert data_of((await calls.read(an_id("a", V3))).resource, V3).room == "B12"


async def test_resource_that_cannot_be_rewritten_is_left_and_reported(backend: Backend) -> None:
    """A failing converter, unknown fields, or a version without a converter affects only that one resource."""
    old = Calls(backend, without_converters())
    await old.write(a_team(V1, roster(color="raise"), "a"))
    unknown = a_team(V1, roster(), "b")
    unknown.data = AnyMessage(type_url=V1.type_url, value=encode(roster()) + UNKNOWN)
    await old.write(unknown)
    await old.write(a_team(ALONE, roster(), "c"))
    await old.write(a_team(V1, roster("ada"), "d"))
    done = await migrate(backend, versions())
    assert [(id.name, why) for id, why in done.left] == [
        ("a", "up= of tests.v1.Team → tests.v2.Team raised KeyError: 'no such color'"),
        ("b", _migrate.LOSES),
    ]
    assert done.apart == {"tests.v9.Team": 1}
    assert [version_of(each) for each in await everything(backend)] == ["v1", "v1", "v9", "v3"]


async def test_canceled_migration_continues_when_it_is_run_again(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_migrate, "PAGE", 4)
    await filled(backend, 10)
    with trio.CancelScope() as scope:

        def stop(*_: object) -> None:
            scope.cancel()

        await migrate(backend, versions(), progress=stop)
    assert scope.cancelled_caught
    assert [version_of(each) for each in await everything(backend)].count("v3") == 4
    done = await migrate(backend, versions())
    assert done.rewritten == 6


@pytest.mark.parametrize("type", [V1, V2])
async def test_concurrent_write_is_not_lost(backend: Backend, type: ResourceType[Any]) -> None:
    """The concurrent writer may be an old or a new program, and may write or delete.

    The rest of the commit is rewritten.
    """
    await filled(backend, 6)
    racing = Interrupted(backend)
    old, new = Calls(backend, without_converters()), Calls(backend, versions())

    async def write() -> None:
        payload = roster("between") if type is V1 else crew(("between", "lead"))
        await (old if type is V1 else new).write(a_team(type, payload, "team-2"))
        marked = await new.delete(an_id("team-3", V1))
        assert marked.resource is not None
        await new.write(a_team(V1, roster("m3"), "team-3", metadata={**marked.resource.metadata, FINALIZERS: ""}))
        await new.delete(an_id("team-3", V1))

    racing.before_commit = [write]
    done = await migrate(racing, versions())
    after = {resource_key(each)[2]: each for each in await everything(backend)}
    assert sorted(after) == ["team-0", "team-1", "team-2", "team-4", "team-5"]
    assert {version_of(each) for each in after.values()} == {"v3"}
    (member,) = V3.view(after["team-2"]).data.members
    assert (member.name, member.role) == ("between", "" if type is V1 else "lead")
    assert done.rewritten == (5 if type is V1 else 4)
    assert done.left == []


async def test_constantly_written_resource_is_reported_in_the_end(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_migrate, "ATTEMPTS", 3)
    await filled(backend, 2)
    racing = Interrupted(backend)
    old = Calls(backend, without_converters())
    numbers = iter(range(100))

    async def write() -> None:
        await old.write(a_team(V1, roster(f"again {next(numbers)}"), "team-1"))

    racing.before_commit = [write, *[_nothing], *[write] * 3]
    done = await migrate(racing, versions())
    assert [(id.name, why) for id, why in done.left] == [("team-1", _migrate.BUSY)]
    assert done.rewritten == 1


async def _nothing() -> None:
    pass


async def test_client_that_knows_one_version_lists_owned_resources(backend: Backend) -> None:
    """The reply has the storage version. The client converts it to the version that it knows."""
    known = versions()
    calls = Calls(backend, known)
    owner = await calls.stored(a_note("owner"))
    await calls.write(a_team(V2, crew(("ada", "lead")), owner=owner.id))
    await calls.write(a_team(ALONE, roster(), "apart", owner=owner.id))
    small = Registry()
    small.register(V1)
    found = await Client(calls.channel, small).list_by_owner(a_type_view(known, owner))
    assert [(each.name, each.type, each.data.names) for each in found] == [("one", V1, ["ada"])]


def a_type_view(known: Registry, owner: pb.Resource) -> Any:
    assert owner.id is not None
    return next(type for type in known if type.message == owner.id.type).view(owner)


def a_token(*parts: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()


async def test_a_page_token_of_another_server_is_refused() -> None:
    store = MemoryBackend()
    service, other = MigrationService(store, versions()), MigrationService(MemoryBackend(), versions())
    for number in range(600):
        id = pb.Id(name=f"n{number:03}", type=V1.name.message(), tenancy=V1.tenancy, uid="u")
        await store.commit([Put(V1.kind, ("default", "default", id.name), pb.Resource(id=id), "")])
    page = await service.migrate(Call(), migration_pb.MigrateRequest())
    store_id, query, number, *key = json.loads(base64.urlsafe_b64decode(page.next_page_token))
    assert (number, key) == ("0", ["default", "default", "n499"])
    await service.migrate(Call(), migration_pb.MigrateRequest(page_token=page.next_page_token))
    bad = ["[1]", "x", a_token(), a_token(store_id, query, "1"), a_token(store_id, query, "x"), "a" * 3000]
    bad += [a_token(store_id, query, "0", "a"), a_token(store_id, query, 0), a_token(store_id, "other", number, *key)]
    bad += [a_token(store_id, query, "0", "\ud800", "a", "b"), a_token("other", query, number, *key)]
    for asked, token in [*((service, each) for each in bad), (other, page.next_page_token)]:
        with pytest.raises(InvalidArgument):
            await asked.migrate(Call(), migration_pb.MigrateRequest(page_token=token))


@pytest.mark.parametrize("types", [Registry(), versions()], ids=["without converters", "with converters"])
async def test_a_caller_without_any_rights_learns_no_position(types: Registry) -> None:
    """The rights are checked before the store is read, even if no type has a converter."""
    text, token = new_token(["nothing"])
    access = Authorizer(Access([Policy("nothing", [])], [token]))
    guarded = Guarded(partial(MigrationService, MemoryBackend(), types), access, types)
    channel, path = InProcessChannel(guarded), "/headway.migration.v1.MigrationService/Migrate"
    with pytest.raises(HeadwayError) as caught:
        await channel.unary(
            path, migration_pb.MigrateRequest(), migration_pb.MigrateResponse, metadata={"x-consul-token": text}
        )
    assert status_of(caught.value) is Status.PERMISSION_DENIED


async def test_a_caller_learns_no_type_that_no_rule_of_theirs_covers() -> None:
    """They have not named it, so the refusal must not."""
    text, token = new_token(["notes"])
    notes = Policy("notes", [Rule(verbs=["*"], type="tests.v1.Note", partition="*", namespace="*")])
    types = versions()
    guarded = Guarded(partial(MigrationService, MemoryBackend(), types), Authorizer(Access([notes], [token])), types)
    with pytest.raises(HeadwayError) as caught:
        await InProcessChannel(guarded).unary(
            "/headway.migration.v1.MigrationService/Migrate",
            migration_pb.MigrateRequest(),
            migration_pb.MigrateResponse,
            metadata={"x-consul-token": text},
        )
    assert status_of(caught.value) is Status.PERMISSION_DENIED
    assert str(caught.value) == "permission denied: you may not list every type that has converters"


@pytest.mark.parametrize(("readable", "ends"), [("n4", "n499"), ("n123", "n123"), ("none", None)])
async def test_a_page_token_names_only_what_its_caller_may_read(readable: str, ends: str | None) -> None:
    """One that a caller has made begins nowhere else, because the counts would tell what follows."""
    store, types = MemoryBackend(), versions()
    for number in range(600):
        id = pb.Id(name=f"n{number:03}", type=V1.name.message(), tenancy=V1.tenancy, uid="u")
        await store.commit([Put(V1.kind, ("default", "default", id.name), pb.Resource(id=id), "")])
    scope = {"type": f"{V1.name.group}.*.{V1.name.kind}", "partition": "*", "namespace": "*"}
    rules = [Rule(verbs=["list"], **scope), Rule(verbs=["read"], **scope, name_prefix=readable)]
    text, token = new_token(["some"])
    access = Authorizer(Access([Policy("some", rules)], [token]))
    channel = InProcessChannel(Guarded(partial(MigrationService, store, types), access, types))

    async def asked(page_token: str = "") -> migration_pb.MigrateResponse:
        request = migration_pb.MigrateRequest(page_token=page_token)
        path = "/headway.migration.v1.MigrationService/Migrate"
        metadata = {"x-consul-token": text}
        return await channel.unary(path, request, migration_pb.MigrateResponse, metadata=metadata)

    page = await asked()
    assert page.looked_at == (600 if ends is None else int(ends[1:]) + 1)
    if ends is not None:
        store_id, query, number, *key = json.loads(base64.urlsafe_b64decode(page.next_page_token))
        assert (number, key) == ("0", ["default", "default", ends])
        assert page.looked_at + (await asked(page.next_page_token)).looked_at == 600
        with pytest.raises(HeadwayError) as caught:
            await asked(a_token(store_id, query, number, "default", "default", "n0"))
        assert status_of(caught.value) is Status.INVALID_ARGUMENT
