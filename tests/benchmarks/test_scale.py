"""The programs behind the guide on scale measure every unit that its formulas name, with real processes."""

from __future__ import annotations

import os

import pytest

from benchmarks import scale, shards
from benchmarks._etcd import etcd_member
from tests.helpers.etcd_server import ROOT, need_etcd


@pytest.mark.deep
def test_units_of_an_engine_are_measured() -> None:
    """The sizes of this test are too small for the differences, but whatever is counted directly is there."""
    need_etcd()
    with etcd_member() as endpoint:
        found = scale.units((endpoint, scale.etcd_pid(endpoint)), resources=200, watchers=100, commits=20)
    assert found.commit > 0
    assert found.resource > 0
    # An event has the payload of 120 bytes, and names.
    assert 200 < found.wire < 1000


@pytest.mark.deep
def test_sharded_controller_is_measured_in_two_workers() -> None:
    """The line has a figure for each process."""
    need_etcd()
    with etcd_member() as endpoint:
        line = shards.measured(endpoint, "worker", 2, 20, 0.0)
    assert all(f"{who} " in line for who in ("worker 1", "worker 2", "server", "etcd", "sum"))


def test_processor_time_of_a_process_grows_with_its_work() -> None:
    """It is read from the kernel, in ticks."""
    before = scale.cpu_of(os.getpid())
    spent = os.times().user
    while os.times().user - spent < 0.1:
        pass
    assert scale.cpu_of(os.getpid()) - before > 0.05


def test_guide_has_every_unit() -> None:
    """Each unit that is measured has the row that the program prints, except for the memory of a cache."""
    guide = (ROOT / "docs/guides/how-fast.md").read_text()
    assert set(scale.Units._fields) - scale.MEANINGS.keys() == {"cached"}
    assert [each for each, meaning in scale.MEANINGS.items() if f"| `{each}` | {meaning} |" not in guide] == []


def test_figures_of_the_example_follow_from_the_units() -> None:
    """Each formula of the guide is computed by hand here, with units that make it easy."""
    unit = scale.Units(
        commit=10e-3,
        etcd=1.0,
        follow=1e-3,
        reconcile=20e-3,
        event=100e-6,
        select=1e-6,
        progress=100e-6,
        resource=1000,
        cached=1.0,
        watcher=40_000,
        wire=90,
        progress_wire=500,
    )
    # A commit costs 1 + 0.9 + 1 ms, and 1 + 1 ms for the watchers; in a second there are 555.6 of them, and 0.1 s.
    assert scale.example(unit) == (
        "The example: 2.8 s of processor time a second, 0.6 s of them for selection, 1.0 MB of network, 1.1 GB of "
        "memory; an engine is full at 184 commits a second."
    )
