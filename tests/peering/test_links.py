"""Peer streams in virtual time: heartbeats, silence, cuts, refusals, and what ends a stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock

from headway import events
from headway._gen.headway.peering import v1 as wire
from headway._gen.headway.peering.v1 import Subject
from headway.errors import FailedPrecondition
from headway.peering import PEERING, PeerLimits, Role
from headway.peering._hub import ACCEPT_KEY, BREACH, CLOSED, DELETED, REPLACED, SILENT, TERMINATED
from headway.peering.links import open_importer
from headway.peering.stream import Copying
from headway.resource import PARTITION, Condition, ConditionState
from headway.storage import MemoryBackend
from tests.helpers.resources import ACCOUNT, TEAM, Account, Team
from tests.peering.link_kit import Message, Side, eventually, exported, open_pair, open_side, raw_peer


async def test_r8_heartbeats_are_sent_every_15_seconds(autojump_clock: MockClock) -> None:
    async with open_side("west", Role.ACCEPTS, TEAM) as side, raw_peer(side) as peer:
        began = trio.current_time()
        for _ in range(4):
            await peer.receive()
            while peer.times[-1][1].heartbeat is None:
                await peer.receive()
        beats = [round(at - began) for at, message in peer.times if message.heartbeat is not None]
        assert beats == [15, 30, 45, 60]


async def test_r8_two_minutes_of_silence_end_the_stream(autojump_clock: MockClock) -> None:
    async with open_side("west", Role.ACCEPTS, TEAM) as side, raw_peer(side) as peer:
        began = trio.current_time()
        await trio.sleep(60)
        await peer.send(Message(heartbeat=wire.Heartbeat()))
        await peer.drain()
        assert trio.current_time() - began == pytest.approx(180, abs=1)
        assert [each.reason for each in side.ends] == [SILENT]


async def test_r8_heartbeats_keep_an_idle_stream_open(autojump_clock: MockClock) -> None:
    async with open_pair() as pair:
        pair.connect()
        await trio.sleep(3600)
        assert pair.a.ends == pair.b.ends == []
        assert pair.a.entry.connected


async def test_idle_peers_commit_nothing(autojump_clock: MockClock) -> None:
    """The position that one side stores must not make the other store its own, and so on without an end."""
    async with open_pair() as pair:
        pair.connect()
        await trio.sleep(10)
        before = [side.host.backend.position.revision for side in (pair.a, pair.b)]
        await trio.sleep(3600)
        assert [side.host.backend.position.revision for side in (pair.a, pair.b)] == before


async def test_status_and_metadata_are_copied_and_finalizers_are_not(autojump_clock: MockClock) -> None:
    async with open_pair() as pair:
        owner = await pair.a.write("owner")
        team = TEAM.new("ada", Team(), metadata={"tier": "gold", "finalizers": "cleanup"}, owner=owner)
        made = await pair.a.host.client.write(team)
        ready = Condition(type="Ready", state=ConditionState.TRUE)
        made = await pair.a.host.client.write_status(made, "checker", [ready])
        await pair.a.host.client.delete(made)
        made = await pair.a.host.client.read(TEAM, "ada")
        assert made.is_deleting
        pair.connect()
        await pair.wait(pair.b, {"ada": [], "owner": []})
        copy = await pair.b.host.client.read(TEAM, TEAM.id("ada", partition="peer-east"))
        assert copy.status == made.status
        assert copy.generation == made.generation
        assert (copy.owner, copy.is_deleting) == (None, False)
        assert copy.metadata == {
            "tier": "gold",
            "originUid": made.uid,
            "originVersion": made.version,
            "originPartition": "default",
            "originDeletionTimestamp": made.metadata["deletionTimestamp"],
        }


async def test_r6_withdrawn_export_leaves_the_copies_of_the_others(autojump_clock: MockClock) -> None:
    """They keep their uids, and follow their originals as before."""
    async with open_pair(TEAM, ACCOUNT) as pair:
        await pair.a.write("ada", "1")
        await pair.a.host.client.create(ACCOUNT.new("x", Account()))
        pair.connect()
        await pair.wait(pair.b, {"ada": ["1"]})
        before = await pair.b.host.client.read(ACCOUNT, ACCOUNT.id("x", partition="peer-east"))
        await pair.a.change(exports=exported(ACCOUNT))
        await pair.wait(pair.b, {})
        assert await pair.b.host.client.list(ACCOUNT, partition="peer-east") == [before]
        await pair.a.host.client.apply(ACCOUNT.new("x", Account(login="later")))

        async def followed() -> list[tuple[str, str]]:
            found = await pair.b.host.client.list(ACCOUNT, partition="peer-east")
            return [(each.uid, each.data.login) for each in found]

        await eventually(followed, [(before.uid, "later")])


async def test_unknown_type_shows_on_both_sides(autojump_clock: MockClock) -> None:
    async with open_pair(TEAM, ACCOUNT, dialing=(TEAM,), registry=(TEAM,)) as pair:
        await pair.a.write("ada", "1")
        pair.connect()
        await pair.wait(pair.b, {"ada": ["1"]})
        await trio.sleep(300)
        assert pair.b.entry.progress is not None
        assert pair.b.entry.progress.exports_refused == (
            "staff.v1.Account in default/*: no program here declares the type",
        )
        assert pair.a.entry.progress is not None
        assert pair.a.entry.progress.refusals == pair.b.entry.progress.exports_refused


async def test_r4_newer_stream_replaces_the_active_one(autojump_clock: MockClock) -> None:
    async with open_pair() as pair:
        pair.connect()
        await trio.sleep(1)
        async with raw_peer(pair.a) as peer:
            await peer.receive()
            await trio.sleep(1)
            assert [each.reason for each in pair.a.ends] == [REPLACED]
            assert [each.reason for each in pair.b.ends] == [CLOSED]


async def test_r4_deleted_peering_sends_terminated(autojump_clock: MockClock) -> None:
    async with open_pair() as pair:
        pair.connect()
        await trio.sleep(1)
        await pair.a.entry.terminate()
        await trio.sleep(1)
        assert ([each.reason for each in pair.a.ends], [each.reason for each in pair.b.ends]) == (
            [DELETED],
            [TERMINATED],
        )
        assert pair.b.entry.terminated
        with trio.fail_after(0.1):
            # There is no stream any longer.
            await pair.a.entry.terminate()


async def test_r_restored_peer_replaces_the_copies_and_is_reported(autojump_clock: MockClock) -> None:
    """The weakness of R.3: after a restore, Consul's subscription stays on the abandoned store."""
    async with open_pair() as pair:
        await pair.a.write("ada", "1")
        await pair.a.write("ben", "1")
        scope = pair.connect()
        await pair.wait(pair.b, {"ada": ["1"], "ben": ["1"]})
        scope.cancel()
        async with open_side("west", Role.ACCEPTS, TEAM) as restored:
            await restored.write("ada", "0")
            pair.a = restored
            pair.connect()
            await pair.wait(pair.b, {"ada": ["0"]})
        assert [each for each in pair.b.events if isinstance(each, events.PeerStoreReplaced)] == [
            events.PeerStoreReplaced("east")
        ]


