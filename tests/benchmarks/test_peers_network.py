"""The programs of the network's rows: both servers answer alike, and the client measures whole answers only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from benchmarks.peers._network import Pair, Work, large_works, measured, open_pair, rows, works
from tests.helpers.go_programs import need_go_program

SIZE = 40


@pytest.fixture(scope="module")
def program() -> Path:
    return need_go_program("grpc-go-peer")


@pytest.fixture(scope="module")
def pair(program: Path) -> Iterator[Pair]:
    with open_pair(program, SIZE) as pair:
        yield pair


@pytest.mark.parametrize("work", [*works(SIZE, 32), *large_works(SIZE)], ids=lambda work: work.text)
def test_each_work_costs_both_servers_time(program: Path, pair: Pair, work: Work) -> None:
    assert measured(program, pair.headway, SIZE, work) > 0
    assert measured(program, pair.grpc_go, SIZE, work) > 0


@pytest.mark.parametrize("work", works(SIZE, 32)[-2:], ids=lambda work: work.work)
def test_answer_without_all_resources_is_an_error(program: Path, pair: Pair, work: Work) -> None:
    for server in pair:
        with pytest.raises(RuntimeError, match=f"expected {SIZE + 1} resources, got {SIZE}"):
            measured(program, server, SIZE + 1, work)
