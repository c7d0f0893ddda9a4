"""The checks of a registrar, against real sockets and commands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

from catalog.messages import Health, HTTPCheck, TCPCheck
from catalog.registrar import checks
from catalog.registrar.definitions import Check, CommandCheck
from tests.catalog.dns.dns_kit import poll
from tests.catalog.registrar.registrar_kit import HOST, local_service

PASSING, WARNING, CRITICAL = Health.HEALTH_PASSING, Health.HEALTH_WARNING, Health.HEALTH_CRITICAL


def check(probe: HTTPCheck | TCPCheck | CommandCheck, *, timeout: float = 20.0) -> Check:
    return Check("check", probe, 1.0, timeout, 0.0)


async def test_http_check_goes_by_the_status() -> None:
    async with local_service() as (service, _):
        probe = HTTPCheck(url=f"http://{HOST}:{service.port}/")
        for status, health in ((200, PASSING), (204, PASSING), (429, WARNING), (302, CRITICAL), (500, CRITICAL)):
            service.status = status
            result = await checks.run(check(probe))
            assert (result.health, result.output) == (health, f"HTTP {status} Some")


async def test_check_ends_at_its_timeout() -> None:
    async with trio.open_nursery() as nursery:
        # It accepts connections and says nothing.
        [listener] = await trio.open_tcp_listeners(0, host=HOST)
        nursery.start_soon(trio.serve_listeners, _silent, [listener])
        port = listener.socket.getsockname()[1]
        result = await checks.run(check(HTTPCheck(url=f"http://{HOST}:{port}/"), timeout=0.1))
        assert (result.health, result.output) == (CRITICAL, "it has not answered within 0.1 s")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("status", "health"), [(0, PASSING), (1, WARNING), (2, CRITICAL), (127, CRITICAL)])
async def test_command_check_goes_by_the_exit_status(status: int, health: Health) -> None:
    result = await checks.run(check(CommandCheck(command=["sh", "-c", f"echo disk is full; exit {status}"])))
    assert (result.health, result.output) == (health, f"exit status {status}: disk is full")


async def test_command_that_takes_too_long_ends_with_its_children(tmp_path: Path) -> None:
    """Nothing of a check outlives it, and its output has a bound."""
    pid = tmp_path / "pid"
    script = f"yes | head -c 1000000; sleep 1000 & echo $! > {pid}.new; mv {pid}.new {pid}; wait"
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            result = await checks.run(check(CommandCheck(command=["sh", "-c", script])))
            assert result

        nursery.start_soon(run)
        await poll(pid.exists)
        nursery.cancel_scope.cancel()
    with trio.fail_after(30):
        await poll(lambda: not _is_alive(int(pid.read_text())))
    result = await checks.run(check(CommandCheck(command=["sh", "-c", "yes | head -c 1000000"])))
    assert len(result.output) <= 4_096


async def _silent(stream: trio.SocketStream) -> None:
    async with stream:
        await trio.sleep_forever()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie is dead.
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
