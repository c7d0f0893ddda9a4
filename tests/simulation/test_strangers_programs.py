"""Programs of other fields: mistakes that were missed once, with right twins, and right ones that were accused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headway
from headway.errors import AlreadyExists
from headway.testing import simulation
from headway.testing.simulation import faults
from headway.testing.simulation.oracles._compared_outside import _is_like
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


async def pauses(world: simulation.World) -> None:
    await note(world, "core", "x")
    await world.wait_idle()
    await world.sleep(20)
    await note(world, "core", "y")
    await world.wait_idle()


def test_no_fault_outlasts_a_pause_of_users_who_do_not_wait() -> None:
    """What the program does within the pause may be what users rely on."""

    async def puts(rt: headway.Runtime, team: Any, _: object, doors: Doors) -> None:
        await doors.put(team.name, team.data.note, (rt.term, int(team.version)))

    without = without_all_but("outage", "hurried", "spaced", "slow", "change_during")
    explored = simulation.explore(program(puts), pauses, outside=Doors, without=without)
    at_a_pace = [each for each in explored.plans if isinstance(each[0], faults.Hurried)]
    assert not [each for each in at_a_pace if isinstance(each[-1], faults.Outage) and each[-1].seconds > 20]


def test_schedule_can_be_left_out_by_its_name() -> None:
    async def puts(_: object, team: Any, __: object, doors: Doors) -> None:
        await doors.put(team.name, team.data.note)

    without = without_all_but("slow", "change_during", "spaced")
    explored = simulation.explore(program(puts), two_notes, outside=Doors, without=without)
    assert explored.plans
    assert not [fault for plan in explored.plans for fault in plan if isinstance(fault, faults.Hurried)]


# --- an end that depends on whether users wait ---


class Announced(Doors):
    """The world outside: doors, and the states that were announced, of which hurried users leave some out."""

    def __init__(self) -> None:
        super().__init__()
        self.announced: list[str] = []

    def state(self) -> dict[str, Any]:
        return {"notes": dict(self.notes), "announced": list(self.announced)}

    async def announce(self, text: str) -> None:
        if text not in self.announced:
            self.announced.append(text)


@pytest.mark.parametrize("reads_again", [False, True])
def test_only_what_hurried_users_change_is_left_out_at_their_pace(reads_again: bool) -> None:
    """The list is shorter if users don't wait. The doors must still be right."""

    async def announces(rt: headway.Runtime, team: Any, _: object, outside: Announced) -> None:
        said = team.status.get(rt.controller)
        if said is not None and said.observed_generation == team.generation:
            return
        await outside.put(team.name, team.data.note, (rt.term, int(team.version)))
        await outside.announce(team.data.note)
        # The mistake: it says of the newest state what it has done with an older one.
        done = rt.cache.get(team.type, team.name) if reads_again else team
        if done is not None:
            async with rt.conditions(done) as conditions:
                conditions.set("Done", True)

    settings: dict[str, Any] = {"outside": Announced, "without": without_all_but("hurried", "change_during")}
    if reads_again:
        with pytest.raises(simulation.Refuted, match="the outside world differs with timing alone"):
            simulation.explore(program(announces), two_notes, **settings)
        return
    explored = simulation.explore(program(announces), two_notes, **settings)
    assert any(isinstance(fault, faults.ChangeDuring) for plan in explored.runs for fault in plan)
    assert "not compared: outside.announced if users don't wait" in str(explored)


# --- a backup from before a creation, and a later change of another resource ---


class Signs(Doors):
    """The world outside: signs, of which only the texts are compared, because a uid is new in each run."""

    async def listed(self) -> list[str]:
        return sorted(self.notes)

    def state(self) -> Any:
        return sorted(self.notes.values())


async def two_teams_and_a_change(world: simulation.World) -> None:
    for name, text in (("core", "x"), ("docs", "y"), ("core", "z")):
        await note(world, name, text)
        await world.wait_idle()


@pytest.mark.parametrize("by", ["name", "uid"])
def test_thing_of_a_uid_that_a_restore_has_taken_back_is_found(by: str) -> None:
    """The last call is for a change. The backup must also be older than a creation for which such a call was made."""

    async def puts(rt: headway.Runtime, team: Any, _: object, signs: Signs) -> None:
        async with rt.finalizer(team) as guarded:
            await signs.put(getattr(team, by), team.data.note, (rt.term, int(guarded.resource.version)))

    settings: dict[str, Any] = {"outside": Signs, "without": without_all_but("restore")}
    if by == "name":
        assert simulation.explore(program(puts), two_teams_and_a_change, **settings).complete
        return
    with pytest.raises(simulation.Refuted, match=r"\['y', 'y', 'z'\]; without faults: \['y', 'z'\]"):
        simulation.explore(program(puts), two_teams_and_a_change, **settings)
