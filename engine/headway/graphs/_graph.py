"""The graph of controllers and the types they manage, watch, read and write, with its cycles. No I/O.

A change travels from the types that a controller manages or watches to the types that it writes. A controller that
doesn't declare its writes is assumed to write the type that it manages. A *cycle* is a path that can lead a change
back to its origin. Many cycles are intended: a controller that writes what it manages is one. Every cycle must
converge, by writing nothing when nothing needs to change. The graph therefore names each cycle with its controllers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from headway.base import checked
from headway.cache import range_of
from headway.controller import App, Definition
from headway.graphs._drawing import draw
from headway.graphs._svg import svg
from headway.mapper import mapper_name, watch_name
from headway.resource import Registry

Relation = Literal["manages", "watches", "reads", "writes"]


_EDGE_DATA = ("type", "scope", "by")
"""The fields of an `Edge` in the data of a controller."""


class Edge(NamedTuple):
    """A relation between a controller and a type.

    Attributes:
        by: the mapper and predicate, if any.
        scope: the part of the type that it manages or watches, such as ``namespace='sales'``; empty for the whole type.
    """

    controller: str
    relation: Relation
    type: str
    by: str = ""
    scope: str = ""

    @property
    def of(self) -> str:
        """The type with its scope."""
        return f"{self.type} within {self.scope}" if self.scope else self.type


class Step(NamedTuple):
    """A step of a cycle: a change of ``source`` makes ``controller`` write or reconcile ``target``."""

    source: str
    controller: str
    how: Literal["reconciles", "writes"]
    target: str

    def __str__(self) -> str:
        return f"a change of {self.source} makes {self.controller} {self.how.removesuffix('s')} {self.target}"


class Cycle(NamedTuple):
    """A path that can lead a change back to its origin."""

    steps: tuple[Step, ...]

    @property
    def types(self) -> tuple[str, ...]:
        """The types along the path."""
        return tuple(step.source for step in self.steps)

    def __str__(self) -> str:
        return "; ".join(map(str, self.steps))


@dataclass(frozen=True, slots=True)
class Graph:
    """The result of `graph`. Everything is sorted, so the same apps always give the same text.

    Attributes:
        types: every registered type, as ``group.version.Kind``.
        controllers: the controllers by name, "app/name": how each was declared, and the names of its sources.
        edges: the types that each controller manages, watches, reads and writes. Only declared reads and writes are
            known.
        undeclared: the controllers that do not declare their writes. Their cycles include only the managed type.
        cycles: a list of cycles that covers every relation that is part of any cycle.
    """

    types: tuple[str, ...]
    controllers: Mapping[str, tuple[str, tuple[str, ...]]]
    edges: tuple[Edge, ...]
    undeclared: tuple[str, ...]
    cycles: tuple[Cycle, ...]

    def data(self) -> dict[str, Any]:
        """Return the graph as JSON-compatible data."""
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
                            {key: value for key, value in edge._asdict().items() if key in _EDGE_DATA and value}
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
        """Return the graph as a Mermaid flowchart: types are boxes, controllers are round, dotted arrows are reads."""
        lines = [f"  {_node(type)}[{type}]" for type in self.types]
        lines += [f"  {_node(name)}({name})" for name in self.controllers]
        for edge in self.edges:
            type, controller = _node(edge.type), _node(edge.controller)
            if edge.relation == "writes":
                lines.append(f"  {controller} -->|writes| {type}")
            elif edge.relation == "reads":
                lines.append(f"  {type} -.->|reads| {controller}")
            else:
                # Quoted, because the text of a scope may have any character. Mermaid writes a quote as an entity.
                scope = f" within {edge.scope}".replace("#", "#35;").replace('"', "#quot;") if edge.scope else ""
                label = f'"{edge.relation}{scope}"' if scope else edge.relation
                lines.append(f"  {type} -->|{label}| {controller}")
        return "\n".join(["flowchart TD", *lines]) + "\n"

    def drawing(self) -> str:
        """Return the graph as a drawing of characters, as wide as it has to be.

        Types are in brackets, controllers in parentheses. A change travels from left to right. Arrows back, as from a
        controller to the type that it manages, are listed below.
        """
        return draw(self.types, self.controllers, self.arrows())

    def svg(self) -> str:
        """Return the graph as an SVG image, for light and dark pages."""
        return svg(self.types, self.controllers, self.arrows())

    def arrows(self) -> dict[tuple[str, str], list[str]]:
        """Return the arrows from a type to a controller or back, each with its relations."""
        found: dict[tuple[str, str], list[str]] = {}
        for edge in self.edges:
            ends = (edge.controller, edge.type) if edge.relation == "writes" else (edge.type, edge.controller)
            relations = found.setdefault(ends, [])
            if edge.relation not in relations:
                relations.append(edge.relation)
        return found


@checked()
def graph(*apps: App) -> Graph:
    """Return the graph of these apps: what their controllers manage, watch, read and write, and the cycles in it.

    Raises DeclarationError for an argument that is not an App.
    """
    definitions = {f"{app.name}/{name}": each for app in apps for name, each in app.controllers.items()}
    definitions = dict(sorted(definitions.items()))
    # Types that every registry has are listed only if a controller uses them.
    everywhere = Registry()
    types = {str(type.name) for app in apps for type in app.registry if type.name not in everywhere}
    edges = tuple(edge for name, each in definitions.items() for edge in _edges(name, each))
    return Graph(
        types=tuple(sorted(types | {edge.type for edge in edges})),
        controllers={name: (each.declared_as, tuple(_sources(each))) for name, each in definitions.items()},
        edges=edges,
        undeclared=tuple(name for name, each in definitions.items() if each.writes is None),
        cycles=tuple(_cycles([step for name, each in definitions.items() for step in _steps(name, each)])),
    )


def _sources(definition: Definition) -> Iterator[str]:
    # A daemon is implemented with a source of Headway, and may have no others.
    if definition.declared_as != "daemon":
        for key, source in sorted(definition.sources.items()):
            yield f"{key}: {mapper_name(source)}"


def _edges(name: str, definition: Definition) -> list[Edge]:
    when = "" if definition.when is None else f"when {definition.when.name}"
    managed = definition.manages
    edges = [Edge(name, "manages", str(managed.name), when, str(range_of(managed)))]
    for watch in sorted(definition.watches.values(), key=lambda each: each.type.name):
        edges.append(Edge(name, "watches", str(watch.type.name), watch_name(watch), str(range_of(watch.type))))
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
    """Return, for each step, the shortest path from its end back to its start, if any. Each cycle appears once.

    This avoids listing all elementary cycles, which may be far too many to read.
    """
    from_type: dict[str, list[Step]] = {}
    for step in steps:
        from_type.setdefault(step.source, []).append(step)
    found: dict[tuple[Step, ...], Cycle] = {}
    for step in steps:
        path = _shortest_path(from_type, step.target, step.source)
        if path is not None:
            found.setdefault(_rotated((step, *path)), Cycle(_rotated((step, *path))))
    return sorted(found.values(), key=lambda cycle: (len(cycle.steps), cycle.steps))


def _shortest_path(from_type: Mapping[str, Sequence[Step]], begin: str, end: str) -> tuple[Step, ...] | None:
    """Return the shortest path between two types."""
    paths: dict[str, tuple[Step, ...]] = {begin: ()}
    queue = deque([begin])
    while queue:
        at = queue.popleft()
        if at == end:
            return paths[at]
        for step in from_type.get(at, ()):
            if step.target not in paths:
                paths[step.target] = (*paths[at], step)
                queue.append(step.target)
    return None


def _rotated(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the same cycle, rotated to start at its smallest step."""
    first = steps.index(min(steps))
    return steps[first:] + steps[:first]


def _node(name: str) -> str:
    """Return a name as a valid Mermaid node id."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)
