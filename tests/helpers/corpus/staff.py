"""The parts of the corpus's programs: types, an outside world, scenarios, and the declaration of cases."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import trio

import headway
from headway import field
from headway.resource import ResourceType
from headway.testing import simulation


@headway.message
class Team:
    members: list[str] = field(1)
    note: str = field(2)


@headway.message
class Account:
    login: str = field(1)
    count: int = field(2)


class Cloud:
    """The outside world: disks by name, each with its contents. Its list is ten seconds old, as such lists are."""

    def __init__(self) -> None:
        self.disks: dict[str, str] = {}
        self.made = 0
        self._listed: list[tuple[float, list[str]]] = []
        self._spent: set[str] = set()
        self._newest = 0

    async def put(self, name: str, text: str = "") -> None:
        """Create or change a disk."""
        self._change({**self.disks, name: text})

    async def create(self, name: str) -> None:
        """Create a disk. Raises FileExistsError."""
        if name in self.disks:
            raise FileExistsError(name)
        self._change({**self.disks, name: ""})

    async def make(self, name: str) -> str:
        """Create a disk with a new name, and return the name."""
        self.made += 1
        self._change({**self.disks, f"{name}-{self.made}": ""})
        return f"{name}-{self.made}"

    async def remove(self, name: str) -> None:
        """Remove a disk. Raises FileNotFoundError."""
        if name not in self.disks:
            raise FileNotFoundError(name)
        self._change({each: text for each, text in self.disks.items() if each != name})

    async def listed(self) -> list[str]:
        """Return the names of the disks of ten seconds ago."""
        now = trio.current_time()
        return next((names for when, names in reversed(self._listed) if when <= now - 10), [])

    async def put_newer(self, name: str, text: str, number: int) -> None:
        """Create or change a disk, unless this was called with a higher number, such as a term or a version."""
        if number >= self._newest:
            self._newest = number
            self._change({**self.disks, name: text})

    async def put_for(self, owner: str, name: str) -> None:
        """Create a disk, unless the disks of this owner were removed for good."""
        if owner not in self._spent:
            self._change({**self.disks, name: ""})

    async def remove_for_good(self, owner: str, name: str) -> None:
        """Remove a disk if it exists. Later calls for this owner create none."""
        self._spent.add(owner)
        self._change({each: text for each, text in self.disks.items() if each != name})

    def _change(self, disks: dict[str, str]) -> None:
        self.disks = disks
        self._listed.append((trio.current_time(), sorted(disks)))

    def state(self) -> dict[str, str]:
        """Return the state that is compared."""
        return self.disks


@dataclasses.dataclass
class Staff:
    """The parts of a program that is being declared, for one life of a process."""

    outside: Cloud
    process: str
    app: headway.App
    team: ResourceType[Team]
    account: ResourceType[Account]


Declare = Callable[[Staff, bool], None]


@dataclasses.dataclass(frozen=True)
class Case:
    """A wrong reconciler and its corrected twin, declared by one function.

    Attributes:
        source: a report of such a bug, and what is wrong.
        declare: declares the right reconciler or the wrong one.
    """

    name: str
    source: str
    declare: Declare
    scenario: simulation.Scenario
    settings: dict[str, Any]

    def make(self, outside: Any, process: str, *, right: bool) -> headway.App:
        """Return the program of one life of a process, with the right reconciler or the wrong one."""
        app = headway.App("staff")
        team, account = app.type("staff", "v1", "Team", Team), app.type("staff", "v1", "Account", Account)
        self.declare(Staff(outside, process, app, team, account), right)
        return app

    def explore(self, *, right: bool, **settings: Any) -> simulation.Explored:
        """Explore the right reconciler or the wrong one with the case's settings."""

        def make(process: simulation.Process) -> headway.App:
            return self.make(process.outside, process.name, right=right)

        return simulation.explore(make, self.scenario, outside=Cloud, **{**self.settings, **settings})


CASES: dict[str, Case] = {}


def case(source: str, scenario: simulation.Scenario, **settings: Any) -> Callable[[Declare], Declare]:
    """Declare a case. The source says what is wrong."""

    def add(declare: Declare) -> Declare:
        name = declare.__name__
        assert name not in CASES
        CASES[name] = Case(name, source, declare, scenario, settings)
        return declare

    return add


async def _team(world: simulation.World, members: list[str], note: str = "", name: str = "core") -> None:
    await world.client.apply(world.type("Team").new(name, Team(members=members, note=note)))


async def one_team(world: simulation.World) -> None:
    await _team(world, ["ada"], "x")
    await world.wait_idle()


async def members_change(world: simulation.World) -> None:
    await _team(world, ["ada", "grace"])
    await world.wait_idle()
    await _team(world, ["grace", "katherine"])
    await world.wait_idle()


async def note_changes(world: simulation.World) -> None:
    for note in ("x", "y"):
        await _team(world, ["ada"], note)
        await world.wait_idle()


async def note_changes_soon(world: simulation.World) -> None:
    await _team(world, ["ada"], "x")
    await world.sleep(30)
    await _team(world, ["ada"], "y")
    await world.wait_idle()


async def come_and_go(world: simulation.World) -> None:
    await _team(world, ["ada"], "x")
    await world.wait_idle()
    await world.client.delete(world.type("Team").id("core"))
    await world.wait_idle()


async def come_and_go_at_once(world: simulation.World) -> None:
    await _team(world, ["ada"], "x")
    await world.sleep(0.5)
    await world.client.delete(world.type("Team").id("core"))
    await world.wait_idle()


async def come_again(world: simulation.World) -> None:
    await _team(world, ["ada"], "x")
    await world.wait_idle()
    await world.client.delete(world.type("Team").id("core"))
    await world.sleep(1)
    await _team(world, ["ada"], "z")
    await world.wait_idle()


async def another_comes_soon(world: simulation.World) -> None:
    await _team(world, ["ada"], name="core")
    await world.sleep(2)
    await _team(world, ["grace"], name="tools")
    await world.wait_idle()


async def two_changes_at_once(world: simulation.World) -> None:
    await _team(world, ["ada"], "x")
    await world.sleep(2)
    await _team(world, ["ada", "grace"], "x")
    await world.wait_idle()


def owned(staff: Staff) -> Any:
    """Return a watch that maps accounts to their owner."""
    return [headway.watch(staff.account, headway.mappers.owner())]


def nothing(*_: object) -> Iterable[headway.ResourceId]:
    """Map a change to nothing: the type is watched only to be read."""
    return ()


def cached(staff: Staff) -> Any:
    """Return a watch that triggers no reconcile."""
    return [headway.watch(staff.account, nothing)]
