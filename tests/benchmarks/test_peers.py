"""Headway's side of the comparison with other runtimes does the work that its rows are named for."""

from __future__ import annotations

import pytest

from benchmarks.peers import _headway
from benchmarks.peers.__main__ import Work, works


@pytest.mark.parametrize("work", works(40), ids=lambda work: f"{work.mode} {work.size} {work.other}")
async def test_each_work_ends_with_its_figure(work: Work) -> None:
    found = await _headway.MODES[work.mode](work.size, min(work.other, 20))
    assert found["cpu_us"] > 0
    assert work.figure == "bytes" or found[work.figure] > 0
