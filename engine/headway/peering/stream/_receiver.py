"""The receiving side of a peer stream as a state machine. Pure: no Trio, no I/O, no clock.

Rules:
1. Each response is answered in order: by Ack once it is stored, or by Nack with the reason. A response that an honest
   peer cannot send is a Breach, which ends the stream.
2. The position that is stored with the copies never moves back within one store. A snapshot that begins below it is
   refused, and the copies stay.
3. A snapshot is stored as it arrives, because each part only makes copies newer. Copies are removed at its end, if the
   number of resources is the one that the peer has counted. An interrupted snapshot removes nothing.
   The copies of a withdrawn export are removed at once, and a snapshot of the other exports follows.
4. The changes of one commit are stored in one commit, with the position.
5. A resource that cannot be stored is refused alone. The peer sends it again. Its last copy stays. The same is true for
   a resource that the peer withholds.
6. If the peer's store was rolled back, nothing changes until an operator accepts it. If it was restored from a backup,
   which gives it another id, its snapshot replaces the copies, and the driver reports it.
7. A type that is unknown here, or that would be misread by the schema that the peer has sent, is refused as a whole.
   Its copies stay. A peer of a former release sends no schemas.
"""

from __future__ import annotations

from collections.abc import Callable

from headway._gen.headway.peering import v1 as wire
from headway._gen.headway.peering.v1 import FeedBeginsCause as Cause
from headway._gen.headway.peering.v1 import Operation, Subject
from headway.peering.stream._admitting import Admission
from headway.peering.stream._copies import Copies
from headway.peering.stream._receiving import (
    Copying,
    Partial,
    Work,
    ack,
    behind,
    checked,
    commits,
    nack,
    payload_problem,
    rolled_back,
    same_place,
)
from headway.peering.stream._rules import Breach, Exported, PeerLimits, exports_of
from headway.peering.stream._schemas import schema_problems
from headway.resource import ResourceId, TypeName, pb, quoted

_PROGRESS = 1000
"""The revisions after which a position without a change is stored.

A commit for each would make the peer report progress in turn, without end.
"""


