"""Metrics and health over HTTP, requested by a standard client."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Sequence

import httpx
import pytest
import trio

import headway
from headway import field
from headway.observe import Metrics, open_pages, unready
from headway.resource import TypeName
from headway.run import ControllerStatus, TypeStatus
from tests.http.kit import NO_CERTIFICATES
from tests.rpc.raw_kit import tcp


@headway.message
class Thing:
    """A message whose content does not matter."""

    name: str = field(1)


def _app() -> headway.App:
    app = headway.App("paged")
    thing = app.type("test", "v1", "Thing", Thing)

    @app.controller(manages=thing)
    async def things(_: headway.Runtime, __: headway.Request) -> None: ...

    return app


async def test_running_engine_is_healthy_ready_and_measured() -> None:
    """The requests use a real socket."""
    metrics = Metrics()
    async with (
        headway.open_engine("memory:", _app(), report=metrics) as engine,
        open_pages("127.0.0.1:0", engine.status, metrics) as address,
        httpx.AsyncClient(base_url=f"http://{address}", verify=NO_CERTIFICATES) as http,
    ):
        metrics.watch(engine.status)
        with trio.fail_after(20):
            await engine.wait_idle()
            assert (await http.get("/healthz")).text == "ok\n"
            ready = await http.get("/readyz")
            assert (ready.status_code, ready.text) == (200, "ok\n")
            scraped = await http.get("/metrics")
            assert scraped.headers["content-type"].startswith("text/plain; version=0.0.4")
            assert 'headway_controller_phase{controller="paged/things",phase="running"} 1.0' in scraped.text
            assert (await http.get("/other")).status_code == 404
            assert (await http.post("/metrics")).status_code == 405
            assert (await http.head("/healthz")).text == ""


def _statuses(*given: ControllerStatus) -> Callable[[], Sequence[ControllerStatus]]:
    return lambda: given


FAILED = ControllerStatus("a", "resting", 1.0, restarts=3, error="KeyError: 'b'")
LINES = ControllerStatus("a", "resting", 1.0, restarts=1, error="ValueError: one\n  two\n")
STARTING = ControllerStatus("a", "starting", 4.0, error="Fenced: late")


CUT_OFF = TypeStatus(TypeName("secret", "v1", "Plan"), True, 3, 3, 1, cut_off="Unavailable: why", cut_off_seconds=12.0)
UNPRIMED = TypeStatus(TypeName("secret", "v1", "Plan"), False, 0, 3, 1)


@pytest.mark.parametrize(
    ("status", "line", "why"),
    [
        (
            FAILED,
            "a: backing off after 3 failed runs",
            "a is backing off after 3 failed runs, the last with KeyError: 'b'",
        ),
        (LINES, "a: backing off after a failed run", "a is backing off after a failed run with ValueError: one two"),
        (STARTING, "a: starting for 4 s", "a has been starting for 4 s, after Fenced: late"),
        (
            ControllerStatus("a", "priming", 7.0, types=(UNPRIMED, CUT_OFF)),
            "a: priming for 7 s",
            "a has been priming for 7 s, waiting for secret.v1.Plan (1 resources, revision 0 of 3)",
        ),
        (
            ControllerStatus("a", "running", 4.0, holding="why"),
            "a: holding back every key, because the outcome of a write is unknown",
            "a holds back every key: why",
        ),
        (
            ControllerStatus("a", "running", 4.0, types=(CUT_OFF,)),
            "a: cut off from 1 of its types",
            "a has received nothing about secret.v1.Plan for 12 s: Unavailable: why",
        ),
    ],
    ids=lambda given: given.phase if isinstance(given, ControllerStatus) else "",
)
async def test_unready_page_has_a_cause_without_error_texts_or_types(
    status: ControllerStatus, line: str, why: str
) -> None:
    """Unauthenticated peers may read the page. Operators find the details in `unready`, the status and the log."""
    fine = ControllerStatus("fine", "running", 9.0)
    assert unready(_statuses(status, fine)) == [why]
    async with (
        open_pages("127.0.0.1:0", _statuses(status, fine)) as address,
        httpx.AsyncClient(base_url=f"http://{address}", verify=NO_CERTIFICATES) as http,
    ):
        answer = await http.get("/readyz")
        assert (answer.status_code, answer.text) == (503, f"{line}\n")
        assert (await http.get("/metrics")).status_code == 404


@pytest.mark.parametrize("address", ["9090", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000", ""])
async def test_invalid_address_is_refused(address: str) -> None:
    """The error has the value and an example."""
    with pytest.raises(headway.errors.InvalidArgument, match="use HOST:PORT, such as"):
        async with open_pages(address, _statuses()):
            pass


SECRET = "correct horse"


class PlanError(Exception):
    pass


async def test_pages_of_a_failing_engine_have_no_error_texts() -> None:
    """The texts of reconcilers' and initializers' errors appear only in the log and the status."""
    app = headway.App("paged")
    thing = app.type("test", "v1", "Thing", Thing)
    metrics = Metrics()
    seen: set[str] = set()
    both = trio.Event()

    @app.controller(manages=thing)
    async def failing(_: headway.Runtime, __: headway.Request) -> None:
        raise PlanError(SECRET)

    async def never_starts(_: headway.Runtime) -> None:
        raise PlanError(SECRET)

    @app.controller(manages=thing, initialiser=never_starts)
    async def starting(_: headway.Runtime, __: headway.Request) -> None: ...

    def report(event: object) -> None:
        metrics(event)
        if SECRET in str(getattr(event, "error", "")):
            seen.add(type(event).__name__)
        if seen >= {"Reconciled", "RunEnded"}:
            both.set()

    async with (
        headway.open_engine("memory:", app, report=report) as engine,
        open_pages("127.0.0.1:0", engine.status, metrics) as address,
        httpx.AsyncClient(base_url=f"http://{address}", verify=NO_CERTIFICATES) as http,
    ):
        metrics.watch(engine.status)
        await engine.client.apply(thing.new("one", Thing(name="one")))
        with trio.fail_after(20):
            await both.wait()
            while (await http.get("/readyz")).status_code != 503:
                pass
        ready, scraped = await http.get("/readyz"), await http.get("/metrics")
        assert ready.text.startswith("paged/starting: ")
        assert ready.status_code == 503
        assert 'headway_runs_ended_total{controller="paged/starting",error="PlanError"} 1.0' in scraped.text
        for page in (ready.text, scraped.text):
            assert "horse" not in page
        assert SECRET in unready(engine.status)[0]


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "example.org:0"])
async def test_pages_on_a_public_address_require_an_explicit_option(address: str) -> None:
    """Without the option no socket is opened."""
    with pytest.raises(headway.errors.InvalidArgument, match=f"{re.escape(address)}.*public=True"):
        async with open_pages(address, _statuses()):
            pass


async def test_public_pages_are_served_with_the_option() -> None:
    async with open_pages("0.0.0.0:0", _statuses(), public=True) as address:
        port = address.rpartition(":")[2]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", verify=NO_CERTIFICATES) as http:
            assert (await http.get("/readyz")).text == "ok\n"


@pytest.mark.parametrize("public", [False, True])
async def test_loopback_pages_answer_no_other_name(public: bool) -> None:
    """DNS rebinding: a site that points its own name at this machine gets nothing, unless the pages are public."""
    async with (
        open_pages("127.0.0.1:0", _statuses(), Metrics(), public=public) as address,
        httpx.AsyncClient(base_url=f"http://{address}", verify=NO_CERTIFICATES) as http,
    ):
        for path in ("/metrics", "/readyz", "/healthz"):
            for host in ("localhost", "LOCALHOST:9090", "[::1]:9090", "127.0.0.1"):
                assert (await http.get(path, headers={"host": host})).status_code == 200
            for host in ("evil.example", "evil.example:9090", "127.0.0.1.evil.example", ""):
                answer = await http.get(path, headers={"host": host})
                assert answer.status_code == (200 if public else 403), (path, host)
        for line in (b"GET /healthz HTTP/1.0\r\n\r\n", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"):
            async with tcp(address) as probe:
                await probe.send_all(line)
                assert b" 200 " in await probe.receive_some()


async def test_address_in_use_is_an_error() -> None:
    """It is raised at once, with the operating system's message."""
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        async with open_pages(f"127.0.0.1:{taken.getsockname()[1]}", _statuses()):
            pass
