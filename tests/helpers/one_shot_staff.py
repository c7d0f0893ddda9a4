"""An app of teams and accounts whose controller a test calls directly."""

from __future__ import annotations

import trio

import headway
from headway import field


@headway.message(name="tests.Team")
class Team:
    """A team with its members."""

    members: list[str] = field(1)


@headway.message(name="tests.Account")
class Account:
    """An account of one member, by login."""

    login: str = field(1)


class Staff:
    """An app with one account for each member of a team, and a controller that must not run."""

    def __init__(self) -> None:
        self.app = headway.App("staff")
        self.team = team = self.app.type("staff", "v1", "Team", Team)
        self.account = account = self.app.type("staff", "v1", "Account", Account)
        self.started = 0

        async def started(rt: headway.Runtime) -> None:
            assert rt.cache.list(team) is not None
            self.started += 1

        @self.app.controller(
            manages=team,
            watches=[headway.watch(account, headway.mappers.owner())],
            on_start=started,
            deadline=30,
            concurrency=3,
        )
        async def accounts(rt: headway.Runtime, request: headway.Request[Team]) -> headway.RequeueAfter | None:
            found = rt.resource(request)
            if found is None:
                return None
            async with rt.outputs(account, owner=found) as wanted:
                for login in found.data.members:
                    if login == "nobody":
                        raise LookupError(login)
                    if login == "sleepy":
                        await trio.sleep_forever()
                    await wanted.apply(login, Account(login=login))
            ready = headway.Condition("Ready", headway.ConditionState.TRUE)
            await rt.client.write_status(found, "accounts", [ready])
            assert len(rt.cache.list(account)) == len(found.data.members)
            return headway.requeue_after(60) if found.data.members else None

        @self.app.controller(manages=account)
        async def other(_: headway.Runtime, __: headway.Request[Account]) -> None:
            raise AssertionError("another controller ran")
