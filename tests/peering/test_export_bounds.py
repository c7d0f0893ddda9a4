"""The bound of a peering's exports: one stream carries as many as a peering may have, and a longer list is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from trio.testing import MockClock

import headway
from headway import events
from headway._gen.headway.peering import v1 as wire
from headway.api import MAX_SUBJECTS
from headway.errors import InvalidArgument
from headway.peering import MAX_EXPORTS, PEERING, Role, export, generate_token
from headway.peering._hub import INVALID_EXPORTS
from headway.resource import NAMESPACE
from tests.helpers import peers
from tests.helpers.resources import TEAM, Team
from tests.peering.link_kit import eventually, open_pair


def exports(count: int) -> list[wire.Export]:
    """Return exports of teams in as many namespaces."""
    return [export(TEAM, partition="default", namespace=f"n{number}") for number in range(count)]


async def test_one_stream_carries_as_many_exports_as_a_peering_may_have(autojump_clock: MockClock) -> None:
    assert MAX_EXPORTS == MAX_SUBJECTS
    async with open_pair() as pair:
        await pair.a.change(exports=exports(MAX_EXPORTS))
        for namespace in ("n0", f"n{MAX_EXPORTS - 1}", f"n{MAX_EXPORTS}"):
            await pair.a.host.client.create(NAMESPACE.new(namespace, NAMESPACE.payload()))
            await pair.a.host.client.create(TEAM.new(namespace, Team(), namespace=namespace))
        pair.connect()
        await pair.wait(pair.b, {"n0": [], f"n{MAX_EXPORTS - 1}": []})


async def test_longer_list_of_an_earlier_release_is_named_and_is_not_the_peers_fault(autojump_clock: MockClock) -> None:
    async with open_pair() as pair:
        await pair.a.change(exports=exports(MAX_EXPORTS + 1))
        pair.connect()
        await eventually(pair.a.ended, True)
        (ended,) = pair.a.ends
        assert (ended.reason, str(ended)) == (
            INVALID_EXPORTS,
            f"the exports of peering west on this side: more than {MAX_EXPORTS} exports",
        )
        assert not [each for each in pair.a.events if isinstance(each, events.PeerRefused)]


async def test_role_of_a_peering_cannot_be_changed(tmp_path: Path) -> None:
    """Otherwise its dialer or its streams would go on beside what the new role begins."""
    async with headway.open_engine("memory:", peers.app, report=events.ignore) as engine:
        unix = [f"unix:{tmp_path}/socket"]
        await generate_token(engine.client, "west", [peers.TEAM], addresses=unix, plain_text=True)
        west = await engine.client.read(PEERING, "west")
        west.data.role = Role.DIALS
        with pytest.raises(
            InvalidArgument, match=r"role ROLE_DIALS cannot replace ROLE_ACCEPTS: the peering accepts for"
        ):
            await engine.client.write(west)
        west = await engine.client.read(PEERING, "west")
        west.data.exports = []
        assert (await engine.client.write(west)).data.role is Role.ACCEPTS
