"""Standby: who holds the lease, until when, and whether that process is asked; and what is stuck, by rights."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio
import trio.testing

import headway
from headway._gen.headway.observe import v1 as observe_pb
from headway.client import LeaseClient
from headway.errors import Unavailable
from headway.rpc import InProcessChannel, Services
from headway.service import LeaseService, ResourceService
from headway.storage import CurrentLease, MemoryBackend
from headway.why import (
    OBSERVE_SERVICE,
    ControllerWhy,
    LeaseNow,
    Leases,
    ObserveHost,
    Ref,
    Standby,
    StuckList,
    _leases,
    _local,
    sentences,
)
from headway.why.answers import _stuck
from tests.helpers.why_programs import Account, Parts, Team, part, told
from tests.why.test_workers import ATTEND, attend, channel_to, fail, guarded, nothing, rule, stuck

NOW = 1_700_000_000.0
STANDBY = ControllerWhy("staff/teams", "web-1", "manages", "standby", holder="web-7")


@asynccontextmanager
async def beside_holder(holder: str) -> AsyncIterator[tuple[headway.Engine, Parts]]:
    """Run an engine whose controller waits for a lease that another process holds."""
    parts, backend = Parts(), MemoryBackend()
    services = Services(ResourceService(backend, parts.app.registry), LeaseService(backend))
    assert (await LeaseClient(InProcessChannel(services)).acquire("staff/teams", holder, 60)).acquired
    async with headway.open_engine(backend, parts.app) as engine:
        yield engine, parts


async def test_standby_is_told_with_the_state_of_the_lease() -> None:
    """Its holder, since when it is held, its last renewal and its end; the holder is not connected."""
    async with beside_holder("web-7") as (engine, parts):
        core = await engine.client.apply(parts.team.new("core", Team()))
        why = await told(engine, core.id, "standby")
        lease = part(why).lease
        assert lease is not None
        assert (lease.name, lease.holder, lease.connected) == ("staff/teams", "web-7", False)
        assert lease.since - 1 <= lease.renewed <= why.at + 1 <= lease.until
        assert lease.until - lease.renewed == pytest.approx(60)
        found = await engine.stuck(longer_than=0)
        assert [each for each in found.items if each.controller == "staff/teams"] == []
        [noted] = found.standbys
        assert (noted.controller, noted.process, noted.manages) == ("staff/teams", "server", "staff.v1.Team")
        assert noted.lease is not None
        assert noted.lease.holder == "web-7"


async def held(_: str) -> Sequence[CurrentLease]:
    async with MemoryBackend() as backend:
        for name, holder in (("staff/teams", "web-7"), ("staff/teams#3/16", "web-8")):
            await backend.acquire_lease(name, holder, 60, "")
        return (await backend.list_leases("staff/teams"))[0]


async def test_lease_of_a_shard_and_of_a_connected_process_is_known() -> None:
    """The lease of a shard has the number of the shard. A standby beside a connected holder is no news."""
    leases = Leases(held, {("web-8", "staff/teams")})
    whole, shard = await leases.of_parts([STANDBY, ControllerWhy("staff/teams", state="standby", shard=4)])
    assert whole.lease is not None
    assert shard.lease is not None
    assert [(each.name, each.holder, each.connected) for each in (whole.lease, shard.lease)] == [
        ("staff/teams", "web-7", False),
        ("staff/teams#3/16", "web-8", True),
    ]
    standby = Standby("staff/teams", "web-1", "staff.v1.Team")
    assert [each.process for each in await leases.of_standbys([standby])] == ["web-1"]
    assert await Leases(held, {("web-7", "staff/teams")}).of_standbys([standby]) == []
    # A process of that name that runs other controllers is not the holder.
    assert await Leases(held, {("web-7", "staff/leads")}).of_standbys([standby]) != []
    # No other state asks the store.
    idle = ControllerWhy("staff/teams", state="idle")
    assert await Leases(away, ()).of_parts([idle]) == [idle]


async def away(_: str) -> Sequence[CurrentLease]:
    raise Unavailable("the store is away")


async def silent(_: str) -> Sequence[CurrentLease]:
    await trio.sleep_forever()
    return []


async def test_lease_that_has_ended_has_no_holder_and_a_store_that_is_away_prevents_no_answer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def none(_: str) -> Sequence[CurrentLease]:
        return []

    [ended] = await Leases(none, ()).of_parts([STANDBY])
    assert ended.lease == LeaseNow("staff/teams")
    for read in (away, silent, None):
        assert await Leases(read, ()).of_parts([STANDBY]) == [STANDBY]


async def test_process_does_not_decide_how_long_an_answer_takes_or_how_often_the_store_is_read(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """One read for all shards of a controller, a bounded number of controllers, and two seconds for all together."""
    asked: list[str] = []

    async def slow(name: str) -> Sequence[CurrentLease]:
        asked.append(name)
        await trio.sleep(0.15)
        return await held(name)

    shards = [replace(STANDBY, shard=shard + 1) for shard in range(1000)]
    found = await Leases(slow, ()).of_parts(shards)
    assert asked == ["staff/teams"]
    assert [each.lease.holder for each in found[2:4] if each.lease] == ["", "web-8"]
    began = autojump_clock.current_time()
    many = [Standby(f"a/c{number}", "web-1", "staff.v1.Team") for number in range(1000)]
    assert len(await Leases(slow, ()).of_standbys([*many, Standby("staff/teams", "web-2")])) == 13
    assert autojump_clock.current_time() - began == pytest.approx(_leases.PATIENCE)
    # The only controller of another process is not behind all of them.
    assert asked[1:4] == ["a/c0", "staff/teams", "a/c1"]

    async def none(name: str) -> Sequence[CurrentLease]:
        asked.append(name)
        return []

    del asked[:]
    await Leases(none, ()).of_standbys(many)
    assert len(asked) == _leases.CONTROLLERS


async def test_list_of_what_is_stuck_is_cut_after_it_is_reduced_to_the_rights_of_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Older work of types that the caller may not observe takes no place, and is not counted."""
    for module in (_stuck, _local):
        monkeypatch.setattr(module, "STUCK", 2)

    def broken(_: Parts, __: object) -> list[headway.ResourceId]:
        raise KeyError("team")

    monkeypatch.setattr(Parts, "team_of", broken)
    async with guarded(rule(["observe"], "staff.v1.Account"), reconcile=fail) as (engine, channel, metadata):
        types = {each.name.kind: each for each in engine._registry}
        for name in ("docs", "web", "ops"):
            stored = await engine.client.apply(types["Team"].new(name, Team()))
            await told(engine, stored.id, "waiting")
        ada = await engine.client.apply(types["Account"].new("ada", Account()))
        await told(engine, ada.id, "", also=lambda each: each.unmapped)
        [sentence] = (await stuck(channel, metadata)).sentences
        assert sentence.startswith("Account ada: controller staff/teams (server) could not map its change")


