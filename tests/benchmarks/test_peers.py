"""Headway's side of the comparison with other runtimes does the work that its rows are named for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks._harness import version
from benchmarks.kube_peers.__main__ import LINES, change_rows, memory_rows, start_rows
from benchmarks.peers import __main__, _etcd, _headway, _network
from benchmarks.peers.__main__ import Work, controllers, works
from tests.helpers.etcd_server import ROOT, need_etcd
from tests.helpers.go_programs import need_go_program


@pytest.mark.parametrize("work", works(40), ids=lambda work: f"{work.mode} {work.size} {work.other} {work.figure}")
async def test_each_work_ends_with_its_figure(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_headway, "SAMPLES", 20)
    found = await _headway.run(work.mode, work.size, work.other, gc_freeze=work.other != 2)
    assert found["cpu_us"] > 0
    # The peak of a process that has done more before does not grow.
    assert found[work.figure] > 0 or work.mode == "peak"


async def test_writes_with_a_silence_take_longer_and_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_headway, "SAMPLES", 40)
    found = await _headway.run("latency", 0, 20, gc_freeze=True)
    assert found["wall_us"] >= 4 * 20e3
    assert found["each_us"] == found["cpu_us"] / 4


def test_ratio_is_that_of_the_defaults_to_the_better_figure_of_the_peer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each side is measured with one option changed, and a measurement with two figures is made once."""
    ran: list[Sequence[str]] = []

    def measured(command: Sequence[str]) -> dict[str, float]:
        ran.append(command)
        theirs = 4.0 if "-priority-queue=false" in command else 8.0
        figure = theirs if command[0] == "peer" else 20.0 if _headway.NO_FREEZE in command else 10.0
        return {each.figure: figure for each in works(10)}

    monkeypatch.setattr(__main__, "_ran", measured)
    controllers(Path("peer"), 10, 1)
    rows = capsys.readouterr().out.splitlines()
    assert rows[-1] == "| peak memory, bytes | 1.00 | 2.00 | 0.80 | 0.40 | 2.50 |"
    assert len(rows) == 2 + len(works(10))
    assert len(ran) == 4 * len({(each.mode, each.size, each.other) for each in works(10)})


def test_versions_of_the_peers_are_those_of_their_programs() -> None:
    assert [version(each).split()[0] for each in ("k8s.io/client-go", "go.etcd.io/etcd/server/v3")] == [
        "client-go",
        "etcd/server/v3",
    ]
    with pytest.raises(LookupError):
        version("example.com/none")


def test_guide_has_every_row() -> None:
    """The tables of the guide have the rows that the command prints, in this order, and no others."""
    guide = (ROOT / "docs/guides/how-fast.md").read_text().partition("## The formulas")[0]
    texts = [each.text for each in works(100_000)]
    texts += [each.text for each in (*_network.works(10_000, 1), *_network.large_works(100_000))]
    texts += [_etcd.text_of(each) for each in _etcd.WRITERS]
    texts += [LINES, *(each.text for each in (*change_rows(), *start_rows(1_000), *memory_rows(10_000)))]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in guide.splitlines() if line.startswith("| ")]
    assert [each for each in rows if each not in ("work", "with many Websites")] == texts


@pytest.mark.wide
def test_writes_to_etcd_cost_both_clients_time() -> None:
    need_etcd()
    rows = list(_etcd.rows(need_go_program("etcd-go-peer"), 100, 1))
    assert [row.text for row in rows] == ["creation by 1 writer", "creation by 64 writers"]
    assert all(row.headway > row.etcd_go > 0 for row in rows)
