"""Standby: who holds the lease, until when, and whether that process is asked; and what is stuck, by rights."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

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
    Leases,
    ObserveHost,
    Ref,
    Standby,
    StuckList,
    _local,
)
from headway.why.answers import _stuck
from tests.helpers.why_programs import Account, Parts, Team, part, told
from tests.why.test_workers import ATTEND, attend, channel_to, fail, guarded, nothing, rule, stuck

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