async def test_processes_are_asked_for_the_types_that_the_caller_may_observe() -> None:
    """One of an earlier version answers for all types: what the caller may not see is left out, and not counted."""
    host = ObserveHost(nothing)
    channel = channel_to(host)
    async with channel.stream(ATTEND, attend("web-1", "staff/teams")) as questions:
        await anext(questions)
        for kinds in (["Team"], ["Team", "Secret"]):
            answers: list[StuckList] = []

            async def ask(into: list[StuckList] = answers) -> None:
                into.append(await host.stuck(60.0, {"staff.v1.Team"}))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                question = await anext(questions)
                assert question.types == ["staff.v1.Team"]
                items = [
                    observe_pb.StuckItem(controller="staff/teams", resource=observe_pb.Ref(f"staff.v1.{kind}"))
                    for kind in kinds
                ]
                stuck_ = observe_pb.StuckList(items=items, more=7)
                answer = observe_pb.AnswerRequest(number=question.number, stuck=stuck_)
                await channel.unary(f"/{OBSERVE_SERVICE}/Answer", answer, observe_pb.AnswerResponse)
            [found] = answers
            assert [each.resource for each in found.items] == [Ref("staff.v1.Team")]
            assert found.more == (7 if kinds == ["Team"] else 0)


def test_standby_is_a_note_below_what_is_stuck() -> None:
    """With who holds the lease, or that nobody does."""
    lease = LeaseNow("staff/teams", "web-7", NOW - 60, NOW - 10, NOW + 10)
    standby = Standby("staff/teams", "web-1", "staff.v1.Team", NOW - 90, lease)
    nobody = replace(standby, lease=LeaseNow("staff/teams"))
    assert sentences(StuckList(NOW, standbys=[standby, nobody])) == [
        "Note: controller staff/teams (web-1) has been standing by since 22:11:50 (90 s ago): process web-7 holds its "
        "lease and is not connected to this server.",
        "Note: controller staff/teams (web-1) has been standing by since 22:11:50 (90 s ago): no process holds its "
        "lease, and it has not acquired it yet.",
    ]
