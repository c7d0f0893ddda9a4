"""Correct programs that a simulation could accuse: of an outage, of early users, of removals, of writes of others."""

from __future__ import annotations

import pytest

import headway
from headway import field
from headway.resource import DELETION_TIMESTAMP, pb
from headway.run import MOST_AT_ONCE
from headway.testing import simulation
from headway.testing.simulation import Committed, Setting, run
from headway.testing.simulation.oracles import counted
from headway.testing.simulation.plans import merges

TEAM = ("staff", "Team")
CORE = ("default", "default", "core")


@headway.message
class Host:
    address: str = field(1)


class Dns:
    def __init__(self) -> None:
        self.addresses: dict[str, str] = {}

    async def known(self) -> dict[str, str]:
        return dict(self.addresses)

    async def put(self, name: str, address: str) -> None:
        self.addresses[name] = address

    async def remove(self, name: str) -> None:
        self.addresses.pop(name, None)


types = headway.App("dns")
HOST = types.type("dns", "v1", "Host", Host)


def app(*, finalizes: bool = False) -> headway.App:
    declared = headway.App("dns")
    declared.registry = types.registry

    @declared.controller(manages=HOST)
    async def hosts(rt: headway.Runtime, request: headway.Request[Host]) -> None:
        found = rt.resource(request)
        if found is not None and finalizes:
            async with rt.finalizer(found):
                pass

    return declared


async def publish(process: simulation.Process) -> None:
    """Publish the hosts. An error ends the process, which then begins anew with what the world outside knows."""
    published = await process.outside.known()
    engine = await process.wait_running()
    async with engine.open_cache(watches=[HOST]) as cache, cache.notify() as updates:
        hosts = updates.list(HOST)
        async for _ in updates:
            wanted = {each.name: each.data.address for each in hosts.value}
            for name in wanted:
                if published.get(name) != wanted[name]:
                    await process.outside.put(name, wanted[name])
            for name in published.keys() - wanted.keys():
                await process.outside.remove(name)
            published = wanted


async def come_and_go(world: simulation.World) -> None:
    await world.client.apply(HOST.new("www", Host(address="192.0.2.1")))
    await world.wait_idle()
    await world.client.delete(HOST.id("www"))
    await world.wait_idle()
    await world.client.apply(HOST.new("www", Host(address="192.0.2.2")))
    await world.wait_idle()


def test_process_that_ends_by_an_outage_starts_again_with_growing_delays() -> None:
    """It survives an outage of a minute, as it does under a supervisor that backs off."""
    explored = simulation.explore(app(), come_and_go, outside=Dns, beside=[publish], plan="outage(1, 60.0)")
    assert explored.runs


def test_users_who_come_too_early_spoil_a_plan_of_merged_changes() -> None:
    """The server refuses to change what is marked for deletion, and users who had waited would not have tried."""
    first = run(Setting(app=app(finalizes=True), scenario=come_and_go), simulation.Plan())
    deletion = str(merges(first.trace, {HOST.kind})[1])
    explored = simulation.explore(app(finalizes=True), come_and_go, plan=deletion)
    assert list(explored.spoilt) == [deletion]


def _resource(*, marked: bool) -> pb.Resource:
    return pb.Resource(metadata={DELETION_TIMESTAMP: "2026-01-01T00:00:00Z"} if marked else {})


def _commit(old: pb.Resource, new: pb.Resource | None, by: str) -> Committed:
    return Committed(0.0, 1, TEAM, CORE, old, new, by, 1)


def test_removal_that_a_user_has_asked_for_is_not_the_controllers() -> None:
    plain, marked = _resource(marked=False), _resource(marked=True)
    by_user = [_commit(plain, marked, ""), _commit(marked, None, "teams")]
    by_controller = [_commit(plain, marked, "teams"), _commit(marked, None, "teams")]
    assert counted(by_user, {TEAM}) == {}
    assert counted(by_controller, {TEAM}) == {(TEAM, CORE, "deleted"): 1}
    # The mark belongs to one incarnation.
    assert counted([*by_user, _commit(plain, None, "teams")], {TEAM}) == {(TEAM, CORE, "deleted"): 1}


@pytest.mark.wide
def test_users_may_undo_everything_before_a_controller_begins() -> None:
    """The controller has something to do at the other paces of the users."""

    async def second_thoughts(world: simulation.World) -> None:
        await world.client.apply(HOST.new("www", Host(address="192.0.2.1")))
        await world.client.delete(HOST.id("www"))
        await world.wait_idle()

    explored = simulation.explore(app(finalizes=True), second_thoughts, without=["crash_at"])
    assert any("settled()" in str(plan) for plan in explored.runs)


class Mail:
    def __init__(self) -> None:
        self.left = MOST_AT_ONCE + 1

    async def take(self) -> bool:
        self.left = max(0, self.left - 1)
        return self.left > 0


def test_large_work_in_steps_that_ends_is_no_self_trigger() -> None:
    """An endless one is found as a run that does not end (`test_run.py`)."""

    def make(process: simulation.Process) -> headway.App:
        declared = headway.App("dns")
        declared.registry = types.registry

        @declared.controller(manages=HOST)
        async def drain(rt: headway.Runtime, request: headway.Request[Host]) -> headway.RequeueAfter | None:
            if rt.resource(request) is not None and await process.outside.take():
                return headway.requeue_now()
            return None

        return declared

    async def write(world: simulation.World) -> None:
        await world.client.apply(HOST.new("www", Host(address="192.0.2.1")))
        await world.wait_idle()

    played = run(Setting(app=make, scenario=write, outside=Mail), simulation.Plan())
    assert any(isinstance(each, headway.events.SelfTriggered) for each in played.trace.events)
    assert played.findings == ()


def removed_by_three(process: simulation.Process) -> headway.App:
    """Build an app whose controllers, in two processes, remove their finalizers of one resource at the same time."""
    declared = headway.App("dns")
    declared.registry = types.registry
    outside: Dns = process.outside
    for name in ("mail", "git", "vpn"):

        @declared.controller(manages=HOST, name=name)
        async def guard(rt: headway.Runtime, request: headway.Request[Host]) -> None:
            found = rt.resource(request)
            if found is not None:
                async with rt.finalizer(found) as guarded:
                    if guarded.alive:
                        await outside.put(f"{rt.controller}-{found.name}", found.data.address)
                    elif guarded.cleaning_up:
                        await outside.remove(f"{rt.controller}-{found.name}")

    return declared


async def two_hosts(world: simulation.World) -> None:
    for name in ("www", "ftp"):
        await world.client.apply(HOST.new(name, Host(address="192.0.2.1")))
    await world.wait_idle()
    await world.client.apply(HOST.new("www", Host(address="192.0.2.2")))
    await world.wait_idle()
    await world.client.delete(HOST.id("ftp"))
    await world.wait_idle()


def test_commit_belongs_to_the_call_that_made_it_when_two_calls_write_a_resource_at_once() -> None:
    setting = Setting(app=removed_by_three, scenario=two_hosts, outside=Dns, processes=2)
    for seed in (1, 3, 4):
        played = run(setting, simulation.Plan.parse(f"seed({seed})"))
        assert played.findings == ()
