"""The health service and the pages of an engine whose store fails and recovers."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events
from headway.engine import _store_health
from headway.errors import StoreUnusable, Unavailable, WriteRejected
from headway.observe import Pages, open_pages
from headway.protobuf import decode
from headway.resource import Key, Kind, pb
from headway.rpc import HealthCheckRequest, HealthCheckResponse, open_channel
from headway.storage import MemoryBackend, StoreProblem, find_problem, open_sqlite
from headway.testing.conformance import EVERYTHING, KIND, names, put, thing
from tests.helpers.plain_types import Team
from tests.http.kit import NO_CERTIFICATES
from tests.run.test_store_rolled_back import rolled_back

WATCH = "/grpc.health.v1.Health/Watch"
SERVING, NOT_SERVING = 1, 2
DECODERS: Any = {WATCH: lambda: lambda bodies: [decode(HealthCheckResponse, body) for body in bodies]}
app = headway.App("staff")


TEAM = app.type("staff", "v1", "Team", Team)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check stores more often than every two seconds, and never find that a busy machine's store is away."""
    monkeypatch.setattr(_store_health, "EVERY", 0.02)
    monkeypatch.setattr(_store_health, "PATIENCE", 60.0)


class Watched:
    """A watch of the health service, and the two health pages."""

    def __init__(self, engine: headway.Engine, stream: Any, http: httpx.AsyncClient, reports: list[object]) -> None:
        self.engine = engine
        self.reports = reports
        self._stream = stream
        self._http = http

    async def status(self) -> int:
        """Return the next status of the watch."""
        status: int = (await anext(self._stream)).status
        return status

    async def pages(self) -> tuple[int, int, str]:
        """Return the status codes of /healthz and /readyz, and the first line of /readyz."""
        ready = await self._http.get("/readyz")
        return (await self._http.get("/healthz")).status_code, ready.status_code, ready.text.splitlines()[0]

    def reported(self) -> list[str]:
        wanted = events.StoreFailed, events.StoreRecovered
        return [type(each).__name__ + " " + each.problem for each in self.reports if isinstance(each, wanted)]


@asynccontextmanager
async def watched(store: Any, service: str = "headway.resource.v1.ResourceService") -> AsyncIterator[Watched]:
    reports: list[object] = []
    with trio.fail_after(40):
        async with (
            headway.open_engine(
                store, app, network=headway.Network(["127.0.0.1:0"], insecure=True), report=reports.append
            ) as engine,
            open_pages("127.0.0.1:0", engine.status, store=lambda: engine.store_problem) as address,
            httpx.AsyncClient(base_url=f"http://{address}", verify=NO_CERTIFICATES) as http,
            open_channel(engine.addresses, decoders=DECODERS) as channel,
            channel.stream(WATCH, HealthCheckRequest(service=service)) as stream,
        ):
            it = Watched(engine, stream, http, reports)
            assert await it.status() == SERVING
            await engine.wait_idle()
            assert await it.pages() == (200, 200, "ok")
            yield it


async def test_store_that_must_be_reopened_is_neither_serving_nor_healthy(tmp_path: Path) -> None:
    """The file of the store was removed, which a restart may repair."""
    async with watched(f"sqlite:{tmp_path}/a.db") as it:
        (tmp_path / "a.db").rename(tmp_path / "elsewhere.db")
        with pytest.raises(Unavailable, match="moved or removed"):
            await it.engine.client.write(TEAM.new("core"))
        assert await it.status() == NOT_SERVING
        assert await it.pages() == (503, 503, StoreProblem.UNUSABLE.value)
        assert it.reported() == ["StoreFailed unusable"]


async def test_moved_file_is_a_problem_before_the_next_write(tmp_path: Path) -> None:
    """Reads of an open store never fail for that reason, so the regular check finds it."""
    path = tmp_path / "a.db"
    async with open_sqlite(path) as backend:
        assert await find_problem(backend) is None
        path.rename(tmp_path / "elsewhere.db")
        found = await find_problem(backend)
        assert found is not None
        assert found[0] is StoreProblem.UNUSABLE
        assert f"{path} was moved or removed while it was open" in str(found[1])
        with pytest.raises(StoreUnusable, match="moved or removed"):
            await backend.list(KIND, EVERYTHING)


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A separate file system of 1 MB. Skip the test if this process may not mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this process may mount nothing")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


async def test_full_disk_is_a_problem_until_a_write_is_stored(small_disk: Path) -> None:
    """Small writes may still fit into space that SQLite has allocated. The check makes no revision."""
    async with open_sqlite(small_disk / "a.db") as backend:
        await put(backend, thing("small"))
        with pytest.raises(WriteRejected):
            await put(backend, thing("large", "x" * 1_500_000))
        here = backend.position
        found = await find_problem(backend)
        assert found is not None
        assert found[0] is StoreProblem.AWAY
        assert "bytes of free space on its disk" in str(found[1])
        assert backend.position == here
        await put(backend, thing("other"))
        assert await find_problem(backend) is None
        assert await names(backend) == ["other", "small"]


