"""Errors of converters: no secret of a converted payload is in the event, in a migration or in a cause."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
from grpclib.const import Status

from headway.events import ConversionFailed, Report
from headway.protobuf import REDACTED, field, message
from headway.resource import Registry, ResourceType
from headway.rpc import InProcessChannel
from headway.service import ResourceService
from headway.storage import MemoryBackend
from headway.versions import Versions, add_converter, migrate, store_as
from tests.helpers.calls import Calls, refused
from tests.helpers.declared import a_type
from tests.helpers.versions import a_team
from tests.versions.test_shown import EVERYWHERE

SECRET = "canary-e7d1f0"


@message(name="converted.v1.Key")
class Open:
    """The version that does not mark the token as a secret."""

    token: str = field(1)


@message(name="converted.v2.Key")
class Marked:
    token: str = field(1, secret=True)


@message(name="converted.v3.Key")
class Renamed:
    code: str = field(1)


V1: ResourceType[Open] = ResourceType("tests", "v1", "Key", Open)
V2: ResourceType[Marked] = ResourceType("tests", "v2", "Key", Marked)
V3: ResourceType[Renamed] = ResourceType("tests", "v3", "Key", Renamed)


def marks(given: Any) -> Marked:
    return Marked(token=given.token)


def opens(given: Any) -> Open:
    return Open(token=given.token)


def quotes(given: Any) -> Any:
    raise ValueError(f"{given.token} is no token") from KeyError(given.token)


def returns_secret(given: Any) -> Any:
    return given.token


def known(*converters: tuple[Any, Any, Any, Any], storage: ResourceType[Any] | None = None) -> Registry:
    found = Registry()
    for type in (V1, V2, V3):
        found.register(type)
    for each in converters:
        add_converter(found, *each)
    if storage is not None:
        store_as(found, storage)
    return found


def over(backend: MemoryBackend, types: Registry, report: Report) -> Calls:
    service = ResourceService(backend, types, forms=Versions(types, report))
    return Calls(backend, types, channel=InProcessChannel(service))


def check(events: list[Any]) -> None:
    """Fail unless there is one event, without the secret in any text of its error."""
    (event,) = events
    assert isinstance(event, ConversionFailed)
    text = "".join(traceback.format_exception(event.error))
    assert REDACTED in text
    assert SECRET not in text


@pytest.mark.parametrize("down", [quotes, returns_secret])
async def test_event_has_no_secret_of_the_stored_payload(down: Any) -> None:
    events: list[Any] = []
    calls = over(MemoryBackend(), known((V1, V2, marks, down)), events.append)
    await calls.write(a_team(V2, Marked(token=SECRET)))
    await calls.list_type(a_type(V1), EVERYWHERE)
    check(events)


async def test_event_has_no_secret_of_a_payload_on_the_way() -> None:
    """The stored version has the same text in an ordinary field."""
    events: list[Any] = []
    backend = MemoryBackend()
    await Calls(backend, known()).write(a_team(V1, Open(token=SECRET)))
    calls = over(backend, known((V1, V2, marks, opens), (V2, V3, quotes, marks)), events.append)
    await calls.list_type(a_type(V3), EVERYWHERE)
    check(events)


async def test_event_has_no_secret_that_the_writer_gave() -> None:
    """The failing converter reads it from an ordinary field of the storage version."""
    events: list[Any] = []
    calls = over(MemoryBackend(), known((V1, V2, quotes, opens), storage=V1), events.append)
    await refused(calls.write(a_team(V2, Marked(token=SECRET))), Status.INVALID_ARGUMENT)
    check(events)


@pytest.mark.parametrize(("up", "down"), [(marks, quotes), (quotes, opens)], ids=["down", "down and up"])
async def test_migration_names_the_reason_without_the_secret(up: Any, down: Any) -> None:
    backend = MemoryBackend()
    await Calls(backend, known()).write(a_team(V2, Marked(token=SECRET)))
    ((_, why),) = (await migrate(backend, known((V1, V2, up, down), storage=V1))).left
    assert why.endswith(f"raised ValueError: {REDACTED} is no token")
