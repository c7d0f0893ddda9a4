"""The program that serves a mesh: what it refuses, and what it heeds while it runs."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import trio

import headway
import mesh
from catalog.demo.processes import Process
from mesh.demo import rights
from mesh.types import HTTP_ROUTE


def refused(*options: str) -> str:
    """Return the error of a server that does not start."""
    command = [sys.executable, "-m", "mesh.server", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.strip().splitlines()[-1]


def test_others_may_not_reach_it_without_an_access_file() -> None:
    assert "--listen 0.0.0.0:7070 can be reached by others" in refused("--listen", "0.0.0.0:7070", "--key-file", "x")


def test_wrong_key_file_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert str(missing) in refused("--listen", "127.0.0.1:0", "--key-file", str(missing))


async def test_sighup_reloads_the_access_file(tmp_path: Path) -> None:
    """A file that is not valid changes nothing."""
    access, key = tmp_path / "access.yaml", tmp_path / "key"
    tokens = rights.write(access, [])
    await trio.run_process([sys.executable, "-m", "mesh.certificates", str(key)])
    options = ("--listen", "127.0.0.1:0", "--access", str(access), "--key-file", str(key))
    server = Process("server", tmp_path, "listening on ", "-m", "mesh.server", *options)
    with trio.fail_after(40):
        try:
            address = await server.start()
            async with headway.connect(address, mesh.app, token=tokens[rights.OPERATOR]) as client:
                assert await client.list(HTTP_ROUTE) == []
                access.write_text("policies: 1")
                server.send(signal.SIGHUP)
                log = tmp_path / "server.log"
                while "stays as it was" not in log.read_text():  # noqa: ASYNC110  # another process
                    await trio.sleep(0.02)
                assert await client.list(HTTP_ROUTE) == []
                access.write_text('{"policies": [], "tokens": []}')
                server.send(signal.SIGHUP)
                while True:
                    try:
                        await client.list(HTTP_ROUTE)
                    except headway.errors.Unauthenticated:
                        break
        finally:
            await server.stop()
