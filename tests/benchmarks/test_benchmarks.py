"""The benchmarks run, at a tiny size, and give rows that can be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import importing
from benchmarks.__main__ import SCENARIOS, main
from benchmarks._harness import HEADER, RESULTS, Row, Scenario, line, write_results
from tests.helpers.etcd_server import need_etcd


@pytest.mark.parametrize(
    "scenario",
    [
        # `share` measures what it holds by looking through all objects, a few times.
        pytest.param(each, id=each.name, marks=[pytest.mark.wide] if each.name == "share" else [])
        for each in SCENARIOS.values()
    ],
)
def test_a_scenario_gives_a_row_with_both_costs_and_their_ratio(scenario: Scenario) -> None:
    """Each scenario's row has ours, against and the ratio, under the names of its unit, and can be printed."""
    if scenario.name.startswith("etcd"):
        need_etcd()
    # The size of `import` is a number of interpreters that are started, for each side: one is enough for a row.
    row = scenario.run(size=min(3, scenario.size), rounds=1)
    unit = "bytes" if scenario.name in ("memory", "etcd_memory", "share", "projection") else "us"
    assert {f"ours_{unit}", f"against_{unit}", "ratio"} == row.as_json().keys()
    assert (scenario.name, scenario.bound) == (row.name, row.bound)
    assert row.against > 0
    assert line(row).startswith(scenario.name)


def test_imports_are_measured_with_bytecode(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An import is timed with what the one before it has written, also where the environment has Python write none."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    importing.imported("headway.errors", str(tmp_path))
    assert list(tmp_path.rglob("headway/errors.*.pyc"))


def test_results_keep_the_rows_of_scenarios_that_were_not_run(tmp_path: Path) -> None:
    """Running one scenario replaces its own row in the results and no other."""
    path = tmp_path / "results.json"
    write_results([Row("one", 4.0, 2.0, "us", 3.0), Row("two", 1.0, 1.0, "bytes", 1.4)], path)
    write_results([Row("one", 8.0, 2.0, "us", 3.0)], path)
    assert json.loads(path.read_text()) == {
        "one": {"ours_us": 8.0, "against_us": 2.0, "ratio": 4.0},
        "two": {"ours_bytes": 1.0, "against_bytes": 1.0, "ratio": 1.0},
    }


def test_a_line_says_whether_the_bound_is_held() -> None:
    """A row above its bound is marked, and one without a bound is not judged."""
    rows = [Row("over", 4.0, 2.0, "us", 1.5), Row("under", 2.0, 2.0, "us", 1.5), Row("free", 9.0, 1.0, "us", None)]
    assert [line(row).split()[-1] for row in rows] == ["NO", "yes", "-"]


def test_a_row_is_printed_as_soon_as_it_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The header before anything is measured, and each row before the next one is."""
    printed: list[str] = []

    def scenario(name: str) -> Scenario:
        def measure(*_: int) -> Row:
            printed.append(capsys.readouterr().out)
            return Row(name, 4.0, 2.0, "us", None)

        return Scenario(name, None, measure, size=1, rounds=1)

    monkeypatch.setattr("benchmarks.__main__.SCENARIOS", {name: scenario(name) for name in ("one", "two")})
    assert main(["one=1", "two=1"]) == 0
    assert printed == [f"{HEADER}\n", f"{line(Row('one', 4.0, 2.0, 'us', None))}\n"]


def test_an_unknown_name_exits_with_2_and_names_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    """A name that is no scenario measures nothing."""
    assert main(["prime", "nonsense"]) == 2
    said = capsys.readouterr()
    assert "nonsense" in said.err
    assert all(name in said.err for name in SCENARIOS)
    assert said.out == ""


def test_another_size_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """It is printed, and the results, which are of the scenario's own size, stay as they are."""
    before = RESULTS.read_text()
    assert main(["noop=3"]) == 0
    assert "noop" in capsys.readouterr().out
    assert RESULTS.read_text() == before


@pytest.mark.parametrize("size", ["0", "many", "-1"])
def test_a_size_that_is_none_is_refused(size: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By what was given and what would be right."""
    assert main([f"flat={size}"]) == 2
    assert f"{size!r} is no size; write a whole number above 0" in capsys.readouterr().err
