"""What fails, on the overview: also changes that no mapper could map, and in other processes, by rights."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import pytest

import headway
from headway.base import wall_time
from headway.page import PageHost, StoreParts, _host
from headway.page._others import Other
from headway.page._overview import FAILING, Visible, failing
from headway.resource import TypeName
from headway.storage import MemoryBackend
from headway.why import ControllerNow, Elsewhere, Failing, ObserveHost, Ref
from tests.cli.broken import mapper_that_raises
from tests.helpers.why_programs import Account, Team, broken_app
from tests.page.kit import EVERYTHING, Events, open_shop, rule
from tests.why.test_workers import nothing, types_only

TEAM = TypeName("staff", "v1", "Team")
KEY_ERROR = "team_of: KeyError: 'team'"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the page look and ask often."""
    for name in ("ASKED", "TICK"):
        monkeypatch.setattr(_host, name, 0.05)


async def failing_in(live: Events) -> list[tuple[str, str, str, str, str]]:
    """Return the first failures that the page lists: controller, process, resource, outcome and error."""
    state = await live.until(lambda event: event.get("failing"))
    keys = ("controller", "process", "resource", "outcome", "error")
    return [tuple(each[key]["name"] if key == "resource" else each[key] for key in keys) for each in state["failing"]]


def controller(event: dict[str, Any], name: str = "staff/teams") -> dict[str, Any]:
    """Return the numbers of a controller of the server's process."""
    found: dict[str, Any] = next((each for each in event.get("controllers", ()) if each["name"] == name), {})
    return found


async def test_unmapped_change_is_listed_with_its_resource_and_error() -> None:
    """Its controller counts it. A caller who may not observe its type gets the count, and neither name nor error."""
    app = mapper_that_raises()
    [team, account] = [next(each for each in app.registry if each.name.kind == kind) for kind in ("Team", "Account")]
    teams = [rule("observe", "view", type="staff.v1.Team")]
    async with open_shop(app=app, rules={"all": [EVERYTHING], "teams": teams}) as running:
        await running.client.apply(team.new("core", Team()))
        async with running.visitor("all") as visitor, visitor.events("/page/live") as live:
            state = await live.until(lambda event: controller(event).get("phase") == "running")
            assert controller(state)["mappingFailed"] == 0
            assert not state.get("failing")
            await running.client.apply(account.new("grace", Account()))
            assert await failing_in(live) == [("staff/teams", "", "grace", "unmapped", KEY_ERROR)]
        async with running.visitor("teams") as visitor, visitor.events("/page/live") as live:
            state = await live.until(lambda event: controller(event).get("mappingFailed") == 1)
            assert state["failing"] == []
            assert "grace" not in str(state)
            assert "KeyError" not in str(state)


class Seen(NamedTuple):
    """What the page knows of a controller of the server's process, as far as its failures."""

    now: ControllerNow


def failures(count: int, at: float, name: str = "f", type: TypeName = TEAM) -> list[Failing]:
    return [Failing(Ref(str(type), name=f"{name}{number}"), "failed", "E", 1, at + number) for number in range(count)]


def test_process_with_a_wrong_clock_does_not_fill_the_list_of_what_fails() -> None:
    """Each process has its turn, the server's own first, and nothing is said to fail in the future."""
    now = wall_time()

    def of(process: str, failing: list[Failing]) -> Other:
        return Other(Elsewhere("", process, "staff/teams", TEAM.unversioned, ControllerNow(failing=failing)))

    host = PageHost([], ObserveHost(nothing), types_only().registry, StoreParts(MemoryBackend()))
    host.others.seen = [of("web-1", failures(40, now + 1e9)), of("web-2", failures(1, now - 600, "late"))]
    visible = Visible(frozenset(), frozenset([TEAM]), frozenset([TEAM]))
    found = failing(host, {"staff/teams": Seen(ControllerNow(failing=failures(3, now - 60)))}, visible)  # type: ignore[dict-item]  # enough
    assert len(found) == FAILING
    assert [each["process"] for each in found] == ["web-1"] * 16 + [""] * 3 + ["web-2"]
    assert [each["resource"]["name"] for each in found[16:]] == ["f2", "f1", "f0", "late0"]
    assert max(each["at"] for each in found) <= wall_time()


def test_controller_with_many_failures_does_not_hide_those_of_another() -> None:
    """A thousand new failures of one leave room for the old one of another."""
    host = PageHost([], ObserveHost(nothing), types_only().registry, StoreParts(MemoryBackend()))
    visible = Visible(frozenset(), frozenset([TEAM]), frozenset([TEAM]))
    failing_of = {"staff/teams": failures(40, 2000.0), "staff/leads": failures(1, 1000.0, "old")}
    seen = {name: Seen(ControllerNow(failing=each)) for name, each in failing_of.items()}
    found = failing(host, seen, visible)  # type: ignore[arg-type]  # enough
    assert [each["controller"] for each in found] == ["staff/teams"] * (FAILING - 1) + ["staff/leads"]


async def test_failures_of_another_process_are_listed_with_its_name() -> None:
    """Failed reconciles and unmapped changes alike. What has gone fails no more."""
    app, team = broken_app()
    mapping = mapper_that_raises()
    workers = partial(headway.open_workers, insecure=True, report=headway.events.ignore)
    types = types_only()
    account = types.type("staff", "v1", "Account", Account)
    async with open_shop(app=types, listen=["127.0.0.1:0"]) as running:
        await running.client.apply(team.new("core", Team()))
        async with running.visitor() as visitor, visitor.events("/page/live") as live:
            async with workers(running.engine.addresses, app, process="web-1"):
                error = "ValueError: core has no lead"
                assert await failing_in(live) == [("staff/teams", "web-1", "core", "failed", error)]
            await live.until(lambda event: event.get("failing") == [])
            await running.client.apply(account.new("grace", Account()))
            async with workers(running.engine.addresses, mapping, process="web-2"):
                assert await failing_in(live) == [("staff/teams", "web-2", "grace", "unmapped", KEY_ERROR)]
