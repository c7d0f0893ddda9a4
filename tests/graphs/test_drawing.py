"""Drawings of the graph of controllers, and the layout below them."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headway
from headway import field, mappers
from headway.graphs import Bend, Edge, Graph, layered
from tests.cli.circular import app as circular

NODES = [f"n{number}" for number in range(7)]
EDGES = st.sets(st.tuples(st.sampled_from(NODES), st.sampled_from(NODES)), max_size=16)


@headway.message(name="drawn.Side")
class Side:
    text: str = field(1)


def graph_of(*edges: Edge) -> Graph:
    """Return a graph of these edges alone."""
    types = tuple(sorted({edge.type for edge in edges}))
    controllers = {edge.controller: ("controller", ()) for edge in sorted(edges)}
    return Graph(types, controllers, edges, (), ())


def test_drawing_shows_the_way_of_a_change() -> None:
    """Arrows point from left to right. What a controller writes back is listed below."""
    app = headway.App("staff")
    team, account, badge = (app.type("staff", "v1", kind, Side) for kind in ("Team", "Account", "Badge"))

    @app.controller(manages=team, watches=[headway.watch(account, mappers.owner())], writes=[account, team])
    async def accounts(_: headway.Runtime, __: headway.Request[Side]) -> None: ...

    @app.controller(manages=badge, watches=[headway.watch(account, mappers.same_name())], reads=[team])
    async def badges(_: headway.Runtime, __: headway.Request[Side]) -> None: ...

    assert headway.graph(app).drawing() == DRAWING


DRAWING = """\
[staff.v1.Account]─────╮
                     ╭─┼─▶(staff/accounts)
[staff.v1.Team]──────┤ │
                   ╭─┴─┴─▶(staff/badges)
[staff.v1.Badge]───╯

and back:
  (staff/accounts) writes [staff.v1.Account]
  (staff/accounts) writes [staff.v1.Team]"""

CROSSING = """\
[a]─────╮
      ╭─┼─▶(x)
[b]───┤ │
    ╭─│─┴─▶(y)
[c]─┤ │
    ╰─┴───▶(z)"""


def test_two_lines_that_cross_are_not_joined() -> None:
    """The vertical line is drawn over the other one."""
    graph = graph_of(
        Edge("x", "manages", "a"), Edge("y", "manages", "a"), Edge("x", "watches", "b"), Edge("z", "watches", "b"),
        Edge("y", "watches", "c"), Edge("z", "manages", "c"),
    )  # fmt: skip
    assert graph.drawing() == CROSSING


@given(EDGES)
def test_every_edge_leads_from_layer_to_layer(edges: set[tuple[str, str]]) -> None:
    """An edge passes each layer between its ends once. Places of a layer, and lines between layers, never coincide."""
    layout = layered(NODES, edges)
    layer = {place: number for number, places in enumerate(layout.layers) for place in places}

    assert set(layout.paths) == {edge for edge in edges if edge[0] != edge[1]}
    for (source, target), path in layout.paths.items():
        ends = (target, source) if (source, target) in layout.turned else (source, target)
        assert (path[0], path[-1]) == ends
        assert all(layer[after] == layer[before] + 1 for before, after in pairwise(path))
        assert all(isinstance(bend, Bend) for bend in path[1:-1])
    assert {place for place in layer if isinstance(place, str)} == set(NODES)
    for number, places in enumerate(layout.layers):
        rows = [layout.rows[place] for place in places]
        assert rows == sorted(set(rows))
        assert all(row % 2 == number % 2 for row in rows)
    assert layered(NODES, edges) == layout


@given(st.sets(st.tuples(st.sampled_from("ABCD"), st.sampled_from(["manages", "watches", "reads", "writes"]),
                         st.sampled_from("stuv")), max_size=12))  # fmt: skip
def test_drawings_have_each_node_and_each_arrow(edges: set[tuple[str, str, str]]) -> None:
    """The text has each node once, an arrowhead for each that an arrow leads to, and the arrows back by name."""
    graph = graph_of(*(Edge(controller, relation, type) for controller, relation, type in sorted(edges)))  # type: ignore[arg-type]
    found = graph.arrows()
    picture, _, below = graph.drawing().partition("and back:\n")
    for node in {node for ends in found for node in ends}:
        assert len(re.findall(rf"[\[(]{node}[\])]", picture)) == 1
    layout = layered([*graph.types, *graph.controllers], found)
    assert len(below.splitlines()) == len(layout.turned)
    assert picture.count("▶") == len({path[-1] for path in layout.paths.values()})

    image = ElementTree.fromstring(graph.svg())
    space = {"s": "http://www.w3.org/2000/svg"}
    assert sorted(text.text or "" for text in image.findall(".//s:text", space)) == sorted(
        (*graph.types, *graph.controllers)
    )
    titles = [title.text for title in image.findall("./s:path/s:title", space)]
    assert len(titles) == len(set(titles)) == len(found)


@pytest.mark.parametrize("app", [circular, headway.App("empty")])
def test_every_app_can_be_drawn(app: headway.App) -> None:
    """An app without controllers has an empty drawing, and an image of its types."""
    graph = headway.graph(app)
    assert bool(graph.drawing()) == bool(graph.edges)
    ElementTree.fromstring(graph.svg())
