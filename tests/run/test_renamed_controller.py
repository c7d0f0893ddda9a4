"""A controller is known by its name. Under another one it has neither its finalizers nor its terms."""

from __future__ import annotations

from typing import Any

from trio.testing import MockClock

import headway
from headway.storage import MemoryBackend
from headway.why import Finalizer
from tests.helpers.resources import Team
from tests.helpers.staff import Staff


def program(name: str, terms: list[int]) -> Staff:
    """Return a program with a controller of this name that adds a finalizer."""
    staff = Staff()

    @staff.app.controller(manages=staff.team, name=name)
    async def teams(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        terms.append(rt.term)
        team = rt.resource(request)
        if team is not None:
            async with rt.finalizer(team):
                pass

    return staff


async def test_renamed_controller_leaves_finalizers_and_begins_at_term_1(autojump_clock: MockClock) -> None:
    store: Any = MemoryBackend()
    before: list[int] = []
    for _ in range(2):
        old = program("teams", before)
        async with old.open(store):
            await old.write_team("core")
            await old.wait_idle()
    assert before[-1] > 1

    after: list[int] = []
    new = program("crews", after)
    async with new.open(store) as engine:
        await new.wait_idle()
        await engine.client.delete(new.team.id("core"))
        await new.wait_idle()
        left = await engine.client.read(new.team, "core")
        why = await engine.why(left.id)
    assert (left.is_deleting, left.finalizers) == (True, frozenset({"teams"}))
    assert set(after) == {1}
    assert why.stored is not None
    assert why.stored.finalizers == [Finalizer("teams", "")]  # of no known controller
