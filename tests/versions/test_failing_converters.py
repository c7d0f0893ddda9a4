"""Converters that fail: the answer of each verb, and what is reported."""

from __future__ import annotations

from typing import Any, cast

import pytest
from grpclib.const import Status

from headway.errors import ConversionFailed
from headway.events import ConversionFailed as Reported
from headway.protobuf import copy_message
from headway.resource import (
    FINALIZERS,
    Registry,
    ResourceType,
    SnapshotChunk,
    pb,
)
from headway.rpc import InProcessChannel
from headway.service import ConsulService, ResourceService
from headway.storage import Backend, MemoryBackend
from headway.versions import Versions, add_converter
from tests.helpers.calls import Calls, refused, take
from tests.helpers.declared import NOTE, a_note, a_status, a_type, an_id, id_of, uid_of
from tests.helpers.versions import (
    ALONE,
    V1,
    V2,
    V3,
    a_team,
    crew,
    data_of,
    down,
    down_again,
    roster,
    up,
    up_again,
    versions,
    without_converters,
)
from tests.versions.test_shown import EVERYWHERE, heard, over, stored_as


class Failing:
    """A service whose store has several resources. One of them cannot be converted."""

    def __init__(self, color: str) -> None:
        self.events: list[Reported] = []
        backend = MemoryBackend()
        known = versions()
        shared = Versions(known, self._hear)
        self.old = Calls(backend, without_converters())
        self.calls = Calls(
            backend,
            known,
            channel=InProcessChannel(
                ResourceService(backend, known, forms=shared), ConsulService(backend, known, forms=shared)
            ),
        )
        self.color = color

    def _hear(self, event: object) -> None:
        assert isinstance(event, Reported)
        self.events.append(event)


@pytest.mark.parametrize(
    ("color", "why"),
    [
        ("raise", "up= of tests.v1.Team → tests.v2.Team raised KeyError: 'no such color'"),
        ("garbage", "up= of tests.v1.Team → tests.v2.Team returned None; return a Crew(...)"),
    ],
)
async def test_failing_converter_affects_only_the_payload_of_one_resource(color: str, why: str) -> None:
    """Lists and watches contain the resource and continue. Its payload raises, with one event per version."""
    failing = Failing(color)
    calls = failing.calls
    for name, written in (("a", ""), ("b", color), ("c", "")):
        await failing.old.write(a_team(V1, roster(color=written), name))
    async with calls.watch(a_type(V3)) as items:
        there, _ = await take(items, 2)
        assert isinstance(there, SnapshotChunk)
        for found in (there.resources, (await calls.list_type(a_type(V3), EVERYWHERE)).resources):
            assert [id_of(each).name for each in found] == ["a", "b", "c"]
            assert data_of(found[0], V3).tint.name == data_of(found[2], V3).tint.name == ""
            with pytest.raises(
                ConversionFailed,
                match=r"^Team b is stored as tests\.v1\.Team, and converting it to tests\.v3\.Team failed",
            ):
                data_of(found[1], V3)
        assert [(event.id.name, event.wanted, str(event.error)) for event in failing.events] == [("b", "v3", why)]
        await failing.old.write(a_team(V1, roster("ada", color=color), "b"))
        await failing.old.write(a_team(V1, roster("ada"), "c"))
        changes = await heard(items, calls.revision)
    assert [id_of(change.resource).name for change in changes] == ["b", "c"]
    assert len(failing.events) == 2
    assert data_of((await calls.read(an_id("b", V1))).resource, V1).names == ["ada"]


def ends(_: Any) -> Any:
    raise SystemExit(3)


async def test_converter_that_exits_does_not_stop_the_server(backend: Backend) -> None:
    """The resource loses its payload, and a write is refused."""
    known = without_converters()
    add_converter(known, V1, V2, ends, down)
    await over(backend, without_converters()).write(a_team(V1, roster("ada")))
    calls = Calls(backend, known)
    with pytest.raises(ConversionFailed):
        data_of((await calls.read(an_id("one", V2))).resource, V2)
    await refused(calls.write(a_team(V1, roster("bea"), "two")), Status.INVALID_ARGUMENT, "to tests.v2.Team failed")


async def test_unconvertible_resource_can_be_written_in_its_version_released_and_deleted() -> None:
    """A write that would have to convert the payload is refused.

    A write that returns the payload leaves it unchanged.
    """
    failing = Failing("raise")
    calls = failing.calls
    stored = await failing.old.stored(a_team(V1, roster("ada", color="raise"), metadata={FINALIZERS: "hold"}))
    await refused(calls.write(a_team(V2, crew())), Status.FAILED_PRECONDITION, "stored as tests.v1.Team")
    await calls.write_status(an_id("one", V3, uid=uid_of(stored)), a_status())
    marked = (await calls.delete(an_id("one", V3))).resource
    assert marked is not None
    bare = pb.Resource(
        id=marked.id, version=marked.version, metadata={**marked.metadata, FINALIZERS: ""}, data=marked.data
    )
    await calls.write(bare)
    assert data_of((await calls.read(an_id("one", V1))).resource, V1).names == ["ada"]
    assert await stored_as(calls) == "v1"
    await calls.delete(an_id("one", V3))
    await refused(calls.write(a_team_again(bare)), Status.INVALID_ARGUMENT, "cannot be created")


