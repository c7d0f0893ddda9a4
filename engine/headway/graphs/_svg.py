"""The graph of controllers as an SVG image. No I/O."""

from __future__ import annotations

from collections.abc import Collection
from xml.sax.saxutils import escape

from headway.graphs._drawing import Arrows
from headway.graphs._placed import Arrow, Box, Sizes, placed

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
    image = placed(
        types, controllers, arrows, Sizes(lambda node: len(node) * _LETTER + 20, _HEIGHT, _ROW, _GAP, _MARGIN)
    )
    lines = [_arrow(each) for each in image.arrows]
    lines += [_box(node, box, is_type=node in types) for node, box in image.boxes.items()]
    text = f"{len(controllers)} controllers and {len(types)} types"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {image.width:.0f} {image.height:.0f}" '
            f'width="{image.width:.0f}" height="{image.height:.0f}" role="img" aria-label="{text}">',
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


def _box(node: str, box: Box, *, is_type: bool) -> str:
    x, y, width = box
    name, radius = ("type", 4) if is_type else ("controller", _HEIGHT // 2)
    return (
        f'<g class="node {name}"><rect x="{x:.1f}" y="{y - _HEIGHT / 2:.1f}" width="{width:.1f}" height="{_HEIGHT}" '
        f'rx="{radius}"/><text x="{x + width / 2:.1f}" y="{y:.1f}">{escape(node)}</text></g>'
    )


def _arrow(arrow: Arrow) -> str:
    side, marker = "marker-start" if arrow.turned else "marker-end", "write" if arrow.kind == "writes" else "read"
    title = f"<title>{escape(arrow.said)}</title>"
    return f'<path class="{arrow.kind}" d="{arrow.path}" {side}="url(#{marker})">{title}</path>'
