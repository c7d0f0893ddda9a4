"""The smallest example prints what it should, and stays small."""

import subprocess
import sys

import trio

from tests.examples.fleet_kit import PATIENCE, ROOT

EXAMPLE = ROOT / "examples" / "01_minimal.py"


async def test_minimal_example_prints_the_accounts_of_both_teams() -> None:
    """The output has the accounts in order, and nothing else."""
    with trio.fail_after(PATIENCE):
        ended = await trio.run_process([sys.executable, str(EXAMPLE)], capture_stdout=True, stderr=subprocess.STDOUT)
    assert ended.stdout.decode().splitlines() == ["['ada', 'grace']", "['grace', 'katherine']"]


def test_minimal_example_has_at_most_fifty_lines() -> None:
    """Blank lines and documentation count."""
    assert len(EXAMPLE.read_text().splitlines()) <= 50
