"""Programs on two sides of a peering, and scenarios for them: every rule of a peering matters in one of them.

West keeps teams and their accounts. Home keeps a directory of the accounts of both sides, which west gets back.
"""

from __future__ import annotations

import dataclasses

import headway
from headway import field, peering
from headway.peering import peering_of
from headway.resource import NAMESPACE, PARTITION
from headway.testing import simulation


@headway.message(name="tests.PeerTeam")
class Team:
    members: list[str] = field(1)


@headway.message(name="tests.PeerAccount")
class Account:
    login: str = field(1)


types = headway.App("staff")
TEAM = types.type("staff", "v1", "Team", Team)
ACCOUNT = types.type("staff", "v1", "Account", Account)


def _app() -> headway.App:
    declared = headway.App("staff")
    declared.registry = types.registry
    return declared


def west() -> headway.App:
    """Return the program of the peer: it makes the accounts of its own teams."""
    app = _app()

    @app.controller(manages=TEAM, watches=[headway.watch(ACCOUNT, headway.mappers.owner())])
    async def accounts(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        team = rt.resource(request)
        if team is None or peering_of(team.id.partition):
            return
        async with rt.outputs(ACCOUNT, owner=team) as wanted:
            for login in team.data.members:
                await wanted.apply(login, Account(login=login))

    return app


def home() -> headway.App:
    """Return the program: it lists the logins of all accounts, of both sides, in a team."""
    app = _app()
    directory = TEAM.id("directory")

    def to_directory(_: headway.Resource[Account], __: object) -> list[headway.ResourceId]:
        return [directory]

    @app.controller(manages=TEAM, watches=[headway.watch(ACCOUNT, to_directory)])
    async def directories(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        if request.id != directory:
            return
        names = sorted({each.data.login for each in rt.cache.list(ACCOUNT)})
        await rt.client.apply(TEAM.new("directory", Team(members=names)))

    return app


PEERS = {
    "west": simulation.Peer(app=west(), exports=[ACCOUNT], imports=[peering.export(TEAM, namespace="default")]),
}
"""Accounts come from west, and teams of one namespace go there."""

BOTH_WAYS = {"west": simulation.Peer(app=west(), exports=[TEAM, ACCOUNT], imports=[TEAM, ACCOUNT], accepts=True)}
"""Both sides export all types, so that copies might come back."""

SHARED = {name: dataclasses.replace(peer, engines=2) for name, peer in PEERS.items()}
"""Two engines share the store of each side."""


async def teams(world: simulation.World) -> None:
    """Change what both sides export, within and outside the exports."""
    there = world.peers["west"].client
    await world.client.apply(NAMESPACE.new("private", NAMESPACE.payload(), partition="default"))
    await world.client.apply(TEAM.new("mine", Team(members=["nobody"]), namespace="private"))
    await world.client.apply(TEAM.new("here", Team(members=["linus"])))
    await there.apply(TEAM.new("core", Team(members=["ada", "grace"])))
    await world.wait_idle()
    await there.apply(TEAM.new("core", Team(members=["ada"])))
    await world.client.delete(TEAM.id("here"))
    await world.wait_idle()


async def conflicting(world: simulation.World) -> None:
    """Let two originals of one name compete for a copy: the second is refused until the first is deleted."""
    there = world.peers["west"].client
    await there.apply(PARTITION.new("other", PARTITION.payload()))
    await there.apply(ACCOUNT.new("ada", Account(login="ada")))
    await world.wait_idle()
    await there.apply(ACCOUNT.new("ada", Account(login="lovelace"), partition="other"))
    await world.sleep(5)
    await there.delete(ACCOUNT.id("ada"))
    await world.wait_idle()
