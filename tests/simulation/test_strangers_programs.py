"""Programs of other fields: mistakes that were missed once, with right twins, and right ones that were accused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headway
from headway.errors import AlreadyExists
from headway.testing import simulation
from headway.testing.simulation import faults
from headway.testing.simulation.oracles._compared import _is_like
from tests.helpers.corpus.staff import Account, Team

Body = Callable[[headway.Runtime, Any, Any, Any], Any]


def program(body: Body, **settings: Any) -> simulation.MakeApp:
    def make(process: simulation.Process) -> headway.App:
        app = headway.App("staff")
        team, account = app.type("staff", "v1", "Team", Team), app.type("staff", "v1", "Account", Account)

        def all_teams(_: object, cache: headway.cache.CacheReader) -> list[headway.ResourceId]:
            return [each.id for each in cache.list(team)]

        @app.controller(manages=team, watches=[headway.watch(account, all_teams)], **settings)
        async def teams(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            if (found := rt.resource(request)) is not None:
                await body(rt, found, account, process.outside)

        return app

    return make


def without_all_but(*names: str) -> list[str]:
    """Return the names of all other faults."""
    return [each.name for each in faults.FAULTS if each.name not in (*names, "done_again")]


async def note(world: simulation.World, name: str, text: str) -> None:
    await world.client.apply(world.type("Team").new(name, Team(note=text)))


async def two_notes(world: simulation.World) -> None:
    for text in ("x", "y"):
        await note(world, "core", text)
        await world.wait_idle()


# --- a change between a crash and the next attempt ---


class Bank:
    """The world outside: charges, each carried out once for its key."""

    def __init__(self) -> None:
        self.charged: list[str] = []
        self._keys: set[str] = set()

    def state(self) -> dict[str, list[str]]:
        return {"charged": self.charged}

    async def charge(self, name: str, key: str = "") -> None:
        if not key or key not in self._keys:
            self._keys.add(key)
            self.charged.append(name)


@pytest.mark.wide
@pytest.mark.parametrize("by_generation", [False, True])
def test_key_that_a_change_renews_is_found_after_a_crash(by_generation: bool) -> None:
    """The users' next change comes while the killed process is away."""

    async def charges(rt: headway.Runtime, team: Any, account: Any, bank: Bank) -> None:
        if rt.cache.get(account, team.name) is None:
            await bank.charge(team.name, f"{team.uid}-{team.generation if by_generation else ''}")
            await rt.apply(account.new(team.name, Account(), owner=team))

    settings: dict[str, Any] = {
        "outside": Bank,
        "without": without_all_but("crash_after", "hurried", "spaced", "change_during"),
    }
    if not by_generation:
        assert simulation.explore(program(charges), two_notes, **settings).complete
        return
    with pytest.raises(simulation.Refuted, match=r"without faults: \{'charged': \['core'\]\}") as caught:
        simulation.explore(program(charges), two_notes, **settings)
    assert str(caught.value.plan) == "hurried(); spaced(0.5); crash_after(1)"


# --- an order that orders nothing ---


class Doors:
    """The world outside: who may open a door. A call with a lower order than the last one does nothing."""

    def __init__(self) -> None:
        self.notes: dict[str, str] = {}
        self._orders: dict[str, tuple[int, int]] = {}

    def state(self) -> dict[str, str]:
        return self.notes

    async def put(self, name: str, text: str, order: tuple[int, int] | None = None) -> None:
        if order is None or order >= self._orders.get(name, (0, 0)):
            self._orders[name] = order or (0, 0)
            self.notes[name] = text


@pytest.mark.wide
@pytest.mark.parametrize("rises", [False, True])
def test_order_that_does_not_rise_with_the_content_is_found(rises: bool) -> None:
    async def puts(rt: headway.Runtime, team: Any, _: object, doors: Doors) -> None:
        await doors.put(team.name, team.data.note, (rt.term, int(team.version) if rises else 0))

    settings: dict[str, Any] = {"outside": Doors, "plan": "commit_last(1)"}
    if rises:
        assert simulation.explore(program(puts), two_notes, **settings).complete
        return
    with pytest.raises(simulation.Refuted):
        simulation.explore(program(puts), two_notes, **settings)


# --- concurrent reconciles of one controller ---


async def takes_the_seat(rt: headway.Runtime, team: Any, account: Any, _: object) -> None:
    """Take the wanted seat, then leave the other one, which wakes who waits for it."""
    mine = rt.cache.owned(account, team)
    wanted = f"seat-{team.data.note}"
    if all(each.name != wanted for each in mine):
        if rt.cache.get(account, wanted) is not None:
            return
        try:
            await rt.client.create(account.new(wanted, Account(), owner=team))
        except AlreadyExists:
            return
    for each in mine:
        if each.name != wanted:
            await rt.client.delete(each, version=each.version)


async def one_moves_on(world: simulation.World) -> None:
    for name, seat in (("ann", "a"), ("bob", "a"), ("ann", "b")):
        await note(world, name, seat)
        await world.wait_idle()


@pytest.mark.wide
@pytest.mark.parametrize("plan", ["crash_after(3)", "answer_late(3, 1.0)", "answer_late(3, 10.0)", "answer_lost(3)"])
def test_concurrent_reconcile_may_read_before_the_reply_to_a_write_has_come(plan: str) -> None:
    """No one in the process knows of the write yet; and a reply that comes late is no reading of an older state."""
    assert simulation.explore(program(takes_the_seat, concurrency=4), one_moves_on, plan=plan).complete


# --- random names outside ---


@pytest.mark.parametrize(("image", "size", "alike"), [("v2", 1, True), ("v1", 1, False), ("v2", 2, False)])
def test_contents_of_things_with_random_names_are_compared(image: str, size: int, alike: bool) -> None:
    def state(drawn: str, image: str, size: int = 1) -> dict[str, dict[str, str]]:
        return {f"{drawn}-{number}": {"name": "core", "image": image} for number in range(size)}

    assert _is_like(state("3f", image, size), [state("a0", "v2"), state("77", "v2")]) == alike


# --- users who pause ---


def test_schedule_can_be_left_out_by_its_name() -> None:
    async def puts(_: object, team: Any, __: object, doors: Doors) -> None:
        await doors.put(team.name, team.data.note)

    without = without_all_but("slow", "change_during", "spaced")
    explored = simulation.explore(program(puts), two_notes, outside=Doors, without=without)
    assert explored.plans
    assert not [fault for plan in explored.plans for fault in plan if isinstance(fault, faults.Hurried)]


# --- an end that depends on whether users wait ---


# --- a backup from before a creation, and a later change of another resource ---
