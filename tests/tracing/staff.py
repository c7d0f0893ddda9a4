"""An app whose reconcile writes: a team has an account of its name, and each account counts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import headway
from headway import field

Hook = Callable[[headway.Runtime, "headway.Request[Team]"], Awaitable[None]]


@headway.message
class Team:
    size: int = field(1)


@headway.message
class Account:
    size: int = field(1)


class Staff:
    """The app, its types, and a function that each reconcile of a team calls first."""

    def __init__(self, name: str = "staff") -> None:
        self.app = headway.App(name)
        self.team = self.app.type("staff", "v1", "Team", Team)
        self.account = self.app.type("staff", "v1", "Account", Account)
        self.before: Hook | None = None

        @self.app.controller(
            manages=self.team,
            watches=[headway.watch(self.account, headway.mappers.same_name())],
            name="teams",
            backoff=headway.Backoff(0.001, 0.001),
        )
        async def reconcile(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            if self.before is not None:
                await self.before(rt, request)
            team = rt.resource(request)
            if team is not None:
                await rt.apply(self.account.new(team.name, Account(size=team.data.size), owner=team))


def types_alone() -> headway.App:
    """Return an app with the types and no controller, for a server or a client."""
    app = headway.App("staff")
    app.type("staff", "v1", "Team", Team)
    app.type("staff", "v1", "Account", Account)
    return app
