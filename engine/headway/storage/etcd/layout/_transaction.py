"""etcd transactions of one or several commits: their comparisons and their writes. Pure.

A transaction compares all state that its commits were based on: every resource that they name, the fence and its lease,
the absence of resources of an owner, and the anchor. If it succeeds, that state was current. If it fails, nothing was
changed.

The parts are encoded one by one, because there are up to a hundred comparisons and puts: messages for each would cost
more than the rest of the transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

from headway._gen.etcdserverpb import (
    Compare,
    CompareCompareResult,
    CompareCompareTarget,
    DeleteRangeRequest,
    PutRequest,
    RequestOp,
    ResponseHeader,
    TxnRequest,
)
from headway.protobuf import encode, field, message
from headway.resource import pb
from headway.storage._leases import lease_of
from headway.storage._operations import Operation, RequireOwnsNothing
from headway.storage._rules import Claim
from headway.storage._tables import Effect
from headway.storage._traces import CommitTrace
from headway.storage.etcd.layout._keys import (
    KeyRange,
    Layout,
    StoredFence,
    checkpoint_value,
    etcd_revision,
    head_value,
    resource_value,
    traces_value,
)
from headway.storage.etcd.layout._mirror import Mirror

_EQUAL, _MOD, _CREATE = CompareCompareResult.EQUAL, CompareCompareTarget.MOD, CompareCompareTarget.CREATE


def unchanged(key: bytes, revision: int) -> Compare:
    """Return the comparison that a key was last changed at this revision of etcd. With 0, it must not exist."""
    return Compare(result=_EQUAL, target=_MOD, key=key, mod_revision=revision)


def empty(keys: KeyRange) -> Compare:
    """Return the comparison that a range has no keys."""
    return Compare(result=_EQUAL, target=_CREATE, key=keys.key, range_end=keys.end, create_revision=0)


def putting(key: bytes, value: bytes = b"", lease: int = 0) -> RequestOp:
    """Return the operation that puts a key. With a lease, etcd deletes the key when the lease ends."""
    return RequestOp(request_put=PutRequest(key=key, value=value, lease=lease))


def deleting(key: bytes) -> RequestOp:
    """Return the operation that deletes a key."""
    return RequestOp(request_delete_range=DeleteRangeRequest(key=key))


class Draft:
    """A commit that is being built.

    Args:
        layout: the keys of the store.
        mirror: the state that the commit is based on.

    Attributes:
        compared: the compared keys, with etcd's revision of each, or 0 if the key must not exist.
        given: the changes of resources, by their keys. Invariant: each key is also in `compared`.
        claims: what the commit adds to limited numbers, by their keys. Each key is also in `compared`.
        alone: True if the commit cannot share a transaction with others.
        size: the number of bytes of the written resources.
        trace: the context of its span, if it is traced.
    """

    __slots__ = (
        "_empty",
        "_layout",
        "_mirror",
        "_notes",
        "_uncounted",
        "_written",
        "alone",
        "claims",
        "compared",
        "given",
        "size",
        "trace",
    )

    def __init__(self, layout: Layout, mirror: Mirror) -> None:
        self._layout = layout
        self._mirror = mirror
        # Every commit compares the anchor, so that its position has the session that was current when it was made.
        self.compared = {layout.anchor: etcd_revision(mirror.timeline.eras[-1][0])}
        self.given: dict[bytes, Effect] = {}
        self.claims: dict[bytes, Claim] = {}
        self.alone = False
        self.size = 0
        self.trace: CommitTrace | None = None
        self._empty: tuple[KeyRange, ...] = ()
        # Encoded operations. A resource is a pair of its key and its body, because its value depends on its place in
        # the transaction.
        self._written: list[bytes | tuple[bytes, bytes]] = []
        self._uncounted = 0
        self._notes: tuple[bytes, ...] = ()

    @property
    def operations(self) -> int:
        """The number of write operations."""
        return len(self._written) + len(self.claims)

    @property
    def needs(self) -> int:
        """The size of a transaction with only this commit, as etcd counts: its writes or its comparisons."""
        written = self.operations + 1  # one for the head
        return max(written, len(self.compared) + len(self._empty))

    def write(self, *written: RequestOp) -> None:
        """Add writes. Watches see them, and other commits may compare their keys."""
        self.alone = True
        self._written += [encode(each) for each in written]

    def end_lease(self, name: str) -> None:
        """Delete a lease's key."""
        self.write(deleting(self._layout.lease(name)))
        self._uncounted += 1

    def compare_fence(self, controller: str, member: str, stored: StoredFence) -> None:
        """Compare a fence and the lease that governs it."""
        self.compared[self._layout.fence(controller, member)] = etcd_revision(stored.revision)
        self.compare_lease(lease_of(controller, member))

    def compare_lease(self, name: str) -> None:
        """Compare the holder of a lease."""
        held = self._mirror.leases.get(name)
        self.compared[self._layout.lease(name)] = etcd_revision(held.revision) if held is not None else 0

    def compare_rules(self) -> None:
        """Compare what the rules demand."""
        self._compare_puts(self._layout.rules)

    def change_rules(self) -> None:
        """Note that the commit changes what a rule demands, so that every commit that did not know is rejected."""
        self.compare_rules()
        self.write(putting(self._layout.rules, b"1"))

    def claim(self, claim: Claim) -> None:
        """Compare the limited numbers that the commit adds to, and note that they change."""
        key = self._layout.claim(claim.name)
        self._compare_puts(key)
        self.claims[key] = claim

    def _compare_puts(self, key: bytes) -> None:
        self.compared[key] = self._mirror.rule_puts.get(key, 0)

    def compare(self, operations: Iterable[Operation]) -> None:
        """Compare the state that operations without a change were based on. `apply` does so for the others."""
        for operation in operations:
            if isinstance(operation, RequireOwnsNothing):
                self.alone = True
                self._empty += (self._layout.owned_by(operation.owner_uid),)
            else:
                stored = self._mirror.tables.get(operation.kind, operation.key)
                self.compared[self._layout.resource(operation.kind, operation.key)] = _changed_at(stored)

    def apply(self, applied: Sequence[Effect]) -> None:
        """Compare the state that the changes were based on, and add their writes."""
        layout = self._layout
        for effect in applied:
            kind, key, old, new = effect
            place = layout.resource(kind, key)
            self.given[place] = effect
            self.compared[place] = 0 if old is None else _changed_at(old)
            if new is None:
                self._written.append(encode(deleting(place)))
            else:
                body = encode(new)
                self._written.append((place, body))
                self.size += len(body)
            had = "" if old is None or old.owner is None else old.owner.uid
            has = "" if new is None or new.owner is None else new.owner.uid
            if had != has:
                if had:
                    self._written.append(encode(deleting(layout.owned(had, kind, key))))
                if has:
                    self._written.append(encode(putting(layout.owned(has, kind, key))))

    @property
    def places(self) -> Set[bytes]:
        """The keys of the written and deleted resources."""
        return self.given.keys()

    def begin_checkpoint(self, controller: str, member: str, revision: int | None) -> None:
        """Record a member's first checkpoint with the commit; None: the revision of the commit."""
        value = b"" if revision is None else checkpoint_value(revision)
        self.write(putting(self._layout.checkpoint(controller, member), value))
        self._uncounted += 1

    def note(self, key: bytes, value: bytes) -> None:
        """Put a key unless its value is greater. A draft that only does this makes no commit."""
        self.alone = True
        held = Compare(result=CompareCompareResult.GREATER, target=CompareCompareTarget.VALUE, key=key, value=value)
        noted = RequestOp(request_txn=TxnRequest(compare=[held], failure=[putting(key, value)]))
        self._notes += (encode(noted),)

    def fits_with(self, compared: Mapping[bytes, int], places: Set[bytes]) -> bool:
        """Return True if this commit may follow commits with these comparisons and writes in one transaction.

        etcd makes all comparisons before all writes. So no commit may compare a key that another one writes. Each
        commit is then based on the state after the commits before it.
        """
        mine = self.compared
        if self.alone:
            return False
        for key, revision in mine.items():
            if key in places or compared.get(key, revision) != revision:
                return False
        return self.given.keys().isdisjoint(compared)

    def has_room(self, taken: Mapping[bytes, Sequence[int]]) -> bool:
        """Return True if there is room for what it adds, after other commits have added this much."""
        return all(
            not more or added + more <= free
            for key, claim in self.claims.items()
            for added, more, free in zip(taken.get(key, (0,) * len(claim.adds)), claim.adds, claim.free, strict=True)
        )

    def requests(self, place: int) -> list[bytes]:
        """Return the encoded writes of this commit at its place in a transaction."""
        return [
            put(each[0], resource_value(each[1], place)) if isinstance(each, tuple) else each for each in self._written
        ]

    @property
    def changes(self) -> int:
        """The number of keys that this commit changes, as a watch sees it, without the keys of rules."""
        return len(self._written) - self._uncounted


