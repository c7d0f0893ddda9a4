"""`headway describe`: one resource in one answer."""

from __future__ import annotations

import re

import headway as headway_package
from headway.cli._describe import OWNED
from headway.resource import EVENT, event_id
from tests.cli.terminal import Terminal
from tests.helpers.why_programs import Account, Parts, Team, eventually

CORE = "type: staff.v1.Team\nname: core\ndata:\n  members:\n  - login: ada\n"


async def test_description_has_all_that_the_server_knows(headway: Terminal) -> None:
    """The content, the conditions, what it owns, its events, and what its controllers do about it."""
    await headway("apply", "-f", "-", stdin=CORE)
    await headway("wait", "team", "core", "--for", "Staffed", "--within", "20")
    done = await headway("describe", "team", "core")
    assert (done.returncode, done.stderr) == (0, "")
    head, *sections = re.split(r"\n\n(?=\w+:\n)", done.stdout)
    assert re.fullmatch(
        r"staff\.v1\.Team default/default/core\nCreated: [-0-9]+ [:0-9]+Z, \d+s ago\n"
        r"Stored:  version \d+, generation \w+, uid \w+",
        head,
    )
    parts = {each.partition(":\n")[0]: each.partition(":\n")[2] for each in sections}
    assert list(parts) == ["Manifest", "Conditions", "Owns", "Events", "Why"]
    assert parts["Manifest"] == "".join(f"  {line}\n" for line in CORE.splitlines()).rstrip("\n")
    assert "Staffed" in parts["Conditions"]
    assert parts["Owns"] == "  nothing"
    assert parts["Events"] == "  none"
    assert "Controller staff/teams manages it" in parts["Why"]


async def test_description_lists_what_it_owns_and_its_events(terminal: Terminal) -> None:
    """The list of owned resources has an end that says how many more there are, and no event is in it."""
    parts = Parts()

    async def reconcile(rt: headway_package.Runtime, request: headway_package.Request) -> None:
        if team := rt.resource(request):
            rt.event(team, "Staffed", "two accounts", warning=True)

    parts.reconcile = reconcile
    async with headway_package.open_engine(
        "memory:", parts.app, network=headway_package.Network(["127.0.0.1:0"], insecure=True)
    ) as engine:
        core = await engine.client.apply(parts.team.new("core", Team()))
        await eventually(lambda: engine.client.get(EVENT, event_id(core.id)))
        for number in range(OWNED + 2):
            await engine.client.apply(parts.account.new(f"a-{number:02}", Account(team="core"), owner=core))
            if number in (1, OWNED + 1):
                done = await terminal("describe", "team", "core", server=engine.addresses[0])
                assert (done.returncode, done.stderr) == (0, "")
                owned = done.stdout.partition("\nOwns:\n")[2].partition("\n\n")[0].splitlines()
                shown = [f"  staff.v1.Account default/default/a-{each:02}" for each in range(min(number + 1, OWNED))]
                assert owned == shown + ([] if number == 1 else ["  and 2 more"])
        described = await terminal("describe", "account", "a-00", server=engine.addresses[0])
    assert "\nOwner:   staff.v1.Team default/default/core, with which it is deleted\n" in described.stdout
    heads, event = done.stdout.partition("\nEvents:\n")[2].partition("\n\n")[0].splitlines()
    assert heads.split() == ["LAST", "COUNT", "RESOURCE", "REASON", "TEXT", "BY"]
    assert re.fullmatch(r"  [-0-9]+ [:0-9]+Z +\d+ +Team core +! Staffed +two accounts +staff/teams", event)
    # They stand above, so the part of `why` leaves them out.
    assert "Its last events" not in done.stdout


async def test_missing_resource_is_not_found(headway: Terminal) -> None:
    done = await headway("describe", "team", "nobody", "-n", "labs")
    assert done.returncode == 3
    assert "Note: namespace 'labs' not found" in done.stderr
