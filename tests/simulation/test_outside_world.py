"""The object that stands for the world outside: how programs change it, and how its states are compared."""

from __future__ import annotations

import dataclasses
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

import headway
from headway import field
from headway.errors import DeclarationError
from headway.testing import simulation
from headway.testing.simulation import Setting, run
from headway.testing.simulation.oracles import shown
from headway.testing.simulation.world import outside_state
from headway.testing.simulation.world._process import Outside


@headway.message
class Disk:
    """A disk of the store."""

    login: str = field(1)


def program(act: Any, *, once: bool = False) -> simulation.MakeApp:
    """Return a program that acts for each disk, with a status afterwards, which it obeys if ``once``."""

    def make(process: simulation.Process) -> headway.App:
        app = headway.App("disks")
        disk = app.type("disks", "v1", "Disk", Disk)

        @app.controller(manages=disk)
        async def disks(rt: headway.Runtime, request: headway.Request[Disk]) -> None:
            found = rt.resource(request)
            if found is not None and not (once and rt.controller in found.status):
                await act(process, found)
                async with rt.conditions(found) as conditions:
                    conditions.set("Created", True)

        return app

    return make


async def one_disk(world: simulation.World) -> None:
    await world.client.apply(world.type("Disk").new("a", Disk(login="ada")))
    await world.wait_idle()


class Counting:
    def __init__(self) -> None:
        self.last = ""
        self.writes = 0

    async def look(self) -> None:
        pass


async def assigns(process: simulation.Process, found: headway.Resource[Disk]) -> None:
    process.outside.last = found.name
    process.outside.writes += 1


def test_assignment_by_a_program_is_seen_in_the_world() -> None:
    result = run(Setting(app=program(assigns, once=True), scenario=one_disk, outside=Counting), simulation.Plan())
    assert not result.findings
    assert result.outside == {"last": "a", "writes": 1}


def test_assignment_that_is_repeated_after_a_crash_is_found() -> None:
    with pytest.raises(simulation.Refuted) as refuted:
        simulation.explore(program(assigns, once=True), one_disk, outside=Counting, plan="crash_before(1)")
    found = "outside: the outside world is {'last': 'a', 'writes': 2}; without faults: {'last': 'a', 'writes': 1}"
    assert str(refuted.value.findings[0]) == found


def test_killed_process_assigns_and_deletes_nothing() -> None:
    real = Counting()
    outside = Outside(real, cast("Any", SimpleNamespace(killed=True)))
    with pytest.raises(simulation.OutsideUnreachable, match="the process has been killed"):
        outside.last = "a"
    with pytest.raises(simulation.OutsideUnreachable, match="the process has been killed"):
        del outside.last
    assert real.last == ""


# --- what is compared ---


class Slotted:
    __slots__ = ("__hidden", "disks", "never")

    def __init__(self) -> None:
        self.disks: list[str] = []
        self.__hidden = 1

    async def create(self, name: str) -> None:
        self.disks.append(name)


class SlottedChild(Slotted):
    """A class with slots of its parent and a dictionary of its own."""


@dataclasses.dataclass(slots=True)
class SlottedData:
    disks: list[str] = dataclasses.field(default_factory=list)

    async def create(self, name: str) -> None:
        self.disks.append(name)


async def creates(process: simulation.Process, found: headway.Resource[Disk]) -> None:
    await process.outside.create(found.name)


@pytest.mark.wide
@pytest.mark.parametrize("outside", [Slotted, SlottedChild, SlottedData])
def test_attributes_in_slots_are_compared(outside: Any) -> None:
    with pytest.raises(simulation.Refuted, match=r"the outside world is {.*'disks': \['a', 'a'\]"):
        simulation.explore(program(creates, once=True), one_disk, outside=outside, plan="crash_after(1)")


class Names(dict[str, str]):
    """An object whose contents are not its attributes."""


@pytest.mark.parametrize("outside", [Names, object, lambda: None])
def test_world_without_a_state_is_refused(outside: Any) -> None:
    with pytest.raises(DeclarationError, match=f"a {type(outside()).__name__}, which has no state that can be comp"):
        simulation.explore(program(creates), one_disk, outside=outside, plan="none")


