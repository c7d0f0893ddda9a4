"""The admission of a peer's events: which states can be stored, and which resources are refused. Pure.

Rules:
1. A resource that cannot be stored is refused, and remembered until its state can be stored. Its copy stays.
2. An original can move to another version of its kind: one commit deletes it as the old version and stores it as the
   new one. That is no deletion, whether or not the new version is refused.
3. If another version of the kind is refused as a whole, nothing shows whether a deleted original has moved to it. Its
   copy stays until the peer withdraws that version or it is received: a snapshot then decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from headway._gen.headway.peering import v1 as wire
from headway.peering.stream._copies import Change, Copies, Place, covered
from headway.peering.stream._receiving import REASON
from headway.peering.stream._rules import Breach, Coverage, Exported, PeerLimits
from headway.resource import ResourceId, pb, quoted, resource_id

_DIGITS = 19
"""A version has fewer digits."""


class Admission:
    """The events that a receiver may store.

    Args:
        copies: the stored copies.
        check: returns why a resource cannot be stored; None if it can.
        refused: the resources that were refused earlier.

    Attributes:
        refused: why a resource is not stored, by id.
    """

    def __init__(
        self,
        copies: Copies,
        check: Callable[[pb.Resource], str | None],
        refused: Iterable[wire.Refused],
        limits: PeerLimits,
    ) -> None:
        self._copies = copies
        self._check = check
        self._limits = limits
        self._coverage = Coverage()
        self._refused_exports: list[Exported] = []
        # The refused resources that the snapshot being received has not contained so far, as the version that they had.
        self._missing: set[ResourceId] = set()
        self.refused = {resource_id(each.id): each.message for each in refused}

    def select(self, selection: tuple[Exported, ...], refused: Iterable[Exported]) -> None:
        """Set the exports that are subscribed, and those that are refused as a whole."""
        self._coverage = Coverage(selection)
        self._refused_exports = list(refused)

    def begin_snapshot(self) -> None:
        """Note that a snapshot begins."""
        self._missing = set(self.refused)

    def end_snapshot(self) -> None:
        """Forget the refused resources that the snapshot did not contain, or that belong to no subscribed export."""
        selection = self._coverage.exports
        self.refused = {
            id: why
            for id, why in self.refused.items()
            if id not in self._missing and any(each.covers(id.type, id.key) for each in selection)
        }
        self._missing = set()

    def admit(self, events: Sequence[wire.Event], revision: int | None) -> tuple[list[Change], list[wire.Refused]]:
        """Return the changes to store, and the resources that cannot be stored. With a revision, they are one commit.

        Raises:
            Breach: the peer has broken a rule.
        """
        found: list[Change] = []
        refused: list[wire.Refused] = []
        claimed: dict[Place, str] = {}
        present = set() if revision is None else _uids(events)
        for event in events:
            deleted, resource = event.delete, event.upsert
            if event.withheld is not None:
                id = self._checked_id(event.withheld.id)
                self._copies.see(id)
                self._remember(id, event.withheld.message[:REASON])
                continue
            if resource is None:
                if deleted is None:
                    raise Breach("an event has no content: send upsert, delete or withheld")
                id = self._checked_id(deleted.id)
                if revision is not None and deleted.revision > revision:
                    raise Breach(f"{id} was deleted at {deleted.revision}, after the commit {revision}")
                # Revision 0 only ends a refusal. If there is a copy, the deletion itself follows, and ends it.
                ends = deleted.revision or not self._copies.holds(id)
                if ends:
                    self.refused.pop(id, None)
                self._copies.see(id, deleted=True)
                if deleted.revision and not self._may_have_moved(deleted, id, present):
                    found.append(Change(id, self._copies.place(id), None, deleted.revision))
                continue
            id = self._checked_id(resource.id)
            at = _revision_of(id, resource, revision)
            self._copies.see(id)
            place = self._copies.place(id)
            first = claimed.setdefault(place, id.partition)
            why = self._check(resource) or self._copies.conflict(place, id.partition)
            if why is None and first != id.partition:
                why = f"partition {first} has a resource of the same name, which is copied"
            if why is not None:
                self._remember(id, why[:REASON])
                refused.append(wire.Refused(id=id.message(), message=why[:REASON]))
                continue
            self.refused.pop(id, None)
            found.append(Change(id, place, resource, at))
        return found, refused

    def _may_have_moved(self, deleted: wire.Deleted, id: ResourceId, present: set[str]) -> bool:
        if deleted.id is not None and deleted.id.uid in present:
            return True
        if covered(self._refused_exports, id.type.unversioned, id.key):
            self._copies.spared = self._copies.spared or self._copies.holds(id)
            return True
        return False

    def _remember(self, id: ResourceId, why: str) -> None:
        """Note that a resource has no copy of its present state. Another stream asks for it again."""
        if id not in self.refused and len(self.refused) >= self._limits.refused:
            raise Breach(f"more than {self._limits.refused} resources cannot be stored, the last {id}: {why}")
        self.refused[id] = why
        self._missing.discard(id)

    def _checked_id(self, message: pb.Id | None) -> ResourceId:
        tenancy, type = (None, None) if message is None else (message.tenancy, message.type)
        if message is not None and tenancy is not None and type is not None:
            name = self._coverage.covered(type, tenancy.partition, tenancy.namespace)
            if name is not None:
                return ResourceId(name, message.name, tenancy.partition, tenancy.namespace)
        id = resource_id(message)
        raise Breach(f"sent {id} of type {id.type} in partition {quoted(id.partition)}, which was not subscribed")


def _uids(events: Sequence[wire.Event]) -> set[str]:
    """Return the uids of the originals that exist after these events of one commit."""
    ids = [each.id for event in events for each in (event.upsert, event.withheld) if each is not None]
    return {id.uid for id in ids if id is not None and id.uid}


def _revision_of(id: ResourceId, resource: pb.Resource, commit: int | None) -> int:
    """Return the revision that a resource has as its version. Raise Breach if it has none, or no uid."""
    version = resource.version
    at = int(version) if version.isascii() and version.isdecimal() and len(version) < _DIGITS else 0
    assert resource.id is not None
    if not at or not resource.id.uid or (commit is not None and at > commit):
        raise Breach(f"{id} has uid {quoted(resource.id.uid)} and version {quoted(version)}, which cannot be")
    return at
