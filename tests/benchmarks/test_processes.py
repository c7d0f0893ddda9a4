"""The table of one process and two has the rate of the busiest process, and the time of all."""

from __future__ import annotations

import pytest

import benchmarks.processes.__main__ as processes
from tests.helpers.etcd_server import ROOT


def test_busiest_process_limits_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    used = {1: 5.0, 2: 7.0}
    monkeypatch.setattr(processes, "cpu", used.__getitem__)
    clock = processes.Clock([1, 2])
    used[1], used[2] = 5.25, 8.0
    found = clock.end(1000)
    assert (found.servers, found.busiest, found.rate) == (1250.0, 1000.0, 1000.0)


def test_guide_has_every_row() -> None:
    guide = (ROOT / "docs/guides/placement.md").read_text()
    assert all(f"\n| {each} |" in guide for each in (processes.READS, processes.FANOUT, processes.WRITES))
