"""Correct programs that a simulation could accuse: of an outage, of early users, of removals, of writes of others."""

from __future__ import annotations

import headway
from headway import field
from headway.resource import DELETION_TIMESTAMP, pb
from headway.testing import simulation
from headway.testing.simulation import Committed, Setting, run
from headway.testing.simulation.oracles import counted

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


def test_deletion_of_what_a_deleted_resource_owns_is_not_the_controllers() -> None:
    """The store would have deleted it as well. Only the owner's own incarnation counts."""
    owner = pb.Resource(id=pb.Id(uid="first"))
    owned = pb.Resource(id=pb.Id(uid="owned"), owner=pb.Id(uid="first"))
    of_second = pb.Resource(id=pb.Id(uid="later"), owner=pb.Id(uid="second"))
    goes = _commit(owner, None, "")
    assert counted([goes, _commit(owned, None, "teams")], {TEAM}) == {}
    assert counted([_commit(owned, None, "teams"), goes], {TEAM}) == {(TEAM, CORE, "deleted"): 1}
    assert counted([goes, _commit(of_second, None, "teams")], {TEAM}) == {(TEAM, CORE, "deleted"): 1}


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
