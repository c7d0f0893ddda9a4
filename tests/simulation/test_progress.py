"""The progress of an exploration on a terminal."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import pytest

import headway
from headway import field
from headway.testing import simulation

@headway.message
class Team:
    size: int = field(1)

app = headway.App("staff")
TEAM = app.type("staff", "v1", "Team", Team)

@app.controller(manages=TEAM)
async def teams(rt, request):
    team = rt.resource(request)
    if team is not None:
        async with rt.conditions(team) as conditions:
            conditions.set("Ready", True)

async def scenario(world):
    await world.client.apply(TEAM.new("core", Team(size=1)))
    await world.wait_idle()

print(len(simulation.explore(app, scenario, seconds=0.5).plans))
"""


@pytest.mark.wide
def test_progress_is_one_line_of_a_terminal_and_leaves_none(tmp_path: Path) -> None:
    """Standard error is a terminal of 40 columns here."""
    ours, theirs = os.openpty()
    os.set_blocking(ours, False)
    subprocess.run(["stty", "cols", "40"], stdin=theirs, check=True)
    environment = {**os.environ, "TERM": "xterm", "PYTHONPATH": str(ROOT / "engine")}
    command = [sys.executable, "-c", PROGRAM]
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=theirs, timeout=100, check=True
        )
        os.close(theirs)
        shown = (terminal.read(1 << 20) or b"").decode().split("\r\x1b[K")
    total = int(done.stdout)
    assert shown[0] == shown[-1] == ""
    assert len(shown) > 2  # at least one line, and the one that is cleared at the end
    assert all(len(line) <= 39 and re.match(rf"\d+ of {total} runs, now ", line) for line in shown[1:-1])
