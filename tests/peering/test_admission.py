"""The admission of peer streams: R-2, R-3, and what a stranger may cost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import trio
from grpclib.const import Status
from trio.testing import MockClock, wait_all_tasks_blocked

import headway
from headway import Engine, events
from headway._gen.headway.peering import v1 as wire
from headway.api import Call, DetailedPrecondition, Exhausted
from headway.engine import Host
from headway.errors import HeadwayError, InvalidArgument
from headway.peering import (
    PEER_STREAM,
    PEERING,
    STREAM_KEY,
    Peering,
    PeeringHost,
    PeeringState,
    PeerStreamService,
    Role,
    SecretStore,
    establish,
    export,
    generate_token,
    read_token,
)
from headway.peering._hub import UNREACHABLE, StreamEnded
from headway.peering.links import MOST_UNKNOWN, OPEN_TIMEOUT, Dialer, decoder, leader_in, publish_leader
from headway.resource import PARTITION, Registry
from headway.rpc import open_channel
from headway.storage import MemoryBackend
from tests.helpers.peers import TEAM, Team, app, open_accepting, reached
from tests.helpers.service_errors import status_of
from tests.peering.test_copying import copy_that, size
from tests.test_shared_store import SharedMemory

Message = wire.PeerMessage


@asynccontextmanager
async def dialed(address: str, first: Message) -> AsyncIterator[Any]:
    """Open a stream with a first message."""
    async with (
        open_channel(address, decoders={PEER_STREAM: decoder}) as channel,
        channel.duplex(PEER_STREAM, first) as call,
    ):
        yield call


async def read_to_the_end(call: Any) -> None:
    """Read a stream until it ends."""
    async for _ in call:
        pass


async def refused(address: str, first: Message, *, until_ready: bool = False) -> HeadwayError:
    """Open a stream, and return the error that ends it. With ``until_ready``, try again until the engine leads."""
    with trio.fail_after(60):
        while True:
            with pytest.raises(HeadwayError) as caught:
                async with dialed(address, first) as call:
                    await anext(call)
            if not until_ready or status_of(caught.value) not in (Status.UNAVAILABLE, Status.FAILED_PRECONDITION):
                return caught.value
            await trio.sleep(0.01)


FIRST = {
    "a heartbeat": (Message(heartbeat=wire.Heartbeat()), Status.INVALID_ARGUMENT, "open must be the first message"),
    "nothing": (Message(), Status.INVALID_ARGUMENT, "open must be the first message"),
    "a wrong secret": (
        Message(open=wire.Open(peer_id="01KAQJ6SZ3YVS6FVC9T5X3SKQD", secret="x")),
        Status.PERMISSION_DENIED,
        "the peering's secret is not valid here",
    ),
    "no secret": (Message(open=wire.Open()), Status.PERMISSION_DENIED, "the peering's secret is not valid here"),
    "a long secret": (
        Message(open=wire.Open(secret="x" * 256)),
        Status.INVALID_ARGUMENT,
        "open has a field of more than 255 characters",
    ),
}


async def test_r3_first_message_must_be_open_with_a_valid_secret(tmp_path: Path) -> None:
    found: list[object] = []
    async with open_accepting(tmp_path, report=found.append) as engine:
        token = await generate_token(engine.client, "west", [TEAM], plain_text=True)
        peer_id = read_token(token).peer_id
        for message, status, text in FIRST.values():
            error = await refused(engine.addresses[0], message)
            assert (status_of(error), text in (str(error))) == (status, True), error
        # The secret of the token is not the secret of a stream.
        opening = Message(open=wire.Open(peer_id=peer_id, secret=read_token(token).secret))
        error = await refused(engine.addresses[0], opening)
        assert status_of(error) is Status.PERMISSION_DENIED
    assert any(isinstance(each, events.PeerRefused) for each in found)


async def test_r3_pending_secret_is_promoted_by_the_first_stream(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with (
            open_accepting(tmp_path) as accepts,
            headway.open_engine("memory:", app, report=events.ignore) as dials,
        ):
            token = await generate_token(accepts.client, "west", [TEAM], plain_text=True)
            await establish(dials.client, "east", token, plain_text=True)
            await reached(accepts, "west", PeeringState.ACTIVE)


async def test_guesses_of_secrets_are_bounded(tmp_path: Path) -> None:
    async with open_accepting(tmp_path) as engine:
        opening = Message(open=wire.Open(peer_id="x", secret="x"))
        statuses = [status_of(await refused(engine.addresses[0], opening)) for _ in range(22)]
        assert statuses == [Status.PERMISSION_DENIED] * 20 + [Status.RESOURCE_EXHAUSTED] * 2


@asynccontextmanager
async def opened(store: MemoryBackend, path: Path, name: str) -> AsyncIterator[Engine]:
    """Open an engine on the shared store."""
    async with headway.open_engine(
        nullcontext(store),
        app,
        process=name,
        network=headway.Network([f"unix:{path}/{name}"], insecure=True),
        timing=headway.Timing(lease_ttl=1.0),
        report=events.ignore,
    ) as engine:
        yield engine


def leads(engine: Engine) -> bool:
    """Return True if the process serves peers."""
    controller = engine.controllers.get("peer-streams")
    return controller is not None and controller.status().phase == "running"


async def opened_until(
    stop: trio.Event, store: MemoryBackend, path: Path, name: str, *, task_status: trio.TaskStatus[Engine]
) -> None:
    """Keep an engine open until the event."""
    async with opened(store, path, name) as engine:
        task_status.started(engine)
        await stop.wait()


async def test_r2_only_the_leader_serves_and_the_dialer_follows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that resigns ends its open streams. Consul notices that only with the next message."""
    ends: list[str] = []
    attempt = Dialer._attempt

    async def noted(self: Dialer, secret: str) -> StreamEnded:
        ended = await attempt(self, secret)
        ends.append(ended.reason)
        return ended

    monkeypatch.setattr(Dialer, "_attempt", noted)
    with trio.fail_after(60):
        async with (
            SharedMemory() as store,
            MemoryBackend() as theirs,
            headway.open_engine(nullcontext(theirs), app, report=events.ignore) as dials,
            trio.open_nursery() as nursery,
        ):
            stop = trio.Event()
            leader: Engine = await nursery.start(opened_until, stop, store, tmp_path, "a")
            # Nobody serves peers before there is a peering.
            await leader.client.create(PEERING.new("first", Peering(role=Role.ACCEPTS)))
            while not leads(leader):  # noqa: ASYNC110  # a status has no event
                await trio.sleep(0.05)
            async with opened(store, tmp_path, "b") as follower:
                # The token names the follower first.
                addresses = [follower.addresses[0], leader.addresses[0]]
                token = await generate_token(
                    leader.client, "west", [export(TEAM, partition="default")], addresses=addresses, plain_text=True
                )
                await establish(dials.client, "east", token, plain_text=True)
                await leader.client.write(TEAM.new("ada", Team(size=1)))
                await copy_that(dials, "east", "ada", size(1))
                record = await SecretStore(theirs).read((await dials.client.read(PEERING, "east")).id.uid)
                assert record is not None
                peer_id = (await dials.client.read(PEERING, "east")).data.peer_id
                opening = Message(open=wire.Open(peer_id=peer_id, secret=record.stream_secret))
                error = await refused(follower.addresses[0], opening)
                assert status_of(error) is Status.FAILED_PRECONDITION
                assert isinstance(error, DetailedPrecondition)
                assert leader_in(error.details) == [leader.addresses[0]]
                stop.set()
                # Now `b` leads. The dialer looks for it among all addresses, a second later.
                await follower.client.write(TEAM.new("ada", Team(size=2)))
                await copy_that(dials, "east", "ada", size(2))
                assert UNREACHABLE not in ends, "the dialer has gone back to the process that stopped"


