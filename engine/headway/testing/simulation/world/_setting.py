"""The settings of a run: the program and its peers, the scenario, and what to check."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any

from headway.base import Positive, Range, Seconds, async_problem, check_plain, checked, either_problem, ended
from headway.controller import App
from headway.errors import DeclarationError
from headway.peering import Export
from headway.resource import Registry, ResourceType, type_name
from headway.testing.simulation._fault_base import HOME
from headway.testing.simulation.oracles import Always, ExportRule, Feed
from headway.testing.simulation.world._process import Beside, MakeApp

Exported = ResourceType[Any] | Export


@checked(exports="exports=[TEAM]", imports="imports=[TEAM]")
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another engine, with a store and a program of its own.

    Attributes:
        app: its program, or a function that builds it, as for `explore`.
        exports: what it exports: types, or results of `headway.peering.export`. The copies are in partition
            ``peer-NAME`` of the program's store.
        imports: what the program exports to it. The copies are in partition ``peer-home`` of its store.
        processes: the number of processes that run its program.
        engines: the number of engines that share each of the two stores, as on etcd. One engine of each side has the
            streams, by a lease.
        accepts: True if it makes the token and the program's side dials; False for the reverse.
    """

    app: App | MakeApp
    exports: Sequence[Exported] = ()
    imports: Sequence[Exported] = ()
    processes: Positive = 1
    engines: Annotated[int, Range(1, 9)] = 1
    accepts: bool = False

    def feeds(self, name: str) -> tuple[Feed, Feed]:
        """Return what the peer of this name exports, and what it imports."""
        return (
            Feed(name, HOME, name, tuple(map(_rule, self.exports))),
            Feed(HOME, name, HOME, tuple(map(_rule, self.imports))),
        )


def check_peers(peers: Mapping[str, Peer]) -> None:
    """Raise DeclarationError for an invalid name of a peer."""
    for name in peers:
        if not name.isidentifier() or not name.islower() or name == HOME:
            raise DeclarationError(f"peers: {name!r} must be a lower-case name other than {HOME!r}, such as 'west'")


def _rule(exported: Exported) -> ExportRule:
    if isinstance(exported, ResourceType):
        return ExportRule(exported.kind)
    tenancy = exported.tenancy
    partition, namespace = ("", "") if tenancy is None else (tenancy.partition, tenancy.namespace)
    kind = type_name(exported.type).unversioned
    return ExportRule(kind, *("" if each == "*" else each for each in (partition, namespace)))


_BESIDE = "`async def proxy(process: simulation.Process) -> None`"
_FORM = "simulation.explore(app, scenario), with `async def scenario(world: simulation.World) -> None`"


@checked()
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The settings of a run, apart from its plan."""

    app: App | MakeApp
    scenario: Callable[[Any], Awaitable[None]]
    processes: Positive = 1
    outside: Callable[[], Any] | None = None
    holds: Sequence[Callable[[Any], Awaitable[None] | None]] = ()
    always: Sequence[Always] = ()
    beside: Sequence[Beside] = ()
    quiet: Seconds | None = 900.0
    own_services: bool = False
    peers: Mapping[str, Peer] = dataclasses.field(default_factory=dict)
    shared_by: int = 1
    """The number of engines that share the store, unless peers say more."""
    long: bool = False
    """True if the quiet time begins only when the program has done what it waits for by its own clock."""
    salt: str = ""
    """The end of each process's name. Shards are spread by the names."""
    new_from_start: Registry | None = None
    """The types of an older program. If it is given, ``app`` is the newest one already, and upgrades do nothing."""

    @property
    def owners(self) -> Sequence[object]:
        """The functions and classes of the program and its scenario."""
        peers = (each.app for each in self.peers.values())
        return (self.app, self.scenario, self.outside, *self.holds, *self.always, *self.beside, *peers)

    def of_peer(self, peer: Peer) -> Setting:
        """Return the setting of a peer's world."""
        return Setting(
            app=peer.app,
            scenario=self.scenario,
            processes=peer.processes,
            quiet=self.quiet,
            shared_by=peer.engines,
        )

    @property
    def engines(self) -> int:
        """The number of engines that share the store."""
        return max([self.shared_by, *(each.engines for each in self.peers.values())])

    def __post_init__(self) -> None:
        self._check_program()
        check_peers(self.peers)
        for beside in self.beside:
            if problem := async_problem(beside, 1, "a process"):
                raise DeclarationError(f"beside: {problem}. The form is: beside=[proxy], with {_BESIDE}")
        for each in self.always:
            # A coroutine function would never be awaited, and so never fail.
            check_plain("always", each, 1, "the stored resources", "always=[lambda stored: ...]")
        for check in self.holds:
            if problem := either_problem(check, 1, "the world"):
                raise DeclarationError(f"holds {ended(problem)} The form is: holds=[check], with `def check(world)`")

    def _check_program(self) -> None:
        problem = None if isinstance(self.app, App) else either_problem(self.app, 1, "a process")
        if problem:
            raise DeclarationError(f"the app must be a headway.App, or a function that makes one: it {problem}")
        if problem := either_problem(self.scenario, 1, "the world"):
            raise DeclarationError(f"the scenario {ended(problem)} The form is: {_FORM}")
        if self.outside is not None and (problem := either_problem(self.outside, 0, "no arguments")):
            raise DeclarationError(
                f"outside {ended(problem)} Pass the class itself, such as outside=Cloud, not Cloud()"
            )
