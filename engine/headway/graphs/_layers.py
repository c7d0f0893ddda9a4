"""A layered layout of a directed graph, for drawings: nodes in layers, and edges from each layer to the next. No I/O.

The steps are Sugiyama's: turn the edges of cycles around, put each node behind its predecessors, let long edges pass
through *bends* in the layers between, and sort each layer by the places of its neighbors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

_SWEEPS = 8
"""The number of times that the layers are sorted. More change little."""


class Bend(NamedTuple):
    """A place in a layer where an edge from ``source`` to ``target`` passes."""

    source: str
    target: str
    layer: int


Place = str | Bend
"""A node, or a bend of an edge."""


@dataclass(frozen=True)
class Layers:
    """A layout.

    Attributes:
        layers: the places of each layer, from first to last.
        rows: the row of each place. Rows of neighboring layers differ, so that no two lines between them coincide.
        paths: the places of each edge, from its source to its target. An edge that is turned around has the path from
            its target to its source.
        turned: the edges that point from a later layer to an earlier one.
    """

    layers: Sequence[Sequence[Place]]
    rows: Mapping[Place, int]
    paths: Mapping[tuple[str, str], Sequence[Place]]
    turned: frozenset[tuple[str, str]]


def layered(nodes: Sequence[str], edges: Iterable[tuple[str, str]]) -> Layers:
    """Return a layout of the graph. The same input always gives the same layout.

    Of two edges between the same nodes, the one that leads to the node that comes first in ``nodes`` is turned around.
    """
    distinct = sorted({edge for edge in edges if edge[0] != edge[1]})
    all_edges = set(distinct)
    index = {node: number for number, node in enumerate(nodes)}
    both = {edge for edge in distinct if edge[::-1] in all_edges and index[edge[0]] > index[edge[1]]}
    turned = _turned(nodes, [edge for edge in distinct if edge not in both])
    # The two run along one path, so that exactly one of them is turned.
    turned |= {edge for edge in both if edge[::-1] not in turned}
    forward = sorted({_forward(edge, turned) for edge in distinct})
    layer = _longest_paths(nodes, forward)
    layers: list[list[Place]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for node in nodes:
        layers[layer[node]].append(node)
    paths: dict[tuple[str, str], list[Place]] = {}
    for source, target in forward:
        bends = [Bend(source, target, at) for at in range(layer[source] + 1, layer[target])]
        for bend in bends:
            layers[bend.layer].append(bend)
        paths[source, target] = [source, *bends, target]
    before: dict[Place, list[Place]] = {}
    after: dict[Place, list[Place]] = {}
    for path in paths.values():
        for one, next in pairwise(path):
            after.setdefault(one, []).append(next)
            before.setdefault(next, []).append(one)
    _sort(layers, before, after)
    return Layers(layers, _rows(layers, before), {edge: paths[_forward(edge, turned)] for edge in distinct}, turned)


def _forward(edge: tuple[str, str], turned: frozenset[tuple[str, str]]) -> tuple[str, str]:
    return (edge[1], edge[0]) if edge in turned else edge


def _turned(nodes: Sequence[str], edges: Sequence[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """Return edges without which the graph has no cycles: those that lead back to a node on the way to their source."""
    targets: dict[str, list[str]] = {}
    for source, target in edges:
        targets.setdefault(source, []).append(target)
    turned: set[tuple[str, str]] = set()
    done: set[str] = set()
    entered = {target for _, target in edges}
    # A search that begins where nothing leads to turns fewer edges.
    for start in sorted(nodes, key=lambda node: node in entered):
        way, ahead = [start], [iter(targets.get(start, ()))]
        if start in done:
            continue
        while ahead:
            for target in ahead[-1]:
                if target in way:
                    turned.add((way[-1], target))
                elif target not in done:
                    way.append(target)
                    ahead.append(iter(targets.get(target, ())))
                    break
            else:
                ahead.pop()
                done.add(way.pop())
    return frozenset(turned)


def _longest_paths(nodes: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Return the layer of each node: the length of the longest path to it."""
    layer = dict.fromkeys(nodes, 0)
    for _ in nodes:
        deeper = {target: layer[source] + 1 for source, target in edges if layer[target] <= layer[source]}
        for target in deeper:
            layer[target] = max(layer[source] + 1 for source, to in edges if to == target)
        if not deeper:
            break
    return layer


def _sort(
    layers: Sequence[list[Place]], before: Mapping[Place, Sequence[Place]], after: Mapping[Place, Sequence[Place]]
) -> None:
    """Sort each layer by the mean index of the neighbors, forward and backward in turn."""
    index = {place: number for layer in layers for number, place in enumerate(layer)}
    for sweep in range(_SWEEPS):
        neighbors, order = (before, layers) if sweep % 2 == 0 else (after, layers[::-1])
        for layer in order:
            means = {place: _mean(index, neighbors.get(place, ())) for place in layer}
            layer.sort(key=lambda place: index[place] if (mean := means[place]) is None else mean)
            index.update({place: number for number, place in enumerate(layer)})


def _mean(numbers: Mapping[Place, int], places: Sequence[Place]) -> float | None:
    return sum(numbers[place] for place in places) / len(places) if places else None


def _rows(layers: Sequence[Sequence[Place]], before: Mapping[Place, Sequence[Place]]) -> dict[Place, int]:
    """Return the row of each place: near its predecessors, two below the place above, of the parity of its layer."""
    rows: dict[Place, int] = {}
    for number, layer in enumerate(layers):
        least = number % 2
        for place in layer:
            mean = _mean(rows, before.get(place, ()))
            wanted = least if mean is None else round(mean)
            rows[place] = max(least, wanted + (wanted + number) % 2)
            least = rows[place] + 2
    return rows