def transaction(layout: Layout, drafts: Sequence[Draft], nonce: bytes) -> Transaction:
    """Return one transaction of several commits. Each commit must fit with those before it.

    The transaction writes the head last, so that a watch sees the head after all other changes.
    """
    expected: dict[bytes, int] = {}
    for draft in drafts:
        expected |= draft.compared
    compared = [comparison(key, revision) for key, revision in expected.items()]
    first = drafts[0]
    compared += [encode(empty(keys)) for keys in first._empty]
    if first._notes:
        return Transaction(compare=compared, success=list(first._notes))
    written: list[bytes] = []
    counts: list[int] = []
    claimed = set[bytes]()
    for place, draft in enumerate(drafts):
        # etcd puts a key only once in a transaction.
        claims = draft.claims.keys() - claimed
        claimed |= claims
        written += draft.requests(place)
        written += [put(key, b"1") for key in sorted(claims)]
        counts.append(draft.changes + len(claims))
    traces = {place: draft.trace for place, draft in enumerate(drafts) if draft.trace is not None}
    if traces:
        written.append(put(layout.trace, traces_value(traces)))
    written.append(put(layout.head, head_value(counts, nonce)))
    return Transaction(compare=compared, success=written)


def _changed_at(stored: pb.Resource | None) -> int:
    """Return etcd's revision of the last change of a resource, or 0 if it is not stored."""
    return etcd_revision(int(stored.version)) if stored is not None else 0


