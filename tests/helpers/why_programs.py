"""Apps for the tests of `why`: one that fails, and one whose parts a test breaks one by one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

import headway
from headway import field
from headway.reconcile import Result
from headway.why import ControllerWhy, Why

PATIENCE = 60.0

T = TypeVar("T")


@headway.message(name="why.Team")
class Team:
    lead: str = field(1)


@headway.message(name="why.Account")
class Account:
    team: str = field(1)


def broken_app() -> tuple[headway.App, headway.ResourceType[Team]]:
    """Return an app whose controller fails for each team without a lead, once in the time of a test."""
    app = headway.App("staff")
    type = app.type("staff", "v1", "Team", Team)

    @app.controller(manages=type, backoff=headway.Backoff(base=30, maximum=60))
    async def teams(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        team = rt.resource(request)
        if team is not None and not team.data.lead:
            raise ValueError(f"{team.id.name} has no lead")

    return app, type


class Parts:
    """An app of teams and their accounts. Its functions can be replaced while it runs."""

    def __init__(self) -> None:
        self.app = headway.App("staff")
        self.team: headway.ResourceType[Team] = self.app.type("staff", "v1", "Team", Team)
        self.account: headway.ResourceType[Account] = self.app.type("staff", "v1", "Account", Account)
        self.reconcile: Callable[[headway.Runtime, headway.Request], Awaitable[Result]] = nothing
        self.map: Callable[[headway.Resource[Account]], list[headway.ResourceId]] = self.team_of

        def team_of(account: headway.Resource[Account], _: object) -> list[headway.ResourceId]:
            return self.map(account)

        def has_a_lead(_: headway.Resource[Team] | None, new: headway.Resource[Team] | None) -> bool:
            return new is None or new.data.lead != "nobody"

        @self.app.controller(
            manages=self.team,
            when=has_a_lead,
            watches=[headway.watch(self.account, team_of)],
            backoff=headway.Backoff(base=30, maximum=30),
        )
        async def teams(rt: headway.Runtime, request: headway.Request) -> Result:
            return await self.reconcile(rt, request)

    def team_of(self, account: headway.Resource[Account]) -> list[headway.ResourceId]:
        """Map an account to its team."""
        return [self.team.id(account.data.team)]


async def nothing(_: headway.Runtime, __: headway.Request) -> None:
    """Reconcile nothing."""


async def eventually(found: Callable[[], Awaitable[T | None]]) -> T:
    """Return the first result of a function that is not None. It is called again and again."""
    with trio.fail_after(PATIENCE):
        while (result := await found()) is None:  # noqa: ASYNC110  # a state has no event
            await trio.sleep(0.01)
    return result


async def told(
    engine: headway.Engine,
    id: headway.ResourceId,
    state: str,
    name: str = "staff/teams",
    also: Callable[[ControllerWhy], object] = lambda _: True,
) -> Why:
    """Return the answer once the controller is in a state, and the condition holds for its part."""

    async def asked() -> Why | None:
        why = await engine.why(id)
        return (
            why if any(each.name == name and each.state == state and also(each) for each in why.controllers) else None
        )

    return await eventually(asked)


def part(why: Why, role: str = "manages") -> ControllerWhy:
    """Return the only part of an answer with a role."""
    [found] = [each for each in why.controllers if each.role == role]
    return found