@pytest.mark.parametrize(
    "refuse",
    [
        # A process that has lost its lease may be late. The fence of the newer stream stops it.
        lambda side: side.host.backend.raise_fence("headway/peer-copies/east", "", 0, 0),
        lambda side: side.host.client.delete(PARTITION.id("peer-east")),
    ],
    ids=["a newer stream has begun", "the partition is being deleted"],
)
async def test_nothing_is_copied_into_a_store_that_refuses_it(
    refuse: Callable[[Side], Awaitable[object]], autojump_clock: MockClock
) -> None:
    async with open_pair() as pair:
        pair.connect()
        await trio.sleep(1)
        await refuse(pair.b)
        await pair.a.write("ada", "1")
        await eventually(pair.b.ended, True)
        assert pair.b.ends[0].reason == "StoreFailed"
        assert await pair.b.copies() == {}


async def test_flood_of_heartbeats_ends_the_stream_and_is_reported(autojump_clock: MockClock) -> None:
    async with open_side("west", Role.ACCEPTS, TEAM) as side, raw_peer(side) as peer:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.drain)
            for _ in range(20):
                await peer.send(Message(heartbeat=wire.Heartbeat()))
            assert side.ends == []
            await peer.send(Message(heartbeat=wire.Heartbeat()))
        assert [(each.reason, str(each)) for each in side.ends] == [
            (BREACH, "too many heartbeats: at most 20 at once, and then one a second")
        ]
        assert events.PeerRefused(str(side.ends[0]), "west") in side.events


@pytest.mark.parametrize("message", [Message(open=wire.Open()), Message()])
async def test_message_out_of_place_ends_the_stream(message: Message, autojump_clock: MockClock) -> None:
    async with open_side("west", Role.ACCEPTS, TEAM) as side, raw_peer(side) as peer:
        await peer.send(message)
        await peer.drain()
        assert side.ends[0].reason == BREACH


async def test_peer_that_reads_no_answers_is_not_read_either(autojump_clock: MockClock) -> None:
    """Its responses wait, so that the answers to them do not pile up."""
    async with open_side("west", Role.DIALS, TEAM) as side, raw_peer(side) as peer:
        sent = 0
        with trio.move_on_after(60):
            for number in range(1, 1000):
                exports = wire.Exports(exports=exported(TEAM))
                response = wire.Response(nonce=number, subject=Subject.EXPORTS, operation=1, exports=exports)  # type: ignore[arg-type]
                await peer.send(Message(response=response))
                sent = number
        assert 60 < sent < 80


