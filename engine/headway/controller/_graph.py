"""Who manages, watches, reads and writes what, and the cycles in it. Pure.

A change travels from what a controller manages or watches to what it writes; one that doesn't declare its writes is
taken to write what it manages. A *cycle* is a way on which a change can come back to where it began. Many are meant: a
controller that writes what it manages is one. Each must come to rest, by writing nothing when nothing is to be changed,
so each is named, with its controllers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from headway.controller._app import App
from headway.controller._definition import Definition
from headway.errors import DeclarationError
from headway.mapper import mapper_name
from headway.resource import Registry

Relation = Literal["manages", "watches", "reads", "writes"]


class Edge(NamedTuple):
    """A controller's relation to a type; ``by`` says by which mapper and predicate, where there is one."""

    controller: str
    relation: Relation
    type: str
    by: str = ""


class Step(NamedTuple):
    """A change of ``source`` makes ``controller`` write a ``target``, or reconcile one, and so perhaps write it."""

    source: str
    controller: str
    how: Literal["reconciles", "writes"]
    target: str

    def __str__(self) -> str:
        return f"a change of {self.source} makes {self.controller} {self.how.removesuffix('s')} {self.target}"


class Cycle(NamedTuple):
    """A way on which a change can come back to where it began."""

    steps: tuple[Step, ...]

    @property
    def types(self) -> tuple[str, ...]:
        """The types along the way."""
        return tuple(step.source for step in self.steps)

    def __str__(self) -> str:
        return "; ".join(map(str, self.steps))


@dataclass(frozen=True, slots=True)
class Graph:
    """What `graph` has found. Everything is sorted, so that the same apps always give the same text.

    Attributes:
        types: every registered type, as ``group.version.Kind``.
        controllers: by name, "app/name", each with what it was declared as and the names of its sources.
        edges: what each of them manages, watches, reads and writes. Reads and writes are known where they are declared.
        undeclared: the controllers that don't declare what they write: the cycles have only what they manage.
        cycles: at least one through every relation that is part of any.
    """

    types: tuple[str, ...]
    controllers: Mapping[str, tuple[str, tuple[str, ...]]]
    edges: tuple[Edge, ...]
    undeclared: tuple[str, ...]
    cycles: tuple[Cycle, ...]

    def data(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        return {
            "types": list(self.types),
            "controllers": [
                {
                    "name": name,
                    "declared_as": declared_as,
                    "sources": list(sources),
                    "declares_writes": name not in self.undeclared,
                    **{
                        relation: [
                            {"type": edge.type, "by": edge.by} if edge.by else {"type": edge.type}
                            for edge in self.edges
                            if edge.controller == name and edge.relation == relation
                        ]
                        for relation in ("manages", "watches", "reads", "writes")
                    },
                }
                for name, (declared_as, sources) in self.controllers.items()
            ],
            "cycles": [[step._asdict() for step in cycle.steps] for cycle in self.cycles],
        }

    def mermaid(self) -> str:
        """All of it as a Mermaid flowchart: types are boxes, controllers are round; a dotted arrow is a read."""
        lines = [f"  {_node(type)}[{type}]" for type in self.types]
        lines += [f"  {_node(name)}({name})" for name in self.controllers]
        for edge in self.edges:
            type, controller = _node(edge.type), _node(edge.controller)
            if edge.relation == "writes":
                lines.append(f"  {controller} -->|writes| {type}")
            elif edge.relation == "reads":
                lines.append(f"  {type} -.->|reads| {controller}")
            else:
                lines.append(f"  {type} -->|{edge.relation}| {controller}")
        return "\n".join(["flowchart TD", *lines]) + "\n"


def graph(*apps: App) -> Graph:
    """What the controllers of these apps manage, watch, read and write, and where changes can run in a circle.

    Raises DeclarationError for what is no app.
    """
    for app in apps:
        given: object = app
        if not isinstance(given, App):
            raise DeclarationError(f"graph takes headway.App objects, not {given!r}")
    definitions = {f"{app.name}/{name}": each for app in apps for name, each in app.controllers.items()}
    definitions = dict(sorted(definitions.items()))
    # Those that every registry has are of interest where somebody has to do with them.
    everywhere = Registry()
    types = {str(type.name) for app in apps for type in app.registry if type.name not in everywhere}
    edges = tuple(edge for name, each in definitions.items() for edge in _edges(name, each))
    return Graph(
        types=tuple(sorted(types | {edge.type for edge in edges})),
        controllers={
            name: (each.declared_as, tuple(f"{key}: {mapper_name(each.sources[key])}" for key in sorted(each.sources)))
            for name, each in definitions.items()
        },
        edges=edges,
        undeclared=tuple(name for name, each in definitions.items() if each.writes is None),
        cycles=tuple(_cycles([step for name, each in definitions.items() for step in _steps(name, each)])),
    )


def _edges(name: str, definition: Definition) -> list[Edge]:
    when = "" if definition.when is None else f"when {definition.when.name}"
    edges = [Edge(name, "manages", str(definition.manages.name), when)]
    for watch in sorted(definition.watches.values(), key=lambda each: each.type.name):
        by = mapper_name(watch.mapper) + ("" if watch.when is None else f" when {watch.when.name}")
        edges.append(Edge(name, "watches", str(watch.type.name), by))
    edges += [Edge(name, "reads", each) for each in sorted(str(type.name) for type in definition.reads or ())]
    edges += [Edge(name, "writes", each) for each in sorted(str(type.name) for type in definition.writes or ())]
    return edges


def _steps(name: str, definition: Definition) -> Iterable[Step]:
    managed = str(definition.manages.name)
    watched = sorted(str(type.name) for type in definition.watches)
    if definition.writes is None:
        for source in watched:
            yield Step(source, name, "reconciles", managed)
    for target in sorted(str(type.name) for type in definition.writes or ()):
        for source in sorted({managed, *watched}):
            yield Step(source, name, "writes", target)


def _cycles(steps: Sequence[Step]) -> list[Cycle]:
    """For each step the shortest way back from its end to its beginning, if there is one; each cycle once.

    That needs no enumeration of all elementary cycles, of which there can be more than anybody could read.
    """
    from_type: dict[str, list[Step]] = {}
    for step in steps:
        from_type.setdefault(step.source, []).append(step)
    found: dict[tuple[Step, ...], Cycle] = {}
    for step in steps:
        way = _way(from_type, step.target, step.source)
        if way is not None:
            found.setdefault(_turned((step, *way)), Cycle(_turned((step, *way))))
    return sorted(found.values(), key=lambda cycle: (len(cycle.steps), cycle.steps))


def _way(from_type: Mapping[str, Sequence[Step]], begin: str, end: str) -> tuple[Step, ...] | None:
    """The shortest way between two types."""
    ways: dict[str, tuple[Step, ...]] = {begin: ()}
    queue = deque([begin])
    while queue:
        at = queue.popleft()
        if at == end:
            return ways[at]
        for step in from_type.get(at, ()):
            if step.target not in ways:
                ways[step.target] = (*ways[at], step)
                queue.append(step.target)
    return None


def _turned(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The same cycle, begun at the step that comes first in the alphabet."""
    first = steps.index(min(steps))
    return steps[first:] + steps[:first]


def _node(name: str) -> str:
    """A name as Mermaid lets a node have it."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)
