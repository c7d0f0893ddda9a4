"""A process that is killed with SIGKILL around the effect of a step, on SQLite."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.step_program import PLACES

ROOT = Path(__file__).parents[2]


def run(folder: Path, place: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.helpers.step_program", str(folder), *filter(None, [place])]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=30)


@pytest.mark.parametrize("place", PLACES)
def test_killed_process_repeats_no_effect_without_a_word(tmp_path: Path, place: str) -> None:
    """The next process learns that the outcome is uncertain, with the key that the outside knows, or that it is done.

    A second process is killed at the same place, and a third one ends.
    """
    for _ in range(2):
        assert run(tmp_path, place).returncode in (-signal.SIGKILL, 0)
    ended = run(tmp_path)
    assert ended.stdout.endswith("charged 5\n"), ended.stderr
    calls = [line.split() for line in (tmp_path / "bank").read_text().splitlines()]
    expected = {"intention stored": ["True"], "effect happened": ["False", "True", "True"], "result stored": ["False"]}
    assert [uncertain for _, uncertain in calls] == expected[place]
    assert len({key for key, _ in calls}) == 1
