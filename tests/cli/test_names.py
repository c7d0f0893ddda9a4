"""What a user may write for a type, and what a command says of a partition or namespace that does not exist."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from headway import kubernetes
from headway.cli._exits import Usage
from headway.cli._names import find_type
from headway.client import WatchStream
from headway.controller import App
from headway.resource import Bookmark
from tests.cli.terminal import Terminal

UNITS = "type: tenancy.v1.Namespace\nname: lab\n---\ntype: staff.v1.Team\nname: core\nnamespace: lab\n"


@pytest.mark.parametrize("type", ["teams", "Teams", "staff.teams", "staff.v1.Teams", "sites", "namespaces", "quotas"])
async def test_plural_of_a_kind_names_its_type(headway: Terminal, type: str) -> None:
    assert (await headway("list", type)).returncode == 0


def test_newest_version_stands_for_a_kind_where_any_will_do() -> None:
    """`headway why` asks about an object in whatever version. A list has to name one."""
    app = App("sites")
    for version in ("v9", "v10", "v11beta2", "v12alpha1"):
        kubernetes.builtin(app, f"example.org/{version}", "Website")
    assert find_type("websites", app.registry, any_version=True).name.version == "v10"
    assert find_type("v9.website", app.registry, any_version=True).name.version == "v9"
    with pytest.raises(Usage, match="ambiguous"):
        find_type("websites", app.registry)
    kubernetes.builtin(app, "example.com/v1", "Website")
    with pytest.raises(Usage, match="ambiguous"):
        find_type("websites", app.registry, any_version=True)


@pytest.mark.parametrize("command", ["get", "status", "delete", "list", "events"])
async def test_unknown_namespace_is_named(headway: Terminal, command: str) -> None:
    """The answer alone would not say whether the resource or its namespace is missing."""
    await headway("apply", "-f", "-", stdin=UNITS)
    name = [] if command == "list" else ["core"]
    done = await headway(command, "team", *name, "-n", "labs")
    where = "" if command == "list" else " in partition 'default'"
    assert f"Note: namespace 'labs' not found{where}; did you mean 'lab'?\n" in done.stderr
    assert done.returncode == (0 if command == "list" else 3)
    missing = await headway(command, "team", *([] if command == "list" else ["nobody"]), "-n", "default")
    assert "Note" not in missing.stderr
    elsewhere = await headway(command, "team", *name, "--partition", "east")
    assert "Note: partition 'east' not found; " in elsewhere.stderr


@pytest.mark.parametrize(
    "command", ["wait team core --for Staffed", "watch team", "events --watch", "events team core --watch"]
)
async def test_unknown_namespace_is_named_before_a_wait_for_what_is_in_it(headway: Terminal, command: str) -> None:
    await headway("apply", "-f", "-", stdin=UNITS)
    following = headway.start(*command.split(), "-n", "labs")
    assert (await following.errors.line()).startswith("Note: namespace 'labs' not found")
    assert following.returncode is None
    following.scope.cancel()


async def test_watch_names_an_unknown_namespace_once(headway: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report of progress is no reason to say it again."""
    reports, reported = trio.open_memory_channel[None](10)
    feed = WatchStream._feed

    def fed(stream: WatchStream[Any], item: object) -> None:
        feed(stream, item)
        if isinstance(item, Bookmark):
            reports.send_nowait(None)

    monkeypatch.setattr(WatchStream, "_feed", fed)
    following = headway.start("watch", "team", "-n", "labs")
    await following.errors.line()
    with trio.fail_after(20):
        for number in range(2):
            # Changes of another type cause a report. When the second one comes, the first was handled.
            await headway("apply", "-f", "-", stdin=f"type: tenancy.v1.Namespace\nname: other-{number}\n")
            await reported.receive()
    assert following.stderr.count("Note: ") == 1
    following.scope.cancel()
