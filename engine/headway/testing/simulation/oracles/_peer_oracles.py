"""The rules of peerings, checked without the code that keeps them. Pure.

At each commit:
- Only the peering writes a copy. Only Headway removes one.
- A copy is removed only if its original does not exist, or the peering was deleted.
- A copy belongs to the exports of the other side, and shows a state that its original has had.
- A copy never becomes older, unless the other store was replaced or an operator has accepted that it was rolled back.
- Nothing changes between a rollback of the other store and its acceptance.
- Nothing that a peering writes is outside its partition.

At the end, each side has copies of exactly what the other exports.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from headway.peering import copies_partition, peering_of
from headway.resource import FINALIZERS, Key, Kind, is_marked, pb
from headway.storage import Fence
from headway.testing.simulation._trace import named
from headway.testing.simulation.oracles._oracles import Finding, Place

PEERING_ORACLE = "peering"
_FINDINGS = 20
_COPIES = "headway/peer-copies/"
_ORIGIN = ("originUid", "originVersion", "originPartition", "originDeletionTimestamp")
HEADWAYS_OWN = ("internal", "peering", "tenancy")
"""The groups of Headway's own types. Their resources in a peering's partition are not copies."""

Resources = Mapping[Place, pb.Resource]


@dataclasses.dataclass(frozen=True, slots=True)
class ExportRule:
    """A type that a side exports, with the partition and the namespace. An empty text means all of them."""

    kind: Kind
    partition: str = ""
    namespace: str = ""

    def covers(self, kind: Kind, partition: str, namespace: str) -> bool:
        """Return True if a resource belongs to the export."""
        return (
            self.kind == kind
            and self.partition in ("", partition)
            and self.namespace in ("", namespace)
            and not peering_of(partition)
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Feed:
    """One direction of a peering.

    Attributes:
        origin: the side that exports.
        holder: the side that has the copies.
        name: the name of the peering on the holder's side.
        exports: what the origin exports.
    """

    origin: str
    holder: str
    name: str
    exports: Sequence[ExportRule]

    def covers(self, kind: Kind, partition: str, namespace: str) -> bool:
        """Return True if a resource of the origin is exported."""
        return any(each.covers(kind, partition, namespace) for each in self.exports)

    def is_copy(self, kind: Kind, key: Key) -> bool:
        """Return True if a resource of the holder is a copy."""
        return key[0] == copies_partition(self.name) and kind[0] not in HEADWAYS_OWN


def is_of_peering(kind: Kind, key: Key) -> bool:
    """Return True if a resource belongs to Headway's peerings, so that users do not write it."""
    return (
        kind[0] in ("internal", "peering")
        or bool(peering_of(key[0]))
        or (kind == ("tenancy", "Partition") and bool(peering_of(key[2])))
    )


def difference(feed: Feed, origin: Resources, holder: Resources) -> list[Finding]:
    """Return how the copies differ from what is exported."""
    wanted: dict[tuple[Kind, str, str], list[pb.Resource]] = defaultdict(list)
    for (kind, key), resource in origin.items():
        if feed.covers(kind, key[0], key[1]):
            wanted[kind, key[1], key[2]].append(resource)
    copies = {(kind, key[1], key[2]): each for (kind, key), each in holder.items() if feed.is_copy(kind, key)}
    found: list[Finding] = []
    for kind, namespace, name in sorted({*wanted, *copies}):
        originals, copy = wanted[kind, namespace, name], copies.get((kind, namespace, name))
        what = f"the copy of {named(kind, ('', namespace, name))} at {feed.holder}"
        if copy is None:
            found.append(_finding(feed, f"{what} is missing: {feed.origin} exports it"))
        elif not originals:
            found.append(_finding(feed, f"{what} is a ghost: {feed.origin} does not export it"))
        elif not any(_content(copy) == _content(each) and _is_of(copy, each) for each in originals):
            found.append(_finding(feed, f"{what} differs from its original at {feed.origin}"))
    return found


def _finding(feed: Feed, text: str) -> Finding:
    return Finding(PEERING_ORACLE, f"{feed.origin} to {feed.holder}: {text}")


def _is_of(copy: pb.Resource, original: pb.Resource) -> bool:
    return original.id is not None and copy.metadata.get("originUid") == original.id.uid


def _content(resource: pb.Resource) -> object:
    """Return what a copy and its original have in common."""
    metadata = {name: text for name, text in resource.metadata.items() if name not in (FINALIZERS, *_ORIGIN)}
    # A copy keeps the mark of its original under another name. Compare both under one name.
    for name in ("deletionTimestamp", "originDeletionTimestamp"):
        if (mark := resource.metadata.get(name)) is not None:
            metadata["deletionTimestamp"] = mark
    status = {key: bytes(each) for key, each in resource.status.items()}
    return (b"" if resource.data is None else bytes(resource.data.value), metadata, status, resource.generation)


