"""A reconcile that an operator asks for: who may ask, and what the answer tells them."""

from __future__ import annotations

import pytest
import trio
from grpclib.const import Status

import headway
from headway._gen.headway.observe import v1 as observe_pb
from headway.errors import HeadwayError
from headway.resource import pb
from headway.rpc import InProcessChannel
from headway.why import OBSERVE_SERVICE, observer_of
from tests.helpers.service_errors import status_of
from tests.helpers.why_programs import Parts, Team, part, told
from tests.why.test_workers import CORE, channel_to, fail, guarded, rule

WRITE = rule(["write"], "staff.v1.Team")
OBSERVE = rule(["observe"], "staff.v1.Team")


async def retry(
    channel: InProcessChannel, metadata: dict[str, str] | None = None, name: str = "core", controller: str = ""
) -> observe_pb.RetryResponse:
    id = pb.Id(name=name, type=pb.Type(group="staff", group_version="v1", kind="Team"))
    request = observe_pb.RetryRequest(id=id, controller=controller)
    return await channel.unary(f"/{OBSERVE_SERVICE}/Retry", request, observe_pb.RetryResponse, metadata=metadata)


async def test_caller_without_the_right_to_write_learns_and_moves_nothing() -> None:
    """The refusal is the same whether or not the resource and the controller exist."""
    rules = (rule(["view", "observe", "write_status", "delete"], "staff.v1.Team"), rule(["write"], "staff.v1.Account"))
    async with guarded(*rules, reconcile=fail) as (engine, channel, metadata):
        before, messages = part(await engine.why(CORE)).attempt, set()
        for name, controller in (("core", ""), ("nobody", ""), ("core", "staff/nothing")):
            with pytest.raises(HeadwayError) as refused:
                await retry(channel, metadata, name, controller)
            assert status_of(refused.value) is Status.PERMISSION_DENIED
            message = str(str(refused.value))
            assert message.startswith(f"permission denied: you may not write Team {name}: ")
            messages.add(message.replace(name, "NAME"))
        assert len(messages) == 1
        await trio.testing.wait_all_tasks_blocked()
        after = part(await engine.why(CORE))
        assert (after.state, after.attempt) == ("waiting", before)


async def test_right_to_write_is_enough_and_tells_neither_processes_nor_what_is_stored() -> None:
    async with guarded(WRITE, reconcile=fail) as (engine, channel, metadata):
        before = part(await engine.why(CORE)).attempt
        for name in ("core", "nobody"):
            reply = await retry(channel, metadata, name)
            assert (reply.controller, reply.processes) == ("staff/teams", [])
        await told(engine, CORE, "waiting", also=lambda it: it.attempt > before)


async def test_resource_that_is_neither_stored_nor_pending_is_not_found() -> None:
    """For a caller who may ask `why`."""
    async with guarded(WRITE, OBSERVE) as (_, channel, metadata):
        assert (await retry(channel, metadata)).processes == ["server"]
        with pytest.raises(HeadwayError, match="Team nobody not found, and staff/teams has no work pending") as refused:
            await retry(channel, metadata, "nobody")
        assert status_of(refused.value) is Status.NOT_FOUND


async def test_failed_reconcile_of_a_deletion_is_retried() -> None:
    """The resource is no longer stored, but its controller has not finished."""
    parts = Parts()
    parts.reconcile = fail
    async with headway.open_engine("memory:", parts.app, report=headway.events.ignore) as engine:
        core = await engine.client.apply(parts.team.new("core", Team()))
        before = part(await told(engine, core.id, "waiting")).attempt
        await engine.client.delete(core.id)
        channel = channel_to(observer_of(engine))
        assert (await retry(channel)).processes == ["server"]
        await told(engine, core.id, "waiting", also=lambda it: it.attempt > before)
