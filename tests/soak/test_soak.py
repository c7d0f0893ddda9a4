"""An engine under a steady load costs the same after a while as before, and the judgment notices if it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.soak.__main__ import main, soaked, store_of
from tests.soak.load import ROUND, Load
from tests.soak.samples import BOUNDS, Sample, drifts

STEADY = Sample(60e6, 80_000, 108, 20, 2, 0.04, 0.002, 0.01)


@pytest.mark.wide
async def test_steady_load_does_not_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory, objects, tasks, files, the pauses of the collector, and the latency of reconciles: see `samples.py`."""
    # The turns of resources are remembered for five minutes, and this load lasts some seconds.
    monkeypatch.setattr("headway.fights._turns.GAP", 1.0)
    rounds, load = 36, Load()
    samples = await soaked(load, store_of("memory", ""), rounds, rate=0)
    assert len(samples) == rounds
    assert drifts(samples) == []
    # The load has done what it is for.
    assert load.reconciles > 3 * rounds * ROUND
    assert load.failures > rounds * ROUND // 16
    assert load.received > rounds * ROUND


@pytest.mark.parametrize("name", list(BOUNDS))
def test_growth_of_any_figure_is_a_drift(name: str) -> None:
    """Growth that has ended in the first third is none: something bounded was filled."""
    value = getattr(STEADY, name)
    grown = replace(STEADY, **{name: BOUNDS[name].of(value) * 1.001})
    assert [each.split()[0] for each in drifts([STEADY] * 8 + [grown] * 4)] == [name]
    filled = [replace(STEADY, **{name: value / 2})] * 4 + [STEADY] * 8
    assert drifts(filled) == []


@pytest.mark.parametrize("wrong", [["0"], ["10", "etcd"]])
def test_invalid_arguments_exit_with_2(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The error shows the right form."""
    assert main(wrong) == 2
    assert "600 sqlite" in capsys.readouterr().err
