"""Reading the events of a resource, and adding to them, over any client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headway.base import utc_now
from headway.client._client import Client
from headway.errors import InvalidArgument
from headway.protobuf import encode
from headway.resource import EVENT, Entry, Event, Resource, ResourceId, event_id, merged_events, shared_message


async def events_of(client: Client, of: Resource[Any] | ResourceId) -> list[Entry]:
    """Return the events of a stored resource, those that happened last at the end.

    Raises:
        InvalidArgument: ``of`` has no uid: it is not a resource that was read, nor the id of one.
        PermissionDenied: the caller may not read the resource's ``event.v1.Event``.
    """
    id = of.id if isinstance(of, Resource) else of
    if not id.uid:
        raise InvalidArgument(f"events_of: {id} has no uid: read the resource first, and pass it")
    found = await client.get(EVENT, event_id(id))
    return [] if found is None else found.data.entries


class EventWrite:
    """Events of one resource on their way to its stored ones. `send` may be repeated until it succeeds.

    Args:
        of: the id of the resource, with its uid.
        entries: the events.
        dropped: the number of earlier ones that were dropped to make room.
    """

    def __init__(self, of: ResourceId, entries: Sequence[Entry], dropped: int = 0) -> None:
        self.of = of
        self.entries = entries
        self._dropped = dropped
        # The payload of the last attempt. It may be stored although the attempt has failed.
        self._sent = b""

    async def send(self, client: Client) -> None:
        """Add the events by one write, over a client without a fence.

        Raises:
            Conflict: another writer was first. Nothing was written.
            HeadwayError: the call failed in any other way.
        """
        id = event_id(self.of)
        stored = await client.get(EVENT, id)
        if stored is not None and self._sent and _payload(stored) == self._sent:
            return
        before = Event() if stored is None else stored.data
        kept, dropped = merged_events(before.entries, self.entries, utc_now())
        event = Event(entries=kept, dropped=before.dropped + self._dropped + dropped)
        self._sent = encode(event)
        if stored is None:
            made = EVENT.new(id.name, event, partition=id.partition, namespace=id.namespace, owner=self.of)
            await client.create(made)
        else:
            stored.data = event
            await client.write(stored)


def _payload(stored: Resource[Event]) -> bytes:
    data = shared_message(stored).data
    return b"" if data is None else data.value
