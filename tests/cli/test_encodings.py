"""Output on a terminal, or into a pipe, whose encoding lacks letters of the shown texts."""

from __future__ import annotations

import json
from collections.abc import Callable

import click
import pytest
import yaml
from click.testing import CliRunner

from headway.cli import main
from headway.cli._output import Output, output_option, show_object


@click.command()
@output_option()
def show(output: Output) -> None:
    show_object({"note": "naïve 日本"}, output)


def test_letters_that_a_terminal_lacks_are_escaped() -> None:
    """A drawing has lines that Latin-1 lacks. The command succeeds and shows the rest."""
    done = CliRunner(charset="latin-1").invoke(main, ["graph", "tests.cli.served:app", "-o", "drawing"])
    assert done.exit_code == 0, done.exception
    assert "staff.v1.Team" in done.output
    assert "\\u2" in done.output


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_output_for_programs_is_utf8(output: str, read: Callable[[str], object]) -> None:
    """An escape of the terminal's would be another text in it, or none."""
    done = CliRunner(charset="latin-1").invoke(show, ["-o", output])
    assert done.exit_code == 0, done.exception
    assert read(done.stdout_bytes.decode()) == {"note": "naïve 日本"}
