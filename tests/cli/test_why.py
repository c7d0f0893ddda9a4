"""`headway why`, and how it diagnoses three broken programs, as an operator would see it."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

import headway as headway_package
from headway.client import LeaseClient
from headway.rpc import InProcessChannel, Services
from headway.service import LeaseService, ResourceService
from headway.storage import MemoryBackend
from tests.cli.broken import mapper_that_raises, write_that_conflicts
from tests.cli.terminal import Terminal
from tests.helpers.why_programs import PATIENCE, eventually

CORE = "type: staff.v1.Team\nname: core\ndata:\n  lead: ada\n"
ADA = "type: staff.v1.Account\nname: ada\ndata:\n  team: core\n"
_CHANGING = (
    (re.compile(r"\d\d:\d\d:\d\d \((?:in )?(?:< )?\d+ (?:ms|s|min)(?: ago)?\)"), "TIME"),
    (re.compile(r"(?:< |\b)\d+ ms\b"), "DURATION"),
    (re.compile(r"generation [0-9A-Z]{26}"), "generation GENERATION"),
    (re.compile(r'File "[^"]*/([^/"]+)", line \d+'), r'File "\1", line N'),
    (re.compile(r"attempt \d+"), "attempt N"),
    (re.compile(r"after (?:a failure|\d+ failures in a row)"), "after FAILURES"),
)


def steady(text: str) -> str:
    """Return a transcript without what differs from run to run."""
    for pattern, name in _CHANGING:
        text = pattern.sub(name, text)
    return text


@asynccontextmanager
async def serving(app: headway_package.App, store: Any = "memory:") -> AsyncIterator[str]:
    opened = headway_package.open_engine(
        store, app, network=headway_package.Network(["127.0.0.1:0"], insecure=True), report=lambda _: None
    )
    async with opened as engine:
        yield engine.addresses[0]


async def asked(terminal: Terminal, server: str, sign: str, *arguments: str) -> str:
    """Return what `headway why` prints, once it contains a sign."""

    async def ask() -> str | None:
        command = await terminal("why", *arguments, server=server)
        assert command.stderr == ""
        return command.stdout if sign in command.stdout else None

    return await eventually(ask)


async def test_mapper_that_raises_is_diagnosed(terminal: Terminal) -> None:
    """The account is stored, and yet no team is reconciled because of it."""
    async with serving(mapper_that_raises()) as server:
        await terminal("apply", "-f", "-", stdin=CORE, server=server)
        await asked(terminal, server, "has been idle since", "team", "core")
        await terminal("apply", "-f", "-", stdin=ADA, server=server)
        told = await asked(terminal, server, "raised for", "account", "ada")
    assert steady(told) == MAPPER


MAPPER = """\
staff.v1.Account ada
  It is stored at version 8, generation GENERATION.
No controller manages staff.v1.Account in any process that is connected to this server.
Controller staff/teams watches it, in process server.
  The function team_of raised for Account ada, at revision 8. It has raised once, at TIME. The next attempt is at TIME.
    KeyError: 'team'
        File "broken.py", line N, in team_of
          return [team.id(account.metadata["team"])]
Its last writes, the newest first:
  Revision 8 at TIME: created (writer unknown).
"""


async def test_lease_held_elsewhere_is_diagnosed(terminal: Terminal) -> None:
    """The process that holds it is not connected to this server, so its name is all that is known."""
    app, backend = mapper_that_raises(), MemoryBackend()
    services = Services(ResourceService(backend, app.registry), LeaseService(backend))
    leases = LeaseClient(InProcessChannel(services))
    assert (await leases.acquire("staff/teams", "web-7", 600)).acquired
    async with serving(app, backend) as server:
        await terminal("apply", "-f", "-", stdin=CORE, server=server)
        told = await asked(terminal, server, "standing by", "team", "core")
        stuck = await terminal("why", "--stuck", "--longer-than", "0", server=server)
    assert steady(told) == LEASE
    # Nothing is stuck, and yet an operator should know.
    assert (stuck.returncode, stuck.stderr) == (0, "no work has been pending for longer than 0 s\n")
    assert steady(stuck.stdout) == (
        "Note: controller staff/teams (server) has been standing by since TIME: process web-7 holds its lease and is "
        "not connected to this server.\n"
    )


LEASE = """\
staff.v1.Team core
  It is stored at version 6, generation GENERATION.
