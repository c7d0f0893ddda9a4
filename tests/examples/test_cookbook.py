"""The recipes of the cookbook: each under every fault, and the one for HTTP against a real server."""

from __future__ import annotations

import importlib.util
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

import headway
from headway.testing import simulation

PAGE = (Path(__file__).parents[2] / "docs/guides/cookbook.md").read_text()


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the program of the page as a module, whose clocks the simulation replaces."""
    path = tmp_path_factory.mktemp("book") / "cookbook.py"
    path.write_text("\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)))
    spec = importlib.util.spec_from_file_location("cookbook", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Handler(BaseHTTPRequestHandler):
    """An API for records: the second call is told to wait, and one address is refused."""

    records: dict[str, str]
    calls: list[str]

    def handle_call(self) -> None:
        """Answer one call."""
        name = self.path.removeprefix("/records/")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.calls.append(f"{self.command} {name}")
        status, answer = 200, {}
        if len(self.calls) == 2:
            status = 429
        elif self.command == "PUT":
            address = json.loads(body)["address"]
            status = 422 if address == "nowhere" else 200
            if status == 200:
                self.records[name] = address
        elif name not in self.records:
            status = 404
        elif self.command == "DELETE":
            del self.records[name]
        else:
            answer = {"address": self.records[name]}
        self.send_response(status)
        content = json.dumps(answer).encode()
        self.send_header("Content-Length", str(len(content)))
        if status == 429:
            self.send_header("Retry-After", "0.2")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        """Print nothing."""


@contextmanager
def provider() -> Iterator[tuple[str, type[Handler]]]:
    """Serve the API, and yield its address and what it has."""
    methods = dict.fromkeys(("do_GET", "do_PUT", "do_DELETE"), Handler.handle_call)
    handler = type("OneHandler", (Handler,), {"records": {}, "calls": [], **methods})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", handler
        finally:
            server.shutdown()
            thread.join()


async def test_records_at_an_http_api_follow_the_resources(book: Any) -> None:
    """They are created after a pause that the API asks for, refused ones are reported, and deleted ones go."""
    with provider() as (url, api):
        async with (
            httpx.AsyncClient(base_url=url) as http,
            headway.open_engine("memory:", book.dns_app(book.Provider(http))) as engine,
        ):
            with trio.fail_after(30):
                await engine.client.apply(book.RECORD.new("web", book.Record(address="10.0.0.1")))
                await headway.until_condition(engine.client, book.RECORD, "web", "Synced")
                assert api.records == {"web": "10.0.0.1"}
                assert api.calls == ["GET web", "PUT web", "GET web", "PUT web"]
                await engine.client.apply(book.RECORD.new("bad", book.Record(address="nowhere")))
                bad = await headway.until(
                    engine.client, book.RECORD, "bad", lambda found: found is not None and bool(found.status)
                )
                assert bad is not None
                (condition,) = bad.status["records"].conditions
                assert (condition.state.name, condition.reason) == ("FALSE", "PermanentFailure")
                await engine.client.delete(book.RECORD.id("web"))
                await headway.until_gone(engine.client, book.RECORD, "web")
                assert api.records == {}
                # No call may be in progress when the client closes.
                await engine.wait_idle()


class Memory:
    """The provider as the simulation's world outside."""

    def __init__(self) -> None:
        self._records: dict[str, str] = {}

    async def address(self, name: str) -> str | None:
        return self._records.get(name)

    async def put(self, name: str, address: str) -> None:
        self._records[name] = address

    async def delete(self, name: str) -> None:
        self._records.pop(name, None)

    def state(self) -> dict[str, str]:
        return self._records


@pytest.mark.wide
@pytest.mark.timeout(300)
def test_records_survive_every_fault(book: Any) -> None:
    async def scenario(world: simulation.World) -> None:
        for address in ("10.0.0.1", "10.0.0.2"):
            await world.client.apply(book.RECORD.new("web", book.Record(address=address)))
            await world.client.apply(book.RECORD.new("old", book.Record(address=address)))
            await world.wait_idle()
        await world.client.delete(book.RECORD.id("old"))
        await world.wait_idle()

    simulation.explore(lambda process: book.dns_app(process.outside), scenario, outside=Memory)


@pytest.mark.wide
@pytest.mark.timeout(300)
def test_jobs_are_made_once_under_every_fault(book: Any) -> None:
    async def scenario(world: simulation.World) -> None:
        await world.client.apply(book.SCHEDULE.new("report", book.Schedule(cron="*/5 * * * *", command="make")))
        await world.sleep(900)

    simulation.explore(book.jobs, scenario, quiet=None)


@pytest.mark.wide
@pytest.mark.timeout(300)
def test_silent_workers_are_found_under_every_fault(book: Any) -> None:
    async def scenario(world: simulation.World) -> None:
        now = book.datetime.now(book.UTC)
        await world.client.apply(book.WORKER.new("w1", book.Worker(seen=now)))
        await world.wait_idle()
        await world.sleep(120)

    simulation.explore(book.jobs, scenario)


@pytest.mark.wide
@pytest.mark.timeout(300)
def test_passwords_rotate_under_every_fault(book: Any) -> None:
    async def scenario(world: simulation.World) -> None:
        await world.client.apply(book.ROTATION.new("db", book.Rotation(days=0.01)))
        await world.wait_idle()
        await world.sleep(1_000)

    simulation.explore(book.vault, scenario, quiet=None)


@pytest.mark.wide
@pytest.mark.timeout(300)
def test_sums_are_right_under_every_fault(book: Any) -> None:
    async def scenario(world: simulation.World) -> None:
        await world.client.apply(book.BATCH.new("b", book.Batch(total=3)))
        for number in range(3):
            await world.client.apply(book.TASK.new(f"b-{number}", book.Task(job="b", done=number != 1)))
        await world.wait_idle()
        await world.client.apply(book.TASK.new("b-1", book.Task(job="b", done=True)))
        await world.wait_idle()

    simulation.explore(book.batches, scenario)
