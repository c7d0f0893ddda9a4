"""The declaration of a peer: another engine with a store of its own, which a peering connects with the program's."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from headway.base import Positive, Range, checked
from headway.controller import App
from headway.errors import DeclarationError
from headway.peering import Export
from headway.resource import ResourceType, type_name
from headway.testing.simulation._peer_faults import HOME
from headway.testing.simulation.oracles import ExportRule, Feed
from headway.testing.simulation.world._process import MakeApp

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
