"""Every mutant of the catalogue still fits the source, and `make mutants` reports the result of each."""

from __future__ import annotations

from pathlib import Path

import pytest

import tests.mutants.__main__ as program
from tests.mutants.__main__ import ROOT, Run, Verdict, first_failed, in_order_of_cost, main, table
from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import mutated

LOST = next(each for each in MUTANTS if each.name == "a lost lease ends nothing")
STALE = next(each for each in MUTANTS if each.name == "a store accepts a stale term")


def test_catalogue_has_enough_mutants_with_unique_names() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 56


def test_mutants_fit_the_source() -> None:
    """Each can be made, is Python, and has tests."""
    unfit: dict[str, str] = {}
    for mutant in MUTANTS:
        source = (ROOT / "engine" / "headway" / mutant.file).read_text()
        try:
            compile(mutated(mutant, source), mutant.file, "exec")
        except (ValueError, SyntaxError) as error:
            unfit[mutant.name] = str(error)
        if not (ROOT / "tests" / mutant.tests).exists():
            unfit[mutant.name] = f"no {mutant.tests}"
    assert unfit == {}


@pytest.mark.parametrize(
    ("status", "exit_status", "output"),
    [
        (1, 0, "1 of 1 mutants killed: 100%"),
        (2, 0, "1 of 1 mutants killed: 100%"),
        (None, 0, "1 of 1 mutants killed: 100%"),
        (0, 1, "0 of 1 mutants killed: 0%"),
        # pytest was called wrongly or found no tests, which proves nothing about the mutant.
        (4, 1, "0 of 1 mutants killed: 0%"),
        (5, 1, "0 of 1 mutants killed: 0%"),
    ],
)
def test_mutant_is_killed_only_by_failing_tests(
    status: int | None,
    exit_status: int,
    output: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A mutant that survives makes the program fail."""
    sources: list[str] = []

    def run(tests: str, only: str, source: Path, _seed: int = 1) -> Run:
        assert (tests, only) == (LOST.tests, LOST.only)
        sources.append((source / "headway" / LOST.file).read_text())
        return Run(0, "", 1.0) if len(sources) == 1 else Run(status, "test_it.py::test_one", 2.0)

    monkeypatch.setattr(program, "run", run)
    assert main(["lost lease"]) == exit_status
    out = capsys.readouterr().out
    assert out.endswith(f"{output}\n")
    assert ("SURVIVED" in out) == (exit_status == 1)
    assert sources[1] == mutated(LOST, sources[0])


def test_tests_that_fail_without_a_mutant_are_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "run", lambda *_: Run(1, "test_it.py::test_one", 1.0))
    assert main(["lost lease"]) == 1
    assert "fails without any mutant: test_it.py::test_one" in capsys.readouterr().out


def test_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nonsense"]) == 2
    assert "no mutant has any of these words in its name or file: nonsense" in capsys.readouterr().out


def test_table_shows_the_killing_test_and_the_kill_rate() -> None:
    lines = table([Verdict(LOST, "test_a.py::test_b", 1.25), Verdict(STALE, "", 10.0)]).splitlines()
    assert [line.split("  ")[0] for line in lines[:3]] == ["mutant", LOST.name, STALE.name]
    assert lines[1].split()[-2:] == ["test_a.py::test_b", "1.2"]
    assert lines[2].split()[-2:] == ["SURVIVED", "10.0"]
    assert lines[-1] == "1 of 2 mutants killed: 50%"


def test_mutants_with_fast_tests_come_first() -> None:
    costs = {(LOST.tests, LOST.only): 9.0, (STALE.tests, STALE.only): 3.0}
    assert in_order_of_cost([LOST, STALE], costs) == [STALE, LOST]


@pytest.mark.parametrize(
    ("output", "failed"),
    [
        ("FAILED tests/a/test_b.py::test_c[x, y-z] - AssertionError: no\n1 failed", "test_b.py::test_c[x, y-z]"),
        ("ERROR tests/a/test_b.py - ImportError: no\n", "test_b.py"),
        ("..\n2 passed", ""),
    ],
)
def test_first_failure_is_read_from_the_output_of_pytest(output: str, failed: str) -> None:
    assert first_failed(output) == failed
