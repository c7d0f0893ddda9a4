"""The graph of controllers as an SVG image. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from xml.sax.saxutils import escape

from headway.controller._drawing import Arrows
from headway.controller._layers import Bend, Layers, Place, layered

_LETTER, _ROW, _GAP, _MARGIN, _HEIGHT = 7.4, 30, 90, 24, 28
"""In pixels: the width of a letter of the font, half the distance of boxes, the gap of layers, the margin, a box."""

_STYLE = """
  svg { color: #24292f; background: #ffffff; font: 13px ui-monospace, Menlo, Consolas, monospace; }
  .node rect { fill: #eef4f4; stroke: #00796b; stroke-width: 1.2; }
  .controller rect { fill: #fff6e5; stroke: #b26a00; }
  text { fill: currentColor; text-anchor: middle; dominant-baseline: central; }
  path { fill: none; stroke: #57606a; stroke-width: 1.3; }
  path.writes { stroke: #b26a00; }
  path.reads { stroke-dasharray: 2 4; }
  marker path { fill: #57606a; stroke: none; }
  marker#write path { fill: #b26a00; }
  @media (prefers-color-scheme: dark) {
    svg { color: #e6edf3; background: #0d1117; }
    .node rect { fill: #10302d; stroke: #4db6ac; }
    .controller rect { fill: #33260a; stroke: #ffb74d; }
    path { stroke: #9198a1; }
    path.writes { stroke: #ffb74d; }
    marker path { fill: #9198a1; }
    marker#write path { fill: #ffb74d; }
  }
"""


def svg(types: Collection[str], controllers: Collection[str], arrows: Arrows) -> str:
    """Return the image: types are boxes, controllers are round, writes are colored, and reads are dotted."""
    nodes = [*types, *controllers]
    layout = layered(nodes, arrows)
    placed = _Places(layout)
    lines = [_arrow(placed, layout, ends, relations) for ends, relations in sorted(arrows.items())]
    lines += [_box(placed, node, is_type=node in types) for node in nodes]
    text = f"{len(controllers)} controllers and {len(types)} types"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {placed.width:.0f} {placed.height:.0f}" '
            f'width="{placed.width:.0f}" height="{placed.height:.0f}" role="img" aria-label="{text}">',
            f"<title>{text}</title>",
            f"<style>{_STYLE}</style>",
            "<defs>",
            *(
                f'<marker id="{id}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
                'orient="auto-start-reverse"><path d="M0,1 L10,5 L0,9 z"/></marker>'
                for id in ("read", "write")
            ),
            "</defs>",
            *lines,
            "</svg>",
            "",
        ]
    )


class _Places:
    """The pixels of a layout."""

    def __init__(self, layout: Layers) -> None:
        self._rows = layout.rows
        self._left: dict[Place, float] = {}
        self._width: dict[Place, float] = {}
        x = float(_MARGIN)
        for layer in layout.layers:
            width = max(len(place) * _LETTER + 20 for place in layer if not isinstance(place, Bend))
            for place in layer:
                # A bend passes the layer as a straight line.
                self._left[place] = x
                self._width[place] = width if isinstance(place, Bend) else len(place) * _LETTER + 20
            x += width + _GAP
        self.width = max(x - _GAP + _MARGIN, 2.0 * _MARGIN)
        self.height = (max(layout.rows.values(), default=0)) * _ROW + 2 * _MARGIN + _HEIGHT

    def y(self, place: Place) -> float:
        return self._rows[place] * _ROW + _MARGIN + _HEIGHT / 2

    def box(self, node: str) -> tuple[float, float, float]:
        """Return the left edge, the middle of the height, and the width."""
        return self._left[node], self.y(node), self._width[node]

    def ends(self, place: Place) -> tuple[float, float]:
        """Return the left and the right end of a place."""
        return self._left[place], self._left[place] + self._width[place]


def _box(placed: _Places, node: str, *, is_type: bool) -> str:
    x, y, width = placed.box(node)
    name, radius = ("type", 4) if is_type else ("controller", _HEIGHT // 2)
    return (
        f'<g class="node {name}"><rect x="{x:.1f}" y="{y - _HEIGHT / 2:.1f}" width="{width:.1f}" height="{_HEIGHT}" '
        f'rx="{radius}"/><text x="{x + width / 2:.1f}" y="{y:.1f}">{escape(node)}</text></g>'
    )


def _arrow(placed: _Places, layout: Layers, ends: tuple[str, str], relations: Sequence[str]) -> str:
    path = layout.paths[ends]
    turned = ends in layout.turned
    # The way back of an edge in both directions runs beside the way there.
    shift = 5.0 if turned and ends[::-1] in layout.paths else 0.0
    x, y = placed.ends(path[0])[1], placed.y(path[0]) + shift
    d = [f"M{x:.1f},{y:.1f}"]
    for place in path[1:]:
        left, right = placed.ends(place)
        to = placed.y(place) + shift
        middle = (x + left) / 2
        d.append(f"C{middle:.1f},{y:.1f} {middle:.1f},{to:.1f} {left:.1f},{to:.1f}")
        x, y = (right, to) if isinstance(place, Bend) else (left, to)
        if isinstance(place, Bend):
            d.append(f"L{x:.1f},{y:.1f}")
    writes = "writes" in relations
    side, marker = "marker-start" if turned else "marker-end", "write" if writes else "read"
    kind = "writes" if writes else "reads" if list(relations) == ["reads"] else "triggers"
    said = (
        f"{ends[0]} {' and '.join(relations)} {ends[1]}" if writes else f"{ends[1]} {' and '.join(relations)} {ends[0]}"
    )
    return f'<path class="{kind}" d="{" ".join(d)}" {side}="url(#{marker})"><title>{escape(said)}</title></path>'
