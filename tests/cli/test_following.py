"""`headway watch`, `status` and `wait`."""

import datetime
import json
import re
from collections.abc import Awaitable

import pytest
import trio
import trio.testing

from headway.engine import Network, open_engine
from tests.cli.conftest import CORE, Started, interrupt
from tests.cli.served import app
from tests.cli.terminal import Terminal

HOUR = datetime.timedelta(hours=1)
EMPTY = "type: Team\nname: core\n"


async def test_watch_shows_resources_and_changes_until_interrupted(
    start: Started, server: str, headway: Terminal
) -> None:
    """Lines say found, stored or deleted. Ctrl-C ends the process with 130 and without a traceback."""
    site = "type: Site\nname: north\n"
    await headway("apply", "-f", "-", stdin=site)
    watching = start("watch", "site", server=server)
    assert watching.stdout is not None

    lines = watching.stdout

    def line() -> Awaitable[str]:
        return trio.to_thread.run_sync(lines.readline)

    assert re.fullmatch(r"found    north +\d+\n", await line())
    await headway("apply", "-f", "-", stdin=f"{site}data: {{login: x}}\n")
    assert re.fullmatch(r"stored   north +\d+\n", await line())
    await headway("delete", "site", "north")
    assert re.fullmatch(r"deleted  north +\d+\n", await line())
    assert await trio.to_thread.run_sync(interrupt, watching) == (130, "", "")


@pytest.mark.parametrize("output", ["json", "yaml"])
async def test_watch_prints_json_lines_or_yaml_documents(headway: Terminal, output: str) -> None:
    """Each change is one line of JSON or one document of YAML."""
    await headway("apply", "-f", "-", stdin="type: Site\nname: north\n")
    watching = headway.start("watch", "site", "-o", output)

    line = await watching.out.line()
    if output == "json":
        said = json.loads(line)
        assert (said["event"], said["resource"]["name"]) == ("found", "north")
    else:
        assert line == "--- # found\n"
        assert await watching.out.line() == "type: staff.v1.Site\n"


async def test_watch_and_wait_end_with_5_when_the_server_ends(terminal: Terminal) -> None:
    """They don't continue as if they were up to date."""
    async with open_engine("memory:", app, network=Network(["127.0.0.1:0"], insecure=True)) as engine:
        server = engine.addresses[0]
        await terminal("apply", "-f", "-", stdin="type: Site\nname: north\n", server=server)
        watching = terminal.start("watch", "site", server=server)
        assert (await watching.out.line()).startswith("found ")
        waiting = terminal.start("wait", "site", "north", "--for", "Ready", server=server)
        await trio.testing.wait_all_tasks_blocked(0.05)

    for command in (watching, waiting):
        assert await command.wait() == 5
        assert command.stderr.startswith("Error: ")
        assert len(command.stderr.splitlines()) == 1


async def test_status_shows_conditions_by_writer(headway: Terminal) -> None:
    """A resource without conditions is reported on stderr, and a message cannot move the cursor."""
    await headway("apply", "-f", "-", stdin=f'{EMPTY}data: {{note: "\\e[31mred"}}\n')
    assert (await headway("wait", "team", "core", "--for", "Staffed=false")).returncode == 0

    head, row = (await headway("status", "team", "core")).stdout.splitlines()
    assert head.split() == ["BY", "CONDITION", "STATE", "SEEN", "WRITTEN", "REASON", "MESSAGE"]
    *cells, day, time, message = row.split()
    assert (cells, message) == (["teams", "Staffed", "FALSE", "current"], "\\x1b[31mred")
    assert abs(datetime.datetime.fromisoformat(f"{day} {time}") - datetime.datetime.now(datetime.UTC)) < HOUR
    await headway("apply", "-f", "-", stdin="type: Site\nname: a\n")
    assert (await headway("status", "site", "a")).stderr == "Site a has no conditions\n"
    assert (await headway("status", "site", "b")).returncode == 3


async def test_wait_ends_once_the_condition_holds(headway: Terminal) -> None:
    """It may begin before the resource exists, and other states don't end it."""
    waiting = headway.start("wait", "team", "core", "--for", "teams/Staffed")
    await headway("apply", "-f", "-", stdin=EMPTY)
    assert (await headway("wait", "team", "core", "--for", "Staffed=false")).returncode == 0
    await trio.testing.wait_all_tasks_blocked(0.05)
    assert waiting.returncode is None

    await headway("apply", "-f", "-", stdin=CORE)
    assert await waiting.wait() == 0
    assert (waiting.stdout, waiting.stderr) == ("Team core: teams/Staffed\n", "")


async def test_wait_times_out(headway: Terminal) -> None:
    """The exit code is 6. The error names the condition and the current state."""
    await headway("apply", "-f", "-", stdin=f"{EMPTY}data: {{note: nobody}}\n")
    assert (await headway("wait", "team", "core", "--for", "Staffed=false")).returncode == 0
    for name, wanted, now in (
        ("core", "Staffed", "teams says Staffed=FALSE (nobody)"),
        ("core", "Ready", "it has not been reported yet; known: Staffed"),
        ("core", "staffed", "it has not been reported yet; did you mean 'Staffed'?"),
        ("core", "others/Staffed", "it has not been reported yet; did you mean 'teams/Staffed'?"),
        ("core", "deleted", "it exists"),
        ("none", "Ready", "it does not exist"),
    ):
        # Try longer timeouts until the resource has arrived in time.
        for within in ("0.1", "0.2", "0.4", "1.6", "6.4"):
            done = await headway("wait", "team", name, "--for", wanted, "--within", within)
            assert (done.returncode, done.stdout) == (6, "")
            if done.stderr != f"Error: Team {name}: its state could not be read within {within} s\n":
                break
        assert done.stderr == f"Error: Team {name}: {wanted} does not hold after {within} s: {now}\n"


async def test_wait_for_deleted_ends_when_the_resource_is_deleted(headway: Terminal) -> None:
    """A resource that doesn't exist counts as deleted."""
    await headway("apply", "-f", "-", stdin=CORE)
    assert (await headway("wait", "team", "core", "--for", "deleted", "--within", "0.2")).returncode == 6
    waiting = headway.start("wait", "team", "core", "--for", "deleted")

    await headway("delete", "team", "core")
    assert await waiting.wait() == 0
    assert waiting.stdout == "Team core: deleted\n"
    assert (await headway("wait", "team", "core", "--for", "deleted")).returncode == 0
