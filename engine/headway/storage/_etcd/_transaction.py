"""A commit, or several, as one etcd transaction: what it compares, and what it writes. Pure.

Whatever was believed when the commit was decided on is compared: every resource that it names, its fence and the lease
of that, the emptiness of what an owner is to own, and the anchor. So a transaction that succeeds was decided on what
was true at its moment, and one that doesn't has done nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

from headway._gen.etcdserverpb import (
    Compare,
    CompareCompareResult,
    CompareCompareTarget,
    DeleteRangeRequest,
    PutRequest,
    RangeRequest,
    RequestOp,
    TxnRequest,
)
from headway.resource import encode, pb
from headway.storage._backend import Operation, RequireOwnsNothing
from headway.storage._decide import Applied
from headway.storage._etcd._layout import KeyRange, Layout
from headway.storage._etcd._mirror import Mirror
from headway.storage._etcd._records import StoredFence, etcd_revision, head_value, resource_value
from headway.storage._leases import lease_of

_EQUAL, _MOD, _CREATE = CompareCompareResult.EQUAL, CompareCompareTarget.MOD, CompareCompareTarget.CREATE


def unchanged(key: bytes, revision: int) -> Compare:
    """That a key was put last at a revision of etcd's; 0: that it isn't there."""
    return Compare(result=_EQUAL, target=_MOD, key=key, mod_revision=revision)


def empty(keys: KeyRange) -> Compare:
    """That there is no key in a range."""
    return Compare(result=_EQUAL, target=_CREATE, key=keys.key, range_end=keys.end, create_revision=0)


def putting(key: bytes, value: bytes = b"", lease: int = 0) -> RequestOp:
    """Write a key; with a lease, it goes when that does."""
    return RequestOp(request_put=PutRequest(key=key, value=value, lease=lease))


def deleting(key: bytes) -> RequestOp:
    """Delete a key."""
    return RequestOp(request_delete_range=DeleteRangeRequest(key=key))


class Draft:
    """A commit that is being put together.

    Args:
        mirror: what is believed.

    Attributes:
        believed: the keys that are compared, with etcd's revision of each; 0: it isn't there.
        given: the resources that are written, by their keys.
        places: the keys of the resources that are written or deleted. Invariant: each is believed, too.
        alone: whether it can't share a transaction with others.
    """

    def __init__(self, layout: Layout, mirror: Mirror) -> None:
        self._layout = layout
        self._mirror = mirror
        # The anchor stands in every commit: a position is of the incarnation that was there when it was committed.
        self.believed = {layout.anchor: etcd_revision(mirror.timeline.eras[-1][0])}
        self.given: dict[bytes, pb.Resource] = {}
        self.places: set[bytes] = set()
        self.alone = False
        self._empty: list[KeyRange] = []
        # Of a resource its key and its body.
        self._written: list[RequestOp | tuple[bytes, bytes]] = []
        self._uncounted = 0
        self._read: list[RequestOp] = []
        self._notes: list[RequestOp] = []

    @property
    def size(self) -> int:
        """Bytes of the resources that are written."""
        return sum(len(each[1]) for each in self._written if isinstance(each, tuple))

    @property
    def operations(self) -> int:
        """How many it has."""
        return len(self._written)

    @property
    def needs(self) -> int:
        """The operations of a transaction of its own, as etcd counts them: what it writes, or what it compares."""
        written = len(self._written) + len(self._read) + 1  # the head's
        return max(written, len(self.believed) + len(self._empty))

    def write(self, *written: RequestOp) -> None:
        """Write this, which a watch hears of, and which others may compare."""
        self.alone = True
        self._written += written

    def end_lease(self, name: str) -> None:
        """Delete a lease's key."""
        self.write(deleting(self._layout.lease(name)))
        self._uncounted += 1

    def believe_fence(self, controller: str, member: str, stored: StoredFence) -> None:
        """Compare a fence, and the lease that its term goes with."""
        self.believed[self._layout.fence(controller, member)] = etcd_revision(stored.revision)
        self.believe_lease(lease_of(controller, member))

    def believe_lease(self, name: str) -> None:
        """Compare who holds a lease."""
        held = self._mirror.leases.get(name)
        self.believed[self._layout.lease(name)] = etcd_revision(held.revision) if held is not None else 0

    def believe(self, operations: Iterable[Operation]) -> None:
        """Compare what each operation was decided on."""
        for operation in operations:
            if isinstance(operation, RequireOwnsNothing):
                self.alone = True
                self._empty.append(self._layout.owned_by(operation.owner_uid))
            else:
                stored = self._mirror.tables.get(operation.kind, operation.key)
                key = self._layout.resource(operation.kind, operation.key)
                self.believed[key] = etcd_revision(int(stored.version)) if stored is not None else 0

    def apply(self, applied: Sequence[Applied]) -> None:
        """Write what the operations change."""
        layout = self._layout
        for kind, key, old, new in applied:
            place = layout.resource(kind, key)
            self.places.add(place)
            if new is None:
                self._written.append(deleting(place))
            else:
                self._written.append((place, encode(new)))
                self.given[place] = new
            had, has = _owner(old), _owner(new)
            if had != has:
                if had:
                    self._written.append(deleting(layout.owned(had, kind, key)))
                if has:
                    self._written.append(putting(layout.owned(has, kind, key)))

    def read(self, key: bytes) -> None:
        """Read a key at the commit's revision; it is what is answered last."""
        self.alone = True
        self._read.append(RequestOp(request_range=RangeRequest(key=key)))

    def note(self, key: bytes, value: bytes) -> None:
        """Put a key unless it holds something greater; what only notes is no commit."""
        self.alone = True
        held = Compare(result=CompareCompareResult.GREATER, target=CompareCompareTarget.VALUE, key=key, value=value)
        self._notes.append(RequestOp(request_txn=TxnRequest(compare=[held], failure=[putting(key, value)])))

    def fits_with(self, believed: Mapping[bytes, int], places: Set[bytes]) -> bool:
        """Whether it may follow commits that compare and write these in their transaction.

        Everything is compared before anything is written: so nobody may compare what another one writes. Then each of
        them was decided on what was there when those before it had been made.
        """
        return (
            not self.alone
            and places.isdisjoint(self.believed)
            and self.places.isdisjoint(believed)
            and all(believed.get(key, revision) == revision for key, revision in self.believed.items())
        )

    def requests(self, place: int) -> list[RequestOp]:
        """What it writes at its place of a transaction."""
        return [
            putting(each[0], resource_value(each[1], place)) if isinstance(each, tuple) else each
            for each in self._written
        ]

    @property
    def changes(self) -> int:
        """How many keys it changes, as a watch hears of it."""
        return len(self._written) - self._uncounted


def transaction(layout: Layout, drafts: Sequence[Draft], nonce: bytes) -> TxnRequest:
    """Commits as one transaction. The head is written last: a watch hears of it when it has heard of the others.

    If there are several, each fits with those before it.
    """
    believed: dict[bytes, int] = {}
    for draft in drafts:
        believed |= draft.believed
    compared = [unchanged(key, revision) for key, revision in believed.items()]
    first = drafts[0]
    compared += [empty(keys) for keys in first._empty]
    if first._notes:
        return TxnRequest(compare=compared, success=first._notes)
    written = [each for place, draft in enumerate(drafts) for each in draft.requests(place)]
    written.append(putting(layout.head, head_value([draft.changes for draft in drafts], nonce)))
    return TxnRequest(compare=compared, success=[*written, *first._read])


def _owner(resource: pb.Resource | None) -> str:
    return resource.owner.uid if resource is not None and resource.owner is not None else ""