Controller staff/teams manages it, in process server.
  It has been standing by since TIME: process web-7 holds the lease staff/teams.
  web-7 has held the lease since TIME, and renewed it last at TIME. Without a renewal it ends at TIME.
  web-7 is not connected to this server. Process server does nothing for the resource until the lease ends: ask the \
server that web-7 is connected to, or stop web-7 if nobody needs it.
Its last writes, the newest first:
  Revision 6 at TIME: created (writer unknown).
"""


async def test_write_that_conflicts_for_ever_is_diagnosed(terminal: Terminal) -> None:
    """The answer has the line of the write, and the writer that was faster."""
    async with serving(write_that_conflicts()) as server:
        await terminal("apply", "-f", "-", stdin=CORE, server=server)
        await asked(terminal, server, "has been idle since", "team", "core")
        await terminal("apply", "-f", "-", stdin=CORE.replace("ada", "grace"), server=server)
        told = await asked(terminal, server, "It waits until", "team", "core")
        stuck = await terminal("why", "--stuck", "--longer-than", "0", server=server)
    assert steady(told) == CONFLICT
    assert stuck.returncode == 7
    assert re.match(
        r"Team core: controller staff/teams \(server\) has had work pending since .* \((?:< )?\d+ m?s ago\), \w+ "
        r"for attempt \d+: Conflict: Team core is stored at version \d+, not \d+; read it again\n",
        stuck.stdout,
    )


CONFLICT = """\
staff.v1.Team core
  It is stored at version 8, generation GENERATION.
Controller staff/teams manages it, in process server.
  It waits until TIME for attempt N, after FAILURES.
  The last error: Conflict: Team core is stored at version 8, not 7; read it again
        File "broken.py", line N, in teams
          await rt.client.write(kept)
  Its work has been pending since TIME.
  Queued by: Team core changed at revision 8.
  Reconcile at TIME, attempt N, in DURATION: failed: Conflict: Team core is stored at version 8, not 7; read it \
again. Because of: Team core changed at revision 8. Read: Team core at version 8. Wrote: nothing.
  Reconcile at TIME, attempt N, in DURATION: done. Because of: Team core changed at revision 7. Read: Team core at \
version 7. Wrote: nothing.
Its last writes, the newest first:
  Revision 8 at TIME: written (writer unknown).
  Revision 7 at TIME: created (writer unknown).
"""


async def test_json_has_the_whole_answer(terminal: Terminal) -> None:
    async with serving(mapper_that_raises()) as server:
        await terminal("apply", "-f", "-", stdin=CORE, server=server)
        await asked(terminal, server, "has been idle since", "team", "core")
        found = json.loads((await terminal("why", "team", "core", "-o", "json", server=server)).stdout)
        assert found["resource"] == {
            "type": "staff.v1.Team",
            "partition": "default",
            "namespace": "default",
            "name": "core",
        }
        assert found["controllers"][0]["state"] == "idle"
        assert found["writes"][0]["verb"] == "created"
        stuck = json.loads((await terminal("why", "--stuck", "-o", "json", server=server)).stdout)
        assert stuck["items"] == []


async def test_watch_prints_the_answer_again_when_it_has_changed(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that differs only in its own time is not printed again."""
    from headway.cli import _why

    monkeypatch.setattr(_why, "INTERVAL", 0.01)
    async with serving(mapper_that_raises()) as server:
        watching = terminal.start("why", "team", "core", "--watch", server=server)
        with trio.fail_after(PATIENCE):
            assert await watching.out.line() == "staff.v1.Team core\n"
            assert await watching.out.line() == "  It is not stored.\n"
            await until_line(watching.out.line, "Controller staff/teams")
            await terminal("apply", "-f", "-", stdin=CORE, server=server)
            await until_line(watching.out.line, "  It is stored at version")


async def until_line(line: Callable[[], Any], beginning: str) -> None:
    while not (await line()).startswith(beginning):
        pass


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "give a TYPE and a NAME"),
        (["team"], "give a TYPE and a NAME"),
        (["team", "core", "--stuck"], "team core and --stuck exclude each other"),
        (["team", "--stuck"], "team and --stuck exclude each other"),
        (["--stuck", "--watch"], "--watch follows one resource"),
        (["teem", "core"], "type 'teem' not found; did you mean 'Team'?"),
    ],
)
async def test_wrong_use_is_refused(terminal: Terminal, arguments: list[str], problem: str) -> None:
    async with serving(mapper_that_raises()) as server:
        refused = await terminal("why", *arguments, server=server)
    assert refused.returncode == 2
    assert problem in " ".join(refused.stderr.split())
