"""What the page shows of limits: controllers that hold writes back, and calls of others that were refused."""

from __future__ import annotations

import pytest

import headway
from headway import field
from headway.access import Limit, Rule
from tests.http.kit import bearing
from tests.page.kit import EVERYTHING, open_shop


@headway.message(name="tests.page.limits.Team")
class Team:
    note: str = field(1)


@pytest.mark.wide
async def test_page_shows_held_writes_and_refused_calls_to_those_who_may_see_everything() -> None:
    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", Team)

    @app.controller(manages=team, write_limit=headway.WriteLimit(0.001, burst=1), when=lambda old, _: old is None)
    async def writer(rt: headway.Runtime, _: headway.Request[Team]) -> None:
        await rt.client.write(team.new("first"))
        await rt.client.write(team.new("second"))

    only_teams = [Rule(verbs=["*"], type="staff.v1.Team", partition="*", namespace="*")]
    rules = {"all": [EVERYTHING], "teams": only_teams, "caller": only_teams}
    async with open_shop(app=app, rules=rules) as shop:
        assert shop.access is not None
        limit = Limit(name="few", categories=["read"], per=["caller"], per_second=0.001, burst=1, policies=["caller"])
        shop.access.limiter.replace([limit])
        await shop.client.write(team.new("core"))
        async with shop.visitor("all") as whole, shop.visitor("teams") as part:
            refused = None
            for _ in range(3):
                headers = bearing(shop.tokens["caller"])
                refused = await whole.http.get("/api/staff/v1/team/core", headers=headers)
            assert refused is not None
            assert refused.status_code == 429
            async with whole.events("/page/live") as live:
                await live.until(_held)
            async with whole.events("/page/live") as live:
                # The first state of a stream is whole.
                state = await live.next("state")
            assert _held(state) == "holds back 1 write, because its write_limit is 0.001 a second with a burst of 1"
            assert [(each["limit"], each["calls"]) for each in state["refused"]] == [("few", 2)]
            assert shop.tokens["caller"].split("_")[1] == state["refused"][0]["caller"]
            async with part.events("/page/live") as live:
                state = await live.next("state")
            assert _held(state)
            assert state["refused"] == []


def _held(state: dict[str, object]) -> str:
    """Return what the controller of a state holds back."""
    controllers = state.get("controllers", [])
    assert isinstance(controllers, list)
    return next((each["writesHeld"] for each in controllers if each["name"] == "staff/writer"), "")
