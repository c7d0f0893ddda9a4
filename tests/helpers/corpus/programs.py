"""Programs of one reconciler, for tests of single runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import headway
from headway.resource import Key, Kind
from headway.testing import simulation
from headway.testing.simulation import Result, Setting, run
from tests.helpers.corpus.staff import Account, Cloud, Team, one_team

TEAM: Kind = ("staff", "Team")
ACCOUNT: Kind = ("staff", "Account")
CORE: Key = ("default", "default", "core")


def program(reconcile: Callable[..., Any], **settings: Any) -> Callable[[simulation.Process], headway.App]:
    """Return a program of one reconciler, which also gets the type of accounts and the process."""

    def make(process: simulation.Process) -> headway.App:
        app = headway.App("staff")
        team, account = app.type("staff", "v1", "Team", Team), app.type("staff", "v1", "Account", Account)

        @app.controller(manages=team, watches=[headway.watch(account, headway.mappers.owner())], **settings)
        async def accounts(rt: headway.Runtime, request: headway.Request[Team]) -> headway.RequeueAfter | None:
            result: headway.RequeueAfter | None = await reconcile(rt, request, account, process)
            return result

        return app

    return make


async def right(rt: headway.Runtime, request: headway.Request[Team], account: Any, _: object) -> None:
    team = rt.resource(request)
    if team is not None:
        async with rt.outputs(account, owner=team) as wanted:
            for login in team.data.members:
                await wanted.apply(login, Account(login=login))


async def puts(_rt: headway.Runtime, request: headway.Request[Team], _: object, process: simulation.Process) -> None:
    await process.outside.put(request.id.name)


def result_of(reconcile: Callable[..., Any], plan: str = "none", *, most: int = 2000, **settings: Any) -> Result:
    given = {"scenario": one_team, "outside": Cloud, **settings}
    return run(Setting(app=program(reconcile), **given), simulation.Plan.parse(plan), most_steps=most)


def found(result: Result) -> list[str]:
    return [each.oracle for each in result.findings]
