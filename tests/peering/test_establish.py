"""A token is made by one engine and used by another: R-3 and R-9, over a Unix socket."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

import headway
from headway import events
from headway.errors import AlreadyExists, FailedPrecondition, InvalidArgument
from headway.peering import PEERING, Export, PeeringState, Role, establish, export, generate_token, read_token, state_of
from headway.resource import PARTITION, ResourceType, pb
from headway.storage import MemoryBackend, Put
from tests.helpers.peers import ROOM, SITE, TEAM, Team, app, open_accepting, open_peers, reached

Exported = ResourceType[Any] | Export


async def test_r9_token_establishes_a_peering_on_both_sides(tmp_path: Path) -> None:
    """Each side then knows the other by its uid and its store, and has a partition for the copies."""
    async with open_peers(tmp_path) as (accepts, dials, address):
        exports: list[Exported] = [TEAM, export(ROOM, partition="lab")]
        token = await generate_token(accepts.client, "west", exports, plain_text=True)
        pending = await accepts.client.read(PEERING, "west")
        assert state_of(pending) is PeeringState.PENDING

        dialing = await establish(dials.client, "east", token, [export(TEAM, namespace="a")], plain_text=True)

        # The stream may be open before anybody looks.
        accepting = await reached(accepts, "west", PeeringState.ESTABLISHING, PeeringState.ACTIVE)
        assert (accepting.data.role, dialing.data.role) == (Role.ACCEPTS, Role.DIALS)
        assert (accepting.data.peer_id, dialing.data.peer_id) == (dialing.id.uid, accepting.id.uid)
        assert (accepting.data.peer_name, dialing.data.peer_name) == ("east", "west")
        assert accepting.data.peer_store_id != dialing.data.peer_store_id
        assert dialing.data.addresses == [address]
        assert [each.type.kind for each in accepting.data.exports if each.type] == ["Team", "Room"]
        for engine, name in ((accepts, "peer-west"), (dials, "peer-east")):
            await headway.until(engine.client, PARTITION, name, lambda found: found is not None)


async def test_r9_token_is_exchanged_once(tmp_path: Path) -> None:
    """The second engine gets an error that says so, and keeps no peering."""
    async with open_peers(tmp_path) as (accepts, dials, _), headway.open_engine("memory:", headway.App("x")) as third:
        token = await generate_token(accepts.client, "west", [TEAM], plain_text=True)
        await establish(dials.client, "east", token, plain_text=True)
        # The answer is the same before and after the first stream.
        with pytest.raises(FailedPrecondition, match="was exchanged already: make a new token"):
            await establish(third.client, "east", token, plain_text=True)
        await reached(accepts, "west", PeeringState.ACTIVE)
        with pytest.raises(FailedPrecondition, match="was exchanged already: make a new token"):
            await establish(third.client, "east", token, plain_text=True)
        assert await third.client.list(PEERING) == []
        assert await third.client.list(PARTITION) == []


async def test_new_token_of_a_peering_ends_the_earlier_one(tmp_path: Path) -> None:
    """A new token without exports keeps the peering's exports."""
    async with open_peers(tmp_path) as (accepts, dials, _):
        first = await generate_token(accepts.client, "west", [TEAM], plain_text=True)
        second = await generate_token(accepts.client, "west", None, plain_text=True)
        assert read_token(first).peer_id == read_token(second).peer_id
        assert len((await accepts.client.read(PEERING, "west")).data.exports) == 1
        with pytest.raises(FailedPrecondition, match="the peering's secret is not valid here"):
            await establish(dials.client, "east", first, plain_text=True)
        await establish(dials.client, "east", second, plain_text=True)


