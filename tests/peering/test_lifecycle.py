"""The controller of peerings: exchanges that are repeated after a lost answer or a crash, and deletion."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import headway
from headway import events
from headway.errors import FailedPrecondition, OutcomeUnknown, Unavailable
from headway.peering import (
    PEERING,
    STATUS_KEY,
    Peering,
    PeeringState,
    Role,
    SecretStore,
    condition_of,
    establish,
    exchange,
    generate_token,
    read_token,
    state_of,
)
from headway.peering import _lifecycle as lifecycle
from headway.resource import PARTITION, ConditionState
from headway.rpc import InProcessChannel
from headway.service import ResourceService
from headway.storage import MemoryBackend, open_store
from tests.helpers.peers import TEAM, Team, app, exchanged, open_accepting, open_peers, reached

Exchange = Callable[..., Awaitable[Any]]


async def test_r9_exchange_whose_answer_was_lost_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same attempt gets another secret, with which the peering is established."""
    given: list[str] = []
    real: Exchange = exchange

    async def losing(*about: Any) -> Any:
        reply = await real(*about)
        given.append(reply.stream_secret)
        if len(given) == 1:
            raise Unavailable("the answer was lost")
        return reply

    monkeypatch.setattr(lifecycle, "exchange", losing)
    monkeypatch.setattr(lifecycle, "RETRY", 0.01)
    async with open_accepting(tmp_path) as accepts:
        memory = MemoryBackend()
        async with headway.open_engine(memory, app, report=events.ignore) as dials:
            token = await generate_token(accepts.client, "west", [TEAM], plain_text=True)
            with pytest.raises(OutcomeUnknown, match="the answer was lost; the engine tries again"):
                await establish(dials.client, "east", token, plain_text=True)
            peering = await exchanged(dials, "east")
            record = await SecretStore(memory).read(peering.id.uid)
            assert record is not None
            assert (record.stream_secret, record.token_secret) == (given[1], "")
            assert given[0] != given[1]


async def test_r9_exchange_is_repeated_after_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine that dials ends after the exchange, before it has stored the answer."""
    real: Exchange = exchange
    store = f"sqlite:{tmp_path}/dials.db"
    async with open_accepting(tmp_path) as accepts:
        token = await generate_token(accepts.client, "west", [TEAM], plain_text=True)
        with trio.CancelScope() as scope:

            async def crashing(*about: Any) -> Any:
                await real(*about)
                scope.cancel()
                await trio.sleep_forever()

            monkeypatch.setattr(lifecycle, "exchange", crashing)
            async with headway.open_engine(store, app, report=events.ignore) as dials:
                await establish(dials.client, "east", token, plain_text=True)
        assert scope.cancelled_caught
        monkeypatch.setattr(lifecycle, "exchange", real)
        await reached(accepts, "west", PeeringState.ESTABLISHING, PeeringState.ACTIVE)
        async with headway.open_engine(store, app, report=events.ignore) as dials:
            peering = await exchanged(dials, "east")
        async with open_store(store) as backend:
            record = await SecretStore(backend).read(peering.id.uid)
        assert record is not None
        assert record.stream_secret


async def test_peering_without_an_answer_stays_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No server listens at the address. Deleting the peering ends the attempts."""
    monkeypatch.setattr(lifecycle, "RETRY", 0.05)
    async with open_peers(tmp_path) as (accepts, dials, _):
        token = await generate_token(
            accepts.client, "west", [TEAM], addresses=[f"unix:{tmp_path}/nobody"], plain_text=True
        )
        with pytest.raises(OutcomeUnknown, match=r"not established yet: .*the engine tries again until the token"):
            await establish(dials.client, "east", token, plain_text=True)
        peering = await dials.client.read(PEERING, "east")
        assert state_of(peering) is PeeringState.FAILING
        condition = condition_of(peering, STATUS_KEY, "Exchanged")
        assert condition is not None
        assert (condition.state, condition.reason) == (ConditionState.FALSE, "ExchangeFailed")
        assert read_token(token).secret not in repr(peering.message())
        await dials.client.delete(peering)
        await headway.until_gone(dials.client, PEERING, "east")


