"""A commit as one etcd transaction: what it compares, and what it writes. Pure.

Whatever was believed when the commit was decided on is compared: every resource that it names, its fence and the lease
of that, the emptiness of what an owner is to own, and the anchor. So a transaction that succeeds was decided on what
was true at its moment, and one that doesn't has done nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
from headway.storage._etcd._records import StoredFence, head_value
from headway.storage._leases import lease_of

_EQUAL, _MOD, _CREATE = CompareCompareResult.EQUAL, CompareCompareTarget.MOD, CompareCompareTarget.CREATE


def unchanged(key: bytes, revision: int) -> Compare:
    """That a key was put last at a revision; 0: that it isn't there."""
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
    """

    def __init__(self, layout: Layout, mirror: Mirror) -> None:
        self._layout = layout
        self._mirror = mirror
        # The anchor stands in every commit: a position is of the incarnation that was there when it was committed.
        self._compared = [unchanged(layout.anchor, mirror.timeline.eras[-1][0])]
        self._written: list[RequestOp] = []
        self._uncounted = 0
        # The resources that are written, by their keys.
        self.given: dict[bytes, pb.Resource] = {}
        self._read: list[RequestOp] = []
        self._notes: list[RequestOp] = []

    def compare(self, *compared: Compare) -> None:
        """Do it only if this holds."""
        self._compared += compared

    def write(self, *written: RequestOp) -> None:
        """Write this, which a watch hears of."""
        self._written += written

    def end_lease(self, name: str) -> None:
        """Delete a lease's key."""
        self._written.append(deleting(self._layout.lease(name)))
        self._uncounted += 1

    def believe_fence(self, controller: str, member: str, stored: StoredFence) -> None:
        """Compare a fence, and the lease that its term goes with."""
        self.compare(unchanged(self._layout.fence(controller, member), stored.revision))
        self.believe_lease(lease_of(controller, member))

    def believe_lease(self, name: str) -> None:
        """Compare who holds a lease."""
        held = self._mirror.leases.get(name)
        self.compare(unchanged(self._layout.lease(name), held.revision if held is not None else 0))

    def believe(self, operations: Iterable[Operation]) -> None:
        """Compare what each operation was decided on."""
        for operation in operations:
            if isinstance(operation, RequireOwnsNothing):
                self._compared.append(empty(self._layout.owned_by(operation.owner_uid)))
            else:
                stored = self._mirror.tables.get(operation.kind, operation.key)
                key = self._layout.resource(operation.kind, operation.key)
                self._compared.append(unchanged(key, int(stored.version) if stored is not None else 0))

    def apply(self, applied: Sequence[Applied]) -> None:
        """Write what the operations change."""
        layout = self._layout
        for kind, key, old, new in applied:
            place = layout.resource(kind, key)
            if new is None:
                self._written.append(deleting(place))
            else:
                self._written.append(putting(place, encode(new)))
                self.given[place] = new
            had, has = _owner(old), _owner(new)
            if had != has:
                if had:
                    self._written.append(deleting(layout.owned(had, kind, key)))
                if has:
                    self._written.append(putting(layout.owned(has, kind, key)))

    def read(self, key: bytes) -> None:
        """Read a key at the commit's revision; it is what is answered last."""
        self._read.append(RequestOp(request_range=RangeRequest(key=key)))

    def note(self, key: bytes, value: bytes) -> None:
        """Put a key unless it holds something greater; what only notes is no commit."""
        held = Compare(result=CompareCompareResult.GREATER, target=CompareCompareTarget.VALUE, key=key, value=value)
        self._notes.append(RequestOp(request_txn=TxnRequest(compare=[held], failure=[putting(key, value)])))

    def request(self, nonce: bytes) -> TxnRequest:
        """The transaction. The head is written last, so that a watch hears of it when it has heard of the others."""
        if self._notes:
            return TxnRequest(compare=self._compared, success=self._notes)
        changes = len(self._written) - self._uncounted
        head = putting(self._layout.head, head_value(changes, nonce))
        return TxnRequest(compare=self._compared, success=[*self._written, head, *self._read])


def _owner(resource: pb.Resource | None) -> str:
    return resource.owner.uid if resource is not None and resource.owner is not None else ""