class Receiver:
    """The responses of a peer on one stream.

    Args:
        copies: the stored copies.
        state: what was stored with them; None if nothing was.
        unknown: returns why an export cannot be received, such as an unknown type; None if it can.
        check: returns why a resource cannot be stored; None if it can.
        compare: returns why a type with a peer's schema would be misread; None if it would not.
        accepted: the session of a rolled back store that an operator has accepted.
        follows_server: True on the dialing side, which follows the addresses of the other.

    Attributes:
        copying: what the receiver does.
        exports: what the peer exports; None before it has said so.
        problems: why an export is not received, by export.
        held: why the last feed was refused; empty if it was not.
    """

    def __init__(
        self,
        copies: Copies,
        state: wire.Imported | None,
        unknown: Callable[[Exported], str | None],
        check: Callable[[pb.Resource], str | None],
        *,
        compare: Callable[[TypeName, bytes], str | None],
        limits: PeerLimits | None = None,
        accepted: str = "",
        follows_server: bool = False,
    ) -> None:
        self._limits = limits or PeerLimits()
        self._copies = copies
        self._unknown = unknown
        self._compare = compare
        self._accepted = accepted
        self._subjects = {Subject.EXPORTS, *([Subject.SERVER] if follows_server else ())}
        self._nonce = 0
        self.copying = Copying.WAITING
        self.held = ""
        self.exports: tuple[Exported, ...] | None = None
        self.problems: dict[Exported, str] = {}
        state = state or wire.Imported()
        self._admission = Admission(copies, check, state.refused, self._limits)
        self._position = state.position
        self._complete = state.complete
        if state.replaced or state.position is None:
            # Copies without a position are what a stopped removal left. The peer may have another store since.
            copies.outdate()
        self._stored_revision = 0 if state.position is None else state.position.revision
        self._subscription = 0
        self._selection: tuple[Exported, ...] = ()
        # The feed that is being received, and the last that began. A refused feed is ignored to its end.
        self._feed = 0
        self._ignored = True
        # The events of a commit that continues.
        self._partial = Partial(self._limits)

    def start(self) -> list[wire.Request]:
        """Return the first requests."""
        return [wire.Request(subject=each, subscribe=wire.Subscribe()) for each in sorted(self._subjects)]

    def accept(self, session: str) -> None:
        """Set the session of a rolled back store that an operator has accepted."""
        self._accepted = session

    @property
    def position(self) -> wire.PeerPosition | None:
        """The position of the last commit that is stored as a whole; None before the first snapshot is complete."""
        return self._position if self._complete else None

    def response(self, response: wire.Response) -> Work:
        """Return what has to be done for a response. Raise Breach if the peer has broken a rule."""
        nonce, subject = response.nonce, response.subject
        if not nonce:
            return nack(subject, 0, "the response has no nonce: count them from 1")
        if nonce != self._nonce + 1:
            raise Breach(f"response {nonce} follows response {self._nonce}: replayed, lost or reordered")
        self._nonce = nonce
        if subject not in (Subject.SERVER, Subject.EXPORTS, Subject.RESOURCES):
            return nack(subject, nonce, f"subject {int(subject)} is not known: send 1, 2 or 3")
        if subject not in self._subjects:
            raise Breach(f"a response for subject {int(subject)}, which was not subscribed")
        if response.operation != Operation.UPSERT:
            return nack(subject, nonce, f"operation {int(response.operation)} is not supported: send 1 (UPSERT)")
        problem = payload_problem(response)
        if problem is not None:
            return self._refuse(subject, nonce, problem)
        if response.server is not None:
            work = ack(subject, nonce)
            work.server = response.server
            return work
        if response.exports is not None:
            return self._new_exports(nonce, response.exports)
        return self._resources(nonce, response)

    @property
    def refused(self) -> dict[ResourceId, str]:
        """The reason why a resource is not stored, by id."""
        return self._admission.refused

    # --- exports ---

    def _new_exports(self, nonce: int, message: wire.Exports) -> Work:
        before = self.problems.keys()
        self.exports = exports_of(message.exports, self._limits.exports)
        self.problems = {each: why for each in self.exports if (why := self._unknown(each)) is not None}
        known = [each for each in self.exports if each not in self.problems]
        misread = schema_problems(known, message.schemas, self._compare, self._limits)
        self.problems |= {each: misread[each.type] for each in known if each.type in misread}
        selection = tuple(each for each in self.exports if each not in self.problems)
        removals = self._copies.outside(self.exports)
        if self.problems:
            text = "; ".join(f"{each}: {why}" for each, why in self.problems.items())
            work = nack(Subject.EXPORTS, nonce, text)
        else:
            work = ack(Subject.EXPORTS, nonce)
        work.commits = commits(removals)
        decided = self._copies.spared and self.problems.keys() != before
        broken = (bool(removals) or decided) and self._complete
        if broken:
            # The copies are no longer what the position says. The peer may restore the export before it sends a feed
            # without it, and would then resume after this position: only a snapshot brings the removed copies back.
            # The same is true once nothing refused may be the reason for keeping a copy.
            self._complete = False
            work.state = self._state()
        self._admission.select(selection, self.problems)
        if broken or selection != self._selection or not self._subscription:
            self._selection = selection
            work.replies.append(self._subscribe())
        return work

    def _subscribe(self) -> wire.Request:
        self._subjects.add(Subject.RESOURCES)
        self._subscription += 1
        self._ignored = True
        self._partial.clear()
        self.copying = Copying.WAITING
        again = [id.message() for id in self.refused]
        subscribe = wire.Subscribe(
            exports=[each.message() for each in self._selection],
            resume_after=self._resume_after(),
            again=again,
            number=self._subscription,
        )
        return wire.Request(subject=Subject.RESOURCES, subscribe=subscribe)

    def _resume_after(self) -> wire.PeerPosition | None:
        """Return the position to resume after; None without any.

        If the copies are not what the position says (amid a snapshot, after a withdrawal, or with copies that are
        spared), it has no selection. The peer then sends a snapshot, but only after it has found the position in its
        history: otherwise older states would look like newer ones.
        """
        at = self._position
        if at is None or (self._complete and not self._copies.spared):
            return at
        return wire.PeerPosition(store_id=at.store_id, session=at.session, revision=at.revision)

    # --- resources ---

    def _resources(self, nonce: int, response: wire.Response) -> Work:
        if response.begins is not None:
            return self._begins(nonce, response.feed, response.begins)
        if response.feed > self._feed:
            raise Breach(f"feed {response.feed} has not begun: the last is {self._feed}")
        if self._ignored or response.feed < self._feed:
            return ack(Subject.RESOURCES, nonce)
        if response.batch is not None:
            return self._batch(nonce, response.batch)
        if self._partial:
            raise Breach("a commit continues, but no batch follows")
        if response.complete is not None:
            return self._end_of_snapshot(nonce, response.complete)
        assert response.progress is not None
        if not self._complete:
            raise Breach("progress within a snapshot")
        work = ack(Subject.RESOURCES, nonce)
        self._advance(checked(response.progress.position))
        if self._position is not None and self._position.revision >= self._stored_revision + _PROGRESS:
            work.state = self._state()
        return work

    def _begins(self, nonce: int, feed: int, begins: wire.FeedBegins) -> Work:
        if feed <= self._feed and not (feed == self._feed and begins.cause != Cause.RESUMED):
            raise Breach(f"feed {feed} begins after feed {self._feed}")
        if begins.subscription != self._subscription:
            if begins.subscription > self._subscription:
                raise Breach(f"a feed of subscription {begins.subscription}: the last is {self._subscription}")
            # It began before the peer received the latest subscription.
            self._feed, self._ignored = feed, True
            return ack(Subject.RESOURCES, nonce)
        self._feed, self._ignored, self.held = feed, False, ""
        self._partial.clear()
        here = checked(begins.position)
        last = self._position
        if begins.cause == Cause.RESUMED:
            if last is None or not self._complete or not same_place(here, last):
                raise Breach(f"a feed resumes after revision {here.revision}, which is not what is stored here")
            self.copying = Copying.CURRENT
            return ack(Subject.RESOURCES, nonce)
        replaced = last is not None and last.store_id != here.store_id
        if last is not None and not replaced:
            replaced = begins.cause == Cause.LOST or here.revision < last.revision
            if replaced and here.session != self._accepted:
                if begins.cause == Cause.LOST:
                    return self._hold(nonce, Copying.ROLLED_BACK, rolled_back(here, last))
                return self._hold(nonce, Copying.BEHIND, behind(here, last))
        if replaced:
            self._copies.outdate()
        self._position, self._complete = here, False
        self.copying = Copying.SNAPSHOT
        self._admission.begin_snapshot()
        self._copies.begin_snapshot()
        work = ack(Subject.RESOURCES, nonce)
        work.state, work.replaced = self._state(), replaced
        return work

    def _hold(self, nonce: int, copying: Copying, why: str) -> Work:
        self._ignored = True
        self.copying, self.held = copying, why
        return nack(Subject.RESOURCES, nonce, why)

    def _batch(self, nonce: int, batch: wire.Batch) -> Work:
        if self._partial or batch.more:
            self._partial.add(batch.events)
            if batch.more:
                if not self._complete:
                    raise Breach("a commit continues within a snapshot")
                return ack(Subject.RESOURCES, nonce)
            events = self._partial.take()
            if batch.position is None:
                raise Breach("a commit ends without a position")
        else:
            events = batch.events
        position = None if batch.position is None else checked(batch.position)
        if position is not None and not self._complete:
            raise Breach("a position within a snapshot")
        before = dict(self.refused)
        found, refused = self._admission.admit(events, None if position is None else position.revision)
        if position is not None:
            self._advance(position)
        first, then = self._copies.plan(found)
        work = Work(commits=[*commits(first), *commits(then)])
        if self._complete and ((position is not None and work.commits) or self.refused != before):
            work.state = self._state()
        if refused:
            nack = wire.Nack(nonce=nonce, message=f"{len(refused)} resources are refused", refused=refused)
            work.replies = [wire.Request(subject=Subject.RESOURCES, nack=nack)]
        else:
            work.replies = ack(Subject.RESOURCES, nonce).replies
        return work

    def _end_of_snapshot(self, nonce: int, complete: wire.FeedComplete) -> Work:
        if self._complete:
            raise Breach("a snapshot ends that has not begun")
        position = checked(complete.position)
        if self._copies.seen != complete.count:
            text = f"{self._copies.seen} resources arrived, and the snapshot has {complete.count}: nothing is removed"
            return self._hold(nonce, Copying.SNAPSHOT, text)
        self._advance(position)
        removals = self._copies.end_snapshot(self.problems, self._selection)
        self._complete = True
        self._admission.end_snapshot()
        self.copying = Copying.CURRENT
        work = ack(Subject.RESOURCES, nonce)
        work.commits, work.state = commits(removals), self._state()
        return work

    # --- inside ---

    def _refuse(self, subject: Subject, nonce: int, why: str) -> Work:
        if subject == Subject.RESOURCES:
            self._ignored = True
        return nack(subject, nonce, why)

    def _advance(self, position: wire.PeerPosition) -> None:
        last = self._position
        assert last is not None
        if position.store_id != last.store_id or position.revision < last.revision:
            raise Breach(
                f"position {position.revision} of store {quoted(position.store_id)} follows {last.revision} "
                f"of store {last.store_id} in one feed"
            )
        self._position = position

    def _state(self) -> wire.Imported:
        assert self._position is not None
        self._stored_revision = self._position.revision
        refused = [wire.Refused(id=id.message(), message=why) for id, why in self.refused.items()]
        return wire.Imported(
            position=self._resume_after(), complete=self._complete, replaced=self._copies.outdated, refused=refused
        )
