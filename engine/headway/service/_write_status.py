"""WriteStatus: replace one status of a resource."""

from __future__ import annotations

import re
from collections.abc import Iterator

import trio

from headway.api import Call
from headway.base import utc_now
from headway.errors import Conflict, FailedPrecondition, HeadwayError, InvalidArgument, NotFound
from headway.protobuf import copy_message
from headway.resource import (
    EVENT,
    name_problem,
    pb,
    quoted,
    resource_id,
    tenancy_within,
    type_name,
    type_problem,
)
from headway.service._access import AccessChecks
from headway.service._admission import Type, admit_id, rules_for
from headway.service._bounds import check_text
from headway.service._context import Context
from headway.service._fences import admit_fence, check_fence
from headway.service._status_bounds import check_status, room_problem
from headway.service._writing import attempt, check_store, check_units, needs_units
from headway.storage import Put

_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}\Z")


async def write_status(context: Context, _call: Call, request: pb.WriteStatusRequest) -> pb.WriteStatusResponse:
    """Store the status under its key. A status equal to the stored one changes nothing and wakes no watcher."""
    backend, access = context.backend, context.access
    type, key = admit_id(access, request.id, "id")
    wanted = request.id
    assert wanted is not None
    access.check_write(wanted, None)
    for rules in rules_for(access, type.kind, key):
        rules.check_key(access, type.kind, key)
    fence = admit_fence(access, request.fence)
    status = _admitted(access, request, type, key[:2])
    form = context.forms.of(type)
    nowait = getattr(backend, "read_nowait", None)

    async def once() -> pb.WriteStatusResponse:
        check_store(backend, request.store_id)
        if needs_units(key):
            await check_units(backend.read, key)
        # A checkpoint follows in any case, so this reads without one if the store can.
        found = None if nowait is None else nowait(type.kind, key)
        stored, position = await backend.read(type.kind, key) if found is None else found
        if stored is None or stored.id is None or stored.id.uid != wanted.uid:
            raise NotFound(_absent(wanted))
        seen = await form.seen(stored)
        if seen is None and not access.shows(stored):
            # Only callers who may read it learn that it is stored as a version that cannot be shown as this one.
            raise NotFound(_absent(wanted))
        known = stored.status.get(request.key)
        try:
            # There is room for the first status, which has passed its own bounds.
            if stored.status and (problem := room_problem(stored.status, request.key, status)):
                raise FailedPrecondition(f"{resource_id(wanted)}: {problem}")
            seen = form.checked(stored, seen)
            _check_current(stored, request)
            if known is not None:
                _check_not_older(known, status, request)
        except HeadwayError as error:
            access.redact(error, stored if seen is None else seen)
            raise
        if known is not None and _same(known, status):
            await trio.lowlevel.checkpoint()
            await check_fence(backend, fence)
            return pb.WriteStatusResponse(resource=seen, position=position.message(), unchanged=True)
        updated = _with_status(stored, request.key, status)
        position = await backend.commit((Put(type.kind, key, updated, stored.version),), fence)
        if context.journal is not None:
            context.journal.add(
                position.revision, type.name, key, f"status {request.key} written", fence, access.caller_name
            )
        return pb.WriteStatusResponse(resource=await form.seen(updated), position=position.message())

    reply = await attempt(once, context.turns, (type.kind, key), blanket=not request.version)
    if access.restricted:
        assert reply.resource is not None
        own = pb.Resource(status={request.key: reply.resource.status[request.key]})
        reply.resource = access.answered(reply.resource, own)
    return reply


def _absent(id: pb.Id) -> str:
    return f"{resource_id(id)} with uid {id.uid} not found"


