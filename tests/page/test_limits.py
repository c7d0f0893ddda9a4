"""What the page shows of limits: controllers that hold writes back, and calls of others that were refused."""

from __future__ import annotations

import pytest

import headway
from headway.access import Limit, Rule
from tests.helpers.browser import PATIENCE, open_chromium
from tests.helpers.plain_types import Team
from tests.http.kit import bearing
from tests.page.kit import EVERYTHING, Shop, open_shop
from tests.page.opened import CONTRAST, TEXT, sign_in


def limited_app() -> tuple[headway.App, headway.ResourceType[Team]]:
    """Return an app with a controller that holds a write back for a quarter of an hour."""
    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", Team)

    @app.controller(manages=team, write_limit=headway.WriteLimit(0.001, burst=1), when=lambda old, _: old is None)
    async def writer(rt: headway.Runtime, _: headway.Request[Team]) -> None:
        await rt.client.write(team.new("first"))
        await rt.client.write(team.new("second"))

    return app, team


ONLY_TEAMS = [Rule(verbs=["*"], type="staff.v1.Team", partition="*", namespace="*")]
RULES = {"all": [EVERYTHING], "teams": ONLY_TEAMS, "caller": ONLY_TEAMS}
FEW = Limit(name="few", categories=["read"], per=["caller"], per_second=0.001, burst=1, policies=["caller"])
HELD = "holds back 1 write, because its write_limit is 0.001 a second with a burst of 1"


async def be_limited(shop: Shop) -> None:
    """Make a call, and two more that a limit refuses."""
    assert shop.access is not None
    shop.access.limiter.replace([FEW])
    async with shop.visitor() as caller:
        headers = bearing(shop.tokens["caller"])
        codes = [(await caller.http.get("/api/staff/v1/team/core", headers=headers)).status_code for _ in range(3)]
    assert codes[1:] == [429, 429]


@pytest.mark.wide
async def test_page_shows_held_writes_and_refused_calls_to_those_who_may_see_everything() -> None:
    app, team = limited_app()
    async with open_shop(app=app, rules=RULES) as shop:
        await shop.client.write(team.new("core"))
        await be_limited(shop)
        async with shop.visitor("all") as whole, shop.visitor("teams") as part:
            async with whole.events("/page/live") as live:
                await live.until(_held)
            async with whole.events("/page/live") as live:
                # The first state of a stream is whole.
                state = await live.next("state")
            assert _held(state) == HELD
            accessor = shop.tokens["caller"].split("_")[1]
            assert state["refused"] == [{"limit": "few", "calls": 2, "caller": accessor}]
            async with part.events("/page/live") as live:
                state = await live.next("state")
            assert _held(state)
            assert state["refused"] == []


@pytest.mark.browser
@pytest.mark.timeout(4 * PATIENCE)
async def test_browser_shows_held_writes_and_refused_calls() -> None:
    app, team = limited_app()
    async with open_shop(app=app, rules=RULES) as shop, open_chromium() as browser:
        await shop.client.write(team.new("core"))
        await be_limited(shop)
        await browser.open(f"http://{shop.address}/")
        await sign_in(browser, shop.tokens["all"])
        await browser.wait("document.querySelector('.refused')?.innerText.includes('few: 2 calls, the last by ')")
        await browser.wait("document.querySelector('.controllers tr.warn') !== null")
        await browser.evaluate("void (location.hash = '#/controller/staff%2Fwriter')")
        await browser.wait(f"{TEXT}.includes('It {HELD}.')")
        assert "writes held back" in await browser.evaluate(TEXT)
        assert await browser.evaluate(CONTRAST) == []
        assert await browser.logs() == []


def _held(state: dict[str, object]) -> str:
    """Return what the controller of a state holds back."""
    controllers = state.get("controllers", [])
    assert isinstance(controllers, list)
    return next((each["writesHeld"] for each in controllers if each["name"] == "staff/writer"), "")
