"""The sending side of a peer stream as a state machine. Pure: no Trio, no I/O, no clock.

Rules:
1. Responses have nonces 1, 2, 3 and so on. The peer answers each one, in order, by Ack or Nack. At most a window of
   them is unanswered.
2. Server and Exports are states. The newest is sent once it differs from the last one that was sent. After a Nack it is
   sent again, with growing delays.
3. The resources come in feeds. A feed begins with FeedBegins, after a position or with a snapshot. Each commit is one
   batch, and carries the position after it. A batch too large for one message is continued in the next (`more`).
4. A Nack of a whole response ends the feed. After a delay the next one begins, after the last acknowledged position. A
   Nack of some resources of a batch acknowledges the rest. These resources are sent again, each with its own growing
   delay. If the source of a feed fails, the next one begins once every response is answered: only then is the position
   of the peer known. It sends what was about to be sent again.
5. A resource is not sent again while only its version, owner or finalizers change.
6. Copies from a peer are never sent.
7. A resource that is too large for a message is withheld: the peer learns that it exists and why it is not sent. So its
   last copy stays, even if a snapshot begins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence

from headway._gen.headway.peering import v1 as wire
from headway._gen.headway.peering.v1 import FeedBeginsCause as Cause
from headway._gen.headway.peering.v1 import Subject
from headway.base import Bucket
from headway.peering.stream._rules import (
    Breach,
    Coverage,
    Delay,
    Exported,
    PeerLimits,
    doubling,
    exports_of,
    outgoing,
    peer_position,
    position_at,
    spend,
)
from headway.peering.stream._sending import SMALL, Feed, Fingerprints, Retries, Sized, State, Waiting, cut, sized
from headway.resource import Change, Position, ResourceId, SnapshotChunk, pb, resource_id, resource_key
from headway.subscription import (
    Commits,
    NewSnapshot,
    Reached,
    SnapshotComplete,
    SnapshotPart,
    SubscriptionItem,
)

_LONGEST = 500
"""The maximum length of a peer's reason that is kept."""