def _admitted(access: AccessChecks, request: pb.WriteStatusRequest, type: Type, parent: tuple[str, str]) -> pb.Status:
    """Check a request, and return a copy of its status, which the store may keep."""
    assert request.id is not None
    if not request.id.uid:
        raise InvalidArgument("id.uid is required: a status belongs to one incarnation; use the id that you have read")
    if not request.key:
        raise InvalidArgument("key is required: the name under which this controller keeps its status")
    if type.name == EVENT.name:
        # No rule of the store counts events.
        raise InvalidArgument(
            "id.type: an Event has no status: write the status of the resource that its events are about"
        )
    if request.status is None:
        raise InvalidArgument("status is required: the status to store under the key")
    status = copy_message(request.status)
    check_text("key", request.key)
    if not request.key.isprintable():
        # Texts of a terminal and of a log show it. One that is stored already can be read, but not written.
        raise InvalidArgument(
            f"key {quoted(request.key)} has a character that cannot be printed: use the name of the controller, "
            "such as 'consul.io/namespace-controller'"
        )
    check_text("version", request.version)
    check_status(status, "status")
    if not _ULID.match(status.observed_generation):
        raise InvalidArgument(
            f"status.observed_generation {status.observed_generation!r} must be a generation of the resource: "
            "use the `generation` of the resource that you have read"
        )
    # ULIDs are case-insensitive. In a single case they can be compared as strings.
    status.observed_generation = status.observed_generation.upper()
    if status.updated_at is not None:
        raise InvalidArgument(f"status.updated_at {status.updated_at.isoformat()} must be empty: the server sets it")
    problems = [
        problem
        for index, condition in enumerate(status.conditions)
        for problem in _condition_problems(access, condition, f"status.conditions[{index}]", parent)
    ]
    if problems:
        raise InvalidArgument("; ".join(problems))
    return status


def _condition_problems(
    access: AccessChecks, condition: pb.Condition, field: str, parent: tuple[str, str]
) -> Iterator[str]:
    if not condition.type:
        yield f"{field}.type is required"
    if condition.resource is not None and (
        problem := _admit_reference(access, condition.resource, f"{field}.resource", parent)
    ):
        yield problem


def _admit_reference(access: AccessChecks, reference: pb.Reference, field: str, parent: tuple[str, str]) -> str | None:
    """Fill in, in place, the tenancy of a reference in a resource in ``parent``. Return what is wrong with it, or None.

    The referenced type need not be registered here. If it is not, or the caller may not know of it, the tenancy is left
    as it is.
    """
    if reference.type is None:
        return f"{field}.type is required"
    name = type_name(reference.type)
    given = reference.tenancy or pb.Tenancy()
    partition, namespace = given.partition, given.namespace
    type = access.registry.find(name)
    if type is not None and access.knows(name):
        partition, namespace = tenancy_within(type.scope, (partition, namespace), parent)
        problem = type.tenancy_problem(partition, namespace)
        reference.tenancy = pb.Tenancy(partition=partition, namespace=namespace)
    else:
        problem = type_problem(*name)
        for unit, value in (("partition", partition), ("namespace", namespace)):
            problem = problem or (name_problem(unit, value) if value else None)
    problem = problem or name_problem("name", reference.name)
    return f"{field}: {problem}" if problem else None


def _check_current(stored: pb.Resource, request: pb.WriteStatusRequest) -> None:
    """Refuse a writer who names another version than the stored one."""
    if request.version and request.version != stored.version:
        raise Conflict(
            f"{resource_id(request.id)} is stored at version {stored.version}, not {request.version}; read it again"
        )


def _check_not_older(known: pb.Status, status: pb.Status, request: pb.WriteStatusRequest) -> None:
    """Refuse a status that observes an older generation than the stored status does."""
    # Generations of one resource only increase, so they can be compared as strings.
    if status.observed_generation < known.observed_generation:
        raise Conflict(
            f"{resource_id(request.id)}: status {request.key} already observes generation {known.observed_generation}, "
            f"above {status.observed_generation}; read it again"
        )


def _same(known: pb.Status, status: pb.Status) -> bool:
    return known.observed_generation == status.observed_generation and known.conditions == status.conditions


def _with_status(stored: pb.Resource, key: str, status: pb.Status) -> pb.Resource:
    # An attempt that was refused has stored nothing, so no other resource has this status.
    status.updated_at = utc_now()
    return pb.Resource(
        id=stored.id,
        owner=stored.owner,
        generation=stored.generation,
        metadata=stored.metadata,
        status={**stored.status, key: status},
        data=stored.data,
    )