async def lead_instead(store: MemoryBackend, address: str) -> None:
    """Take the lease of peer streams as another process does that listens at an address."""
    host = PeeringHost(Host(store, Registry(), events.ignore, addresses=(address,)))
    acquired = False
    while not acquired:
        # The engine may be faster to take the lease again, and then publishes its own address.
        await publish_leader(host)
        for held in (await store.list_leases("headway/peer-streams"))[0]:
            await store.release_lease(held.lease.name, held.lease.holder, held.lease.term)
            acquired = (await store.acquire_lease(held.lease.name, "next", 60.0)).acquired


async def test_r2_leader_that_loses_its_lease_ends_the_stream_with_the_address_of_the_next(tmp_path: Path) -> None:
    """The weakness of R.3: in Consul, a server that has lost the lead goes on sending."""
    with trio.fail_after(60):
        async with SharedMemory() as store, opened(store, tmp_path, "a") as engine:
            token = read_token(await generate_token(engine.client, "west", [TEAM], plain_text=True))
            secrets = SecretStore(store)
            _, secret = await secrets.exchange(token.peer_id, token.secret, "attempt", "dialer", plain_text=True)
            opening = Message(open=wire.Open(peer_id=token.peer_id, secret=secret))
            await headway.until(
                engine.client, PEERING, "west", lambda west: west is not None and STREAM_KEY in west.status
            )
            async with dialed(engine.addresses[0], opening) as call:
                assert (await anext(call)).request is not None
                await lead_instead(store, "10.0.0.2:9000")
                with pytest.raises(HeadwayError) as caught:
                    await read_to_the_end(call)
            assert status_of(caught.value) is Status.FAILED_PRECONDITION
            assert str(caught.value) == "another process serves peers: 10.0.0.2:9000"
            assert isinstance(caught.value, DetailedPrecondition)
            assert leader_in(caught.value.details) == ["10.0.0.2:9000"]