class Sender:
    """The responses of one stream, and the peer's answers to them."""

    def __init__(self, limits: PeerLimits | None = None, delay: Delay = doubling) -> None:
        self._limits = limits or PeerLimits()
        self._delay = delay
        self._nonce = 0
        self._waiting = Waiting()
        self._states = {Subject.SERVER: State(delay), Subject.EXPORTS: State(delay)}
        self._subscribing = Bucket(self._limits.subscriptions, 1.0, 0.0)
        # The exports of the latest `offer`, and all that were ever sent: the peer may subscribe to outdated ones.
        self._offered: frozenset[Exported] = frozenset()
        self._ever_offered: set[Exported] = set()
        # The peer's subscription to the resources.
        self._subscription = 0
        self._selected: tuple[Exported, ...] | None = None
        self._coverage = Coverage()
        self._asked: tuple[Exported, ...] | None = None
        self._resume: wire.PeerPosition | None = None
        # The feed, the responses of it that were not sent yet, each with its size, and what it has sent.
        self._number = 0
        self._running = False
        # True if the source of the running feed has failed. Nothing more is sent of it.
        self._interrupted = False
        self._outbox: deque[tuple[wire.Response, int]] = deque()
        self._fingerprints = Fingerprints()
        self._retries = Retries(delay)
        self._complete = False
        self._failures = 0
        self._begin_at = 0.0
        # Why the peer has refused the last feed, and resources that it lacks.
        self._feed_refusal = ""
        self._refusals: dict[ResourceId, str] = {}
        # The resources that do not fit into a message, and are withheld.
        self._too_large: dict[Hashable, str] = {}

    # --- called by the driver with news ---

    def offer(self, exports: Sequence[Exported], schemas: Sequence[wire.TypeSchema] = ()) -> None:
        """Set what is exported. A feed of something that is no longer exported ends at once."""
        message = wire.Exports(exports=[each.message() for each in sorted(set(exports))], schemas=list(schemas))
        self._offered = frozenset(exports)
        self._ever_offered |= self._offered
        self._states[Subject.EXPORTS].set(wire.Response(exports=message))
        asked = self._asked
        if asked is not None and self._selected != asked and self._offered.issuperset(asked):
            # An export was restored before the peer learned of its withdrawal, so the peer may not subscribe again. It
            # may have stored more than it has acknowledged, so a snapshot follows.
            self._select(asked, None)
        elif self._selected is not None and not self._offered.issuperset(self._selected):
            self._selected = None
            self._end_feed()

    def serve(self, server: wire.Server) -> None:
        """Set the addresses of this side. Without a call, the peer may not subscribe to them."""
        self._states[Subject.SERVER].set(wire.Response(server=server))

    def request(self, request: wire.Request, now: float) -> None:
        """Handle a request of the peer. Raise Breach if it breaks a rule."""
        if request.subscribe is not None:
            self._subscribe(request.subject, request.subscribe, now)
        elif request.ack is not None:
            self._answered(request.subject, request.ack.nonce, None, now)
        elif request.nack is not None:
            self._answered(request.subject, request.nack.nonce, request.nack, now)
        else:
            raise Breach("a request has no content: send subscribe, ack or nack")

    def begin(self, number: int, cause: Cause, position: Position, selection: str, reason: str = "") -> None:
        """Begin the feed of this number, or begin it again with a snapshot."""
        if number != self._number or not self._running:
            return
        self._outbox.clear()
        self._fingerprints.clear()
        self._complete = cause == Cause.RESUMED
        if not self._complete:
            self._too_large.clear()
        at = peer_position(position, selection)
        if cause == Cause.RESUMED and self._resume is not None:
            at = self._resume
        begins = wire.FeedBegins(cause=cause, reason=reason, position=at, subscription=self._subscription)
        self._put(wire.Response(begins=begins))

    def feed(self, number: int, item: SubscriptionItem) -> None:
        """Add an item of the feed's source. Items of an earlier feed are ignored."""
        if number != self._number or not self._running:
            return
        if isinstance(item, SnapshotChunk):
            self._add(self._events([Change(0, each, False, False) for each in item.resources]))
        elif isinstance(item, SnapshotPart):
            self._add(self._events([each for each in item.events if isinstance(each, Change)]))
        elif isinstance(item, SnapshotComplete):
            self._complete = True
            complete = wire.FeedComplete(position=position_at(item.position), count=len(self._fingerprints))
            self._put(wire.Response(complete=complete))
        elif isinstance(item, Commits):
            for events, position in item.commits:
                found = self._events([each for each in events if isinstance(each, Change)])
                self._add(found, position_at(position))
        elif isinstance(item, Reached):
            self._progress(position_at(item.position))
        else:
            assert isinstance(item, NewSnapshot)
            raise AssertionError("a new snapshot is announced by begin()")

    def interrupt(self, number: int, until: float) -> None:
        """Note that the source of the feed of this number has failed. The next feed begins at a time or later."""
        if number == self._number and self._running:
            self._outbox.clear()
            self._interrupted, self._begin_at = True, until

    def again(self, id: ResourceId, resource: pb.Resource | None) -> None:
        """Add the current state of a resource that was refused; None if it is no longer exported."""
        if not self._running or self._interrupted or not self._complete or not self._retries.taken(id):
            return
        if resource is None:
            # Its deletion has been sent, or is about to be. With revision 0, this only ends the refusal.
            self._retries.forget(id)
            event, size = sized(wire.Event(delete=wire.Deleted(id=id.message())))
        else:
            event, size = sized(wire.Event(upsert=outgoing(resource)))
            if size > self._limits.resource_size:
                assert resource.id is not None
                self._retries.forget(id)
                # The peer has asked for it again, so it knows that the resource exists.
                self._withheld((*id.type.unversioned, id.key), resource.id, size)
                return
        self._put(wire.Response(batch=wire.Batch(events=[event])), size)

    # --- called by the driver for work ---

    @property
    def wanted(self) -> Feed | None:
        """The feed to run, or None."""
        if not self._running or self._interrupted:
            return None
        assert self._selected is not None
        return Feed(self._number, self._selected, self._resume)

    @property
    def hungry(self) -> bool:
        """True if the next item of the feed's source should be read."""
        return self._running and not self._interrupted and not self._outbox

    def due_again(self, now: float) -> list[ResourceId]:
        """Return the refused resources that should be read and sent again now."""
        return self._retries.take(now) if self._running and self._complete and not self._interrupted else []

    def refusals(self) -> list[str]:
        """Return what the peer refuses, in sentences."""
        self._refusals = {id: why for id, why in self._refusals.items() if id in self._retries}
        found = [each.problem for each in self._states.values() if each.problem]
        found += [self._feed_refusal] if self._feed_refusal else []
        return [*found, *(f"{id}: {why}" for id, why in self._refusals.items()), *self._too_large.values()]

    def next_time(self) -> float:
        """Return the time of the next step that does not depend on the peer, or infinity."""
        times = [state.due for state in self._states.values()]
        if self._selected is not None and not self._running:
            times.append(self._begin_at)
        if self._running and self._complete and not self._interrupted:
            times.append(self._retries.due)
        return min(times)

    def take(self, now: float) -> wire.Response | None:
        """Return the next response to send; None without one, or if the window is full."""
        if self._interrupted and not self._waiting.count:
            self._end_feed()
        if self._selected is not None and not self._running and now >= self._begin_at:
            self._start_feed(now)
        if self._waiting.count >= self._limits.window or self._waiting.size >= self._limits.window_size:
            return None
        for subject, state in self._states.items():
            response = state.take(now)
            if response is not None:
                return self._sent(subject, response, 0, SMALL)
        if not self._outbox:
            return None
        response, size = self._outbox.popleft()
        return self._sent(Subject.RESOURCES, response, self._number, size)

    # --- inside ---

    def _sent(self, subject: Subject, response: wire.Response, feed: int, size: int) -> wire.Response:
        self._nonce += 1
        made = wire.Response(
            nonce=self._nonce,
            subject=subject,
            operation=wire.Operation.UPSERT,
            feed=feed,
            server=response.server,
            exports=response.exports,
            begins=response.begins,
            batch=response.batch,
            complete=response.complete,
            progress=response.progress,
        )
        self._waiting.add(made, size)
        return made

    def _subscribe(self, subject: Subject, subscribe: wire.Subscribe, now: float) -> None:
        spend(self._subscribing, now, "subscriptions")
        state = self._states.get(subject)
        if state is not None:
            if subject == Subject.SERVER and not state.known:
                raise Breach("SUBJECT_SERVER: only the dialing side may subscribe to it")
            # A second subscription to a state changes nothing.
            state.subscribed = True
            return
        if subject != Subject.RESOURCES:
            raise Breach(f"subject {int(subject)} is not known: subscribe to 1, 2 or 3")
        if not self._states[Subject.EXPORTS].subscribed:
            raise Breach("SUBJECT_RESOURCES was subscribed before SUBJECT_EXPORTS")
        wanted = exports_of(subscribe.exports, self._limits.exports)
        for export in wanted:
            if export not in self._ever_offered:
                raise Breach(f"subscribed to {export}, which is not exported")
        if subscribe.number <= self._subscription:
            raise Breach(f"subscription {subscribe.number} follows {self._subscription}: count them from 1")
        if len(subscribe.again) > self._limits.refused:
            raise Breach(f"subscribed to {len(subscribe.again)} resources again: at most {self._limits.refused}")
        self._asked = wanted
        self._subscription = subscribe.number
        self._select(tuple(each for each in wanted if each in self._offered), subscribe.resume_after)
        self._failures, self._begin_at = 0, now
        self._retries = Retries(self._delay)
        for message in subscribe.again:
            self._retry(resource_id(message), now, first=True)

    def _select(self, selected: tuple[Exported, ...], resume: wire.PeerPosition | None) -> None:
        self._selected, self._resume = selected, resume
        self._coverage = Coverage(selected)
        self._end_feed()

    def _end_feed(self) -> None:
        self._running = self._interrupted = False
        self._outbox.clear()

    def _start_feed(self, now: float) -> None:
        self._number += 1
        self._running, self._complete = True, False
        self._retries.put_back(now)

    def _put(self, response: wire.Response, size: int = 0) -> None:
        self._outbox.append((response, SMALL + size))

    def _add(self, events: Sequence[Sized], position: wire.PeerPosition | None = None) -> None:
        """Add events as batches. With a position, they are one commit."""
        if not events and position is not None:
            self._progress(position)
            return
        parts = cut(events, self._limits)
        for index, (part, size) in enumerate(parts):
            last = index + 1 == len(parts)
            batch = wire.Batch(events=part, position=position if last else None, more=position is not None and not last)
            self._put(wire.Response(batch=batch), size)

    def _progress(self, position: wire.PeerPosition) -> None:
        if self._outbox and self._outbox[-1][0].progress is not None:
            self._outbox.pop()
        self._put(wire.Response(progress=wire.Progress(position=position)))

    def _events(self, changes: Sequence[Change]) -> list[Sized]:
        """Return the changes that the peer does not know yet."""
        found: list[Sized] = []
        for change in changes:
            resource = change.resource
            id = resource.id
            assert id is not None
            assert id.type is not None
            key = resource_key(resource)
            if self._coverage.covered(id.type, key[0], key[1]) is None:
                # It is a copy, or the source reads more than is exported.
                continue
            place: Hashable = (id.type.group, id.type.kind, key)
            if change.deleted:
                self._fingerprints.forget(place)
                self._too_large.pop(place, None)
                found.append(sized(wire.Event(delete=wire.Deleted(id=id, revision=change.revision))))
            elif self._fingerprints.is_new(place, resource):
                self._too_large.pop(place, None)
                event = sized(wire.Event(upsert=outgoing(resource)))
                if event[1] > self._limits.resource_size:
                    event = sized(wire.Event(withheld=self._withheld(place, id, event[1])))
                found.append(event)
            else:
                continue
            if self._retries:
                self._retries.forget(resource_id(id).without_uid())
        return found

    def _withheld(self, place: Hashable, id: pb.Id, size: int) -> wire.Withheld:
        """Note that a resource is too large for a message, and return what the peer learns of it."""
        why = f"not sent: it has about {size} bytes, and {self._limits.resource_size} are possible"
        if len(self._too_large) < self._limits.refused:
            self._too_large[place] = f"{resource_id(id)}: {why}"
        return wire.Withheld(id=id, message=why)

    def _answered(self, subject: Subject, nonce: int, nack: wire.Nack | None, now: float) -> None:
        sent = self._waiting.answered(nonce)
        if sent.subject != subject:
            raise Breach(f"the answer to nonce {nonce} names subject {int(subject)} instead of {int(sent.subject)}")
        state = self._states.get(subject)
        if state is not None:
            state.answered(None if nack is None else nack.message, now)
        elif sent.feed == self._number and self._running:
            if nack is not None and not nack.refused:
                self._failed(nack, now)
                return
            refused = {resource_id(each.id).without_uid(): each.message for each in nack.refused} if nack else {}
            for id in sent.ids:
                # A resource that is refused again keeps its count of failures, which determines its delay.
                if id not in refused:
                    self._retries.acknowledged(id)
            for id, why in refused.items():
                self._retry(id, now)
                self._refusals[id] = why[:_LONGEST]
            if sent.begins is not None and sent.begins.cause != Cause.RESUMED:
                # The peer has begun to store the snapshot, and has no whole state to resume from.
                self._resume = None
            if sent.position is not None:
                self._resume = sent.position
                self._failures, self._feed_refusal = 0, ""

    def _failed(self, nack: wire.Nack, now: float) -> None:
        self._feed_refusal = nack.message[:_LONGEST]
        self._end_feed()
        self._begin_at = now + self._delay(self._failures)
        self._failures += 1

    def _retry(self, id: ResourceId, now: float, *, first: bool = False) -> None:
        id = id.without_uid()
        if not any(each.covers(id.type, id.key) for each in self._selected or ()):
            if first:
                # It may have been exported when it was refused.
                return
            raise Breach(f"refused {id}, which was not sent")
        if len(self._retries) >= self._limits.refused and id not in self._retries:
            raise Breach(f"refused more than {self._limits.refused} resources")
        self._retries.refused(id, now, first=first)
