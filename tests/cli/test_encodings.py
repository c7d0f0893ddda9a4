"""Output on a terminal, or into a pipe, whose encoding lacks letters of the shown texts."""

from __future__ import annotations

from click.testing import CliRunner

from headway.cli import main


def test_letters_that_a_terminal_lacks_are_escaped() -> None:
    """A drawing has lines that Latin-1 lacks. The command succeeds and shows the rest."""
    done = CliRunner(charset="latin-1").invoke(main, ["graph", "tests.cli.served:app", "-o", "drawing"])
    assert done.exit_code == 0, done.exception
    assert "staff.v1.Team" in done.output
    assert "\\u2" in done.output
