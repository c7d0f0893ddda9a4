"""`headway events`: the events of a resource, of a type and of all, followed, and for programs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

import headway as headway_package
from headway import field
from tests.cli.terminal import Terminal
from tests.helpers.why_programs import eventually

NAMED = "type: staff.v1.{}\nname: {}\ndata:\n  size: {}\n"


@headway_package.message(name="events.Sized")
class Sized:
    """The payload of every type of the program."""

    size: int = field(1)


def program() -> headway_package.App:
    """Return an app that records the size of each team and account. It has a kind called Event of its own."""
    app = headway_package.App("staff")
    for kind in ("Team", "Account", "Event"):
        made = app.type("staff", "v1", kind, Sized)

        @app.controller(manages=made, name=f"{kind.lower()}s")
        async def sizes(rt: headway_package.Runtime, request: headway_package.Request[Sized]) -> None:
            found = rt.resource(request)
            if found is not None:
                rt.event(found, "Sized", f"it is {found.data.size}", warning=found.data.size > 9)

    return app


@pytest.fixture
async def server() -> AsyncIterator[str]:
    """Return the address of a server that runs the program."""
    opened = headway_package.open_engine(
        "memory:",
        program(),
        network=headway_package.Network(["127.0.0.1:0"], insecure=True),
        report=headway_package.events.ignore,
    )
    async with opened as engine:
        yield engine.addresses[0]


async def shown(headway: Terminal, count: int, *arguments: str) -> list[dict[str, object]]:
    """Return the events that the command prints for programs, once there are so many."""

    async def ask() -> list[dict[str, object]] | None:
        done = await headway("events", *arguments, "-o", "json")
        found: list[dict[str, object]] = json.loads(done.stdout)
        return found if len(found) == count else None

    return await eventually(ask)


async def test_events_of_a_resource_a_type_and_all(headway: Terminal) -> None:
    """The event that happened last stands at the end, and a warning is marked."""
    for kind, name, size in (("Team", "core", 1), ("Team", "web", 10), ("Account", "core", 2)):
        await headway("apply", "-f", "-", stdin=NAMED.format(kind, name, size))
        (event, *_) = await shown(headway, 1, kind, name)
        resource = {"type": f"staff.v1.{kind}", "name": name, "partition": "default", "namespace": "default"}
        assert (event["resource"], event["controller"]) == (resource, f"staff/{kind.lower()}s")
        assert (event["reason"], event["text"], event["count"]) == ("Sized", f"it is {size}", 1)
        assert event["warning"] is (size > 9)
    teams = await shown(headway, 2, "team")
    assert [each["text"] for each in teams] == ["it is 1", "it is 10"]
    assert [each["text"] for each in await shown(headway, 3)] == ["it is 1", "it is 10", "it is 2"]
    assert [each["text"] for each in await shown(headway, 1, "--warnings")] == ["it is 10"]
    table = (await headway("events", "team")).stdout.splitlines()
    assert table[0].split() == ["LAST", "COUNT", "RESOURCE", "REASON", "TEXT", "BY"]
    assert table[2].split()[2:] == ["1", "Team", "web", "!", "Sized", "it", "is", "10", "staff/teams"]
    told = (await headway("why", "team", "web")).stdout
    assert "Its last events, the latest first:" in told
    assert "by staff/teams: warning: Sized: it is 10" in told


async def test_namespace_selects_events_as_the_help_says(headway: Terminal) -> None:
    """Without it, the events of all namespaces are shown, or those of a named resource in the default one."""
    said = " ".join((await headway("events", "--help")).stdout.split())
    assert "Only events of resources in this namespace. With NAME: the default one if left out." in said
    await headway("apply", "-f", "-", stdin="type: tenancy.v1.Namespace\nname: lab\n")
    for namespace in ("default", "lab"):
        given = NAMED.format("Team", "core", 1).replace("data:", f"namespace: {namespace}\ndata:")
        await headway("apply", "-f", "-", stdin=given)
    assert [len(await shown(headway, 2, "team")), len(await shown(headway, 1, "team", "-n", "lab"))] == [2, 1]
    assert len(await shown(headway, 1, "team", "core")) == 1


async def test_watch_shows_each_event_once_and_each_new_count(headway: Terminal) -> None:
    """Those of other resources are left out."""
    await headway("apply", "-f", "-", stdin=NAMED.format("Team", "core", 1))
    await headway("apply", "-f", "-", stdin=NAMED.format("Team", "web", 1))
    await shown(headway, 2, "team")
    watching = headway.start("events", "team", "core", "--watch", "-o", "json")
    seen = []
    for sizes in ((), (("core", 2),), (("web", 2), ("core", 1))):
        for name, size in sizes:
            await headway("apply", "-f", "-", stdin=NAMED.format("Team", name, size))
        event = json.loads(await watching.out.line())
        seen.append((event["resource"]["name"], event["text"], event["count"]))
    assert seen == [("core", "it is 1", 1), ("core", "it is 2", 1), ("core", "it is 1", 2)]