async def test_token_expires_after_an_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dialing side says so, and the accepting side refuses it too, whatever the clock of the other one."""
    async with open_peers(tmp_path) as (accepts, dials, _):
        token = await generate_token(accepts.client, "west", [TEAM], plain_text=True)
        now = datetime.datetime.now(datetime.UTC)
        assert datetime.timedelta(minutes=59) < read_token(token).expires_at - now <= datetime.timedelta(hours=1)
        later = now + datetime.timedelta(hours=1)
        monkeypatch.setattr("headway.peering._secrets.utc_now", lambda: later)
        with pytest.raises(FailedPrecondition, match="the peering's secret is not valid here"):
            await establish(dials.client, "east", token, plain_text=True)
        monkeypatch.setattr("headway.peering._service.utc_now", lambda: later)
        with pytest.raises(FailedPrecondition, match=r"the token expired at .*: make a new one"):
            await establish(dials.client, "east", token, plain_text=True)


@pytest.mark.parametrize("by", ["the partition", "a resource"])
async def test_establishing_fails_if_the_partition_exists_or_holds_resources(tmp_path: Path, by: str) -> None:
    """The service creates neither, so they come from an earlier release. No peering is left."""
    memory = MemoryBackend()
    type, key = (PARTITION, ("", "", "peer-east")) if by == "the partition" else (TEAM, ("peer-east", "a", "t"))
    id = pb.Id(uid="01", name=key[2], type=type.message, tenancy=pb.Tenancy(partition=key[0], namespace=key[1]))
    async with open_accepting(tmp_path) as accepts:
        token = await generate_token(accepts.client, "west", [TEAM], plain_text=True)
        async with headway.open_engine(memory, app, report=events.ignore) as dials:
            await memory.commit([Put(type.kind, key, pb.Resource(id=id, generation=id.uid), "")])
            with pytest.raises(FailedPrecondition, match=_TAKEN[by]):
                await establish(dials.client, "east", token, plain_text=True)
            with pytest.raises(FailedPrecondition, match=_TAKEN[by]):
                await generate_token(dials.client, "east", [TEAM], addresses=["127.0.0.1:1"], plain_text=True)
            assert await dials.client.list(PEERING) == []
            # The token was not used.
            await establish(dials.client, "other", token, plain_text=True)


_TAKEN = {
    "the partition": "partition 'peer-east' is for the copies of this peering, but it exists already: wait for",
    "a resource": "'peer-east' is for the copies of this peering, but it holds resources, such as a staff.Team",
}


async def test_a_store_is_not_its_own_peer(tmp_path: Path) -> None:
    async with open_peers(tmp_path) as (accepts, _, _):
        token = await generate_token(accepts.client, "west", [TEAM], plain_text=True)
        with pytest.raises(FailedPrecondition, match="a store cannot be its own peer"):
            await establish(accepts.client, "east", token, plain_text=True)


async def test_name_of_a_peering_of_the_other_role_is_taken(tmp_path: Path) -> None:
    async with open_peers(tmp_path) as (accepts, dials, _):
        token = await generate_token(accepts.client, "west", [TEAM], plain_text=True)
        await establish(dials.client, "east", token, plain_text=True)
        with pytest.raises(AlreadyExists, match="peering east exists and dials"):
            await generate_token(dials.client, "east", [TEAM], addresses=["127.0.0.1:1"], plain_text=True)


@pytest.mark.parametrize(
    ("exports", "said"),
    [
        ([SITE], r"exports\[0\].type staff.v1.Site cannot be exported: it is cluster-scoped"),
        ([TEAM, PARTITION], r"exports\[1\].type tenancy.v1.Partition cannot be exported"),
        ([export(TEAM, partition="peer-x")], r"exports\[0\].tenancy.partition 'peer-x' cannot be exported"),
        ([export(ROOM, namespace="a")], r"exports\[0\].tenancy.namespace 'a' must be empty"),
        ([export(TEAM, namespace="A")], r"exports\[0\].tenancy: namespace 'A' is not a valid name"),
        ([TEAM, TEAM], r"exports\[1\] repeats an earlier export of staff.v1.Team"),
        ([export(TEAM, namespace=f"n{i}") for i in range(65)], "exports has 65 entries: it must have at most 64"),
    ],
)
async def test_export_that_cannot_be_copied_is_refused(
    tmp_path: Path, exports: list[ResourceType[Any] | Export], said: str
) -> None:
    """The error names the field, also when an ordinary write changes a peering."""
    async with open_peers(tmp_path) as (accepts, _, _):
        with pytest.raises(InvalidArgument, match=said):
            await generate_token(accepts.client, "west", exports, plain_text=True)
        assert await accepts.client.list(PEERING) == []
        await generate_token(accepts.client, "west", [TEAM], plain_text=True)
        peering = await accepts.client.read(PEERING, "west")
        peering.data.exports = [each if isinstance(each, Export) else export(each) for each in exports]
        with pytest.raises(InvalidArgument, match="resource.data." + said):
            await accepts.client.write(peering)


async def test_only_the_peering_writes_to_its_partition(tmp_path: Path) -> None:
    """Rights make no difference: a program in the engine's own process, which may do everything else, is refused."""
    async with open_peers(tmp_path) as (accepts, _, _):
        await generate_token(accepts.client, "west", [TEAM], plain_text=True)
        client = accepts.client
        team = TEAM.new("core", Team(size=1), partition="peer-west")
        for call in (client.write(team), client.create(team), client.validate(team), client.delete(team.id)):
            with pytest.raises(FailedPrecondition, match="reserved for the copies of peering 'west'"):
                await call
        partition = await client.read(PARTITION, "peer-west")
        for call in (client.write(partition), client.delete(partition), client.write_status(partition, "x", [])):
            with pytest.raises(FailedPrecondition, match="reserved for the copies"):
                await call
