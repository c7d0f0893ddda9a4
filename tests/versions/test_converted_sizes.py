"""The cache of converted resources is bounded by all that its entries keep alive."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import pytest

from headway.protobuf import copy_message
from headway.resource import pb
from headway.versions import Versions
from tests.helpers.versions import V1, V3, a_team, roster, versions

KEPT = 1 << 20
"""The size of a generation of the cache. There are two."""

SIZE = 1 << 16
TEXT = "x" * SIZE


def _metadata(resource: pb.Resource) -> None:
    resource.metadata = {"note": TEXT}


def _message(resource: pb.Resource) -> None:
    resource.status = {"staff/teams": pb.Status(conditions=[pb.Condition(message=TEXT)])}


def _conditions(resource: pb.Resource) -> None:
    # An empty condition takes more than 100 bytes.
    resource.status = {"staff/teams": pb.Status(conditions=[pb.Condition()] * (SIZE // 100))}


def _entries(resource: pb.Resource) -> None:
    resource.metadata = dict.fromkeys(map(str, range(SIZE // 100)), "")


def _reference(resource: pb.Resource) -> None:
    condition = pb.Condition(resource=pb.Reference(name="team", section=TEXT))
    resource.status = {"staff/teams": pb.Status(conditions=[condition])}


def _payload(resource: pb.Resource) -> None:
    # It cannot be converted, so that the converted payload is small.
    assert resource.data is not None
    resource.data.value = b"\xff" * SIZE


@pytest.fixture(autouse=True)
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.versions._forms.KEPT_BYTES", KEPT)


@pytest.mark.parametrize("grow", [_metadata, _message, _conditions, _entries, _reference, _payload])
def test_cache_keeps_few_large_resources_that_are_read_from_disk(grow: Callable[[pb.Resource], None]) -> None:
    """A store on disk makes a new message at each read, so that each read adds an entry that is never found again."""
    stored = a_team(V1, roster("ada"))
    view = Versions(versions()).of(V3).view
    kept: list[weakref.ref[pb.Resource]] = []
    for _ in range(3 * KEPT // SIZE):
        read = copy_message(stored)
        grow(read)
        kept.append(weakref.ref(read))
        assert view(read) is not None
        del read
    alive = sum(each() is not None for each in kept)
    assert 0 < alive <= 2 * KEPT // SIZE + 1


def test_second_reader_of_a_large_resource_shares_its_conversion() -> None:
    """This holds for one that alone exceeds a generation of the cache."""
    read = a_team(V1, roster("ada"))
    read.metadata = {"note": "x" * (KEPT + 1)}
    view = Versions(versions()).of(V3).view
    assert view(read) is view(read)