class PeerWatch:
    """Watches the commits of all stores of a world.

    Attributes:
        findings: what was wrong.
    """

    def __init__(self, feeds: Sequence[Feed]) -> None:
        self._feeds = feeds
        self.findings: list[Finding] = []
        # All states of each resource that a side has had, by its version.
        self._states: dict[tuple[str, Kind, Key], dict[str, list[pb.Resource]]] = defaultdict(dict)
        # The highest version of the original that a copy has shown.
        self._shown: dict[tuple[Feed, Kind, Key], int] = {}
        self._now: dict[tuple[str, Kind, Key], pb.Resource] = {}
        self._deleted: set[tuple[str, str]] = set()
        self._rolled_back: set[str] = set()

    def committed(
        self, side: str, kind: Kind, key: Key, old: pb.Resource | None, new: pb.Resource | None, fence: Fence | None
    ) -> None:
        """Check a change of a side's store."""
        by = "" if fence is None else fence.controller
        feed = next((each for each in self._feeds if each.holder == side and each.is_copy(kind, key)), None)
        if feed is not None:
            for text in self._of_copy(feed, kind, key, old, new, by):
                self._add(feed, text)
        elif by.startswith(_COPIES) and kind[0] not in HEADWAYS_OWN:
            self._add(None, f"{side}: a peering writes {named(kind, key)}, which is not a copy")
        if feed is None:
            self._note(side, kind, key, new)

    def replaced(self, side: str, now: Resources, *, accepted: bool = True) -> None:
        """Note that a side's store was replaced, so that the copies in it may be older than before.

        The copies of its resources on other sides may be older once these have ``accepted`` the new store.
        """
        for place in [each for each in self._now if each[0] == side]:
            del self._now[place]
        for (kind, key), resource in now.items():
            self._note(side, kind, key, resource)
        self._shown = {place: at for place, at in self._shown.items() if place[0].holder != side}
        if accepted:
            self.accepted(side)

    def accepted(self, side: str) -> None:
        """Note that the other sides have accepted a side's new store, so that their copies of it may be older."""
        self._shown = {place: at for place, at in self._shown.items() if place[0].origin != side}
        self._rolled_back.discard(side)

    def rolled_back(self, side: str) -> None:
        """Note that a side's store is an older copy of itself, and that no stream from before is left."""
        self._rolled_back.add(side)

    def deleted(self, origin: str, holder: str) -> None:
        """Note that a peering is being deleted, so that its copies are removed."""
        self._deleted.add((origin, holder))
        self._deleted.add((holder, origin))

    def _note(self, side: str, kind: Kind, key: Key, resource: pb.Resource | None) -> None:
        if resource is None:
            self._now.pop((side, kind, key), None)
            return
        self._now[side, kind, key] = resource
        self._states[side, kind, key].setdefault(resource.version, []).append(resource)

    def _of_copy(
        self, feed: Feed, kind: Kind, key: Key, old: pb.Resource | None, new: pb.Resource | None, by: str
    ) -> Iterator[str]:
        what = f"the copy of {named(kind, ('', *key[1:]))} at {feed.holder}"
        is_the_peerings = by == f"{_COPIES}{feed.name}"
        if is_the_peerings and feed.origin in self._rolled_back and (feed.origin, feed.holder) not in self._deleted:
            yield f"{what} changes before an operator has accepted that the store of {feed.origin} was rolled back"
        if new is None or is_marked(new.metadata):
            # Headway removes what is left in a partition that is being deleted.
            if not is_the_peerings and not by.startswith("headway/"):
                yield f"{what} was removed by {by or 'a user'}"
            partition = "" if old is None else old.metadata.get("originPartition", "")
            original = self._now.get((feed.origin, kind, (partition, *key[1:])))
            kept = feed.covers(kind, partition, key[1]) and (feed.origin, feed.holder) not in self._deleted
            if kept and old is not None and original is not None and _is_of(old, original):
                yield f"{what} was removed, although its original exists"
            return
        if not is_the_peerings:
            yield f"{what} was written by {by or 'a user'}: only the peering writes copies"
            return
        partition = new.metadata.get("originPartition", "")
        if not feed.covers(kind, partition, key[1]):
            yield f"{what} is of partition {partition!r}, which {feed.origin} does not export"
        version = new.metadata.get("originVersion", "")
        states = self._states.get((feed.origin, kind, (partition, *key[1:])), {}).get(version, [])
        if not any(_content(new) == _content(each) and _is_of(new, each) for each in states):
            yield f"{what} shows a state of version {version!r} that its original has never had"
        at = int(version) if version.isdecimal() else 0
        place = (feed, kind, key)
        if at < self._shown.get(place, 0):
            yield f"{what} goes back from version {self._shown[place]} of its original to {at}"
        self._shown[place] = max(at, self._shown.get(place, 0))

    def _add(self, feed: Feed | None, text: str) -> None:
        if len(self.findings) < _FINDINGS:
            self.findings.append(Finding(PEERING_ORACLE, text) if feed is None else _finding(feed, text))
