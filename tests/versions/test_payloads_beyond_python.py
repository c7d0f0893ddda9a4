"""Stored payloads with content that a Python class cannot hold, such as nanoseconds: no write or migration drops it."""

from __future__ import annotations

import datetime
from collections.abc import Awaitable
from typing import Any

import pytest
from grpclib.const import Status

from headway.client import Client
from headway.protobuf import encode, field, message, varint
from headway.resource import AnyMessage, Hooks, Registry, Resource, ResourceType, pb
from headway.storage import MemoryBackend, version_of
from headway.versions import _migrate, add_converter, migrate, store_as
from tests.helpers.calls import Calls, refused
from tests.helpers.declared import an_id
from tests.helpers.versions import a_team


@message(name="tests.v1.Lap")
class Lap:
    begun: datetime.datetime | None = field(1)
    runner: str = field(2)


@message(name="tests.v2.Run")
class Run:
    start: datetime.datetime | None = field(1)
    runner: str = field(2)
    track: str = field(3)


V1 = ResourceType("tests", "v1", "Lap", Lap)
V2 = ResourceType("tests", "v2", "Lap", Run)


def moment(nanos: int) -> bytes:
    """Return field 1 of either class."""
    return b"\x0a\x07\x08\x7b\x10" + varint(nanos)


# A datetime cuts both to microseconds.
NANOS, OTHER_NANOS = moment(123456789), moment(123456788)
ADA = b"\x12\x03ada"
BEYOND = "has content that this server's program cannot hold"


def up(old: Lap) -> Run:
    return Run(start=old.begun, runner=old.runner)


def down(new: Run) -> Lap:
    return Lap(begun=new.start, runner=new.runner)


def known(*types: ResourceType[Any], storage: ResourceType[Any] | None = None) -> Registry:
    """Return a registry with these types, or with both versions and their converter."""
    made = Registry()
    for type in types or (V1, V2):
        made.register(type)
    if not types:
        add_converter(made, V1, V2, up, down)
        if storage is not None:
            store_as(made, storage)
    return made


def a_lap(type: ResourceType[Any], value: bytes, **rest: Any) -> pb.Resource:
    made = a_team(type, type.payload(), **rest)
    made.data = AnyMessage(type_url=type.type_url, value=value)
    return made


async def stored_as(type: ResourceType[Any], value: bytes) -> MemoryBackend:
    """Return a store with the resource ``one``, as a program without the converter stored it."""
    backend = MemoryBackend()
    await Calls(backend, known(type)).write(a_lap(type, value))
    return backend


async def stored(backend: MemoryBackend) -> tuple[str, bytes]:
    found, _ = await backend.read(V1.kind, ("default", "default", "one"))
    assert found is not None
    assert found.data is not None
    return version_of(found), found.data.value


@pytest.mark.parametrize("touch", [False, True])
async def test_write_of_metadata_alone_keeps_nanoseconds(touch: bool) -> None:
    """The payload stays in its version, whether or not the writer looks at the data."""
    backend = await stored_as(V1, NANOS + ADA)
    calls = Calls(backend, known())
    client = Client(calls.channel, known())
    lap = await client.read(V1, "one")
    if touch:
        assert lap.data.runner == "ada"
    lap.metadata["k"] = "v"
    assert (await client.write(lap)).metadata == {"k": "v"}
    assert await stored(backend) == ("v1", NANOS + ADA)


async def test_migration_leaves_and_names_payload_with_nanoseconds() -> None:
    backend = await stored_as(V1, NANOS + ADA)
    done = await migrate(backend, known())
    assert (done.rewritten, [(id.name, why) for id, why in done.left]) == (0, [("one", _migrate.LOSES)])
    assert await stored(backend) == ("v1", NANOS + ADA)


async def test_migration_rewrites_payload_in_another_encoding() -> None:
    """Another order of the fields, or a default that is written out, is no content."""
    backend = await stored_as(V1, ADA + b"\x0a\x02\x08\x7b")
    done = await migrate(backend, known())
    assert (done.rewritten, done.left) == (1, [])


async def test_write_that_a_conversion_would_cut_is_refused() -> None:
    """The stored payload or the written one may have the nanoseconds. Nothing is written, and the error says how."""
    for type, value, writer, written in (
        (V1, NANOS, V2, encode(Run(runner="eve"))),
        (V2, NANOS, V1, encode(Lap(runner="eve"))),
        (V2, ADA, V1, NANOS + ADA),
    ):
        backend = await stored_as(type, value)
        write: Awaitable[object] = Calls(backend, known()).write(a_lap(writer, written))
        await refused(write, Status.FAILED_PRECONDITION, BEYOND, f"write version {type.name.version}, round times")
        assert await stored(backend) == (type.name.version, value)


async def test_write_in_the_stored_version_keeps_its_nanoseconds() -> None:
    """This holds even if the payloads differ in nothing else."""
    for type, storage in ((V1, V2), (V2, V1), (V2, V2)):
        backend = await stored_as(type, NANOS + ADA)
        answer = await Calls(backend, known(storage=storage)).stored(a_lap(type, OTHER_NANOS + ADA))
        assert answer.data is not None
        assert answer.data.value == OTHER_NANOS + ADA
        assert await stored(backend) == (type.name.version, OTHER_NANOS + ADA)


async def test_rounded_times_let_the_resource_move_to_the_storage_version() -> None:
    backend = await stored_as(V1, NANOS + ADA)
    rounded = a_lap(V1, moment(123456000) + ADA)
    await Calls(backend, known()).write(rounded)
    done = await migrate(backend, known())
    assert done.left == []
    assert (await stored(backend))[0] == "v2"


async def test_write_in_the_storage_version_keeps_the_writers_nanoseconds() -> None:
    backend = await stored_as(V1, ADA)
    await Calls(backend, known()).write(a_lap(V2, NANOS + ADA))
    assert await stored(backend) == ("v2", NANOS + ADA)


async def test_creation_with_nanoseconds_keeps_its_version() -> None:
    backend = MemoryBackend()
    await Calls(backend, known()).write(a_lap(V1, NANOS))
    assert await stored(backend) == ("v1", NANOS)


def _looks(lap: Resource[Lap]) -> None:
    lap.metadata["runner"] = lap.data.runner


def _changes(lap: Resource[Lap]) -> None:
    lap.data.runner = "eve"


async def test_mutate_hook_that_only_reads_the_payload_leaves_it_as_written() -> None:
    hooked = ResourceType("tests", "v1", "Lap", Lap, hooks=Hooks(mutate=_looks))
    backend = MemoryBackend()
    answer = await Calls(backend, known(hooked)).stored(a_lap(hooked, NANOS + ADA))
    assert answer.metadata == {"runner": "ada"}
    assert await stored(backend) == ("v1", NANOS + ADA)


async def test_mutate_hook_that_changes_the_payload_is_stored() -> None:
    hooked = ResourceType("tests", "v1", "Lap", Lap, hooks=Hooks(mutate=_changes))
    calls = Calls(MemoryBackend(), known(hooked))
    await calls.write(a_lap(hooked, NANOS + ADA))
    changed = hooked.view((await calls.read(an_id("one", hooked))).resource or pb.Resource())
    assert changed.data.runner == "eve"
