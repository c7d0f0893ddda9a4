"""The resources of an informer whose payloads do not decode: which of them count, and for how long they are kept."""

from __future__ import annotations

import pytest

import headway
from headway.cache import Informer
from headway.events import PayloadUndecodable
from headway.resource import AnyMessage, pb
from tests.helpers.resources import TEAM, Team, changes, chunk, end, key, put, removed, stored

ADA, GRACE = key("ada"), key("grace")
KEPT = headway.projection(TEAM, Team, lambda team: team.data)
"""Applying its function decodes each resource as it arrives. Otherwise, only a reader does."""


def damaged(name: str, version: int) -> pb.Resource:
    made = stored(name, version)
    made.data = AnyMessage(type_url=TEAM.type_url, value=b"\xff")
    return made


class Cached:
    """An informer that is primed at 10 with ada at 5, and what it has reported."""

    def __init__(self, *, projected: bool) -> None:
        self.reported: list[object] = []
        self.informer = Informer(KEPT if projected else TEAM, self.reported.append)
        self.informer.feed(chunk(stored("ada", 5)))
        self.informer.feed(end(10))

    def read(self) -> None:
        """Let a reader find out which resources decode."""
        for each, resource in self.informer.store.entries.items():
            self.informer.is_undecodable(each, resource)


@pytest.fixture(params=[False, True], ids=["whole", "projected"])
async def cached(request: pytest.FixtureRequest) -> Cached:
    return Cached(projected=request.param)


async def test_damaged_state_counts_until_it_is_replaced_or_deleted(cached: Cached) -> None:
    """Nothing is kept of it then. Otherwise, all that was ever damaged would fill the memory."""
    informer = cached.informer
    informer.feed(changes(put(damaged("ada", 11)), put(damaged("grace", 12))))
    cached.read()
    assert informer.undecodable == [ADA, GRACE]
    informer.feed(changes(put(stored("ada", 13)), removed(damaged("grace", 12), 14)))
    cached.read()
    assert informer.undecodable == []
    assert informer._undecodable.versions == {}


async def test_damaged_state_that_is_not_cached_yet_does_not_count(cached: Cached) -> None:
    """The end of the snapshot has not arrived."""
    informer = cached.informer
    informer.feed(chunk(damaged("ada", 11), damaged("grace", 12)))
    cached.read()
    assert informer.undecodable == []
    informer.feed(end(12))
    cached.read()
    assert informer.undecodable == [ADA, GRACE]


async def test_former_state_is_judged_without_being_counted() -> None:
    """A mapper may still read it."""
    cached = Cached(projected=False)
    assert cached.informer.is_undecodable(ADA, damaged("ada", 4))
    assert not cached.informer.is_undecodable(ADA, stored("ada", 4))
    assert cached.informer.undecodable == []
    assert not [event for event in cached.reported if isinstance(event, PayloadUndecodable)]
    assert cached.informer._undecodable.versions == {}
