"""The reader of a resumed watch remembers what exists, and not each name that came and went."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from typing_extensions import override

from headway.errors import HistoryCompacted
from headway.protobuf import copy_message
from headway.resource import Change, Resource, ResourceId, pb
from headway.service import Decision
from headway.service._access import AccessChecks
from headway.service._reader import Reader
from headway.storage import MemoryBackend
from tests.helpers.calls import Calls
from tests.helpers.declared import a_note, id_of, registry
from tests.service.test_access import Guard

NAMES = 500


class Forgetful(Guard):
    """A guard that keeps no list of its calls."""

    @override
    def may_read(self, id: ResourceId, resource: Resource[Any] | None) -> Decision:
        self.asked.clear()
        return super().may_read(id, resource)


def resumed() -> Reader:
    """Return a reader who can read the notes of these names that do not say "secret"."""
    return Reader(AccessChecks(Forgetful(), registry()), lambda stored: stored, resumed=True)


@pytest.fixture
async def notes() -> list[pb.Resource]:
    """Return a stored note that the reader sees, and one that its content hides."""
    calls = Calls(MemoryBackend(), registry())
    return [await calls.stored(a_note("secret", text)) for text in ("shown", "secret")]


def named(note: pb.Resource, name: str) -> pb.Resource:
    """Return a note of another name that starts with "secret", so that its content decides."""
    other = copy_message(note)
    id_of(other).name = f"secret-{name}"
    return other


def coming_and_going(shown: pb.Resource, hidden: pb.Resource) -> Iterator[Change]:
    """Yield changes of many names. Each is written, and deleted while it is visible or hidden."""
    for number in range(NAMES):
        visible = named(shown, str(number))
        yield Change(number, visible, deleted=False, more=False)
        if number % 2:
            visible = named(hidden, str(number))
            yield Change(number, visible, deleted=False, more=False)
        yield Change(number, visible, deleted=True, more=False)


async def test_resumed_reader_forgets_names_that_came_and_went(notes: list[pb.Resource]) -> None:
    changes = [*coming_and_going(*notes)]
    # Another reader first, which fills the caches of ids.
    another, reader = resumed(), resumed()
    for change in changes:
        another.changes([change])
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for change in changes:
            reader.changes([change])
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    # Their entries would take more than 30 bytes each.
    assert taken < NAMES * 10


async def test_resumed_reader_does_not_know_whether_a_name_that_came_back_was_read_before(
    notes: list[pb.Resource],
) -> None:
    """It has forgotten the deletion, and only a snapshot says what the caller has."""
    reader, (shown, hidden) = resumed(), notes
    assert reader.changes([Change(5, shown, deleted=True, more=False)])
    with pytest.raises(HistoryCompacted):
        reader.changes([Change(6, hidden, deleted=False, more=False)])


async def test_resource_that_is_stored_as_another_version_stays_known_to_a_resumed_reader(
    notes: list[pb.Resource],
) -> None:
    """Its commit deletes it as one version and writes it as the other one, so that it is not absent in between."""
    reader, (shown, hidden) = resumed(), notes
    reader.changes([Change(5, shown, deleted=False, more=False)])
    moved = [Change(6, shown, deleted=True, more=True), Change(6, hidden, deleted=False, more=False)]
    assert [(each.revision, each.deleted) for each in reader.changes(moved)] == [(6, True)]
    again = [Change(7, hidden, deleted=True, more=True), Change(7, hidden, deleted=False, more=False)]
    for revision in (7, 8):
        assert reader.changes([each._replace(revision=revision) for each in again]) == []
    # It is remembered as hidden, so that no snapshot is needed.
    assert reader.changes([Change(9, hidden, deleted=False, more=False)]) == []
