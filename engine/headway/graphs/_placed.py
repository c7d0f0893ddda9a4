"""The places of a graph's nodes and arrows in pixels, for images. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from headway.graphs._drawing import Arrows
from headway.graphs._layers import Bend, Layers, Place, layered


class Sizes(NamedTuple):
    """The sizes of an image, in pixels.

    Attributes:
        width: returns the width of a node's box.
        height: the height of a box.
        row: half of the distance of boxes.
        gap: the distance of layers.
        margin: the margin of the image.
    """

    width: Callable[[str], float]
    height: float
    row: float
    gap: float
    margin: float


class Box(NamedTuple):
    """The box of a node: its left edge, the middle of its height, and its width."""

    x: float
    y: float
    width: float


class Arrow(NamedTuple):
    """An arrow between a type and a controller.

    Attributes:
        path: its line, as the ``d`` of an SVG path.
        turned: True if the line leads from the arrow's target to its source, so that the head is at its start.
        kind: ``writes``, ``reads`` or ``triggers``.
        said: what it says, such as ``staff/teams writes staff.v1.Team``.
    """

    source: str
    target: str
    path: str
    turned: bool
    kind: str
    said: str


class Placed(NamedTuple):
    """A graph in pixels."""

    width: float
    height: float
    boxes: dict[str, Box]
    arrows: list[Arrow]


def placed(types: Collection[str], controllers: Collection[str], arrows: Arrows, sizes: Sizes) -> Placed:
    """Return the places of the types, the controllers and the arrows between them."""
    nodes = [*types, *controllers]
    layout = layered(nodes, arrows)
    places = _Places(layout, sizes)
    return Placed(
        places.width,
        places.height,
        {node: places.box(node) for node in nodes},
        [_arrow(places, layout, ends, relations) for ends, relations in sorted(arrows.items())],
    )


class _Places:
    """The pixels of a layout."""

    def __init__(self, layout: Layers, sizes: Sizes) -> None:
        self._rows = layout.rows
        self._sizes = sizes
        self._left: dict[Place, float] = {}
        self._width: dict[Place, float] = {}
        x = float(sizes.margin)
        for layer in layout.layers:
            width = max(sizes.width(place) for place in layer if not isinstance(place, Bend))
            for place in layer:
                # A bend passes the layer as a straight line.
                self._left[place] = x
                self._width[place] = width if isinstance(place, Bend) else sizes.width(place)
            x += width + sizes.gap
        self.width = max(x - sizes.gap + sizes.margin, 2.0 * sizes.margin)
        self.height = max(layout.rows.values(), default=0) * sizes.row + 2 * sizes.margin + sizes.height

    def y(self, place: Place) -> float:
        return self._rows[place] * self._sizes.row + self._sizes.margin + self._sizes.height / 2

    def box(self, node: str) -> Box:
        return Box(self._left[node], self.y(node), self._width[node])

    def ends(self, place: Place) -> tuple[float, float]:
        """Return the left and the right end of a place."""
        return self._left[place], self._left[place] + self._width[place]


def _arrow(places: _Places, layout: Layers, ends: tuple[str, str], relations: Sequence[str]) -> Arrow:
    path = layout.paths[ends]
    turned = ends in layout.turned
    # The way back of an edge in both directions runs beside the way there.
    shift = 5.0 if turned and ends[::-1] in layout.paths else 0.0
    x, y = places.ends(path[0])[1], places.y(path[0]) + shift
    d = [f"M{x:.1f},{y:.1f}"]
    for place in path[1:]:
        left, right = places.ends(place)
        to = places.y(place) + shift
        middle = (x + left) / 2
        d.append(f"C{middle:.1f},{y:.1f} {middle:.1f},{to:.1f} {left:.1f},{to:.1f}")
        x, y = (right, to) if isinstance(place, Bend) else (left, to)
        if isinstance(place, Bend):
            d.append(f"L{x:.1f},{y:.1f}")
    writes = "writes" in relations
    kind = "writes" if writes else "reads" if list(relations) == ["reads"] else "triggers"
    said = (
        f"{ends[0]} {' and '.join(relations)} {ends[1]}" if writes else f"{ends[1]} {' and '.join(relations)} {ends[0]}"
    )
    return Arrow(*ends, " ".join(d), turned, kind, said)
