"""A team has accounts: the whole of Headway on one screen. Run it with `python examples/01_minimal.py`."""

import trio

import headway
from headway import field


@headway.message
class Team:
    """A group of people."""

    members: list[str] = field(1)


@headway.message
class Account:
    """What a person logs in with."""

    login: str = field(1)


app = headway.App("staff")
TEAM = app.type("staff", "v1", "Team", Team)
ACCOUNT = app.type("staff", "v1", "Account", Account)


@app.controller(manages=TEAM, watches=[headway.watch(ACCOUNT, headway.mappers.owner())], concurrency=8)
async def accounts(rt: headway.Runtime, request: headway.Request) -> None:
    """Every member of a team has an account, and nobody else has."""
    team = rt.cache.get(TEAM, request.id)
    if team is not None:
        async with rt.outputs(ACCOUNT, owner=team) as wanted:  # what is not applied in here is pruned
            for login in team.data.members:
                await wanted.apply(login, Account(login=login))


async def main() -> None:
    """Make a team, change it, and look at its accounts."""
    async with headway.open_engine("memory:", app) as engine:
        for members in (["ada", "grace"], ["grace", "katherine"]):
            await engine.client.apply(TEAM.new("core", Team(members=members)))
            await engine.wait_idle()
            print([account.name for account in await engine.client.list(ACCOUNT)])


if __name__ == "__main__":
    trio.run(main)
