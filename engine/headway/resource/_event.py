"""The type of events: what has happened to a resource, for its users. Pure.

One resource of the type has all events of one resource, which owns it. So a burst of events is one write, the number of
events has a bound that concurrent writers keep, and all of them go away with their resource.
"""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Iterable, Sequence

from headway._gen.headway.event.v1 import Entry, Event
from headway.base import repr_text
from headway.protobuf import copy_message, encode
from headway.resource._hooks import Hooks
from headway.resource._ids import DEFAULT_TENANCY, ResourceId, Scope, quoted
from headway.resource._resource import Resource
from headway.resource._types import ResourceType

MOST_EVENTS = 20
"""The number of different events that are kept of a resource."""
MAX_TEXT = 1000
"""The maximum length of an event's text, in characters. Longer ones are cut off."""

MAX_SIZE = 192 << 10
"""The maximum size of the encoded events of a resource, in bytes. As many of the longest as may be kept fit."""
MAX_METADATA = 4096
"""The maximum length of their metadata, in characters, keys and values together."""

_READABLE = 40
"""The number of characters of the resource's kind and name that are part of the name of its events."""
_REASON = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}\Z")


def event_id(of: ResourceId) -> ResourceId:
    """Return the id of the events of a resource, which has a uid.

    They are in the resource's partition and namespace, as far as it has them, and otherwise in the default ones.
    """
    # A resource's name may be as long as a name can be, and another resource may be stored under it later.
    digest = hashlib.sha256(f"{of.type.group}/{of.type.kind}/{of.uid}".encode()).hexdigest()[:16]
    readable = f"{of.type.kind.lower()}-{of.name}"[:_READABLE].strip("-")
    partition, namespace = DEFAULT_TENANCY[Scope.NAMESPACE]
    return EVENT.id(f"{readable}-{digest}", partition=of.partition or partition, namespace=of.namespace or namespace)


def reason_problem(reason: object) -> str | None:
    """Return what is wrong with the reason of an event, or None."""
    if isinstance(reason, str) and _REASON.match(reason):
        return None
    return f"reason {repr_text(reason)} must be one word of up to 64 letters and digits, such as 'Deployed'"


def merged_events(stored: Iterable[Entry], new: Sequence[Entry], now: datetime.datetime) -> tuple[list[Entry], int]:
    """Return the entries with the new ones, and the number that were dropped. The latest are kept, and stand last.

    Entries with the same controller, reason, text and warning are one, with the sum of their counts.
    A stored time after ``now`` is of a clock that was ahead: the entry gets the earliest time of the new ones, before
    which it has happened.
    """
    earliest = min((each.last for each in new if each.last is not None), default=now)
    known: dict[tuple[str, str, str, bool], Entry] = {}
    for each in (*(_not_after(each, now, earliest) for each in stored), *new):
        same = (each.controller, each.reason, each.text, each.warning)
        before = known.pop(same, None)
        if before is None:
            known[same] = copy_message(each)
            continue
        before.count += each.count
        before.first = min(filter(None, (before.first, each.first)), default=None)
        before.last = max(filter(None, (before.last, each.last)), default=None)
        # Moved to the end, because it has happened again.
        known[same] = before
    entries = sorted(known.values(), key=lambda each: 0.0 if each.last is None else each.last.timestamp())
    kept = entries[-MOST_EVENTS:]
    return kept, len(entries) - len(kept)


def _not_after(entry: Entry, now: datetime.datetime, time: datetime.datetime) -> Entry:
    """Return the entry, or a copy with this time if it is of the future."""
    if entry.last is None or entry.last <= now:
        return entry
    moved = copy_message(entry)
    moved.first, moved.last = None if moved.first is None else min(moved.first, time), time
    return moved


def _check(event: Resource[Event]) -> None:
    """Refuse events that no reader would find, and more than a reader expects."""
    owner = event.owner
    if owner is None or not owner.uid:
        raise ValueError("owner must be the resource that the events are about, with its uid")
    if owner.type == EVENT.name:
        raise ValueError("owner must not be an event itself")
    wanted = event_id(owner)
    if event.id.without_uid() != wanted:
        raise ValueError(
            f"the events of {owner} must be stored as {wanted}, not {event.id.without_uid()}: "
            "rt.event and headway.client.record_events use the right id"
        )
    # Nothing limits the number of events. So nothing may keep them when their resource is gone,
    if names := sorted(event.finalizers):
        raise ValueError(f"metadata.finalizers must be empty, not {quoted(names[0])}: events go away with {owner}")
    # and nothing about them may be large: not what a newer program would understand either.
    if (size := len(encode(event.data))) > MAX_SIZE:
        raise ValueError(f"data must have at most {MAX_SIZE} bytes, not {size}")
    if (length := sum(len(key) + len(value) for key, value in event.metadata.items())) > MAX_METADATA:
        raise ValueError(f"metadata must have at most {MAX_METADATA} characters, not {length}")
    entries = event.data.entries
    if len(entries) > MOST_EVENTS:
        raise ValueError(f"data.entries must be at most {MOST_EVENTS}, not {len(entries)}")
    for number, each in enumerate(entries):
        if problem := reason_problem(each.reason):
            raise ValueError(f"data.entries.{number}.{problem}")
        if len(each.text) > MAX_TEXT:
            raise ValueError(
                f"data.entries.{number}.text must have at most {MAX_TEXT} characters, not {len(each.text)}"
            )
        if len(each.controller) > MAX_TEXT:
            raise ValueError(f"data.entries.{number}.controller must have at most {MAX_TEXT} characters")


EVENT = ResourceType("event", "v1", "Event", Event, scope=Scope.NAMESPACE, hooks=Hooks(validate=_check))
"""The type of events. A resource of it has the latest events of the resource that owns it."""
