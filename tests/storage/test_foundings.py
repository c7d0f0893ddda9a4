"""Several processes that found one store at the same moment: its id, its schemas, a lease and a peering."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from headway.storage import open_sqlite, open_store
from headway.testing.conformance import EVERYTHING
from tests.helpers.etcd_server import EtcdServer
from tests.helpers.postgres_server import PostgresServer

ROUNDS = [
    pytest.param(2, marks=pytest.mark.wide, id="a few rounds"),
    pytest.param(30, marks=[pytest.mark.deep, pytest.mark.timeout(600)], id="many rounds"),
]


class Founders:
    """Processes that open the stores whose URLs they are told."""

    def __init__(self, programs: list[subprocess.Popen[str]]) -> None:
        self._programs = programs

    def found(self, url: str) -> list[str]:
        """Let all programs open a store at the same moment. Return what each of them says."""
        for each in self._programs:
            assert each.stdin is not None
            each.stdin.write(f"{url}\n")
            each.stdin.flush()
        said = []
        for each in self._programs:
            assert each.stdout is not None
            said.append(each.stdout.readline().strip())
        return said


@contextmanager
def founders(count: int) -> Iterator[Founders]:
    with ExitStack() as stack:
        programs = []
        for number in range(count):
            command = [sys.executable, "-m", "tests.helpers.founding_program", str(number)]
            program = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            programs.append(stack.enter_context(program))
            stack.callback(program.kill)
        yield Founders(programs)


@pytest.fixture(params=["etcd", "postgres"])
def new_url(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Return the URL of a new store at each call."""
    if request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        return postgres.new_url
    etcd: EtcdServer = request.getfixturevalue("etcd")
    return lambda: f"etcd://{etcd.endpoint}{etcd.new_prefix()}"


@pytest.mark.parametrize("rounds", ROUNDS)
async def test_engines_that_found_one_shared_store_at_once_all_open_it(new_url: Callable[[], str], rounds: int) -> None:
    """They agree on its id and on the holder of a lease, and the types of all of them are recorded."""
    with founders(3) as programs:
        for _ in range(rounds):
            url = new_url()
            said = programs.found(url)
            assert {each.split()[0] for each in said} == {"opened"}, said
            assert len(set(said)) == 1, said
            async with open_store(url) as store:
                shared, _ = await store.list(("founding", "Shared"), EVERYTHING)
                assert len(shared) == 3
                assert {("founding", f"Own{number}") for number in range(3)} < {*await store.kinds()}
                peerings, _ = await store.list(("peering", "Peering"), EVERYTHING)
                assert len(peerings) == 1


@pytest.mark.skipif(os.name != "posix", reason="the lock is flock's")
@pytest.mark.parametrize("rounds", ROUNDS)
async def test_one_of_the_engines_that_found_one_store_in_a_file_at_once_opens_it(tmp_path: Path, rounds: int) -> None:
    """The others name it. Nothing of the founding stays behind."""
    with founders(3) as programs:
        for number in range(rounds):
            path = tmp_path / f"{number}.db"
            said = sorted(programs.found(f"sqlite:{path}"))
            assert [each.split()[0] for each in said] == ["OnlyReadable:", "OnlyReadable:", "opened"], said
            assert all("is held by process" in each for each in said[:2])
        programs.found("sqlite:")
        assert set(os.listdir(tmp_path)) == {
            f"{number}.db{suffix}" for number in range(rounds) for suffix in ("", ".lock")
        }
    for number in range(rounds):
        async with open_sqlite(tmp_path / f"{number}.db") as store:
            shared, _ = await store.list(("founding", "Shared"), EVERYTHING)
            assert len(shared) == 1
