"""The view of one resource: its content, why it is or is not done, a timeline, and its relatives."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headway._gen.headway.observe import v1 as observe_pb
from headway.base import Steps, finished, give_way, in_slices
from headway.errors import NotFound, PermissionDenied, Unauthenticated
from headway.http import Exchange, resource_steps, resources_in
from headway.page._service import WHY
from headway.resource import ResourceId, ResourceType, created_at, pb, resource_id
from headway.service import RESOURCE_SERVICE
from headway.why import attempts_text, reconcile_texts, ref_of, ref_text, sentences

OWNED = 200
"""The number of owned resources, and of events, that are shown."""
OWNERS = 8
"""The number of owners that are shown, each the owner of the one before."""
_TURN = 500
"""The number of owned resources to look at between two checkpoints."""
_EVENT = "Event"
"""The kind of the resources that programs write for the readers of their owner."""


async def about(exchange: Exchange, type: ResourceType[Any] | None, id: ResourceId) -> dict[str, Any]:
    """Return the resource and why it is or is not done. Raises PermissionDenied if the caller may do neither."""
    stored, refused = await _read(exchange, id)
    why: observe_pb.Why | None = None
    try:
        reply = await exchange.call(WHY, _message(observe_pb.WhyRequest(id=id.message())))
        why = reply.why
    except PermissionDenied as error:
        if isinstance(error, Unauthenticated) or refused is not None:
            raise
    return {
        "id": dataclasses.asdict(ref_of(id.type, id.key)),
        "resource": None if stored is None or type is None else await in_slices(document(type, stored)),
        "mayRead": refused is None,
        "created": None if stored is None else created_at(stored.id.uid) or None,  # type: ignore[union-attr]  # stored
        "why": None if why is None else _why(why),
    }


def document(type: ResourceType[Any], stored: pb.Resource) -> Steps[dict[str, Any]]:
    """Return a stored resource as the page shows it, without secrets. Every payload on the page comes from here.

    Numbers of 64 bits are numbers, for people. The page reads them without rounding (`assets/exact.js`).
    """
    return resource_steps(type, stored, long=int, redacts=True)


def _why(why: observe_pb.Why) -> dict[str, Any]:
    # The page shows the past as a timeline instead.
    now = dataclasses.replace(
        why, writes=[], controllers=[dataclasses.replace(each, reconciles=[]) for each in why.controllers]
    )
    refs = {ref_text(each): each for each in _refs(why) if each != why.resource}
    names = {each.name for each in why.controllers}
    return {
        "at": why.at,
        "sentences": [linked(each, refs, names) for each in sentences(now)[1:]],
        "states": [
            {
                "controller": each.name,
                "process": each.process,
                "role": each.role,
                "state": each.state,
                "attempt": each.attempt,
                "error": each.error,
                "paused": each.paused,
                "unmapped": each.unmapped_count,
                "holder": each.holder,
            }
            for each in why.controllers
        ],
        "timeline": timeline(why),
    }


async def relatives(exchange: Exchange, id: ResourceId) -> dict[str, Any]:
    """Return the owners of a resource, what it owns, and its events, as far as the caller may read them."""
    stored, refused = await _read(exchange, id)
    if refused is not None:
        raise refused
    owners: list[dict[str, Any]] = []
    at = stored
    while at is not None and at.owner is not None and len(owners) < OWNERS:
        owner = resource_id(at.owner)
        owners.append(dataclasses.asdict(ref_of(owner.type, owner.key)))
        if owner.type not in exchange.offered.registry:
            break
        at, _ = await _read(exchange, owner)
    events: list[pb.Resource] = []
    others: list[pb.Resource] = []
    count = 0
    if stored is not None:
        request = pb.ListByOwnerRequest(owner=stored.id)
        owned = await exchange.call(f"/{RESOURCE_SERVICE}/ListByOwner", _message(request))
        for number, each in enumerate(resources_in(owned), 1):
            is_event = resource_id(each.id).type.kind == _EVENT
            count += not is_event
            among = events if is_event else others
            if len(among) < OWNED:
                among.append(each)
            if number % _TURN == 0:
                await give_way()
    return {
        "owners": owners,
        "owned": [_brief(each) for each in others],
        "ownedCount": count,
        "events": [_event(exchange, each) for each in events],
    }


def _brief(resource: pb.Resource) -> dict[str, Any]:
    id = resource_id(resource.id)
    return dataclasses.asdict(ref_of(id.type, id.key))


def _event(exchange: Exchange, resource: pb.Resource) -> dict[str, Any]:
    """Return an event. Its content is shown, and redacted, like that of any other resource."""
    id = resource_id(resource.id)
    type = exchange.offered.registry.find(id.type)
    data = {} if type is None else finished(document(type, resource)).get("data", {})
    return {"name": id.name, "version": resource.version, "data": data}


def timeline(why: observe_pb.Why) -> list[dict[str, Any]]:
    """Return the last changes and reconciles of a resource, the newest first."""
    entries: list[dict[str, Any]] = [
        {
            "id": f"write {each.revision}",
            "at": each.at,
            "what": "write",
            "verb": each.verb,
            "by": each.writer,
            "revision": each.revision,
        }
        for each in why.writes
    ]
    for controller in why.controllers:
        entries += [
            {
                # Identify the run by values that never change. Its times differ a little between answers, like clocks.
                "id": f"run {controller.name} {controller.process} {_recorded(each)}",
                "at": each.at,
                "what": "run",
                "controller": controller.name,
                "outcome": each.outcome,
                "attempt": each.attempt,
                "alike": each.alike,
                "attempts": attempts_text(each),
                "first": each.first_at,
                "seconds": each.seconds,
                "error": each.error,
                "traceback": each.traceback,
                **_texts(each),
            }
            for each in controller.reconciles
        ]
    return sorted(entries, key=lambda entry: entry["at"], reverse=True)


def _recorded(reconcile: observe_pb.PastReconcile) -> str:
    """Return a text that identifies a reconcile among all reconciles of its controller and process."""
    if reconcile.first_attempt:
        return f"{reconcile.first_attempt} {reconcile.first_seconds}"
    # A worker of an earlier version does not send these.
    return f"{reconcile.attempt} {reconcile.seconds} {reconcile.waited}"


def _texts(reconcile: observe_pb.PastReconcile) -> dict[str, Any]:
    """Return why a reconcile ran, and what it read and wrote, in pieces that refer to the resources."""
    refs = {ref_text(each): each for each in _refs(reconcile)}
    names = ("because", "read", "wrote")
    return {name: linked(text, refs) for name, text in zip(names, reconcile_texts(reconcile), strict=True)}


def linked(sentence: str, refs: Mapping[str, observe_pb.Ref], controllers: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Return a sentence in pieces of text. A piece that names a resource, or one of these controllers, refers to it."""
    pieces_of: dict[str, dict[str, Any]] = {each: {"text": each, "controller": each} for each in controllers}
    pieces_of |= {text: {"text": text, "ref": dataclasses.asdict(each)} for text, each in refs.items()}
    if not pieces_of:
        return [{"text": sentence}]
    longest_first = sorted(pieces_of, key=len, reverse=True)
    # A name ends where no further character of a name follows.
    pattern = re.compile(rf"(?<![\w/-])({'|'.join(map(re.escape, longest_first))})(?![\w/-])")
    pieces: list[dict[str, Any]] = []
    for number, text in enumerate(pattern.split(sentence)):
        if number % 2:
            pieces.append(pieces_of[text])
        elif text:
            pieces.append({"text": text})
    return pieces


def _refs(value: Any) -> Iterator[observe_pb.Ref]:
    """Yield every resource that an answer names."""
    if isinstance(value, observe_pb.Ref):
        if value.name:
            yield value
    elif isinstance(value, list):
        for each in value:
            yield from _refs(each)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _refs(getattr(value, field.name))


async def _read(exchange: Exchange, id: ResourceId) -> tuple[pb.Resource | None, PermissionDenied | None]:
    """Return what is stored, and the refusal of a caller who may not read it."""
    try:
        reply = await exchange.call(f"/{RESOURCE_SERVICE}/Read", _message(pb.ReadRequest(id=id.message())))
    except NotFound:
        return None, None
    except Unauthenticated:
        raise
    except PermissionDenied as error:
        return None, error
    stored: pb.Resource = reply.resource
    return stored, None


def _message(message: Any) -> Any:
    async def requested() -> Any:
        return message

    return requested
