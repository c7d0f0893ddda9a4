"""The graph of the controllers and their types: as data, as Mermaid, and its cycles."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

import headway
from headway.errors import DeclarationError
from tests.helpers.resources import Account


async def nothing(_: headway.Runtime, __: headway.Request[Any]) -> None:
    """Do nothing."""


Said = tuple[str, Iterable[str], "Iterable[str] | None"]


def declared(controllers: Mapping[str, Said], types: str = "") -> headway.App:
    """Return an app of controllers by name: (manages, watches, writes), with one letter for each type."""
    app = headway.App("app")
    letters = set(types)
    for manages, watches, writes in controllers.values():
        letters |= {manages, *watches, *(writes or ())}
    known = {letter: app.type("tt", "v1", f"T{letter}", Account) for letter in sorted(letters)}
    for name, (manages, watches, writes) in controllers.items():
        app.controller(
            manages=known[manages],
            watches=[headway.watch(known[each], headway.mappers.same_name()) for each in watches],
            writes=None if writes is None else [known[each] for each in writes],
            name=name,
        )(nothing)
    return app


def ways(app: headway.App) -> list[str]:
    """Return the cycles, each as its list of types."""
    return ["".join(name.removeprefix("tt.v1.T") for name in cycle.types) for cycle in headway.graph(app).cycles]


def test_graph_contains_every_declaration() -> None:
    """The graph also has unused types, and the names of mappers and predicates."""
    app = declared({}, "XYZ")
    x, y, z = (next(each for each in app.registry if each.name.kind == f"T{kind}") for kind in "XYZ")
    app.controller(
        manages=x,
        when=headway.predicates.content_changed(),
        watches=[headway.watch(y, headway.mappers.owner(), when=headway.predicates.data_changed())],
        reads=[z],
        writes=[y],
        sources={"clock": headway.sources.every(60)},
        name="maker",
    )(nothing)

    @app.daemon(x)
    async def heart(_: headway.Runtime, __: headway.Resource[Account]) -> None:
        """Do nothing."""

    data = headway.graph(app).data()
    assert json.loads(json.dumps(data)) == data
    assert data["types"] == ["tt.v1.TX", "tt.v1.TY", "tt.v1.TZ"]
    heart_data, maker = data["controllers"]
    assert (heart_data["name"], heart_data["declared_as"], heart_data["declares_writes"]) == (
        "app/heart",
        "daemon",
        False,
    )
    # The source that implements a daemon is none of the program's.
    assert heart_data["sources"] == []
    assert maker == {
        "name": "app/maker",
        "declared_as": "controller",
        "sources": ["clock: every(60)"],
        "declares_writes": True,
        "manages": [{"type": "tt.v1.TX", "by": "when content_changed()"}],
        "watches": [{"type": "tt.v1.TY", "by": "mappers.owner() when data_changed()"}],
        "reads": [{"type": "tt.v1.TZ"}],
        "writes": [{"type": "tt.v1.TY"}],
    }


def test_flowchart_is_deterministic() -> None:
    """The order of the declarations doesn't matter."""
    one = declared({"a": ("X", "Y", "Y"), "b": ("Z", "", None)}, "W")
    other = declared({"b": ("Z", "", None), "a": ("X", "Y", "Y")}, "W")
    text = headway.graph(one).mermaid()
    assert text == headway.graph(other).mermaid()
    assert text == (
        "flowchart TD\n"
        "  tt_v1_TW[tt.v1.TW]\n"
        "  tt_v1_TX[tt.v1.TX]\n"
        "  tt_v1_TY[tt.v1.TY]\n"
        "  tt_v1_TZ[tt.v1.TZ]\n"
        "  app_a(app/a)\n"
        "  app_b(app/b)\n"
        "  tt_v1_TX -->|manages| app_a\n"
        "  tt_v1_TY -->|watches| app_a\n"
        "  app_a -->|writes| tt_v1_TY\n"
        "  tt_v1_TZ -->|manages| app_b\n"
    )


CYCLES: list[tuple[str, dict[str, Said], list[str]]] = [
    ("no cycle", {"a": ("X", "YZ", None), "b": ("Y", "Z", "W")}, []),
    ("two watch each other's type and write neither", {"a": ("X", "Y", ""), "b": ("Y", "X", "")}, []),
    ("watches the type that it manages", {"a": ("X", "X", None)}, ["X"]),
    ("writes the type that it manages", {"a": ("X", "", "X")}, ["X"]),
    ("writes a type that it watches", {"a": ("X", "Y", "Y")}, ["Y"]),
    ("two watch each other", {"a": ("X", "Y", None), "b": ("Y", "X", None)}, ["XY"]),
    ("three in a ring", {"a": ("X", "Y", None), "b": ("Y", "Z", None), "c": ("Z", "X", None)}, ["XZY"]),
    ("by writes alone", {"a": ("A", "Y", "X"), "b": ("B", "X", "Y")}, ["XY"]),
    ("writes and watches", {"a": ("X", "", "Y"), "b": ("Z", "Y", None), "c": ("X", "Z", None)}, ["XYZ"]),
]


@pytest.mark.parametrize(("name", "controllers", "expected"), CYCLES, ids=[name for name, *_ in CYCLES])
def test_a_cycle_is_found(name: str, controllers: Any, expected: list[str]) -> None:  # noqa: ARG001  # it is the id
    assert ways(declared(controllers)) == expected


def test_cycle_is_explained_step_by_step() -> None:
    (cycle,) = headway.graph(declared({"a": ("A", "Y", "X"), "b": ("B", "X", "Y")})).cycles
    assert str(cycle) == (
        "a change of tt.v1.TX makes app/b write tt.v1.TY; a change of tt.v1.TY makes app/a write tt.v1.TX"
    )


def test_graph_refuses_a_value_that_is_not_an_app() -> None:
    with pytest.raises(DeclarationError, match=r"graph\(\): apps\[0\] must be an App, not 'staff'"):
        headway.graph("staff")  # type: ignore[arg-type]  # what is tested
