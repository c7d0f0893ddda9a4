"""The namespaces that are created for copies: a peer cannot fill the store with them."""

from __future__ import annotations

import pytest

from headway.peering import PeerLimits, Role
from headway.peering.links import Importer, open_importer
from headway.peering.stream import Breach, Work
from headway.resource import NAMESPACE
from headway.storage import Put, Remove
from tests.helpers.resources import TEAM
from tests.peering.link_kit import Side, open_side
from tests.peering.stream_kit import team


async def copy_and_remove(side: Side, importer: Importer, namespace: str) -> None:
    """Store a copy in a namespace, and remove it."""
    copy = team("ada", 1, uid="u", partition="peer-west")
    assert copy.id is not None
    assert copy.id.tenancy is not None
    copy.id.tenancy.namespace = namespace
    key = ("peer-west", namespace, "ada")
    await importer.store(Work(commits=[[Put(TEAM.kind, key, copy, "")]]))
    version = str(side.host.backend.position.revision)
    await importer.store(Work(commits=[[Remove(TEAM.kind, key, "u", version)]]))


async def test_namespaces_are_bounded_although_their_copies_are_removed() -> None:
    async with open_side("west", Role.DIALS, TEAM) as side:
        importer = await open_importer(side.host, side.entry.peering, PeerLimits(namespaces=3))
        for namespace in ("n1", "n2", "n3", "n1", "default"):
            await copy_and_remove(side, importer, namespace)
        with pytest.raises(Breach, match="exports resources of more than 3 namespaces"):
            await copy_and_remove(side, importer, "n4")
        made = await side.host.client.list(NAMESPACE, partition="peer-west")
        assert [each.name for each in made] == ["n1", "n2", "n3"]
