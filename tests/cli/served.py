"""The app that the tests of the command line serve."""

import enum

import headway
from headway import field


class Rank(enum.IntEnum):
    JUNIOR = 0
    SENIOR = 1


@headway.message
class Member:
    login: str = field(1)
    rank: Rank = field(2)


@headway.message
class Team:
    members: list[Member] = field(1)
    note: str | None = field(2)


@headway.message(name="tests.Account")
class Account:
    login: str = field(1)


app = headway.App("staff")
other = headway.App("other")
TEAM = app.type("staff", "v1", "Team", Team)
ACCOUNT = app.type("staff", "v1", "Account", Account)
SITE = app.type("staff", "v1", "Site", Account, scope=headway.Scope.CLUSTER, columns={"LOG IN": "login"})


def fill_in(resource: headway.Resource[Account]) -> None:
    resource.data.login = resource.data.login or resource.id.name


def refuse_root(resource: headway.Resource[Account]) -> None:
    if resource.data.login == "root":
        raise ValueError("login 'root' is reserved: choose another")


HOOKS = headway.Hooks(mutate=fill_in, validate=refuse_root)
OTHER_ACCOUNT = other.type("bank", "v1", "Account", Account, hooks=HOOKS)
apps = [app, other]


@app.controller(manages=TEAM)
async def teams(rt: headway.Runtime, request: headway.Request) -> None:
    team = rt.cache.get(TEAM, request.id)
    if team is not None:
        state = headway.ConditionState.TRUE if team.data.members else headway.ConditionState.FALSE
        condition = headway.Condition(type="Staffed", state=state, message=team.data.note or "")
        await rt.client.write_status(team, "teams", [condition])
