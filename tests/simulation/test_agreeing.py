"""Random values that stand in several places: the kit cannot know them, but they must stay the same."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

import headway
from headway.testing import simulation
from tests.helpers.corpus.programs import program
from tests.helpers.corpus.staff import Account, Cloud, Team, one_team


async def shares_its_own(
    rt: headway.Runtime, request: headway.Request[Team], account: Any, process: simulation.Process
) -> None:
    """Write a new password to a resource, if it has none, and to the world outside. A second attempt makes another."""
    if rt.resource(request) is not None:
        password = uuid.uuid4().hex
        if rt.cache.get(account, "core") is None:
            await rt.client.apply(account.new("core", Account(login=password)))
        if "core" not in process.outside.disks:
            await process.outside.put("core", password)


async def shares_what_is_stored(
    rt: headway.Runtime, request: headway.Request[Team], account: Any, process: simulation.Process
) -> None:
    if rt.resource(request) is not None:
        stored = rt.cache.get(account, "core")
        if stored is None:
            stored = await rt.client.apply(account.new("core", Account(login=uuid.uuid4().hex)))
        await process.outside.put("core", stored.data.login)


def explore(reconcile: Any, **settings: Any) -> simulation.Explored:
    return simulation.explore(program(reconcile), one_team, outside=Cloud, **settings)


def test_random_value_that_differs_in_its_second_place_is_found() -> None:
    with pytest.raises(simulation.Refuted) as refuted:
        explore(shares_its_own)
    story = str(refuted.value)
    assert "end state: Account core.login is '" in story
    assert "and outside.core is '" in story
    assert "; without faults, they are the same" in story


@pytest.mark.wide
def test_difference_that_is_declared_is_accepted() -> None:
    explore(shares_its_own, may_differ=["Account.login"], plan="crash_after(2)")
    explore(shares_what_is_stored, plan="crash_after(2)")
    with pytest.raises(simulation.Refuted):
        explore(shares_its_own, plan="crash_after(2)")
