"""`headway graph`."""

import json

import pytest
from click.testing import CliRunner

import headway
from headway.cli import main
from tests.cli.circular import Side


def run(*arguments: str) -> tuple[int, str]:
    """Return the exit code and the output."""
    done = CliRunner().invoke(main, ["graph", *arguments])
    return done.exit_code, done.output


def test_graph_is_printed_as_text() -> None:
    """The text has the controllers, the types without a controller, and a line about cycles."""
    code, text = run("tests.cli.served:apps")
    assert code == 0
    assert text == (
        "staff/teams\n"
        "  manages  staff.v1.Team\n"
        "\n"
        "No controller uses bank.v1.Account, staff.v1.Account, staff.v1.Site.\n"
        "\n"
        "Assumed to write what they manage, because they declare no writes: staff/teams.\n"
        "\n"
        "No cycles among what is declared: a write that is not declared may close one.\n"
    )


def test_cycle_is_printed_step_by_step() -> None:
    """Each step names its controller."""
    code, text = run("tests.cli.circular:app")
    assert code == 0
    assert (
        "Cycle 1: a change of ring.v1.Left\n"
        "  makes ring/rights write ring.v1.Right\n"
        "  makes ring/lefts write ring.v1.Left\n"
    ) in text
    assert "ring/clock (timer)\n  manages  ring.v1.Left\n" in text
    assert "  watches  ring.v1.Right, by mappers.same_name()\n" in text


def test_graph_is_wrapped_to_the_width_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long lines continue on the next line, but a name is never broken."""
    app = headway.App("winding")
    group = "a_group_with_a_long_name"
    types = [app.type(group, "v1", f"Kind{number}", Side) for number in range(8)]
    mapper = headway.mappers.union(
        headway.mappers.owner(), headway.mappers.same_name(), headway.mappers.itself(), headway.mappers.owned()
    )

    async def knock(_: headway.Runtime, __: headway.controller.Enqueue) -> None: ...

    for number in range(3):

        @app.controller(
            manages=types[number],
            when=headway.predicates.content_changed(),
            watches=[headway.watch(types[number + 1], mapper, when=headway.predicates.content_changed())],
            sources={"knocks": knock},
            name=f"one-that-also-has-a-long-name-{number}",
        )
        async def look(_: headway.Runtime, __: headway.Request[Side]) -> None:
            """Do nothing: only the declaration is read."""

    monkeypatch.setattr("tests.cli.circular.app", app)
    code, text = run("tests.cli.circular:app")
    assert code == 0
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert "  manages  a_group_with_a_long_name.v1.Kind0 when content_changed()\n" in text
    assert "  hears    knocks:" in text
    for type in types:
        assert str(type.name) in text
    assert "winding/one-that-also-has-a-long-name-2.\n" in text


def test_scope_of_a_type_is_shown_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In each form of the output. A watched type and a managed one have their own scopes."""
    app = headway.App("parts")
    left, right = app.type("parts", "v1", "Left", Side), app.type("parts", "v1", "Right", Side)

    @app.controller(
        manages=left.within(partition="default", namespace="sales"),
        watches=[headway.watch(right.within(name_prefix="a", metadata='tier="gold"'), headway.mappers.same_name())],
        name="look",
    )
    async def look(_: headway.Runtime, __: headway.Request[Side]) -> None:
        """Do nothing: only the declaration is read."""

    monkeypatch.setattr("tests.cli.circular.app", app)
    code, text = run("tests.cli.circular:app")
    assert code == 0
    assert "  manages  parts.v1.Left within partition='default', namespace='sales'\n" in text
    joined = " ".join(text.split())
    assert "watches parts.v1.Right within name_prefix='a', metadata='tier=\"gold\"', by mappers.same_name()" in joined
    (found,) = json.loads(run("tests.cli.circular:app", "-o", "json")[1])["controllers"]
    assert found["manages"] == [{"type": "parts.v1.Left", "scope": "partition='default', namespace='sales'"}]
    assert found["watches"][0]["scope"] == "name_prefix='a', metadata='tier=\"gold\"'"
    drawn = run("tests.cli.circular:app", "-o", "mermaid")[1]
    assert """ -->|"manages within partition='default', namespace='sales'"| """ in drawn
    assert "metadata='tier=#quot;gold#quot;'" in drawn


def test_graph_is_printed_as_json_and_mermaid() -> None:
    """Both have all controllers."""
    code, text = run("tests.cli.served:app", "-o", "json")
    assert (code, json.loads(text)["controllers"][0]["name"]) == (0, "staff/teams")
    code, text = run("tests.cli.served:app", "--output", "mermaid")
    assert (code, text.splitlines()[0]) == (0, "flowchart TD")
    assert "  staff_v1_Team -->|manages| staff_teams\n" in text


def test_object_that_is_not_an_app_is_wrong_usage() -> None:
    """`serve` prints the same error."""
    code, text = run("tests.cli.served:TEAM")
    assert code == 2
    assert "tests.cli.served:TEAM is <ResourceType staff.v1.Team>; it must be a headway.App" in text
