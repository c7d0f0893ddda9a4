"""`apply` by an older program, on resources with fields that only a newer program knows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import headway
from headway.client import Client
from headway.errors import PayloadError
from headway.protobuf import encode
from headway.resource import AnyMessage, Registry
from headway.storage import MemoryBackend
from tests.helpers.calls import Calls
from tests.helpers.older import New, NewPart, Old, drop_unknown, known, program, read_whole, whole, write_whole
from tests.helpers.versions import V1, V3, Band, Roster, a_team, versions


@pytest.fixture
def store() -> MemoryBackend:
    return MemoryBackend()


@asynccontextmanager
async def older(
    store: MemoryBackend,
    setting: str,
    *,
    hooks: headway.Hooks[Any] | None = None,
    newer: headway.Hooks[Any] | None = None,
) -> AsyncIterator[tuple[Client, headway.ResourceType[Any]]]:
    """Yield a client of the older program, and its type: in process, over a network, or of a newer server."""
    app, team = program(Old, hooks)
    if setting == "in process":
        async with headway.open_engine(store, app) as engine:
            yield engine.client, team
        return
    served, _ = program(New, newer) if setting == "newer server" else (app, team)
    async with (
        headway.open_engine(store, served, network=headway.Network(["127.0.0.1:0"], insecure=True)) as engine,
        headway.connect(engine.addresses, app) as client,
    ):
        yield client, team


@pytest.mark.parametrize("setting", ["in process", "network", "newer server"])
async def test_apply_of_what_the_older_program_reads_writes_nothing(store: MemoryBackend, setting: str) -> None:
    """A changed field is written, and the fields of the newer program stay."""
    await write_whole(store)
    async with older(store, setting) as (client, team):
        before = await client.read(team, "core")
        for same in (team.new("core", known(whole())), before.copy()):
            assert (await client.apply(same)).version == before.version
        changed = known(whole())
        changed.title, changed.always.name, changed.token = "Kernel", "z", ""
        assert (await client.apply(team.new("core", changed, metadata={"a": "b"}))).version != before.version
        here = (await client.read(team, "core")).version
        assert (await client.apply(team.new("core", changed, metadata={"a": "b"}))).version == here
    expected = whole()
    expected.title, expected.always, expected.token = "Kernel", NewPart(name="z", extra="B"), ""
    assert await read_whole(store) == expected


async def test_write_replaces_fields_of_the_newer_program(store: MemoryBackend) -> None:
    """A resource that has not been read says all that it should have."""
    await write_whole(store)
    async with older(store, "in process") as (client, team):
        await client.write(team.new("core", Old(title="Core")))
    assert await read_whole(store) == New(title="Core")


def fill_in(resource: headway.Resource[Any]) -> None:
    resource.data.extra = resource.data.extra or "filled in"


@pytest.mark.parametrize("setting", ["network", "newer server"])
async def test_mutate_hook_makes_no_difference_of_unknown_fields(store: MemoryBackend, setting: str) -> None:
    """The older hook makes a new payload with a default title, and the newer one fills in an unknown field."""
    await write_whole(store)
    hooks = headway.Hooks(mutate=drop_unknown)
    async with older(store, setting, hooks=hooks, newer=headway.Hooks(mutate=fill_in)) as (client, team):
        before = await client.read(team, "core")
        for title in ("Core", "") if setting == "network" else ("Core",):
            same = known(whole())
            same.title = title
            assert (await client.apply(team.new("core", same))).version == before.version
    assert await read_whole(store) == whole()


UNKNOWN = b"\x7a\x03new"


@pytest.mark.parametrize("storage", [V1, V3])
async def test_apply_keeps_unknown_fields_of_a_kind_with_converters(
    store: MemoryBackend, storage: headway.ResourceType[Any]
) -> None:
    known_versions: Registry = versions(storage)
    calls = Calls(store, known_versions)
    client = Client(calls.channel, known_versions)
    resource = a_team(V3, Band(room="B12"))
    resource.data = AnyMessage(type_url=V3.type_url, value=encode(Band(room="B12")) + UNKNOWN)
    await Calls(store, versions()).write(resource)
    here = calls.revision
    await client.apply(V3.new("one", Band(room="B12")))
    await client.apply(V1.new("one", Roster()))
    assert calls.revision == here
    await client.apply(V3.new("one", Band(room="B13")))
    await client.apply(V1.new("one", Roster(color="red")))
    read = (await client.read(V3, "one")).message().data
    assert read is not None
    assert UNKNOWN in read.value
    assert (await client.read(V3, "one")).data.room == "B13"


async def test_apply_over_a_payload_that_does_not_decode_says_so(store: MemoryBackend) -> None:
    app, team = program(Old)
    async with headway.open_engine(store, app) as engine:
        written = await engine.client.write(team.new("core", Old(title="Core")))
        broken = written.message()
        broken.data = AnyMessage(type_url=team.type_url, value=b"\x0a\x05")
        with pytest.raises(PayloadError, match="Team core at version"):
            await engine.client.apply_over(headway.Resource(team, broken), team.new("core", Old()))
