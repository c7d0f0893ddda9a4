"""The graph of controllers as a drawing of characters. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

from headway.graphs._layers import Bend, Layers, Place, layered

_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_LINES = {
    _LEFT | _RIGHT: "─", _UP | _DOWN: "│", _DOWN | _RIGHT: "╭", _DOWN | _LEFT: "╮", _UP | _RIGHT: "╰", _UP | _LEFT: "╯",
    _UP | _DOWN | _RIGHT: "├", _UP | _DOWN | _LEFT: "┤", _DOWN | _LEFT | _RIGHT: "┬", _UP | _LEFT | _RIGHT: "┴",
    _UP | _DOWN | _LEFT | _RIGHT: "┼", _LEFT: "─", _RIGHT: "─", _UP: "│", _DOWN: "│",
}  # fmt: skip


Arrows = Mapping[tuple[str, str], Sequence[str]]
"""The arrows from a type to a controller or back, each with its relations."""


def draw(types: Collection[str], controllers: Collection[str], arrows: Arrows) -> str:
    """Return the drawing: types in brackets, controllers in parentheses, and arrows from left to right.

    Arrows that would point from right to left are listed below.
    """
    used = {node for ends in arrows for node in ends}
    nodes = [node for node in (*types, *controllers) if node in used]
    layout = layered(nodes, arrows)
    names = {node: f"[{node}]" if node in types else f"({node})" for node in nodes}
    lines = _Canvas(layout, names).lines()
    back = sorted(layout.turned)
    if back:
        lines += ["", "and back:"]
        lines += [f"  {_sentence(arrows, ends, names)}" for ends in back]
    return "\n".join(lines)


def _sentence(found: Mapping[tuple[str, str], Sequence[str]], ends: tuple[str, str], names: Mapping[str, str]) -> str:
    source, target = ends
    subject, object = ends if "writes" in found[ends] else (target, source)
    return f"{names[subject]} {' and '.join(found[ends])} {names[object]}"


class _Canvas:
    """A grid of characters, which grows as it is drawn on.

    Each horizontal line belongs to the place that it begins or ends at, and each vertical one to its source. Where two
    lines cross that have nothing to do with each other, the vertical one is drawn over the other.
    """

    def __init__(self, layout: Layers, names: dict[str, str]) -> None:
        self._layout = layout
        self._names = names
        self._text: dict[tuple[int, int], str] = {}
        self._vertical: dict[tuple[int, int], tuple[int, frozenset[Place]]] = {}
        self._horizontal: dict[tuple[int, int], tuple[int, Place]] = {}

    def lines(self) -> list[str]:
        """Draw everything. Return the lines."""
        x = 0
        pairs = [pair for path in self._layout.paths.values() for pair in pairwise(path)]
        leading = {source for source, _ in pairs}
        for number, layer in enumerate(self._layout.layers):
            width = max(len(self._names[place]) for place in layer if not isinstance(place, Bend))
            for place in layer:
                self._place(place, x, width, leads=place in leading)
            x += width
            if number + 1 < len(self._layout.layers):
                x = self._gap([pair for pair in pairs if pair[0] in layer], x)
        cells = [*self._text, *self._vertical, *self._horizontal]
        height = max((row for row, _ in cells), default=-1) + 1
        return ["".join(self._character(row, at) for at in range(x)).rstrip() for row in range(height)]

    def _place(self, place: Place, x: int, width: int, *, leads: bool) -> None:
        row, name = self._layout.rows[place], "" if isinstance(place, Bend) else self._names[place]
        self._text.update({(row, x + number): letter for number, letter in enumerate(name)})
        if leads:
            self._line(place, row, x + len(name), x + width)

    def _gap(self, pairs: Sequence[tuple[Place, Place]], x: int) -> int:
        """Draw the lines between two layers. Return the column where the next layer begins."""
        rows = self._layout.rows
        targets: dict[Place, set[Place]] = {}
        for source, target in pairs:
            targets.setdefault(source, set()).add(target)
        spans = {source: sorted(rows[each] for each in (source, *to)) for source, to in targets.items()}
        lanes = _lanes(spans)
        end = x + max(lanes.values(), default=0) + 4
        for source, to in targets.items():
            at, span = x + 1 + lanes[source], spans[source]
            self._line(source, rows[source], x, at)
            for row in range(span[0], span[-1] + 1):
                link = (_UP if row > span[0] else 0) | (_DOWN if row < span[-1] else 0)
                self._vertical[row, at] = (link, frozenset({source, *to}))
            self._link(source, rows[source], at, _LEFT)
            for target in sorted(to, key=rows.__getitem__):
                self._link(target, rows[target], at, _RIGHT)
                self._line(target, rows[target], at + 1, end if isinstance(target, Bend) else end - 1)
                if not isinstance(target, Bend):
                    self._text[rows[target], end - 1] = "▶"
        return end

    def _line(self, place: Place, row: int, start: int, end: int) -> None:
        for at in range(start, end):
            self._link(place, row, at, _LEFT | _RIGHT)

    def _link(self, place: Place, row: int, at: int, link: int) -> None:
        before, _ = self._horizontal.get((row, at), (0, place))
        self._horizontal[row, at] = (before | link, place)

    def _character(self, row: int, at: int) -> str:
        cell = (row, at)
        if cell in self._text:
            return self._text[cell]
        link, joined = self._vertical.get(cell, (0, frozenset()))
        beside, place = self._horizontal.get(cell, (0, None))
        if not link or place in joined:
            link |= beside
        return _LINES.get(link, " ")


def _lanes(spans: Mapping[Place, Sequence[int]]) -> dict[Place, int]:
    """Return the column of the vertical line of each source. Lines that do not touch may share one."""
    ends: list[int] = []
    lanes: dict[Place, int] = {}
    for source, rows in sorted(spans.items(), key=lambda item: item[1][0]):
        lane = next((lane for lane, end in enumerate(ends) if end < rows[0] - 1), len(ends))
        ends[lane:] = [rows[-1], *ends[lane + 1 :]]
        lanes[source] = lane
    # Sources from top to bottom, and lanes from right to left: fewer lines cross.
    return {source: (len(ends) - 1 - lane) * 2 for source, lane in lanes.items()}
