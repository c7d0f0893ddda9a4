"""The program that the fleet runs, and the choice of its ports."""

import os
import signal
import sys
from pathlib import Path

import trio
import trio.testing

from examples.fleet import web
from examples.fleet.ports import HOST, healthy, pick_port
from examples.fleet.processes import spawn, wait_exit
from tests.examples.fleet_kit import PATIENCE, Fleet


async def test_web_program_serves_http_and_ends_on_sigterm(fleet: Fleet) -> None:
    """The program answers / and /healthz on its port, and is healthy only once it serves."""
    port = pick_port(str(fleet.folder), set())  # a name of this run of the tests only
    assert not await healthy(HOST, port, timeout=1)
    environment = {"PORT": str(port), "NAME": "ada", "GREETING": "Good day"}
    process = await spawn(fleet.folder, "one", [sys.executable, web.__file__], environment, port)
    await wait_healthy(port)
    assert (200, f"Good day from ada, process {process.pid}\n") == await get(port, "/")
    assert await get(port, "/healthz") == (200, "ok\n")
    assert (await get(port, "/other"))[0] == 404
    os.kill(process.pid, signal.SIGTERM)
    with trio.fail_after(PATIENCE):
        assert await wait_exit(process) == -signal.SIGTERM


async def wait_healthy(port: int) -> None:
    with trio.fail_after(PATIENCE):
        while True:
            if await healthy(HOST, port, timeout=1):
                return
            await trio.sleep(0.01)  # binding a port causes no event to wait for


async def get(port: int, path: str) -> tuple[int, str]:
    async with await trio.open_tcp_stream(HOST, port) as stream:
        await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
        answer = "".join([part.decode() async for part in stream])
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body


async def test_port_of_a_uid_stays_the_same_unless_it_is_taken(tmp_path: Path) -> None:
    """A port that is in use, or that belongs to another instance, is skipped."""
    uid = str(tmp_path)
    port = pick_port(uid, set())
    assert port == pick_port(uid, set())
    assert port != pick_port(uid, {port})
    listener = (await trio.open_tcp_listeners(port, host=HOST))[0]
    async with listener:
        assert port != pick_port(uid, set())
