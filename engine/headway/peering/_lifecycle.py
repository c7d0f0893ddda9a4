"""The controller of peerings: it exchanges tokens, creates the partition for the copies, and deletes both.

It runs in one engine of a store at a time, so there is one exchange at a time. A crash amid the exchange leaves the
token in the store, and the next run exchanges it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from headway._gen.headway.peering.v1 import Peering, Role
from headway._gen.headway.tenancy.v1 import Partition
from headway.client import Client
from headway.controller import App
from headway.errors import FailedPrecondition, HeadwayError
from headway.mapper import watch
from headway.peering._dial import ExchangeRefused, exchange
from headway.peering._host import PeeringHost
from headway.peering._partition import OWNER_KEY, belongs_to, ensure_partition
from headway.peering._types import (
    EXCHANGED,
    PEERING,
    PEERING_FINALIZER,
    PREPARED,
    STATUS_KEY,
    STREAM_KEY,
    copies_partition,
    peering_of,
)
from headway.peering.links import forget_imports
from headway.queue import Backoff
from headway.reconcile import Request, RequeueAfter, Runtime, requeue_after
from headway.resource import PARTITION, Condition, ConditionState, Resource, ResourceId, name_problem

NAME = "peerings"
RETRY = 5.0
"""The delay, in seconds, before another attempt at an exchange without an answer, or at a partition that is taken."""

WAITING, REFUSED, FAILED, DONE, NO_TOKEN = "Waiting", "ExchangeRefused", "ExchangeFailed", "Exchanged", "NoToken"
"""The reasons of `EXCHANGED`."""


def attempt_name(attempt: str) -> str:
    """Return a name of an attempt that does not reveal it."""
    return hashlib.sha256(attempt.encode()).hexdigest()[:8]


def add_peerings(app: App, host: PeeringHost) -> None:
    """Declare the controller."""

    def of_partition(partition: Resource[Partition], _: object) -> Sequence[ResourceId]:
        name = peering_of(partition.name)
        return [] if name_problem("name", name) else [PEERING.id(name)]

    @app.controller(
        manages=PEERING,
        watches=[watch(PARTITION, of_partition)],
        concurrency=4,
        backoff=Backoff(0.05, 30.0),
        name=NAME,
    )
    async def peerings(rt: Runtime, request: Request) -> RequeueAfter | None:
        peering = rt.cache.get(PEERING, request.id)
        if peering is None:
            await remove_rest(host, rt.client, request.id.name)
            return None
        if peering.is_deleting:
            return await _deleted(rt, host, peering)
        return await _kept(rt, host, peering)


async def _kept(rt: Runtime, host: PeeringHost, peering: Resource[Peering]) -> RequeueAfter | None:
    again: RequeueAfter | None = None
    if peering.data.role is Role.DIALS:
        exchanged, again = await _exchanged(rt, host, peering)
    else:
        exchanged = await _accepted(host, peering)
    if STATUS_KEY not in peering.status:
        # A new peering. If an earlier one was removed just before, no reconcile may have seen that.
        await remove_rest(host, rt.client, peering.name)
    conditions = [exchanged]
    if peering.data.role is Role.ACCEPTS or exchanged.state is ConditionState.TRUE:
        try:
            await ensure_partition(host.backend, rt.client, peering)
        except FailedPrecondition as error:
            conditions.append(_condition(PREPARED, ConditionState.FALSE, "PartitionTaken", str(error)))
            again = requeue_after(RETRY)
            await remove_rest(host, rt.client, peering.name)
        else:
            message = f"copies are kept in partition {copies_partition(peering.name)}"
            conditions.append(_condition(PREPARED, ConditionState.TRUE, "PartitionExists", message))
    await rt.client.write_status(peering, STATUS_KEY, conditions)
    return again


async def _accepted(host: PeeringHost, peering: Resource[Peering]) -> Condition:
    record = await host.secrets.read(peering.id.uid)
    if record is not None and (record.active_hash or record.pending_hash):
        message = f"by {peering.data.peer_name or 'a dialer'}"
        return _condition(EXCHANGED, ConditionState.TRUE, DONE, message)
    message = "run `headway peer token`, and `headway peer establish` on the other side within an hour"
    return _condition(EXCHANGED, ConditionState.UNKNOWN, WAITING, message)


async def _exchanged(
    rt: Runtime, host: PeeringHost, peering: Resource[Peering]
) -> tuple[Condition, RequeueAfter | None]:
    record = await host.secrets.read(peering.id.uid)
    if record is None or not (record.token_secret or record.stream_secret):
        message = f"run `headway peer establish {peering.name}` with a token of the other side"
        return _condition(EXCHANGED, ConditionState.FALSE, NO_TOKEN, message), None
    attempt = f"attempt {attempt_name(record.attempt)}"
    if record.token_secret:
        # After the secret: the cache may be older, and no secret may go to the addresses of an earlier token.
        peering = await rt.client.read(PEERING, peering.id)
        try:
            reply = await exchange(peering, record, host.backend.position.store_id, host.open_channel)
        except ExchangeRefused as error:
            return _condition(EXCHANGED, ConditionState.FALSE, REFUSED, f"{attempt}: {error}"), None
        except HeadwayError as error:
            failed = _condition(EXCHANGED, ConditionState.FALSE, FAILED, f"{attempt}: {error}")
            return failed, requeue_after(RETRY)
        if peering.data.peer_store_id != reply.store_id:
            peering.data.peer_store_id = reply.store_id
            peering = await rt.client.write(peering)
        # Last, because it ends the exchange: what comes after a conflict or a crash repeats all of it.
        await host.secrets.put_stream_secret(peering.id.uid, record.attempt, reply.stream_secret)
    return _condition(EXCHANGED, ConditionState.TRUE, DONE, attempt), None


async def _deleted(rt: Runtime, host: PeeringHost, peering: Resource[Peering]) -> RequeueAfter | None:
    others = peering.finalizers - {PEERING_FINALIZER}
    # An accepting side notifies its dialer over the open stream, which needs the partition. A dialing side may have to
    # wait for long until it has notified the other one: the copies go before that.
    if others - ({STREAM_KEY} if peering.data.role is Role.DIALS else set()):
        return None
    if PEERING_FINALIZER in peering.finalizers:
        partition = await rt.client.get(PARTITION, copies_partition(peering.name))
        if partition is not None and belongs_to(partition, peering):
            if not partition.is_deleting:
                await rt.client.delete(partition)
            # The partition's own deletion removes the copies first, and ends with a change of the partition.
            return None
        if others:
            # The secret is still needed.
            return None
        if peering.data.role is Role.ACCEPTS:
            await host.secrets.terminate(peering.id.uid)
        else:
            await host.secrets.forget(peering.id.uid)
        peering.finalizers = peering.finalizers - {PEERING_FINALIZER}
        peering = await rt.client.write(peering)
    if not peering.finalizers:
        await rt.client.delete(peering)
    return None


def _condition(type: str, state: ConditionState, reason: str, message: str) -> Condition:
    return Condition(type=type, state=state, reason=reason, message=message[:_LONGEST])


_LONGEST = 1000


async def remove_rest(host: PeeringHost, client: Client, name: str) -> None:
    """Remove the partition, the copies and the secrets of earlier peerings of this name, if there are any.

    No caller could: the partition is reserved. It would stay, and the name of the peering could not be used again.
    """
    uids = set(await host.secrets.uids_of(name))
    partition = await client.get(PARTITION, copies_partition(name))
    if partition is not None:
        uids.add(partition.metadata.get(OWNER_KEY, ""))
    # Last, because a peering is stored before its secrets and its partition.
    peering = await client.get(PEERING, name)
    uids -= {"", "" if peering is None else peering.id.uid}
    if partition is not None and partition.metadata.get(OWNER_KEY) in uids and not partition.is_deleting:
        await client.delete(partition)
    for uid in sorted(uids):
        # From the mark of the partition on, no stream stores a position. The partition may be gone already.
        await forget_imports(host, uid)
        record = await host.secrets.read(uid)
        if record is not None and (record.token_secret or record.stream_secret):
            await host.secrets.forget(uid)
        elif record is not None:
            await host.secrets.terminate(uid)
