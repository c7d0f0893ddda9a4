"""The parts of a sender: states, unanswered responses, resources to send again, and what was sent. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from headway._gen.headway.peering import v1 as wire
from headway.peering.stream._rules import Breach, Delay, Exported, PeerLimits
from headway.protobuf import encode
from headway.resource import FINALIZERS, ResourceId, pb, resource_id

Sized = tuple[wire.Event, int]
"""An event with its size: see `sized`."""

SMALL = 64
"""The size that counts for a response without events."""


class Feed(NamedTuple):
    """The feed that the driver has to run.

    Attributes:
        number: identifies the feed. The driver opens another source whenever it changes.
        exports: what to read. Empty for none.
        resume_after: the position to begin after; None for a snapshot.
    """

    number: int
    exports: tuple[Exported, ...]
    resume_after: wire.PeerPosition | None


class State:
    """A response that is always sent as a whole: the newest one, once it differs from the last one that was sent.

    Attributes:
        subscribed: True once the peer has subscribed.
        due: the time when a refused response is sent again; infinity if it was not refused.
        problem: the reason why the peer has refused the last one; empty if it has not.
    """

    def __init__(self, delay: Delay) -> None:
        self._delay = delay
        self._now: tuple[bytes, wire.Response] | None = None
        self._sent: bytes | None = None
        self._unanswered = False
        self._failures = 0
        self.subscribed = False
        self.due = math.inf
        self.problem = ""

    @property
    def known(self) -> bool:
        """True once there is a response."""
        return self._now is not None

    def set(self, response: wire.Response) -> None:
        """Set the newest response."""
        content = encode(response)
        if self._now is None or self._now[0] != content:
            self._now = (content, response)
            self._failures, self.due = 0, math.inf

    def take(self, now: float) -> wire.Response | None:
        """Return the response if it has to be sent now."""
        if not self.subscribed or self._now is None or self._unanswered:
            return None
        content, response = self._now
        if content == self._sent and now < self.due:
            return None
        self._sent, self._unanswered, self.due = content, True, math.inf
        return response

    def answered(self, problem: str | None, now: float) -> None:
        """Note the peer's answer: None for an Ack."""
        self._unanswered = False
        self.problem = (problem or "")[:500]
        if problem is None:
            self._failures, self.due = 0, math.inf
        else:
            self.due = now + self._delay(self._failures)
            self._failures += 1


class Sent(NamedTuple):
    """A response that is not answered yet."""

    nonce: int
    subject: wire.Subject
    feed: int
    position: wire.PeerPosition | None
    ids: tuple[ResourceId, ...]
    size: int
    begins: wire.FeedBegins | None


class Waiting:
    """The responses that are not answered yet. They are answered in order."""

    def __init__(self) -> None:
        self._sent: deque[Sent] = deque()
        self.size = 0

    @property
    def count(self) -> int:
        """The number of unanswered responses."""
        return len(self._sent)

    def add(self, response: wire.Response, size: int) -> None:
        """Add a response that is sent now, with its approximate size in bytes."""
        position: wire.PeerPosition | None = None
        ids: tuple[ResourceId, ...] = ()
        if response.batch is not None:
            batch = response.batch
            position = batch.position
            if position is None and not batch.more and len(batch.events) == 1 and batch.events[0].upsert is not None:
                ids = (resource_id(batch.events[0].upsert.id).without_uid(),)
        elif response.complete is not None:
            position = response.complete.position
        elif response.progress is not None:
            position = response.progress.position
        self._sent.append(Sent(response.nonce, response.subject, response.feed, position, ids, size, response.begins))
        self.size += size

    def answered(self, nonce: int) -> Sent:
        """Remove and return the response with this nonce. Raise Breach unless it is the next one to be answered."""
        if not nonce:
            raise Breach("an answer has no nonce")
        if not self._sent or self._sent[0].nonce != nonce:
            wanted = f"answer {self._sent[0].nonce} next" if self._sent else "no response is unanswered"
            raise Breach(f"answered nonce {nonce}: {wanted}")
        sent = self._sent.popleft()
        self.size -= sent.size
        return sent


class _Retry(NamedTuple):
    failures: int
    due: float


