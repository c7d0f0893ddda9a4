"""Access over the network: the rights of a token, and a server that is never open by mistake."""

from __future__ import annotations

import pytest

import headway
from headway import field
from headway.access import Access, Authorizer, Policy, Rule, TokenSet, new_token


@headway.message
class Team:
    note: str = field(1)


app = headway.App("staff")
TEAM = app.type("staff", "v1", "Team", Team)


async def test_engine_that_listens_must_have_exactly_one_access_setting() -> None:
    """A forgotten setting must not leave the engine open."""
    for given in ({}, {"insecure": True, "access": Authorizer(Access())}):
        with pytest.raises(headway.errors.DeclarationError, match=r"access=.* or insecure=True"):
            async with headway.open_engine("memory:", app, listen=["127.0.0.1:0"], **given):  # type: ignore[arg-type]  # both are named
                pytest.fail("the engine listens")


async def test_token_permits_its_policies() -> None:
    """A token with read permission can read.

    A caller without a token is denied, and so is a write with this token. In process, everything is allowed.
    """
    rule = Rule(verbs=["view"], type="staff.v1.Team", partition="*", namespace="*")
    text, token = new_token(["readers"])
    access = Authorizer(Access([Policy("readers", [rule])], TokenSet([token])))
    async with headway.open_engine("memory:", app, listen=["127.0.0.1:0"], access=access) as engine:
        await engine.client.apply(TEAM.new("core"))
        async with headway.connect(engine.addresses, app, token=text) as reader:
            assert [team.name for team in await reader.list(TEAM)] == ["core"]
            async with reader.watch(TEAM) as events:
                assert isinstance(await events.__anext__(), headway.Upserted)
            for name in ("core", "other"):
                with pytest.raises(headway.errors.PermissionDenied):
                    await reader.write(TEAM.new(name))
        async with headway.connect(engine.addresses, app) as nobody:
            answers = []
            for name in ("core", "other"):
                with pytest.raises(headway.HeadwayError) as refused:
                    await nobody.read(TEAM, name)
                answers.append((type(refused.value), str(refused.value).replace(name, "NAME")))
            assert answers[0] == answers[1]