async def test_exchange_is_tried_again_until_the_other_side_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing changes in the store of the dialing side: only time passes."""
    monkeypatch.setattr(lifecycle, "RETRY", 0.05)
    memory = MemoryBackend()
    listen = [f"unix:{tmp_path}/socket"]
    async with headway.open_engine(
        memory, app, network=headway.Network(listen, insecure=True), report=events.ignore
    ) as accepts:
        token = await generate_token(accepts.client, "west", [TEAM], plain_text=True)
    async with headway.open_engine("memory:", app, report=events.ignore) as dials:
        with pytest.raises(OutcomeUnknown, match="not established yet"):
            await establish(dials.client, "east", token, plain_text=True)
        await dials.wait_idle()
        async with headway.open_engine(
            memory, app, network=headway.Network(listen, insecure=True), report=events.ignore
        ):
            await exchanged(dials, "east")


async def test_peering_that_was_written_by_hand_waits_for_a_token(tmp_path: Path) -> None:
    """A declared peering accepts once it has a token, with its own exports."""
    async with open_peers(tmp_path) as (accepts, dials, _):
        await accepts.client.create(PEERING.new("west", Peering(role=Role.ACCEPTS)))
        await headway.until(accepts.client, PARTITION, "peer-west", lambda found: found is not None)
        assert state_of(await accepts.client.read(PEERING, "west")) is PeeringState.PENDING
        token = await generate_token(accepts.client, "west", None, plain_text=True)
        await establish(dials.client, "east", token, plain_text=True)


async def test_dialing_peering_that_was_written_by_hand_says_that_it_needs_a_token(tmp_path: Path) -> None:
    """A token makes it complete. The token of another peering is refused under its name."""
    async with open_peers(tmp_path) as (accepts, dials, _):
        token = await generate_token(accepts.client, "west", [TEAM], plain_text=True)
        data = Peering(role=Role.DIALS, peer_id=read_token(token).peer_id)
        await dials.client.create(PEERING.new("east", data))
        peering = await reached(dials, "east", PeeringState.FAILING)
        condition = condition_of(peering, STATUS_KEY, "Exchanged")
        assert condition is not None
        assert (condition.reason, condition.message[:29]) == ("NoToken", "run `headway peer establish e")
        other = await generate_token(accepts.client, "other", [TEAM], plain_text=True)
        with pytest.raises(FailedPrecondition, match="peering east has another peer than the token names"):
            await establish(dials.client, "east", other, plain_text=True)
        await establish(dials.client, "east", token, plain_text=True)
        await exchanged(dials, "east")


@pytest.mark.parametrize("earlier", ["", "earlier"])
async def test_token_is_not_sent_to_the_addresses_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, earlier: str
) -> None:
    """The controller took the peering from its cache before `establish` changed it, and finds the secret afterwards."""
    began, stored, used = trio.Event(), trio.Event(), list[list[str]]()
    real_read, real_put, real_exchange = SecretStore.read, SecretStore.put_dialing, exchange
    addresses = [f"unix:{tmp_path}/{earlier}"] if earlier else []

    async def late(store: SecretStore, uid: str) -> Any:
        if uid == peering.id.uid and not stored.is_set():
            began.set()
            await stored.wait()
        return await real_read(store, uid)

    async def put(*about: Any) -> Any:
        record = await real_put(*about)
        stored.set()
        return record

    async def exchanging(peering: Any, *about: Any) -> Any:
        used.append(peering.data.addresses)
        return await real_exchange(peering, *about)

    async with open_peers(tmp_path) as (accepts, dials, _):
        token = await generate_token(accepts.client, "west", [TEAM], plain_text=True)
        data = Peering(role=Role.DIALS, peer_id=read_token(token).peer_id, addresses=addresses, plain_text=True)
        await dials.client.create(PEERING.new("east", data))
        await reached(dials, "east", PeeringState.FAILING)
        await dials.wait_idle()
        peering = await dials.client.read(PEERING, "east")
        monkeypatch.setattr(SecretStore, "read", late)
        monkeypatch.setattr(SecretStore, "put_dialing", put)
        monkeypatch.setattr(lifecycle, "exchange", exchanging)
        # Any change makes the controller look.
        peering.metadata["looked-at"] = "once more"
        await dials.client.write(peering)
        await began.wait()
        await establish(dials.client, "east", token, plain_text=True)
        await exchanged(dials, "east")
    assert used
    assert all(each == list(read_token(token).addresses) for each in used)


async def test_r3_secret_is_replaced_by_a_new_token_of_the_same_peering(tmp_path: Path) -> None:
    """The peering stays, with its partition and the copies in it."""
    memory = MemoryBackend()
    async with open_accepting(tmp_path) as accepts, headway.open_engine(memory, app, report=events.ignore) as dials:
        secrets = []
        for _ in range(2):
            token = await generate_token(accepts.client, "west", None, plain_text=True)
            peering = await establish(dials.client, "east", token, [TEAM], plain_text=True)
            record = await SecretStore(memory).read(peering.id.uid)
            assert record is not None
            secrets.append((peering.id.uid, record.stream_secret))
        assert secrets[0][0] == secrets[1][0]
        assert secrets[0][1] != secrets[1][1]


async def test_r4_peering_can_be_deleted_after_the_program_has_dropped_an_exported_type(tmp_path: Path) -> None:
    memory = MemoryBackend()
    async with headway.open_engine(memory, app, report=events.ignore) as engine:
        unix = [f"unix:{tmp_path}/socket"]
        await generate_token(engine.client, "west", [TEAM], addresses=unix, plain_text=True)
    async with headway.open_engine(memory, headway.App("other"), report=events.ignore) as engine:
        await engine.client.delete(PEERING.id("west"))
        await headway.until_gone(engine.client, PEERING, "west")


async def test_r4_deleting_a_peering_removes_its_copies_its_partition_and_its_secrets(tmp_path: Path) -> None:
    """This holds on both sides. The accepting side remembers its dialer, to notify it. The name can be used again."""
    memory = {"accepts": MemoryBackend(), "dials": MemoryBackend()}
    listen = [f"unix:{tmp_path}/socket"]
    async with (
        headway.open_engine(
            memory["accepts"], app, network=headway.Network(listen, insecure=True), report=events.ignore
        ) as accepts,
        headway.open_engine(memory["dials"], app, report=events.ignore) as dials,
    ):
        token = await generate_token(accepts.client, "west", [TEAM], plain_text=True)
        dialing = await establish(dials.client, "east", token, plain_text=True)
        record = await SecretStore(memory["dials"]).read(dialing.id.uid)
        assert record is not None
        for engine, name, backend in ((accepts, "west", memory["accepts"]), (dials, "east", memory["dials"])):
            partition = f"peer-{name}"
            await headway.until(engine.client, PARTITION, partition, lambda found: found is not None)
            await _copy(backend, partition)
            peering = await engine.client.read(PEERING, name)
            await engine.client.delete(peering)
            await headway.until_gone(engine.client, PEERING, name)
            assert await engine.client.get(PARTITION, partition) is None
            assert await engine.client.list(TEAM, partition=partition) == []
        assert await SecretStore(memory["dials"]).read(dialing.id.uid) is None
        admitted = await SecretStore(memory["accepts"]).authenticate(dialing.data.peer_id, record.stream_secret)
        assert admitted.terminated

        token = await generate_token(accepts.client, "west", [TEAM], plain_text=True)
        await establish(dials.client, "east", token, plain_text=True)


async def _copy(backend: MemoryBackend, partition: str) -> None:
    """Write a copy as the peering does."""
    channel = InProcessChannel(ResourceService(backend, app.registry, privileged=True))
    await headway.Client(channel, app.registry).create(TEAM.new("core", Team(size=1), partition=partition))
