"""`headway graph`."""

import json

from click.testing import CliRunner

from headway.cli import main


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


def test_graph_is_printed_as_json_and_mermaid() -> None:
    """Both have all controllers."""
    code, text = run("tests.cli.served:app", "-o", "json")
    assert (code, json.loads(text)["controllers"][0]["name"]) == (0, "staff/teams")
    code, text = run("tests.cli.served:app", "--output", "mermaid")
    assert (code, text.splitlines()[0]) == (0, "flowchart TD")
    assert "  staff_v1_Team -->|manages| staff_teams\n" in text
