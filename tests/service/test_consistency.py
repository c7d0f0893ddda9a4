"""The consistency mode and the least revision of a read, in process and over the network."""

from __future__ import annotations

import pytest
from grpclib.const import Status

from headway.resource import pb
from tests.helpers.calls import Calls, at, refused
from tests.helpers.declared import a_note, a_type, an_id, text_of

EVERYWHERE = pb.Tenancy(partition="*", namespace="*")


@pytest.mark.parametrize("mode", ["consistent", "default", "stale", "CONSISTENT"])
async def test_every_read_sees_every_acknowledged_write_in_every_mode(anywhere: Calls, mode: str) -> None:
    """In Consul, only ``consistent`` does this. An unknown mode is ignored, as in Consul."""
    anywhere.metadata = {"x-consul-consistency-mode": mode}
    for number in range(5):
        written = await anywhere.write(a_note("one", str(number)))
        read = await anywhere.read(an_id())
        listed = await anywhere.list_type(a_type(), EVERYWHERE)
        assert [text_of(each) for each in (read.resource, *listed.resources)] == [str(number)] * 2
        assert at(read.position) == at(listed.position) == at(written.position)


async def test_least_revision_is_met_or_refused_with_both_revisions(anywhere: Calls) -> None:
    """The refusal is immediate for every kind of read and any distance. No read waits for the store."""
    await anywhere.write(a_note())
    here = anywhere.revision
    for least in (0, 1, here):
        assert (await anywhere.read(an_id(), min_revision=least)).resource is not None
        assert len((await anywhere.list_type(a_type(), EVERYWHERE, min_revision=least)).resources) == 1
    for least in (here + 1, 2**63, 2**64 - 1):
        said = f"this store is at revision {here}, below min_revision {least}"
        await refused(anywhere.read(an_id(), min_revision=least), Status.UNAVAILABLE, said)
        await refused(anywhere.read(an_id("none"), min_revision=least), Status.UNAVAILABLE, said)
        await refused(anywhere.list_type(a_type(), EVERYWHERE, min_revision=least), Status.UNAVAILABLE, said)


async def test_page_respects_the_least_revision(anywhere: Calls) -> None:
    """A list in pages respects the bound, too."""
    await anywhere.write(a_note())
    least = anywhere.revision + 1
    call = anywhere.list_type(a_type(), EVERYWHERE, min_revision=least, page_size=1)
    await refused(call, Status.UNAVAILABLE, f"below min_revision {least}")
