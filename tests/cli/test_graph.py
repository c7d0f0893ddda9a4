"""`headway graph`."""

import json

from click.testing import CliRunner

from headway.cli import main


def run(*arguments: str) -> tuple[int, str]:
    """The exit code and what was printed."""
    done = CliRunner().invoke(main, ["graph", *arguments])
    return done.exit_code, done.output


def test_it_is_shown_for_people() -> None:
    """The controllers, who has none, and that there is no cycle as far as is known."""
    code, text = run("tests.cli.served:apps")
    assert code == 0
    assert text == (
        "CONTROLLER            WHAT           BY\n"
        "staff/teams  manages  staff.v1.Team\n"
        "\n"
        "No controller has to do with bank.v1.Account, staff.v1.Account, staff.v1.Site.\n"
        "\n"
        "Taken to write what they manage, because they don't say: staff/teams.\n"
        "\n"
        "No cycles.\n"
    )


def test_a_cycle_is_shown_step_by_step() -> None:
    """With the controllers on the way."""
    code, text = run("tests.cli.circular:app")
    assert code == 0
    assert (
        "Cycle 1: ring.v1.Left -> ring.v1.Right -> ring.v1.Left\n"
        "  a change of ring.v1.Left makes ring/rights write ring.v1.Right\n"
        "  a change of ring.v1.Right makes ring/lefts write ring.v1.Left\n"
    ) in text
    assert "ring/clock (timer)  manages  ring.v1.Left" in text


def test_it_is_shown_for_programs() -> None:
    """As JSON and as Mermaid."""
    code, text = run("tests.cli.served:app", "-o", "json")
    assert (code, json.loads(text)["controllers"][0]["name"]) == (0, "staff/teams")
    code, text = run("tests.cli.served:app", "--output", "mermaid")
    assert (code, text.splitlines()[0]) == (0, "flowchart TD")
    assert "  staff_v1_Team -->|manages| staff_teams\n" in text


def test_what_is_no_app_is_wrong_usage() -> None:
    """As for `serve`."""
    code, text = run("tests.cli.served:TEAM")
    assert code == 2
    assert "it must be a headway.App" in text
