"""`make prove` runs rounds until its time is up, counts their steps, and stops at the first failure.

It takes a fresh seed each time, unless it is given one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tests.stateful.__main__ as program
from tests.stateful.__main__ import main

OTHERS = ("seeded", "wide", "deep")
WELL = "120 steps run without a violation in 6 worlds (C1 5 looks)\n40 steps run without a violation in 2 worlds ()\n"


@pytest.mark.parametrize(("seconds", "rounds"), [("0", 1), ("25", 3)])
def test_rounds_are_run_until_the_time_is_up(
    seconds: str, rounds: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A round takes ten seconds here. The first one always runs."""
    ran: list[tuple[int, str]] = []

    def run_round(seed: int, file: str) -> tuple[int, str]:
        ran.append((seed, file))
        return 0, WELL

    monkeypatch.setattr(program, "run_round", run_round)
    monkeypatch.setattr("tests.stateful.__main__.time.monotonic", lambda: len(ran) * 10.0)
    assert main([seconds, "7", "test_world.py"]) == 0
    assert ran == [(7 + each, "test_world.py") for each in range(rounds)]
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"{160 * rounds} steps run without a violation in {rounds} rounds, by seeds from 7 on"


@pytest.mark.parametrize(
    ("ended", "said"),
    [((1, "FAILED it"), "round 2 has failed"), ((0, "5 passed"), "no step of the world was counted")],
)
def test_a_round_that_fails_or_counts_nothing_ends_it(
    ended: tuple[int, str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output of the failed round is printed."""
    rounds = iter([(0, WELL), ended])
    monkeypatch.setattr(program, "run_round", lambda *_: next(rounds))
    assert main(["1000"]) == 1
    out = capsys.readouterr().out
    assert ended[1] in out
    assert said in out


def test_a_file_without_the_world_has_no_steps_to_count(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only its rounds are counted."""
    ran: list[int] = []

    def run_round(seed: int, _: str) -> tuple[int, str]:
        ran.append(seed)
        return 0, "3 passed"

    monkeypatch.setattr(program, "run_round", run_round)
    monkeypatch.setattr("tests.stateful.__main__.time.monotonic", lambda: len(ran) * 10.0)
    assert main(["15", "7", "test_leases.py"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "test_leases.py run without a violation in 2 rounds, by seeds from 7 on"


@pytest.mark.parametrize("arguments", [["0"], ["0", ""], ["0", "", "test_world.py"]])
def test_each_time_has_a_fresh_seed_and_prints_it(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make prove` passes an empty seed if it has none. One of ten million is taken twice by chance, but not always."""
    ran: list[int] = []

    def run_round(seed: int, _: str) -> tuple[int, str]:
        ran.append(seed)
        return 0, WELL

    monkeypatch.setattr(program, "run_round", run_round)
    assert [main(arguments) for _ in range(5)] == [0] * 5
    assert len(set(ran)) > 1
    printed = capsys.readouterr().out
    assert all(printed.count(f"by seeds from {seed} on") >= 2 for seed in ran)


def _drawn(profile: str, seed: int, path: Path) -> str:
    """Return what pytest draws under a profile, in a process of its own, as a round has it."""
    path.write_text(DRAWS)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "tests.conftest", "-p", "no:cacheprovider", str(path)]
    ended = subprocess.run(
        [*command, f"--rootdir={path.parent}", f"--hypothesis-seed={seed}"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "HYPOTHESIS_PROFILE": profile, "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    (drawn,) = re.findall(r"drawn (.*)", ended.stdout)
    return str(drawn)


DRAWS = """
from hypothesis import given, settings, strategies as st

drawn = []

@settings(max_examples=5, database=None)
@given(st.integers())
def test_draws(number):
    drawn.append(number)

def test_shows():
    print("drawn", drawn)
"""


@pytest.mark.parametrize(
    ("profile", "differ"),
    [
        ("round", True),
        pytest.param("default", False, marks=pytest.mark.wide),
        *[pytest.param(each, True, marks=pytest.mark.wide) for each in OTHERS],
    ],
)
def test_each_seed_has_its_own_examples_except_in_the_default_run(profile: str, differ: bool, tmp_path: Path) -> None:
    """Rounds with one and the same examples would prove no more than the first of them."""
    first, second = (_drawn(profile, seed, tmp_path / "test_drawing.py") for seed in (1, 2))
    assert (first != second) is differ
