"""Three broken programs, which `headway why` has to diagnose."""

from __future__ import annotations

import headway
from tests.helpers.why_programs import Account, Team


def mapper_that_raises() -> headway.App:
    """Return an app whose mapper reads a field that accounts lack."""
    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", Team)
    account = app.type("staff", "v1", "Account", Account)

    def team_of(account: headway.Resource[Account], _: headway.CacheReader) -> list[headway.ResourceId]:
        return [team.id(account.metadata["team"])]

    @app.controller(manages=team, watches=[headway.watch(account, team_of)], backoff=headway.Backoff(30, 30))
    async def teams(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        rt.resource(request)

    return app


def write_that_conflicts() -> headway.App:
    """Return an app that keeps the first version of a team, and writes that one back each time."""
    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", Team)
    app.type("staff", "v1", "Account", Account)
    first: dict[str, headway.Resource[Team]] = {}

    @app.controller(manages=team, backoff=headway.Backoff(30, 30))
    async def teams(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        found = rt.resource(request)
        if found is not None:
            kept = first.setdefault(request.id.name, found)
            if kept.version != found.version:
                kept.data.lead = "ada"
                await rt.client.write(kept)

    return app