async def test_r10_addresses_are_sent_and_followed(autojump_clock: MockClock) -> None:
    async with open_pair() as pair:
        servers: list[wire.Server] = []

        async def on_server(server: wire.Server) -> None:
            servers.append(server)

        await pair.a.change(addresses=["10.0.0.1:9000"])
        pair.b.on_server = on_server
        pair.connect()
        await trio.sleep(1)
        await pair.a.change(addresses=["10.0.0.2:9000"], server_name="a.example")
        await trio.sleep(1)
        assert [(each.addresses, each.server_name) for each in servers] == [
            (["10.0.0.1:9000"], ""),
            (["10.0.0.2:9000"], "a.example"),
        ]


async def test_receiver_waits_for_the_first_snapshot_before_it_is_current(autojump_clock: MockClock) -> None:
    async with open_pair() as pair:
        pair.connect()
        await trio.sleep(1)
        assert pair.b.entry.progress is not None
        assert pair.b.entry.progress.copying is Copying.CURRENT


async def test_type_that_is_no_longer_declared_stops_the_feed_and_removes_nothing(autojump_clock: MockClock) -> None:
    async with open_pair() as pair:
        await pair.a.write("ada", "1")
        scope = pair.connect()
        await pair.wait(pair.b, {"ada": ["1"]})
        scope.cancel()
        store = pair.a.host.backend
        assert isinstance(store, MemoryBackend)
        async with open_side("west", Role.ACCEPTS, registry=(), store=store) as pair.a:
            pair.connect()
            await trio.sleep(300)
            assert pair.a.entry.progress is not None
            assert "staff.v1.Team" in pair.a.entry.progress.source_problem
            assert await pair.b.copies() == {"ada": ["1"]}


async def test_rolled_back_peer_changes_nothing_until_its_session_is_accepted(autojump_clock: MockClock) -> None:
    async with open_pair() as pair:
        await pair.a.write("ada", "1")
        scope = pair.connect()
        await pair.wait(pair.b, {"ada": ["1"]})
        scope.cancel()
        older = MemoryBackend()
        # An older copy of the same store, as a new process opens it.
        older._store_id = pair.a.host.backend.position.store_id
        async with open_side("west", Role.ACCEPTS, TEAM, store=older) as pair.a:
            await pair.a.write("ben", "0")
            pair.connect()
            await trio.sleep(300)
            progress = pair.b.entry.progress
            assert progress is not None
            assert progress.copying is Copying.ROLLED_BACK
            assert await pair.b.copies() == {"ada": ["1"]}
            session = older.position.session
            assert session in progress.held
            peering = await pair.b.host.client.read(PEERING, "east")
            peering.metadata[ACCEPT_KEY] = session
            pair.b.entry.update(await pair.b.host.client.write(peering))
            await pair.wait(pair.b, {"ben": ["0"]})
            assert events.PeerStoreReplaced("east") in pair.b.events


@pytest.mark.parametrize("later", [0, 20])
async def test_peer_that_is_rolled_back_amid_a_snapshot_changes_nothing_until_it_is_accepted(
    later: int, autojump_clock: MockClock
) -> None:
    """Its older states must not look like newer ones, even once it has passed the position that it lost."""
    async with open_pair() as pair:
        for size in "123":
            for name in ("ada", "ben", "cyd"):
                await pair.a.write(name, size)
        # The addresses, the exports, the beginning of the snapshot, and one of three resources.
        scope = pair.connect(most=4, limits=PeerLimits(batch=1))
        await pair.wait(pair.b, {"ada": ["3"]})
        scope.cancel()
        older = MemoryBackend()
        older._store_id = pair.a.host.backend.position.store_id
        async with open_side("west", Role.ACCEPTS, TEAM, store=older) as pair.a:
            await pair.a.write("ada", "0")
            for number in range(later):
                await pair.a.write("ben", str(number))
            pair.connect()
            await trio.sleep(300)
            progress = pair.b.entry.progress
            assert progress is not None
            assert progress.copying is Copying.ROLLED_BACK
            assert await pair.b.copies() == {"ada": ["3"]}
            peering = await pair.b.host.client.read(PEERING, "east")
            peering.metadata[ACCEPT_KEY] = older.position.session
            pair.b.entry.update(await pair.b.host.client.write(peering))
            await pair.wait(pair.b, {"ada": ["0"], **({"ben": ["19"]} if later else {})})


async def test_first_export_of_a_peering_without_any_is_copied_as_a_whole(autojump_clock: MockClock) -> None:
    """The empty list of exports has a position as well, but no resource up to it was copied."""
    async with open_pair() as pair:
        await pair.a.change(exports=[])
        await pair.a.write("ada", "1")
        pair.connect()
        await trio.sleep(1)
        assert await pair.b.copies() == {}
        await pair.a.change(exports=exported(TEAM))
        await pair.wait(pair.b, {"ada": ["1"]})


async def test_no_stream_begins_while_the_partition_is_being_deleted(autojump_clock: MockClock) -> None:
    async with open_side("east", Role.DIALS, TEAM) as side:
        await open_importer(side.host, side.entry.peering, PeerLimits())
        await side.host.client.delete(PARTITION.id("peer-east"))
        with pytest.raises(FailedPrecondition, match="does not exist yet, or is being deleted"):
            await open_importer(side.host, side.entry.peering, PeerLimits())
