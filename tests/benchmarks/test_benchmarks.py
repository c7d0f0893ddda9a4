"""The benchmarks run at a tiny size, and print readable rows."""

from __future__ import annotations

import itertools
import json
import platform
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import importing
from benchmarks.__main__ import SCENARIOS, main
from benchmarks._harness import HEADER, PAIRS, Row, Scenario, line, measured_on, python, write_results
from tests.helpers.etcd_server import need_etcd
from tests.helpers.kube_server import need_kube

FULL_ONLY = {
    *("journal", "kube_change", "endpoints", "watchers_1000", "dns_change", "xds_change", "history_sqlite"),
    *(
        "prime_100k",
        "prime_1m",
        "queue_1m",
        "flat_10k",
        "flat",
        "first_100k",
        "update_100k",
        "list_100k",
        "snapshot_100k",
    ),
}
"""The scenarios that are at their bounds, and those that take seconds to prepare."""

SERVERS = ("etcd", "postgres")

WIDE = {
    *("share", "journal", "flat_10k", "controllers_50", "dns_change", "flat", "call_update"),
    *("etcd_prime", "etcd_fanout", "etcd_memory", "postgres_prime", "postgres_fanout"),
    *("xds_memory", "xds_push", "xds_change"),
    *(each.name for each in importing.ROWS),
}
WIDE |= {
    f"{kind}_{size}"
    for kind in ("prime", "queue", "first", "update", "list", "snapshot", "flat")
    for size in ("100k", "1m")
}


DIFFERENCES = {"journal", "controllers_50", "watchers_100", "watchers_1000"}
"""The scenarios whose costs are differences of two measurements, which a busy machine can make negative."""


BYTES = {
    "memory",
    "kube_memory",
    "etcd_memory",
    "share",
    "projection",
    "scope_memory",
    "history_sqlite",
    "history_memory",
    "xds_memory",
}


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a scenario's test."""
    if name.startswith("kube"):
        return [pytest.mark.kube]
    return [pytest.mark.wide] if name in WIDE else []


@pytest.mark.parametrize(
    "scenario",
    [
        # `share` visits all objects several times, `import` and its like start six interpreters, and `journal` runs
        # `reconcile` 36 times. Several rows of growth differ only in their size.
        pytest.param(each, id=each.name, marks=marks_of(each.name))
        for each in SCENARIOS.values()
    ],
)
def test_scenario_returns_both_costs_and_their_ratio(scenario: Scenario) -> None:
    """Each row has the costs of Headway and of its opponent, and their ratio, and can be printed."""
    if scenario.name.startswith("etcd"):
        need_etcd()
    if scenario.name.startswith("kube"):
        need_kube()
    # The size of `import` is the number of interpreters started for each side. A few are enough for a row.
    row = scenario.run(size=min(3, scenario.size), rounds=1)
    unit = "bytes" if scenario.name in BYTES else "us"
    assert {f"ours_{unit}", f"against_{unit}", "ratio"} == row.as_json().keys()
    assert (scenario.name, scenario.bound) == (row.name, row.bound)
    assert row.against > 0 or scenario.name in DIFFERENCES
    assert line(row).startswith(scenario.name)


@pytest.mark.wide
def test_imports_are_measured_with_bytecode(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An import is timed with the bytecode of the import before it, even if the environment disables bytecode."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    importing.imported("import headway.errors", str(tmp_path))
    assert list(tmp_path.rglob("headway/errors.*.pyc"))


def test_results_are_written_by_a_complete_run_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The results have the commit, the Python, the machine and its load. Earlier results are removed."""
    written: list[Sequence[Row]] = []
    monkeypatch.setattr("benchmarks.__main__.write_results", lambda rows, _: written.append(rows))
    scenarios = replace_scenarios(monkeypatch, one=[1.0], two=[1.2])
    assert main(["one"]) == main(["one", "two=7"]) == main(["--quick"]) == 0
    assert not written
    assert main([]) == 0
    assert [[row.name for row in rows] for rows in written] == [list(scenarios)]

    path = tmp_path / "results.json"
    path.write_text('{"one": {}}')
    write_results([Row("two", 1.0, 1.0, "bytes", 1.4)], [0.5, 0.25, 0.1], path)
    found = json.loads(path.read_text())
    assert found["rows"] == {"two": {"ours_bytes": 1.0, "against_bytes": 1.0, "ratio": 1.0}}
    assert found.keys() == {"run", "rows"}
    assert found["run"].keys() == {"commit", "python", "machine", "load_before", "load_after"}
    assert platform.python_version() in found["run"]["python"]
    assert found["run"]["load_before"] == [0.5, 0.25, 0.1]


@pytest.mark.parametrize(
    ("prefix", "configured", "build"),
    [
        ("/opt/python", "'--prefix=/opt/python'", "built without PGO and LTO"),
        ("/opt/python", "'--enable-optimizations' '--with-lto'", "built with PGO and LTO"),
        ("/opt/python", "'--with-lto'", "built with LTO"),
        ("/usr", "'--with-lto'", "of Debian"),
    ],
)
def test_python_is_named_with_its_build(
    monkeypatch: pytest.MonkeyPatch, prefix: str, configured: str, build: str
) -> None:
    """The configuration that a distribution's Python describes may be that of another build."""
    monkeypatch.setattr("sys.base_prefix", prefix)
    monkeypatch.setattr("sysconfig.get_config_var", lambda _: configured)
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: {"PRETTY_NAME": "Debian"})
    assert python() == f"{platform.python_implementation()} {platform.python_version()} {build}"
    assert measured_on("Go 1.26").endswith(f"; {python()}; Go 1.26.")


