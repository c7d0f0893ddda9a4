"""`headway serve`."""

import errno
import os
from pathlib import Path

import httpx
import pytest
import trio

from tests.cli.conftest import CORE, Started, address_of, interrupt
from tests.cli.terminal import Terminal, address
from tests.cli.test_serve_forward import run_command

IN_USE = os.strerror(errno.EADDRINUSE)


def test_serve_ends_cleanly_when_interrupted(start: Started) -> None:
    """Ctrl-C is the normal end: the exit code is 0, and stderr is empty."""
    process = start("serve", "tests.cli.served:app", "--listen", "127.0.0.1:0")
    assert address_of(process).startswith("127.0.0.1:")

    assert interrupt(process) == (0, "", "")


async def test_serve_uses_the_resources_of_its_store(terminal: Terminal, tmp_path: Path) -> None:
    """The next server of the same file has the resources that were applied to the previous one."""
    arguments = ("serve", "tests.cli.served:app", "--store", "sqlite:staff.db", "--listen", "127.0.0.1:0")
    first = terminal.start(*arguments)
    applied = await terminal("apply", "-f", "-", stdin=CORE, server=await address(first))
    assert (applied.stdout, applied.stderr) == ("Team core created\n", "")
    first.scope.cancel()
    await first.wait()

    second = terminal.start(*arguments)
    got = await terminal("get", "team", "core", "-o", "yaml", server=await address(second))
    assert got.stdout == CORE
    assert (tmp_path / "staff.db").exists()


async def test_serve_offers_metrics_and_health(terminal: Terminal) -> None:
    """They have their own address, which is printed."""
    serving = terminal.start("serve", "tests.cli.served:app", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
    await address(serving)
    said = await serving.out.line()
    assert said.startswith("metrics and health at http://127.0.0.1:")
    async with httpx.AsyncClient(base_url=said.split()[4].removesuffix("/metrics,")) as http:
        with trio.fail_after(20):
            # Each request takes a turn of the loop, so the controllers make progress.
            while (await http.get("/readyz")).status_code != 200:
                pass
        assert "headway_controller_ready" in (await http.get("/metrics")).text
    wrong = await terminal("serve", "tests.cli.served:app", "--metrics", "9090")
    assert wrong.returncode == 2
    assert "--metrics: '9090' is not a valid address for pages: use HOST:PORT" in wrong.stderr


SERVE = ("serve", "tests.cli.served:app", "--listen", "127.0.0.1:0")
PUBLIC = ("--metrics", "0.0.0.0:0")


def test_public_metrics_require_their_own_option() -> None:
    """--insecure does not replace it."""
    for options in ((), ("--insecure",)):
        code, out, errors = run_command(*SERVE, *PUBLIC, *options)
        assert (code, out) == (2, "")
        assert "--metrics 0.0.0.0:0: others can reach this address" in errors
        assert "--public-metrics" in errors
    code, _, errors = run_command(*SERVE, "--public-metrics")
    assert (code, "--public-metrics requires --metrics" in errors) == (2, True)


@pytest.mark.parametrize("reachable", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.org:0"])
async def test_serve_refuses_an_address_that_others_can_reach_without_tls(terminal: Terminal, reachable: str) -> None:
    """The error lists the alternatives, including --insecure."""
    done = await terminal("serve", "tests.cli.served:app", "--listen", reachable)

    assert (done.returncode, done.stdout) == (2, "")
    assert f"--listen {reachable}: others can reach this address" in done.stderr
    assert "--insecure" in done.stderr


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("staff", "'staff' is not an app; write module:attribute"),
        ("./staff:app", "'./staff:app' is not an app; write module:attribute"),
        ("no_such.module:app", "module 'no_such' not found"),
        ("no_such.py:app", "not found here or among installed packages; leave out .py"),
        ("tests.cli.served:ap", "tests.cli.served has no 'ap'"),
        ("tests.cli.served:TEAM", "it must be a headway.App, or a list of them"),
    ],
)
async def test_invalid_app_is_wrong_usage(terminal: Terminal, reference: str, said: str) -> None:
    """The error is one sentence."""
    done = await terminal("serve", reference)

    assert done.returncode == 2
    assert said in done.stderr


async def test_address_in_use_ends_with_1(server: str, headway: Terminal) -> None:
    """The error is one line with the address."""
    done = await headway("serve", "tests.cli.served:app", "--listen", server)

    assert (done.returncode, done.stderr) == (1, f"Error: --listen: cannot listen on {server}: {IN_USE}\n")
    assert (await headway("types")).returncode == 0


async def test_serve_offers_http(terminal: Terminal) -> None:
    """It has its own address, which is printed. Without access control, others must not be able to reach it."""
    serving = terminal.start("serve", "tests.cli.served:app", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
    where = await address(serving)
    said = await serving.out.line()
    assert said.startswith("HTTP at http://127.0.0.1:")
    async with httpx.AsyncClient(base_url=said.split()[2]) as http:
        assert (await http.put("/api/staff/v1/account/ada", json={"data": {"login": "ada"}})).status_code == 200
        # The live page is beside it, and changes nothing without leave.
        assert "<title>Headway</title>" in (await http.get("/")).text
        assert (await http.get("/page/session")).json()["writes"] is False
    got = await terminal("get", "account", "ada", "-o", "yaml", server=where)
    assert "login: ada" in got.stdout
    for given, says in (
        (("--http", "8080"), "--http: '8080' is not a valid address for HTTP: use HOST:PORT"),
        (("--http", "0.0.0.0:0"), "--http: 0.0.0.0:0: others can reach this address"),
        (("--http", "0.0.0.0:0", "--insecure"), "--http: 0.0.0.0:0: others can reach this address"),
    ):
        wrong = await terminal("serve", "tests.cli.served:app", *given)
        assert (wrong.returncode, says in wrong.stderr) == (2, True), wrong.stderr
    wrong = await terminal("serve", "--forward", "127.0.0.1:1", "--http", "127.0.0.1:0")
    assert "--http requires an APP" in wrong.stderr
    wrong = await terminal("serve", "tests.cli.served:app", "--http-writes")
    assert (wrong.returncode, "--http-writes requires --http" in wrong.stderr) == (2, True)