async def test_damaged_file_is_a_problem_until_it_can_be_read(tmp_path: Path) -> None:
    """The check repeats the read that has failed."""
    path = tmp_path / "a.db"
    async with open_sqlite(path) as backend:
        for index in range(60):
            await put(backend, thing(f"n{index:02}", f"{index:02}" * 300))
    content = path.read_bytes()
    page = content.index(b"32" * 300) // 4096 * 4096
    last = content.rindex(b"32" * 300) // 4096 * 4096
    async with open_sqlite(path) as backend:
        assert await find_problem(backend) is None
        for place in {page, last}:
            _overwrite(path, place, b"\xaa" * 4096)
        with pytest.raises(StoreUnusable, match="malformed"):
            await backend.read(KIND, ("default", "default", "n32"))
        for _ in range(2):
            found = await find_problem(backend)
            assert found is not None
            assert found[0] is StoreProblem.AWAY
            assert "malformed" in str(found[1])
        for place in {page, last}:
            _overwrite(path, place, content[place : place + 4096])
        # A connection reads its pages again after a commit.
        await put(backend, thing("new"))
        assert await find_problem(backend) is None


def _overwrite(path: Path, place: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        file.write(data)


class Away(MemoryBackend):
    """A store on a network, which a test can disconnect, delay or close."""

    def __init__(self) -> None:
        super().__init__()
        self.cut_off = False
        self.broken = False
        self.silent = False
        self.back = trio.Event()
        self.closed = False

    async def read(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Any]:
        if self.cut_off:
            raise Unavailable("no leader")
        if self.broken:
            raise OSError("an error of the library that the store uses")
        if self.silent:
            await self.back.wait()
        return await super().read(kind, key)

    @property
    def position(self) -> Any:
        if self.closed:
            raise StoreUnusable("the store is closed")
        return super().position


@pytest.mark.parametrize(
    ("how", "problem", "healthy"),
    [
        ("cut_off", StoreProblem.AWAY, 200),
        ("broken", StoreProblem.AWAY, 200),
        ("silent", StoreProblem.AWAY, 200),
        ("closed", StoreProblem.UNUSABLE, 503),
    ],
)
async def test_unreachable_store_is_not_serving_until_it_answers(
    how: str, problem: StoreProblem, healthy: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store may have no leader, raise an error of a library, be silent or be closed.

    The whole server and every service have the same health.
    """
    if how == "silent":
        monkeypatch.setattr(_store_health, "PATIENCE", 0.1)
    for service in ("", "grpc.health.v1.Health"):
        store = Away()
        async with watched(store, service) as it:
            setattr(store, how, True)
            assert await it.status() == NOT_SERVING
            assert (await it.pages())[:2] == (healthy, 503)
            assert it.engine.store_problem is problem
            setattr(store, how, False)
            store.back.set()
            assert await it.status() == SERVING
            name = problem.name.lower()
            assert it.reported() == [f"StoreFailed {name}", f"StoreRecovered {name}"]


async def test_rolled_back_store_is_healthy_and_not_ready(autojump_clock: MockClock) -> None:
    """A restart would lose the decision that an operator has to make."""
    async with rolled_back() as it:
        assert it.engine.store_problem is StoreProblem.ROLLED_BACK
        pages = Pages(it.engine.status, store=lambda: it.engine.store_problem)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(pages), base_url="http://engine") as http:
            assert (await http.get("/healthz")).status_code == 200
            ready = await http.get("/readyz")
            assert (ready.status_code, ready.text.splitlines()[0]) == (503, StoreProblem.ROLLED_BACK.value)
        assert it.engine.accept_store()
        await trio.sleep(10)
        assert it.engine.store_problem is None
        failed = [each for each in it.reported if isinstance(each, events.StoreFailed)]
        assert [each.problem for each in failed] == ["rolled_back"]


async def test_recovery_counts_from_the_first_of_several_problems(autojump_clock: MockClock) -> None:
    """Each problem is reported. The next outage counts from its own beginning."""
    store, reports = Away(), list[object]()
    health = _store_health.StoreHealth(store, (), reports.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(health.watch)
        await trio.sleep(1)
        for seconds in (100, 7):
            store.cut_off = True
            await trio.sleep(seconds)
            store.closed = True
            await trio.sleep(seconds)
            store.cut_off = store.closed = False
            await trio.sleep(50)
        nursery.cancel_scope.cancel()
    failures = ["away", "unusable"]
    assert [each.problem for each in reports if isinstance(each, events.StoreFailed)] == [*failures, *failures]
    recovered = [each.seconds for each in reports if isinstance(each, events.StoreRecovered)]
    assert recovered == pytest.approx([200, 14], abs=0.1)


async def test_slow_answers_count_as_away_only_after_the_patience(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each check has the whole patience, however slow the previous ones were. The recovery comes with the answer."""
    monkeypatch.setattr(_store_health, "EVERY", 2.0)

    class Slow(MemoryBackend):
        seconds = 0.0

        async def read(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Any]:
            await trio.sleep(self.seconds)
            return await super().read(kind, key)

    store, reports = Slow(), list[object]()
    health = _store_health.StoreHealth(store, (), reports.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(health.watch)
        store.seconds = 59.0
        await trio.sleep(600)
        assert (health.problem, reports) == (None, [])
        store.seconds = 150.0
        # The check under way ends within 59 s, the next one begins within 2 s, and is late 60 s after.
        await trio.sleep(130)
        assert health.problem is StoreProblem.AWAY
        store.seconds = 0.0
        await trio.sleep(200)
        assert health.problem is None
        nursery.cancel_scope.cancel()
    assert [type(each) for each in reports] == [events.StoreFailed, events.StoreRecovered]
