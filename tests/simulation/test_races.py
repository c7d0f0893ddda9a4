"""Races: what differs with timing alone, what another writer loses, and what a scenario may declare."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import trio

import headway
from headway.testing import simulation
from headway.testing.simulation.oracles import Allowed, differences
from tests.helpers.corpus.staff import Account, Team, come_and_go, one_team

Reconcile = Callable[[Any, Any, Any, simulation.Process], Any]


class Mail:
    """The world outside: a mailbox that is slow, and disks without keys."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.disks: dict[str, str] = {}

    async def send(self, text: str) -> None:
        await trio.sleep(1)
        if text not in self.sent:
            self.sent.append(text)

    async def put(self, name: str, text: str) -> None:
        self.disks[name] = text

    async def remove(self, name: str) -> None:
        self.disks.pop(name, None)


def program(reconcile: Reconcile, **settings: Any) -> simulation.MakeApp:
    def make(process: simulation.Process) -> headway.App:
        app = headway.App("staff")
        team, account = app.type("staff", "v1", "Team", Team), app.type("staff", "v1", "Account", Account)

        @app.controller(manages=team, watches=[headway.watch(account, headway.mappers.owner())], **settings)
        async def accounts(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            found = rt.resource(request)
            if found is not None:
                await reconcile(rt, found, account, process)

        return app

    return make


async def apply(world: simulation.World, name: str, note: str = "") -> None:
    await world.client.apply(world.type("Team").new(name, Team(note=note)))


async def two_teams_in_turn(world: simulation.World) -> None:
    await apply(world, "a")
    await world.wait_idle()
    await apply(world, "b")
    await world.wait_idle()


async def two_notes(world: simulation.World) -> None:
    await apply(world, "a", "x")
    await apply(world, "a", "y")
    await world.wait_idle()


async def two_notes_in_turn(world: simulation.World) -> None:
    await apply(world, "a", "x")
    await world.wait_idle()
    await apply(world, "a", "y")
    await world.wait_idle()


def refuted(
    reconcile: Reconcile, scenario: simulation.Scenario, *, controller: dict[str, Any] | None = None, **settings: Any
) -> simulation.Refuted:
    with pytest.raises(simulation.Refuted) as caught:
        simulation.explore(program(reconcile, **(controller or {})), scenario, **{"outside": Mail, **settings})
    return caught.value


# --- reconcilers with races ---


async def takes_a_free_number(rt: headway.Runtime, team: Any, _: Any, process: simulation.Process) -> None:
    """Two teams that ask at once get the same number."""
    if "number" not in team.metadata:
        taken = {each.metadata.get("number") for each in rt.cache.list(team.type)}
        await process.outside.send("a number is taken")
        team.metadata["number"] = next(str(number) for number in range(10) if str(number) not in taken)
        await rt.client.write(team)


async def leaves_the_old_account(rt: headway.Runtime, team: Any, account: Any, _: object) -> None:
    await rt.apply(account.new(f"for-{team.data.note}", Account(login=team.data.note), owner=team))


async def writes_back_all_it_has_read(rt: headway.Runtime, team: Any, _: Any, process: simulation.Process) -> None:
    if team.metadata.get("sent") != team.data.note:
        await process.outside.send(team.data.note)
        team.metadata["sent"] = team.data.note
        await rt.client.apply(team)


async def writes_over_its_version(rt: headway.Runtime, team: Any, _: Any, process: simulation.Process) -> None:
    """The right twin: the write fails if the team has changed."""
    if team.metadata.get("sent") != team.data.note:
        await process.outside.send(team.data.note)
        team.metadata["sent"] = team.data.note
        await rt.client.write(team)


@pytest.mark.wide
def test_end_that_depends_on_the_pace_of_users_is_found() -> None:
    found = refuted(leaves_the_old_account, two_notes)
    assert str(found.plan) == "spaced(2.0)"
    assert str(found.findings[0]) == (
        "end state: Account for-x differs with timing alone: there with spaced(2.0); absent with none\n"
        '    if either is right: may_differ=["Account for-x"]'
    )
    said = "when: timing alone, without any fault: spaced(2.0) - Users pause for some seconds after each change."
    assert said in str(found)


def test_plan_of_a_schedule_is_repeated_by_its_line() -> None:
    found = refuted(takes_a_free_number, two_teams_in_turn, controller={"concurrency": 2}, plan="change_during(1)")
    assert "differs with timing alone" in str(found)
    assert str(found).splitlines()[-1].startswith('again: HEADWAY_PLAN="change_during(1)" pytest ')


def test_slow_call_lets_everything_else_go_on() -> None:
    async def names_the_newest(rt: headway.Runtime, team: Any, account: Any, _: object) -> None:
        names = sorted(each.name for each in rt.cache.list(team.type))
        await rt.client.apply(account.new("all", Account(login=" ".join(names))))

    make = program(names_the_newest, concurrency=2)
    setting = simulation.Setting(app=make, scenario=two_teams_in_turn, quiet=None)
    plain = simulation.run(setting, simulation.Plan())
    slow = simulation.run(setting, simulation.Plan.parse("slow(1, 10.0)"))
    at = [round(each.at) for each in slow.trace.commits if each.by]
    assert at[0] == round(next(each.at for each in plain.trace.commits if each.by)) + 10


def test_early_return_of_a_wait_ends_with_the_change() -> None:
    """Users go on during the call that the plan names, and wait as the scenario says after it."""
    make = program(writes_over_its_version)
    setting = simulation.Setting(app=make, scenario=two_notes_in_turn, outside=Mail, quiet=None)
    result = simulation.run(setting, simulation.Plan.parse("change_during(2)"))
    order = [each for each in result.trace.entries if isinstance(each, simulation.Committed | simulation.Step)]
    second = next(at for at, each in enumerate(order) if isinstance(each, simulation.Step) and each.number == 2)
    assert isinstance(order[second + 1], simulation.Committed)
    assert (order[second + 1].by, order[second].outcome[:7]) == ("", "ABORTED")  # type: ignore[union-attr]
    assert result.outside == {"sent": ["x", "y"], "disks": {}}


# --- what is not a race ---


async def gives_the_first_free_name(rt: headway.Runtime, team: Any, account: Any, _: object) -> None:
    if rt.cache.owned(account, team):
        return
    free = [name for name in ("port-0", "port-1", "port-2") if rt.cache.get(account, account.id(name)) is None]
    await rt.client.create(account.new(free[0], Account(login=free[0]), owner=team))


async def gives_a_name_twice_after_a_failure(rt: headway.Runtime, team: Any, account: Any, _: object) -> None:
    try:
        await gives_the_first_free_name(rt, team, account, _)
    except headway.errors.HeadwayError:
        await rt.client.create(account.new("port-2", Account(login="port-2"), owner=team))
        await rt.client.delete(account.id("port-2"))
        raise


ONE_CREATION_FAILS = [f"not_done({number})" for number in (1, 2, 3)]
"""The teams are reconciled in no particular order."""


async def a_team_makes_room(world: simulation.World) -> None:
    for name in "abc":
        await apply(world, name)
    await world.wait_idle()
    await world.client.delete(world.type("Team").id("a"))
    await world.wait_idle()
    await apply(world, "d")
    await world.wait_idle()


@pytest.mark.wide
@pytest.mark.parametrize("may_differ", [[], ["order(Account)"], ["order(Account.login)"]])
def test_name_of_a_pool_that_is_given_out_again_is_counted_for_its_owner(may_differ: list[str]) -> None:
    """The call for one team fails, so it gets the last name, and not its own one, which the last team gets."""
    made = program(gives_the_first_free_name)
    for plan in ONE_CREATION_FAILS:
        assert simulation.explore(made, a_team_makes_room, plan=plan, may_differ=may_differ).complete


async def gives_the_first_free_name_and_a_cable(rt: headway.Runtime, team: Any, account: Any, _: object) -> None:
    await gives_the_first_free_name(rt, team, account, _)
    (port,) = [each for each in rt.cache.owned(account, team) if each.name.startswith("port")]
    await rt.apply(account.new(f"cable-of-{port.name}", Account(login="cable"), owner=port))


@pytest.mark.wide
def test_resource_of_a_name_of_a_pool_is_counted_for_the_first_owner() -> None:
    made = program(gives_the_first_free_name_and_a_cable)
    for plan in ONE_CREATION_FAILS:
        assert simulation.explore(made, a_team_makes_room, plan=plan).complete


@pytest.mark.parametrize("may_differ", [[], pytest.param(["order(Account)"], marks=pytest.mark.wide)])
def test_owner_that_gets_more_names_than_without_faults_is_found(may_differ: list[str]) -> None:
    made = program(gives_a_name_twice_after_a_failure)
    found = set[str]()
    for plan in ONE_CREATION_FAILS:
        try:
            simulation.explore(made, a_team_makes_room, plan=plan, may_differ=may_differ)
        except simulation.Refuted as refuted:
            found.update(each.oracle for each in refuted.findings)
    assert found == {"counts"}


def test_value_that_is_taken_away_again_is_no_allocation() -> None:
    async def numbers(rt: headway.Runtime, team: Any, account: Any, _: object) -> None:
        if rt.cache.get(account, team.name) is None:
            count = len(rt.cache.list(account)) + 1
            await rt.apply(account.new(team.name, Account(count=count), owner=team))

    setting = simulation.Setting(app=program(numbers), scenario=two_teams_in_turn, quiet=None)
    right, got = [simulation.run(setting, simulation.Plan()) for _ in range(2)]
    one, other = [place for place in right.contents if place[0] == ("staff", "Account")]
    count = {one: right.contents[other]["count"], other: right.contents[one]["count"]}
    swapped = {place: {**fields, "count": count[place]} for place, fields in right.contents.items() if place in count}
    got = dataclasses.replace(got, contents={**right.contents, **swapped})
    assert differences(got, [right], Allowed()) == []
    made = {(each.kind, each.key): each for each in got.trace.commits}
    got.trace.add(dataclasses.replace(made[one], old=made[one].new, new=made[other].new))
    assert [each.declared for each in differences(got, [right], Allowed())] == ["Account.count", "Account.count"]
    assert differences(got, [right], Allowed(frozenset(["order(Account.count)"]))) == []


# --- another writer ---


@pytest.mark.wide
def test_write_that_destroys_another_writers_change_is_found() -> None:
    found = refuted(writes_back_all_it_has_read, one_team, plan="conflict(3)")
    (finding,) = found.findings
    assert str(finding).startswith("overwritten: Team core has lost metadata['another-writer'], which another writer")
    assert simulation.explore(program(writes_over_its_version), one_team, outside=Mail, plan="conflict(2)").complete


def test_change_that_a_program_passes_on_is_no_finding() -> None:
    async def copies(rt: headway.Runtime, team: Any, account: Any, _: object) -> None:
        async with rt.conditions(team) as conditions:
            conditions.set("Ready", True)
        await rt.apply(account.new("copy", Account(login=" ".join(sorted(team.metadata))), owner=team))

    make = program(copies)
    assert simulation.explore(make, one_team, plan="conflict(1)").complete


# --- the world outside ---


async def keeps_a_disk(rt: headway.Runtime, team: Any, _: Any, process: simulation.Process) -> None:
    async with rt.finalizer(team) as guarded:
        if guarded.alive:
            await process.outside.put(team.name, team.data.note)
        elif guarded.cleaning_up:
            await process.outside.remove(team.name)


def test_late_call_at_an_api_without_keys_is_not_judged() -> None:
    explored = simulation.explore(program(keeps_a_disk), come_and_go, outside=Mail, plan="commit_last(3)")
    assert explored.not_asked == ("commit_last(3)",)
    assert "  not judged: commit_last(3), because the world outside carries out a repeated call again" in str(explored)


def test_late_call_at_an_api_with_keys_is_judged() -> None:
    class Keyed(Mail):
        async def put_once(self, name: str, text: str, key: str) -> None:
            self.disks.setdefault(f"{name}/{key}", text)

    with pytest.raises(simulation.Refuted):
        simulation.explore(program(keeps_a_disk), come_and_go, outside=Keyed, plan="commit_last(3)")


@pytest.mark.wide
@pytest.mark.parametrize("key", ["", None])
def test_parameter_that_is_passed_its_default_counts_as_left_out(key: str | None) -> None:
    class Keyed(Mail):
        def __init__(self) -> None:
            super().__init__()
            self._done: set[str] = set()

        async def order(self, name: str, text: str, key: str | None = key) -> None:
            if not key or key not in self._done:
                self._done.add(key or "")
                await self.put(name, text)

    def orders(given: str | None) -> Reconcile:
        async def reconcile(rt: headway.Runtime, team: Any, _: Any, process: simulation.Process) -> None:
            async with rt.finalizer(team) as guarded:
                if guarded.alive:
                    await process.outside.order(team.name, team.data.note, team.uid if given == "uid" else given)
                elif guarded.cleaning_up:
                    await process.outside.remove(team.name)

        return reconcile

    with pytest.raises(simulation.Refuted):
        simulation.explore(program(orders(key)), come_and_go, outside=Keyed, plan="commit_last(3)")
    assert simulation.explore(program(orders("uid")), come_and_go, outside=Keyed, plan="commit_last(3)").complete


class Orders:
    """The world outside: orders without a number."""

    def __init__(self) -> None:
        self.orders: list[str] = []

    async def order(self, name: str) -> str:
        self.orders.append(name)
        return f"number {len(self.orders)}"


class ListedOrders(Orders):
    async def listed(self) -> list[str]:
        return list(self.orders)


async def orders_by_its_record(rt: headway.Runtime, team: Any, account: Any, process: simulation.Process) -> None:
    if rt.cache.get(account, team.name) is None:
        await process.outside.order(team.name)
        await rt.apply(account.new(team.name, Account(login="ordered"), owner=team))


async def orders_by_the_list(rt: headway.Runtime, team: Any, account: Any, process: simulation.Process) -> None:
    if team.name not in await process.outside.listed():
        await process.outside.order(team.name)
    await rt.apply(account.new(team.name, Account(login="ordered"), owner=team))


@pytest.mark.wide
def test_call_that_a_restore_makes_a_program_repeat_is_found_if_it_could_have_looked() -> None:
    """The control, whose store is restored when all work is done, orders twice as well."""
    restored = "restore(2, 3)"
    found = refuted(orders_by_its_record, one_team, outside=ListedOrders, plan=restored)
    assert str(found.findings[0]).startswith("outside: the outside world is {'orders': ['core', 'core']}")
    assert simulation.explore(program(orders_by_its_record), one_team, outside=Orders, plan=restored).complete
    assert simulation.explore(program(orders_by_the_list), one_team, outside=ListedOrders, plan=restored).complete


async def reopened(world: simulation.World) -> None:
    await apply(world, "core", "closed")
    await world.wait_idle()
    await apply(world, "core", "open")
    await world.wait_idle()


async def made_again(world: simulation.World) -> None:
    await apply(world, "core", "closed")
    await world.wait_idle()
    await world.client.delete(world.type("Team").id("core"))
    await apply(world, "core", "open")
    await world.wait_idle()


@pytest.mark.wide
@pytest.mark.parametrize(
    ("how", "scenario", "is_right"),
    [
        ("name", reopened, False),
        ("name", made_again, False),
        ("incarnation", reopened, False),
        ("incarnation", made_again, True),
        ("version", reopened, True),
        ("version", made_again, True),
    ],
)
def test_deletion_that_loses_a_change_of_the_users_is_found(
    how: str, scenario: simulation.Scenario, *, is_right: bool
) -> None:
    """If the users go on after it. The version protects a change, and the uid only a new incarnation."""

    async def sweeps(rt: headway.Runtime, team: Any, _: Any, __: object) -> None:
        if team.data.note != "closed":
            return
        if how == "name":
            await rt.client.delete(team.type.id(team.name))
        else:
            await rt.client.delete(team, version=team.version if how == "version" else "*")

    def explored() -> object:
        return simulation.explore(program(sweeps), scenario, plan="change_during(1)")

    if is_right:
        explored()
        return
    with pytest.raises(simulation.Refuted, match="end state: Team core differs with timing alone: absent with"):
        explored()