async def test_streams_of_one_dialer_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them reads all copies. The allowance of this test is used up before the first one."""
    monkeypatch.setattr("headway.peering._hub._OPENED", 0)
    with trio.fail_after(60):
        async with MemoryBackend() as store, opened(store, tmp_path, "a") as engine:
            token = read_token(await generate_token(engine.client, "west", [TEAM], plain_text=True))
            _, secret = await SecretStore(store).exchange(
                token.peer_id, token.secret, "attempt", "dialer", plain_text=True
            )
            await headway.until(engine.client, PARTITION, "peer-west", lambda found: found is not None)
            error = await refused(
                engine.addresses[0], Message(open=wire.Open(peer_id=token.peer_id, secret=secret)), until_ready=True
            )
            assert status_of(error) is Status.RESOURCE_EXHAUSTED
            assert (str(error)).startswith("too many streams: at most 0 at once")


async def test_stream_in_plain_text_needs_the_consent_of_the_accepting_side(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with MemoryBackend() as store, opened(store, tmp_path, "a") as engine:
            made = await engine.client.create(PEERING.new("west", Peering(role=Role.ACCEPTS)))
            secrets = SecretStore(store)
            await secrets.put_token(made, "token")
            _, secret = await secrets.exchange(made.id.uid, "token", "attempt", "dialer")
            await headway.until(engine.client, PARTITION, "peer-west", lambda found: found is not None)
            opening = Message(open=wire.Open(peer_id=made.id.uid, secret=secret))
            error = await refused(engine.addresses[0], opening, until_ready=True)
            assert (status_of(error), str(error)) == (Status.PERMISSION_DENIED, "the peering's stream must be over TLS")


class Silent:
    """The server's end of a stream that sends nothing."""

    async def recv_message(self) -> Message:
        """Wait forever."""
        await trio.sleep_forever()
        raise AssertionError

    async def send_message(self, message: Message) -> None:
        """Send nothing."""


async def test_streams_without_open_are_bounded_in_number_and_time(autojump_clock: MockClock) -> None:
    service = PeerStreamService(PeeringHost(Host(MemoryBackend(), Registry(), events.ignore)))
    refusals: list[tuple[float, type[HeadwayError]]] = []
    began = trio.current_time()

    async def run() -> None:
        with pytest.raises(HeadwayError) as caught:
            await service.stream_resources(Call(), Silent())
        refusals.append((trio.current_time() - began, type(caught.value)))

    async with trio.open_nursery() as nursery:
        for _ in range(MOST_UNKNOWN + 1):
            nursery.start_soon(run)
    assert refusals == [(0, Exhausted), *[(OPEN_TIMEOUT, InvalidArgument)] * MOST_UNKNOWN]


class Address:
    """The other end of a connection."""

    def __init__(self, host: str) -> None:
        self._host = host

    def addr(self) -> tuple[str, int]:
        """Return the address."""
        return self._host, 9000


class Strange(Silent):
    """The server's end of a stream that sends its first message after some seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def recv_message(self) -> Message:
        """Return an Open that cannot be valid."""
        await trio.sleep(self._seconds)
        return Message(open=wire.Open(secret="x" * 256))


async def test_streams_without_open_do_not_keep_others_out(autojump_clock: MockClock) -> None:
    """A dialer sends its Open at once. For it, the oldest silent stream of the host with the most of them ends."""
    service = PeerStreamService(PeeringHost(Host(MemoryBackend(), Registry(), events.ignore)))
    ends: dict[tuple[str, int], tuple[float, type[HeadwayError]]] = {}

    async def run(host: str, number: int, seconds: float) -> None:
        call = Call()
        call.peer, call.encrypted = Address(host), True
        with pytest.raises(HeadwayError) as caught:
            await service.stream_resources(call, Strange(seconds))
        ends[host, number] = (trio.current_time(), type(caught.value))

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, "10.0.0.2", 0, 3)
        await trio.sleep(1)
        for number in range(3 * MOST_UNKNOWN):
            nursery.start_soon(run, "10.0.0.1", number, 60)
            await wait_all_tasks_blocked()
        nursery.start_soon(run, "10.0.0.3", 0, 0.5)
        nursery.start_soon(run, "10.0.0.1", 3 * MOST_UNKNOWN, 0)
    read = InvalidArgument
    assert ends["10.0.0.2", 0] == (began + 3, read)
    assert ends["10.0.0.3", 0] == (began + 1.5, read)
    assert ends["10.0.0.1", 3 * MOST_UNKNOWN] == (began + 1, read)
    silent = [ends["10.0.0.1", number] for number in range(3 * MOST_UNKNOWN)]
    ended = 2 * MOST_UNKNOWN + 3
    assert silent[:ended] == [(began + 1, Exhausted)] * ended
    assert silent[ended:] == [(began + 1 + OPEN_TIMEOUT, read)] * (MOST_UNKNOWN - 3)
