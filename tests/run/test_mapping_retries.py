"""The retries of changes whose mapping has failed, when there are many of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

import headway
from headway.base import BoundedReport
from headway.cache import Applied
from headway.controller import Definition
from headway.mapper import MapQueue
from headway.resource import TypeName
from headway.run import ChangeMapper
from headway.run._mapping_retries import STEP, TURN, MappingRetries
from tests.helpers.resources import TEAM, key, stored

KEPT = 2 * STEP + 1


class Failing(ChangeMapper):
    """Fails each time, and takes so long that the first changes are due again before the last are mapped."""

    clock: MockClock
    takes = 1.0
    calls = 0

    def map_change(self, type: TypeName, applied: Applied, *, backlog: bool) -> None:  # noqa: ARG002
        self.calls += 1
        assert self.calls <= 4 * KEPT, "the retries do not let other tasks run"
        self.clock.jump(self.takes)
        raise ValueError("fails")


def failing(clock: MockClock, kept: int, on_progress: Callable[[], None]) -> tuple[MappingRetries, Failing, MapQueue]:
    """Return the retries of this many changes, all due now, with their mapper and their queue."""
    app = headway.App("retries")
    app.registry.register(TEAM)

    @app.controller(manages=TEAM, backoff=headway.Backoff(1.0, 1.0), name="teams")
    async def teams(rt: headway.Runtime, request: headway.Request) -> None: ...

    definition: Definition = app.controllers["teams"]
    changes = MapQueue()
    changes.push(TEAM.name, [Applied(key(f"t{n}"), None, stored(f"t{n}", 1), 1) for n in range(kept)])
    while (item := changes.pop(1)) is not None:
        changes.defer(item, trio.current_time())
    mapper = Failing.__new__(Failing)
    ChangeMapper.__init__(mapper, definition, None, {}, None, None, None)  # type: ignore[arg-type]
    mapper.clock = clock
    return MappingRetries(definition, changes, mapper, BoundedReport(lambda _: None), on_progress), mapper, changes


@pytest.mark.parametrize(("takes", "at_once"), [(0.0, STEP), (2 * TURN, 1)])
async def test_retries_of_many_changes_let_other_tasks_run(mock_clock: MockClock, takes: float, at_once: int) -> None:
    """There is a checkpoint after each 500 or each slow one, and a cancellation there leaves every change queued."""
    retries, mapper, changes = failing(mock_clock, KEPT, lambda: None)
    mapper.takes = takes
    async with trio.open_nursery() as nursery:
        nursery.start_soon(retries.run)
        while mapper.calls == 0:
            await trio.lowlevel.checkpoint()
        # Trio runs tasks that are ready in random order, so the retries can have had a second turn.
        assert mapper.calls in (at_once, 2 * at_once)
        nursery.cancel_scope.cancel()
    assert len(changes) == KEPT
    assert len(list(changes.drain())) == KEPT
