"""Resources whose payload cannot be converted, in the output of `headway get`, `list` and `watch`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
import yaml

from headway.engine import Network, open_engine
from headway.storage import MemoryBackend
from tests.cli import versioned
from tests.cli.terminal import Terminal
from tests.helpers.calls import Calls
from tests.helpers.declared import a_status, an_id, uid_of
from tests.helpers.versions import V1, a_team, roster, without_converters

TYPE = "tests.v3.Team"
WHY = "Team b is stored as tests.v1.Team, and converting it to tests.v3.Team failed: the server"


@pytest.fixture
async def teams(terminal: Terminal) -> AsyncIterator[Terminal]:
    """Return a terminal for a server with three teams, of which v3 cannot show the second."""
    store = MemoryBackend()
    old = Calls(store, without_converters())
    await old.write(a_team(V1, roster("ada"), "a"))
    bad = await old.stored(a_team(V1, roster(color="raise"), "b", metadata={"room": "B12"}))
    await old.write(a_team(V1, roster("cyd"), "c"))
    await old.write_status(an_id("b", V1, uid=uid_of(bad)), a_status())
    async with open_engine(store, versioned.app, network=Network(["127.0.0.1:0"], insecure=True)) as engine:
        yield Terminal(engine.addresses[0], terminal.nursery)


async def test_list_shows_the_reason_in_place_of_the_data_and_goes_on(teams: Terminal) -> None:
    """JSON also has the status, as of every resource. Standard error has a warning, and the exit code is 0."""
    for output in ("json", "yaml"):
        done = await teams("list", TYPE, "-o", output)
        assert (done.returncode, done.stderr.startswith(f"Warning: {WHY}")) == (0, True)
        found = json.loads(done.stdout) if output == "json" else [*yaml.safe_load_all(done.stdout)]
        assert [each["name"] for each in found] == ["a", "b", "c"]
        assert [each["data"]["members"][0]["name"] for each in (found[0], found[2])] == ["ada", "cyd"]
        assert (found[1]["metadata"], "data" in found[1]) == ({"room": "B12"}, False)
        assert found[1]["undecodable"].startswith(WHY)
        assert ("status" in found[1]) == (output == "json")


@pytest.mark.parametrize("output", ["json", "yaml"])
async def test_shown_resource_without_its_data_cannot_be_applied(teams: Terminal, output: str) -> None:
    """Applying it would empty the data."""
    shown = await teams("get", TYPE, "b", "-o", output)
    assert shown.returncode == 0
    refused = await teams("apply", "-f", "-", stdin=shown.stdout)
    assert (refused.returncode, "undecodable: the server's payload could not be read" in refused.stderr) == (4, True)


@pytest.mark.parametrize("types", [TYPE, f"{TYPE},Namespace"], ids=["watch", "subscription"])
async def test_watch_shows_the_reason_in_place_of_the_data_and_goes_on(teams: Terminal, types: str) -> None:
    for output in ("json", "yaml"):
        watching = teams.start("watch", types, "-o", output)
        lines = [await watching.out.line()]
        while '"c"' not in lines[-1] and lines[-1] != "name: c\n":
            lines.append(await watching.out.line())
        assert WHY in "".join(lines)
        assert watching.stderr.startswith(f"Warning: {WHY}")