def test_broken_bound_exits_with_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The error names the scenario. A run of another size than the scenario's own has no bound."""
    replace_scenarios(monkeypatch, held=[1.5], broken=[1.6])
    assert main(["held"]) == 0
    assert main(["held", "broken"]) == 1
    assert "broken: 1.600 is above its bound of 1.5" in capsys.readouterr().err
    assert main(["broken=5"]) == 0


def test_quick_run_fails_only_if_five_pairs_break_the_bound_twice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A quick run ends at the first pair within the bound, uses its own size, and returns the best pair.

    The second five pairs come at its end, since other load may last through all of the first ones.
    """
    ratios = {"first": [1.4], "last": [9.0, 8.0, 7.0, 6.0, 1.5], "never": [3.0, 1.6, 2.0, 9.0, 4.0], "long": [9.0]}
    ratios |= {"later": [1.6] * PAIRS + [1.5]}
    scenarios = replace_scenarios(monkeypatch, **ratios)
    scenarios["long"] = replace(scenarios["long"], quick=0)
    assert main(["--quick", "first", "last"]) == 0
    assert main(["--quick", "later", "first"]) == 0
    assert [each.split()[0] for each in capsys.readouterr().out.splitlines()[-4:]] == [
        "later",
        "first",
        "above",
        "later",
    ]
    assert main(["--quick", "never"]) == 1
    assert scenarios["never"].best_pair().ratio == 1.6
    assert main(["--quick"]) == 1
    del scenarios["never"]
    assert main(["--quick"]) == 0, "a scenario without a quick size must be left out"


def test_quick_run_measures_scenarios_with_a_bound_and_without_a_server_of_a_store() -> None:
    """A scenario without a bound cannot fail, so it is not measured."""
    quick = {name for name, each in SCENARIOS.items() if each.quick}
    bounded = {name for name, each in SCENARIOS.items() if each.bound is not None and name.split("_")[0] not in SERVERS}
    assert quick == bounded - FULL_ONLY
    assert all(each.quick <= each.size for each in SCENARIOS.values())


def replace_scenarios(monkeypatch: pytest.MonkeyPatch, **ratios: Sequence[float]) -> dict[str, Scenario]:
    """Replace the scenarios by some with a bound of 1.5, which return these ratios in turn, repeatedly."""

    def scenario(name: str) -> Scenario:
        found = itertools.cycle(ratios[name])

        def measure(_: int, __: int) -> Row:
            return Row(name, next(found), 1.0, "us", 1.5)

        return Scenario(name, 1.5, measure, size=10, rounds=1, quick=1)

    scenarios = {name: scenario(name) for name in ratios}
    monkeypatch.setattr("benchmarks.__main__.SCENARIOS", scenarios)
    return scenarios


def test_row_is_printed_as_soon_as_it_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The machine and the header are printed before the first measurement, and each row before the next one."""
    printed: list[str] = []

    def scenario(name: str) -> Scenario:
        def measure(*_: int) -> Row:
            printed.append(capsys.readouterr().out)
            return Row(name, 4.0, 2.0, "us", None)

        return Scenario(name, None, measure, size=1, rounds=1)

    monkeypatch.setattr("benchmarks.__main__.SCENARIOS", {name: scenario(name) for name in ("one", "two")})
    assert main(["one=1", "two=1"]) == 0
    assert printed == [f"{measured_on()}\n\n{HEADER}\n", f"{line(Row('one', 4.0, 2.0, 'us', None))}\n"]
