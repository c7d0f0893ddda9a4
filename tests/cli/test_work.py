"""`headway work`, which runs the controllers of an app against a server that has the store."""

from __future__ import annotations

import httpx
import pytest

import headway as headway_package
from tests.cli.conftest import CORE, Started, interrupt
from tests.cli.served import Account, Team
from tests.cli.terminal import Terminal

APP = "tests.cli.served:app"


def without_controllers() -> headway_package.App:
    """Return an app with the types of the tests' app and no controllers."""
    app = headway_package.App("staff")
    app.type("staff", "v1", "Team", Team)
    app.type("staff", "v1", "Account", Account)
    app.type("staff", "v1", "Site", Account, scope=headway_package.Scope.CLUSTER)
    return app


async def test_work_reconciles_resources_of_another_process(terminal: Terminal) -> None:
    """It prints its server and its name. Its pages are about its own controllers."""
    opened = headway_package.open_engine(
        "memory:", without_controllers(), network=headway_package.Network(["127.0.0.1:0"], insecure=True)
    )
    async with opened as engine:
        where = engine.addresses[0]
        working = terminal.start(
            "work", APP, "--server", where, "--process", "web-1", "--metrics", "127.0.0.1:0", "--lease-ttl", "5"
        )
        assert await working.out.line() == f"working for {where} as web-1\n"
        pages = (await working.out.line()).split()[4].removesuffix("/metrics,")

        await terminal("apply", "-f", "-", stdin=CORE, server=where)
        waited = await terminal("wait", "team", "core", "--for", "teams/Staffed", server=where)
        assert (waited.returncode, waited.stdout) == (0, "Team core: teams/Staffed\n")
        async with httpx.AsyncClient(base_url=pages) as http:
            assert 'controller="staff/teams"' in (await http.get("/metrics")).text


def test_work_ends_cleanly_when_interrupted(start: Started) -> None:
    """Without a server it keeps trying, and the exit code is still 0."""
    process = start("work", APP, "--process", "web-1")
    assert process.stdout is not None
    assert process.stdout.readline() == "working for 127.0.0.1:1 as web-1\n"
    code, _, errors = interrupt(process)
    assert (code, "Traceback" in errors) == (0, False)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--server", "7070"], "--server: '7070' is not an address"),
        (["--process", "a b"], "--process: process='a b' must be a name of up to 63 letters"),
        (["--metrics", "0.0.0.0:0"], "others can reach this address"),
        (["--public-metrics"], "--public-metrics requires --metrics"),
        (["--lease-ttl", "0"], "0.0 is not in the range 1<=x<=3600"),
    ],
)
async def test_work_refuses_invalid_options(terminal: Terminal, arguments: list[str], error: str) -> None:
    """It refuses them before it connects."""
    refused = await terminal("work", APP, *arguments)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert error in " ".join(refused.stderr.split())


async def test_version_option_prints_the_version_of_the_package(terminal: Terminal) -> None:
    """No server is needed."""
    said = await terminal("--version")
    assert (said.returncode, said.stdout.split()[0]) == (0, "headway")
    assert said.stdout.split()[1].count(".") == 2