class Made:
    """An object without an `__eq__`."""

    def __init__(self, name: str, login: str) -> None:
        self.name, self.login = name, login


@dataclasses.dataclass
class Holder:
    made: Made
    looks: int = dataclasses.field(default=0, compare=False)


class Objects:
    def __init__(self) -> None:
        self.lock = trio.Lock()
        self.other_lock = threading.Lock()
        self.disks: dict[str, Made] = {}
        self.held: list[Holder] = []
        self.seen: set[Made] = set()

    async def create(self, name: str) -> None:
        self.disks[name] = Made(name, "")
        self.held = [Holder(self.disks[name])]

    async def give(self, name: str, login: str) -> None:
        self.disks[name].login = login

    async def add(self, name: str) -> None:
        self.seen.add(Made(name, ""))


async def creates_and_gives(process: simulation.Process, found: headway.Resource[Disk]) -> None:
    await process.outside.create(found.name)
    await process.outside.give(found.name, found.data.login)


async def adds(process: simulation.Process, found: headway.Resource[Disk]) -> None:
    await process.outside.add(found.name)


def test_objects_without_an_eq_are_compared_by_their_attributes() -> None:
    assert simulation.explore(program(creates_and_gives), one_disk, outside=Objects, plan="crash_after(1)").complete


def test_two_equal_objects_in_a_set_are_two() -> None:
    with pytest.raises(simulation.Refuted, match=r"'seen': \[Made\(.*\), Made\(.*\)\]"):
        simulation.explore(program(adds, once=True), one_disk, outside=Objects, plan="crash_after(1)")


class Family:
    def __init__(self) -> None:
        self.children = {"a": SimpleParent(self)}
        self.calls = [self.__init__]  # type: ignore[misc]
        self.by_object = {Made("a", ""): 1}
        self.nested = (frozenset({"y", "x"}),)


class SimpleParent:
    def __init__(self, parent: Family) -> None:
        self.parent = parent


def test_state_of_a_world_of_objects_is_the_same_for_two_equal_worlds() -> None:
    one, other = outside_state(Family()), outside_state(Family())
    assert one == other
    assert shown(one) == (
        "{'children': {'a': SimpleParent(parent='the Family that contains this')}, 'calls': ['Family.__init__'], "
        "'by_object': {\"Made(name='a', login='')\": 1}, 'nested': (frozenset({'x', 'y'}),)}"
    )


class Equal:
    """An object with an `__eq__` and without a text of its own."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)

    __hash__ = None  # type: ignore[assignment]


def test_objects_with_an_eq_are_compared_by_it_and_shown_without_an_address() -> None:
    one, other = (outside_state(SimpleNamespace(disk=Equal(size))) for size in (1, 2))
    assert one == other
    assert shown(one) == "{'disk': Equal(size=1)}"


class Bank:
    """It carries out each key once."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.charges: list[str] = []

    def state(self) -> object:
        return sorted(self.charges)

    async def charge(self, key: str, login: str) -> None:
        if key not in self.keys:
            self.keys.add(key)
            self.charges.append(login)


async def one_after_the_other(world: simulation.World) -> None:
    await one_disk(world)
    await world.client.apply(world.type("Disk").new("b", Disk(login="bob")))
    await world.wait_idle()


@pytest.mark.wide
@pytest.mark.parametrize("key", ["uid", "name"])
def test_report_says_what_is_not_compared_after_a_restore(key: str) -> None:
    """A disk that users must make again has another uid, and so is charged again."""

    async def charge(process: simulation.Process, disk: Any) -> None:
        await process.outside.charge(getattr(disk, key), disk.data.login)

    report = str(simulation.explore(program(charge), one_after_the_other, outside=Bank, plan="restore(4, 3)"))
    line = "not compared: outside under restore(4, 3), because a restore when all work is done changes that as well"
    assert (line in report) == (key == "uid")
