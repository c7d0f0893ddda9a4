"""Metrics and health over HTTP, asked by a client that nobody here wrote."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

import httpx
import pytest
import trio

import headway
from headway import ControllerStatus, field
from headway.observe import Metrics, open_pages


@headway.message
class Thing:
    """Nothing in it matters."""

    name: str = field(1)


def _app() -> headway.App:
    app = headway.App("paged")
    thing = app.type("test", "v1", "Thing", Thing)

    @app.controller(manages=thing)
    async def things(_: headway.Runtime, __: headway.Request) -> None: ...

    return app


async def test_a_running_engine_is_healthy_ready_and_measured() -> None:
    """Over a real socket."""
    metrics = Metrics()
    async with (
        headway.open_engine("memory:", _app(), report=metrics) as engine,
        open_pages("127.0.0.1:0", engine.status, metrics) as address,
        httpx.AsyncClient(base_url=f"http://{address}") as http,
    ):
        metrics.watch(engine.status)
        with trio.fail_after(20):
            await engine.wait_settled()
            assert (await http.get("/healthz")).text == "ok\n"
            ready = await http.get("/readyz")
            assert (ready.status_code, ready.text) == (200, "ok\n")
            scraped = await http.get("/metrics")
            assert scraped.headers["content-type"].startswith("text/plain; version=0.0.4")
            assert 'headway_controller_phase{controller="things",phase="running"} 1.0' in scraped.text
            assert (await http.get("/other")).status_code == 404
            assert (await http.post("/metrics")).status_code == 405
            assert (await http.head("/healthz")).text == ""


def _statuses(*given: ControllerStatus) -> Callable[[], Sequence[ControllerStatus]]:
    return lambda: given


FAILED = ControllerStatus("a", "resting", 1.0, restarts=3, error="KeyError: 'b'")
LINES = ControllerStatus("a", "resting", 1.0, restarts=1, error="ValueError: one\n  two\n")
STARTING = ControllerStatus("a", "starting", 4.0, error="Fenced: late")


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (FAILED, "a rests after 3 failed runs, the last by KeyError: 'b'"),
        (LINES, "a rests after a failed run by ValueError: one two"),
        (STARTING, "a has been starting for 4 s, after Fenced: late"),
        (ControllerStatus("a", "running", 4.0, holding="why"), "a holds back every key: why"),
    ],
)
async def test_what_is_not_ready_is_named_with_why(status: ControllerStatus, line: str) -> None:
    """One line each; the ready ones are not mentioned."""
    fine = ControllerStatus("fine", "running", 9.0)
    async with (
        open_pages("127.0.0.1:0", _statuses(status, fine)) as address,
        httpx.AsyncClient(base_url=f"http://{address}") as http,
    ):
        answer = await http.get("/readyz")
        assert (answer.status_code, answer.text) == (503, f"{line}\n")
        assert (await http.get("/metrics")).status_code == 404


@pytest.mark.parametrize("address", ["9090", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000", ""])
async def test_an_address_must_be_one(address: str) -> None:
    """What isn't is named, with what would be right."""
    with pytest.raises(headway.InvalidArgument, match="write HOST:PORT, such as"):
        async with open_pages(address, _statuses()):
            pass


async def test_an_address_that_is_taken_is_an_error() -> None:
    """At once, and as the operating system says it."""
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        async with open_pages(f"127.0.0.1:{taken.getsockname()[1]}", _statuses()):
            pass
