"""The in-memory store keeps its promises about writers under every schedule that Hypothesis chooses."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import pytest
import trio
from hypothesis import find, given, settings
from hypothesis import strategies as st

from headway.resource import Key, Kind, Position, StreamItem, pb
from headway.storage import Fence, LogWatch, MemoryBackend, Operation, Put, VersionConflict, Within
from headway.testing import BackendCheck, StoreUnderTest, claim_of, run_backend_check
from headway.testing.conformance import checks_of, commits, concurrency, fences, grammar, leases, watches
from tests.storage.kept_memory import Found

SCHEDULES = st.lists(st.integers(0, 4), min_size=1, max_size=40)
"""The turns of the loop that each call waits before it begins and before its caller has the answer, as a cycle."""

UNDER_WRITERS = [
    *checks_of(concurrency),
    commits.one_of_many_writers_of_a_version_wins,
    commits.concurrent_commits_have_a_revision_each,
    fences.no_write_below_the_fence_is_stored_after_its_raise,
    grammar.a_watch_delivers_a_snapshot_its_end_and_then_changes,
    leases.one_of_many_requests_gets_the_lease,
    watches.a_bookmark_is_never_ahead_of_the_changes,
    watches.a_delivered_change_is_read,
]


class Paced(MemoryBackend):
    """An in-memory store whose calls and answers are delayed by a schedule."""

    def __init__(self, schedule: Sequence[int]) -> None:
        super().__init__()
        self._schedule = cycle(schedule)

    async def pace(self) -> None:
        for _ in range(next(self._schedule)):
            await trio.lowlevel.cancel_shielded_checkpoint()

    async def read(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Position]:
        await self.pace()
        found = await super().read(kind, key)
        await self.pace()
        return found

    async def list(self, kind: Kind, within: Within, *, after: Key | None = None, limit: int = 0) -> Found:
        await self.pace()
        found = await super().list(kind, within, after=after, limit=limit)
        await self.pace()
        return found

    async def list_by_owner(self, owner_uid: str) -> Found:
        await self.pace()
        found = await super().list_by_owner(owner_uid)
        await self.pace()
        return found

    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        await self.pace()
        at = await super().commit(operations, fence)
        await self.pace()
        return at

    async def watch(self, kind: Kind, within: Within, resume_after: Position | None = None) -> LogWatch:
        await self.pace()
        made = await super().watch(kind, within, resume_after)
        await self.pace()
        return _PacedWatch(self, made)


class _PacedWatch(LogWatch):
    def __init__(self, store: Paced, made: LogWatch) -> None:
        self._store, self._made = store, made

    async def next(self) -> StreamItem:
        await self._store.pace()
        item = await self._made.next()
        await self._store.pace()
        return item

    def close(self) -> None:
        self._made.close()


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(each, marks=[pytest.mark.wide] * (claim_of(each)[0] == "a_large_snapshot_is_of_one_revision"))
        for each in UNDER_WRITERS
    ],
    ids=lambda check: claim_of(check)[0],
)
@settings(max_examples=max(3, settings().max_examples // 10))
@given(schedule=SCHEDULES)
async def test_memory_store_passes_checks_under_any_schedule(check: BackendCheck, schedule: Sequence[int]) -> None:
    """The schedule chooses the delay of each call and each answer."""
    await run_backend_check(check, StoreUnderTest(lambda _, **__: Paced(schedule)), Path())


class ChecksThenIsPaced(Paced):
    """A store with a race: it checks versions, waits, and then overwrites what is stored."""

    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:  # noqa: ARG002
        for each in operations:
            if isinstance(each, Put):
                found, _ = self.read_nowait(each.kind, each.key)
                if (found.version if found is not None else "") != each.expected:
                    raise VersionConflict("another version")
        await self.pace()
        entries = [(each.kind, each.key, self.read_nowait(each.kind, each.key)[0], each.resource)
                   for each in operations if isinstance(each, Put)]  # fmt: skip
        self._publish(entries)
        return self.position


def test_search_finds_a_schedule_that_exposes_a_race() -> None:
    """A store that fails only when a write comes between is detected, though one schedule hides the race."""
    check = commits.one_of_many_writers_of_a_version_wins

    def shows(schedule: Sequence[int]) -> bool:
        try:
            trio.run(run_backend_check, check, StoreUnderTest(lambda _, **__: ChecksThenIsPaced(schedule)), Path())
        except (AssertionError, BaseExceptionGroup):
            return True
        return False

    assert not shows([0])
    assert shows(find(SCHEDULES, shows))
