"""What the keys of a store hold, and how a commit's revision follows from etcd's. Pure.

etcd gives a transaction one revision, and commits that go to it together have one each: etcd's times `PLACES`, and the
commit's place in the transaction.

Bytes that nobody here has written are a ValueError.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headway._gen.mvccpb import KeyValue
from headway.storage._leases import Lease

KNOWN_SESSIONS = 256
"""How many former incarnations an anchor names; a position of an older one can't be resumed after."""


PLACES = 128
"""How many commits one transaction has room for."""

# Before the body of a resource whose commit has another place than the first: a field that no resource has.
_PLACE = b"\xc0\x3e"
_COUNT, _NONCE = 4, 8
# Before what a head holds; programs that know nothing of places wrote no such byte, and read no head that has it.
_FORMAT = b"\x02"


def revision_of(etcd_revision: int, place: int = 0) -> int:
    """The revision of the commit at a place of the transaction that has etcd's."""
    return etcd_revision * PLACES + place


def etcd_revision(revision: int) -> int:
    """What etcd has given to the transaction of a commit."""
    return revision // PLACES


def resource_value(body: bytes, place: int) -> bytes:
    """What is stored of a resource, by the commit at this place of its transaction."""
    return _PLACE + bytes((place,)) + body if place else body


def placed_body(value: bytes) -> tuple[int, bytes]:
    """The place of the commit that has stored a resource, and the resource's body."""
    return (value[2], value[3:]) if value[:2] == _PLACE else (0, value)


class Head(NamedTuple):
    """The last transaction of commits.

    Attributes:
        revision: of its last commit.
        sequence: how many transactions there have been: the next one has the next number.
        changes: how many other keys each of its commits has changed; those that leases take away with them are not
            counted.
        nonce: drawn for it alone. Two histories of one store that have a commit at one revision differ in it.
    """

    revision: int
    sequence: int
    changes: tuple[int, ...]
    nonce: bytes


def head_value(changes: Sequence[int], nonce: bytes) -> bytes:
    """What a transaction puts at the head."""
    return b"".join((_FORMAT, *(count.to_bytes(_COUNT) for count in changes), nonce))


def head_from(kv: KeyValue) -> Head:
    """The last transaction of commits, from the key that it has put."""
    value = kv.value.removeprefix(_FORMAT) if len(kv.value) != _COUNT + _NONCE else kv.value
    counted = len(value) - _NONCE
    if counted % _COUNT or not 0 < counted <= PLACES * _COUNT:
        raise ValueError(f"{kv.key!r} holds {len(kv.value)} bytes, and no commits are counted by so many")
    changes = tuple(int.from_bytes(value[at : at + _COUNT]) for at in range(0, counted, _COUNT))
    return Head(revision_of(kv.mod_revision, len(changes) - 1), kv.version, changes, value[counted:])


class StoredFence(NamedTuple):
    """A fence.

    Attributes:
        leased: whether its term is that of a lease, and ends with it.
        revision: of the commit that has raised it last; 0: nobody has.
        since: of the first one.
    """

    term: int
    number: int
    leased: bool
    revision: int
    since: int


NO_FENCE = StoredFence(0, 0, False, 0, 0)


def fence_value(term: int, number: int, *, leased: bool) -> bytes:
    """What is stored of a fence."""
    return json.dumps([term, number, leased]).encode()


def fence_from(kv: KeyValue) -> StoredFence:
    """A fence from its key."""
    term, number, leased = json.loads(kv.value)
    raised, since = revision_of(kv.mod_revision), revision_of(kv.create_revision)
    return StoredFence(int(term), int(number), bool(leased), raised, since)


def checkpoint_value(revision: int) -> bytes:
    """What is noted beside a fence; of two of them the one of the higher revision is the greater."""
    return revision.to_bytes(8)


def checkpoint_from(kv: KeyValue) -> int:
    """The revision that is noted beside a fence."""
    return int.from_bytes(kv.value)


class StoredLease(NamedTuple):
    """A lease.

    Attributes:
        id: of the etcd lease that its key goes with.
        revision: of the commit that began its term.
    """

    lease: Lease
    id: int
    revision: int


def lease_value(lease: Lease) -> bytes:
    """What is stored of a lease."""
    return json.dumps([lease.holder, lease.term, lease.ttl, lease.attempt, lease.acquired_at]).encode()


def lease_from(name: str, kv: KeyValue) -> StoredLease:
    """A lease from its key."""
    holder, term, ttl, attempt, acquired_at = json.loads(kv.value)
    lease = Lease(name, str(holder), int(term), float(ttl), str(attempt), float(acquired_at))
    return StoredLease(lease, kv.lease, revision_of(kv.mod_revision))


class Timeline(NamedTuple):
    """Which incarnation each revision belongs to: (its first revision, its id), in order.

    Invariant: every engine that follows one history has the same timeline up to where it has heard.
    """

    eras: tuple[tuple[int, str], ...]

    def at(self, revision: int) -> str:
        """The incarnation of a revision."""
        index = bisect_right(self.eras, revision, key=lambda era: era[0])
        return self.eras[max(index - 1, 0)][1]

    @property
    def oldest(self) -> int:
        """The first revision of the oldest incarnation that isn't forgotten; 0: none has been."""
        return self.eras[0][0] if len(self.eras) > KNOWN_SESSIONS else 0

    def lefts(self) -> Mapping[str, int | None]:
        """Every incarnation that is known, with the last revision it can have; None: it is the present one."""
        ends = [first - 1 for first, _ in self.eras[1:]]
        return {id: left for (_, id), left in zip(self.eras, [*ends, None], strict=True)}


def anchor_value(incarnation: str, former: Timeline | None) -> bytes:
    """What an engine that begins a new incarnation puts at the anchor: its first revision is the anchor's own."""
    eras = former.eras[-KNOWN_SESSIONS:] if former is not None else ()
    return json.dumps(
        {"incarnation": incarnation, "former": [(etcd_revision(first), id) for first, id in eras]}
    ).encode()


def timeline_from(kv: KeyValue) -> Timeline:
    """The timeline from the anchor."""
    value = json.loads(kv.value)
    former = tuple((revision_of(int(first)), str(id)) for first, id in value["former"])
    return Timeline((*former, (revision_of(kv.mod_revision), str(value["incarnation"]))))