class Retries:
    """The resources that the peer has refused, each with the time of sending it again."""

    def __init__(self, delay: Delay) -> None:
        self._delay = delay
        self._entries: dict[ResourceId, _Retry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, id: object) -> bool:
        return id in self._entries

    @property
    def due(self) -> float:
        """The time when the next resource is due, or infinity."""
        return min((each.due for each in self._entries.values()), default=math.inf)

    def refused(self, id: ResourceId, now: float, *, first: bool) -> None:
        """Note that a resource was refused. With ``first``, it was refused on an earlier stream and is due now."""
        known = self._entries.get(id)
        failures = 0 if known is None else known.failures
        self._entries[id] = _Retry(failures, now) if first else _Retry(failures + 1, now + self._delay(failures))

    def take(self, now: float) -> list[ResourceId]:
        """Return the resources that are due. Each is due again only after `sent` or `refused`."""
        found = [id for id, each in self._entries.items() if each.due <= now]
        for id in found:
            self._entries[id] = self._entries[id]._replace(due=math.inf)
        return found

    def put_back(self, now: float) -> None:
        """Make those due that were taken, because the feed that was to send them has ended."""
        for id, each in self._entries.items():
            if each.due == math.inf:
                self._entries[id] = each._replace(due=now)

    def taken(self, id: ResourceId) -> bool:
        """Return True if the resource was taken, and was neither sent nor refused since."""
        known = self._entries.get(id)
        return known is not None and known.due == math.inf

    def acknowledged(self, id: ResourceId) -> None:
        """Forget a resource that was sent again, and is acknowledged."""
        if self.taken(id):
            del self._entries[id]

    def forget(self, id: ResourceId) -> None:
        """Forget a resource whose newer state is sent."""
        self._entries.pop(id, None)


class Fingerprints:
    """The content that the feed has sent: a fingerprint of each resource, without version, owner and finalizers."""

    def __init__(self) -> None:
        self._known: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._known)

    def clear(self) -> None:
        """Forget everything, because a feed begins."""
        self._known.clear()

    def is_new(self, place: Hashable, resource: pb.Resource) -> bool:
        """Note what is sent of a resource. Return False if that was sent before."""
        found = _fingerprint(resource)
        if self._known.get(place) == found:
            return False
        self._known[place] = found
        return True

    def forget(self, place: Hashable) -> None:
        """Forget a resource that was deleted."""
        self._known.pop(place, None)


def _fingerprint(resource: pb.Resource) -> int:
    data, status, metadata = resource.data, resource.status, resource.metadata
    return hash(
        (
            resource.id.uid,  # type: ignore[union-attr]  # stored ids are whole
            resource.id.type.group_version,  # type: ignore[union-attr]  # as above
            None if data is None else (data.type_url, data.value),
            frozenset(each for each in metadata.items() if each[0] != FINALIZERS) if metadata else None,
            tuple((key, encode(each)) for key, each in sorted(status.items())) if status else None,
        )
    )


def cut(events: Sequence[Sized], limits: PeerLimits) -> list[tuple[list[wire.Event], int]]:
    """Return the events in parts that fit into a message each, with the size of each part."""
    parts: list[tuple[list[wire.Event], int]] = []
    part: list[wire.Event] = []
    held = fields = 0
    for event, size in events:
        count = _fields(event)
        full = held + size > limits.batch_size or fields + count > limits.batch_fields
        if part and (full or len(part) == limits.batch):
            parts.append((part, held))
            part, held, fields = [], 0, 0
        part.append(event)
        held += size
        fields += count
    if part:
        parts.append((part, held))
    return parts


def sized(event: wire.Event) -> Sized:
    """Return the event with its approximate size in bytes."""
    resource = event.upsert
    if resource is None:
        return event, 200
    size = 200 if resource.data is None else 200 + len(resource.data.value)
    for key, value in resource.metadata.items():
        size += len(key) + len(value)
    if resource.status:
        size += sum(len(encode(each)) for each in resource.status.values())
    return event, size


def _fields(event: wire.Event) -> int:
    """Return the approximate number of fields of an event."""
    resource = event.upsert
    if resource is None:
        return 12
    count = 16 + 3 * len(resource.metadata)
    if resource.status:
        count += sum(6 + 12 * len(each.conditions) for each in resource.status.values())
    return count