def a_team_again(resource: pb.Resource) -> pb.Resource:
    return pb.Resource(id=an_id("one", V3), data=resource.data)


async def test_unconverted_payload_is_refused_for_a_kind_without_converters(in_memory: Calls) -> None:
    failing = Failing("raise")
    await failing.old.write(a_team(V1, roster(color="raise")))
    (found,) = (await failing.calls.list_type(a_type(V3), EVERYWHERE)).resources
    note = a_note()
    note.data = found.data
    await refused(in_memory.write(note), Status.INVALID_ARGUMENT, f"resource.data of {NOTE.name} must be")


async def test_unconverted_payload_is_refused_for_a_version_without_converters() -> None:
    """Other versions of the kind have converters. The payload cannot come from a read, and would be stored as data."""
    failing = Failing("raise")
    await failing.old.write(a_team(V1, roster(color="raise")))
    (found,) = (await failing.calls.list_type(a_type(V3), EVERYWHERE)).resources
    apart = a_team(ALONE, roster(), "two")
    apart.data = found.data
    await refused(failing.calls.write(apart), Status.INVALID_ARGUMENT, f"resource.data of {ALONE.name} must be")


async def test_unconvertible_write_is_refused_and_its_cause_reported() -> None:
    """The caller does not get the converter's error, which may contain a secret of the program."""
    failing = Failing("raise")
    message = await refused(
        failing.calls.write(a_team(V1, roster(color="raise"))), Status.INVALID_ARGUMENT, "ConversionFailed event"
    )
    assert "KeyError" not in message
    assert ["KeyError" in str(event.error) for event in failing.events] == [True]


def reporting(backend: Backend, known: Registry) -> tuple[Calls, list[Any]]:
    """Return a service, and its events."""
    events: list[Any] = []
    service = ResourceService(backend, known, forms=Versions(known, events.append))
    return Calls(backend, known, channel=InProcessChannel(service)), events


@pytest.mark.parametrize(("color", "source", "wanted"), [("raise", V1, V2), ("raise down", V2, V1)])
async def test_refused_write_and_its_event_name_the_direction_that_failed(
    color: str, source: ResourceType[Any], wanted: ResourceType[Any]
) -> None:
    """The new payload is converted to the storage version, and back to compare it."""
    calls, events = reporting(MemoryBackend(), versions())
    await refused(
        calls.write(a_team(V1, roster(color=color))),
        Status.INVALID_ARGUMENT,
        f"resource.data of Team one would be stored as tests.v3.Team, and converting it from {source.name} to "
        f"{wanted.name} failed: the server's ConversionFailed event says why",
    )
    assert [(event.type, event.wanted) for event in events] == [(source.name, wanted.name.version)]


@pytest.mark.parametrize(
    ("stored", "written", "source", "wanted"),
    [
        (a_team(V1, roster(color="raise")), V3, V1, V3),
        (a_team(V2, crew(color="break")), V1, V2, V3),
    ],
    ids=["to the writer's version", "to the version in which they are merged"],
)
async def test_refused_merge_and_its_event_name_the_direction_that_failed(
    stored: pb.Resource, written: ResourceType[Any], source: ResourceType[Any], wanted: ResourceType[Any]
) -> None:
    def up_unless_broken(old: Any) -> Any:
        return None if old.color == "break" else up_again(old)

    backend = MemoryBackend()
    await over(backend, without_converters()).write(stored)
    known = versions(newest=V2)
    add_converter(known, V2, V3, up_unless_broken, down_again)
    calls, events = reporting(backend, known)
    there = V1 if stored.data is not None and stored.data.type_url == V1.type_url else V2
    await refused(
        calls.write(a_team(written, written.payload())),
        Status.FAILED_PRECONDITION,
        f"Team one is stored as {there.name}, and converting it from {source.name} to {wanted.name} failed, so this "
        f"write cannot be merged with it: the server's ConversionFailed event says why; write it as {there.name}",
    )
    assert [(event.type, event.wanted) for event in events] == [(source.name, wanted.name.version)]


async def test_write_whose_converter_returns_an_invalid_payload_is_reported(backend: Backend) -> None:
    """The fault is the converter's, so the writer is not told to write other values."""
    known = without_converters()
    add_converter(known, V1, V2, up, lambda _: roster(color=cast("Any", 7)))
    calls, events = reporting(backend, known)
    said = await refused(calls.write(a_team(V1, roster("ada"))), Status.INVALID_ARGUMENT, "ConversionFailed event")
    assert "write values" not in said
    assert ["down= of tests.v1.Team → tests.v2.Team returned" in str(each.error) for each in events] == [True]


async def test_failure_is_reported_once_for_repeated_reads_of_the_store() -> None:
    """A store on disk makes a new message at each read."""
    failing = Failing("raise")
    stored = await failing.old.stored(a_team(V1, roster(color="raise")))
    events: list[object] = []
    view = Versions(versions(), events.append).of(V3).view
    for _ in range(3):
        assert view(copy_message(stored)) is not None
    assert len(events) == 1
