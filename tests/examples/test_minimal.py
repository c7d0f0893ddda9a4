"""The smallest example does what it says, and stays small."""

import subprocess
import sys

import trio

from tests.examples.fleet_kit import PATIENCE, ROOT

EXAMPLE = ROOT / "examples" / "01_minimal.py"


async def test_the_minimal_example_prints_a_teams_accounts() -> None:
    """Run as a program it prints the accounts of both teams, in order, and nothing else."""
    with trio.fail_after(PATIENCE):
        ended = await trio.run_process([sys.executable, str(EXAMPLE)], capture_stdout=True, stderr=subprocess.STDOUT)
    assert ended.stdout.decode().splitlines() == ["['ada', 'grace']", "['grace', 'katherine']"]


def test_the_minimal_example_fits_a_screen() -> None:
    """Fifty lines, its blank ones and its documentation included."""
    assert len(EXAMPLE.read_text().splitlines()) <= 50