@message(name="headway.etcd.Transaction")
class Transaction:
    """A TxnRequest with an encoded Compare or RequestOp in each element."""

    compare: list[bytes] = field(1)
    success: list[bytes] = field(2)


@message(name="headway.etcd.TransactionReply")
class TransactionReply:
    """A TxnResponse without the responses to its operations."""

    header: ResponseHeader | None = field(1)
    succeeded: bool = field(2)


def comparison(key: bytes, revision: int) -> bytes:
    """Return the encoded comparison that a key was last changed at this revision of etcd. With 0, it must not exist."""
    # The result EQUAL is 0 and not encoded. The target MOD is 2.
    return b"".join((b"\x10\x02\x1a", _varint(len(key)), key, b"\x30", _varint(revision)))


def put(key: bytes, value: bytes) -> bytes:
    """Return the encoded operation that puts a key. The value must not be empty."""
    key_size, value_size = _varint(len(key)), _varint(len(value))
    size = _varint(len(key_size) + len(key) + len(value_size) + len(value) + 2)
    return b"".join((b"\x12", size, b"\x0a", key_size, key, b"\x12", value_size, value))


def _varint(number: int) -> bytes:
    if number < 0x80:
        return bytes((number,))
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    return bytes((number & 0x7F | 0x80,)) + _varint(number >> 7)
