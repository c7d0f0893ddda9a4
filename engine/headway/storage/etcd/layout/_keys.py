"""The keys and the values of a store, and the conversion between etcd's revisions and the store's. Pure.

    PREFIX/store                          the store's id, written once
    PREFIX/anchor                         the sessions, each with its first revision
    PREFIX/trace                          put before the head by a transaction with traced commits: their contexts
    PREFIX/head                           put by every transaction of commits; its mod_revision is the last one of these
    PREFIX/resource/GROUP/KIND/PARTITION/NAMESPACE/NAME
    PREFIX/owned/UID/GROUP/KIND/PARTITION/NAMESPACE/NAME
    PREFIX/fence/CONTROLLER/MEMBER
    PREFIX/lease/NAME                     deleted with its etcd lease
    PREFIX/settled/CONTROLLER/MEMBER      checkpoints; putting one changes nothing that others see
    PREFIX/quota/declared                 put by every commit that changes what a rule of commits demands
    PREFIX/quota/use/NAME                 put by every commit that adds to the limited numbers of this name

Each part of a name is escaped so that it contains no `/`.

etcd gives a transaction one revision, but each of its commits needs its own. A commit's revision is etcd's times
`PLACES`, plus the commit's place in the transaction.

Values that this module has not written raise ValueError.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headway._gen.mvccpb import KeyValue
from headway.resource import Key, Kind
from headway.storage._leases import Lease
from headway.storage._timeline import KNOWN_SESSIONS, Timeline
from headway.storage._traces import CommitTrace, sampled_trace

STORE, ANCHOR, HEAD, TRACE = b"store", b"anchor", b"head", b"trace"
RESOURCE, OWNED, FENCE, LEASE, CHECKPOINT = b"resource", b"owned", b"fence", b"lease", b"settled"
RULES = b"quota"


class KeyRange(NamedTuple):
    """The keys from `key` up to but not including `end`."""

    key: bytes
    end: bytes


class Layout:
    """The keys of one store.

    Args:
        prefix: the prefix without a slash at its end. If it is empty, the store uses the whole cluster.

    Attributes:
        resources: the prefix of the keys of resources.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = f"{prefix}/".encode()
        self._skip = len(self._prefix)
        self.store = self._prefix + STORE
        self.anchor = self._prefix + ANCHOR
        self.head = self._prefix + HEAD
        self.trace = self._prefix + TRACE
        self.everything = _under(self._prefix)
        # The prefixes of possible stores above this one, by the keys of their ids. Such a store would include this one.
        names = prefix.split("/")[1:]
        self.above = {f"{above}/".encode() + STORE: above for above in _paths(names[:-1])}
        self.resources = self._prefix + RESOURCE + b"/"
        self._owned = self._prefix + OWNED + b"/"
        self.rules = self._prefix + RULES + b"/declared"
        self._claim = self._prefix + RULES + b"/use/"

    def under(self, segment: bytes) -> KeyRange:
        """Return the range of all keys of a segment."""
        return _under(self._prefix + segment + b"/")

    def split(self, key: bytes) -> tuple[bytes, bytes]:
        """Return the segment of a key and the rest of it."""
        segment, _, rest = key[self._skip :].partition(b"/")
        return segment, rest

    def resource(self, kind: Kind, key: Key) -> bytes:
        """Return the key of a resource."""
        return self.resources + _join((*kind, *key))

    def owned(self, uid: str, kind: Kind, key: Key) -> bytes:
        """Return the key that records the owner of a resource."""
        return self._owned + _join((uid, *kind, *key))

    def owned_by(self, uid: str) -> KeyRange:
        """Return the range of the keys that record the resources of this owner."""
        return _under(self._owned + _join((uid,)) + b"/")

    def fence(self, controller: str, member: str) -> bytes:
        """Return the key of a fence."""
        return self._prefix + FENCE + b"/" + _join((controller, member))

    def checkpoint(self, controller: str, member: str) -> bytes:
        """Return the key of the checkpoint of a fence."""
        return self._prefix + CHECKPOINT + b"/" + _join((controller, member))

    def checkpoints(self, controller: str) -> KeyRange:
        """Return the range of the keys of the checkpoints of a controller's members."""
        return _under(self._prefix + CHECKPOINT + b"/" + _join((controller,)) + b"/")

    def claim(self, name: str) -> bytes:
        """Return the key that every commit puts that adds to the limited numbers of this name."""
        return self._claim + _join((name,))

    def lease(self, name: str) -> bytes:
        """Return the key of a lease."""
        return self._prefix + LEASE + b"/" + _join((name,))


def place_of(rest: bytes) -> tuple[Kind, Key]:
    """Return the kind and key of a resource, from the rest of its etcd key. Raise ValueError if it is malformed."""
    group, kind, partition, namespace, name = _parts(rest, 5)
    return (group, kind), (partition, namespace, name)


def scope_from(rest: bytes) -> tuple[str, str]:
    """Return the controller and member of a fence, from the rest of its key. Raise ValueError if it is malformed."""
    controller, member = _parts(rest, 2)
    return controller, member


def lease_name_from(rest: bytes) -> str:
    """Return the name of a lease, from the rest of its key. Raise ValueError if it is malformed."""
    (name,) = _parts(rest, 1)
    return name


def _join(parts: tuple[str, ...]) -> bytes:
    text = "/".join(parts)
    if "%" in text or text.count("/") != len(parts) - 1:
        text = "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)
    return text.encode()


def _parts(rest: bytes, count: int) -> list[str]:
    parts = rest.decode().split("/")
    if len(parts) != count:
        raise ValueError(f"{rest!r} is not a key of a store")
    return [part.replace("%2F", "/").replace("%25", "%") for part in parts] if b"%" in rest else parts


def _paths(names: list[str]) -> list[str]:
    return ["".join(f"/{name}" for name in names[: count + 1]) for count in range(len(names))]


def _under(prefix: bytes) -> KeyRange:
    # Every prefix here ends with "/". The byte after "/" is "0".
    return KeyRange(prefix, prefix[:-1] + b"0")


PLACES = 128
"""The maximum number of commits in one transaction."""

# The prefix of a resource's body if its commit is not the first of its transaction. No resource has such a field.
_PLACE = b"\xc0\x3e"
_COUNT, _NONCE = 4, 8
# The first byte of a head. Programs that do not know places did not write it, and cannot read a head that has it.
_FORMAT = b"\x02"


def revision_of(etcd_revision: int, place: int = 0) -> int:
    """Return the revision of the commit at a place of the transaction with etcd's revision."""
    return etcd_revision * PLACES + place


def etcd_revision(revision: int) -> int:
    """Return etcd's revision of the transaction of a commit."""
    return revision // PLACES


def resource_value(body: bytes, place: int) -> bytes:
    """Return the stored form of a resource, for the commit at this place of its transaction."""
    return _PLACE + bytes((place,)) + body if place else body


def place_in(value: bytes) -> int:
    """Return the place of the commit that has stored a resource."""
    return value[2] if value.startswith(_PLACE) else 0


def placed_body(value: bytes) -> tuple[int, bytes]:
    """Return the place of the commit that has stored a resource, and the resource's body."""
    return (value[2], value[3:]) if value.startswith(_PLACE) else (0, value)


class Head(NamedTuple):
    """The last transaction of commits.

    Attributes:
        revision: the revision of its last commit.
        sequence: the number of transactions so far. The next one has the next number.
        changes: the number of other keys that each of its commits has changed. Keys that are deleted with etcd leases
            are not counted.
        nonce: random bytes of this transaction. If two histories of one store have a commit at the same revision, they
            differ in it.
    """

    revision: int
    sequence: int
    changes: tuple[int, ...]
    nonce: bytes


def head_value(changes: Sequence[int], nonce: bytes) -> bytes:
    """Return the stored form of a head."""
    return b"".join((_FORMAT, *(count.to_bytes(_COUNT) for count in changes), nonce))


def head_from(kv: KeyValue) -> Head:
    """Return the last transaction of commits from the head key."""
    value = kv.value.removeprefix(_FORMAT) if len(kv.value) != _COUNT + _NONCE else kv.value
    counted = len(value) - _NONCE
    if counted % _COUNT or not 0 < counted <= PLACES * _COUNT:
        raise ValueError(f"{kv.key!r} holds {len(kv.value)} bytes, which is not a valid number for counted commits")
    changes = tuple(int.from_bytes(value[at : at + _COUNT]) for at in range(0, counted, _COUNT))
    return Head(revision_of(kv.mod_revision, len(changes) - 1), kv.version, changes, value[counted:])


def traces_value(traces: Mapping[int, CommitTrace]) -> bytes:
    """Return the stored form of the contexts of traced commits, by their places in the transaction."""
    return json.dumps([[place, *trace] for place, trace in traces.items()]).encode()


def traces_from(kv: KeyValue) -> dict[int, CommitTrace]:
    """Return the contexts of a transaction's commits, by their revisions. Invalid contexts are ignored."""
    try:
        listed = json.loads(kv.value)
    except (ValueError, RecursionError):
        return {}
    found: dict[int, CommitTrace] = {}
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, list) and len(each) == 4 and type(each[0]) is int and 0 <= each[0] < PLACES:
            trace = sampled_trace(*each[1:])
            if trace is not None:
                found[revision_of(kv.mod_revision, each[0])] = trace
    return found


class StoredFence(NamedTuple):
    """A stored fence.

    Attributes:
        leased: True if its term is the term of a lease, and ends with it.
        revision: the revision of the commit that last raised it, or 0 if none has.
    """

    term: int
    number: int
    leased: bool
    revision: int


NO_FENCE = StoredFence(0, 0, False, 0)


def fence_value(term: int, number: int, *, leased: bool) -> bytes:
    """Return the stored form of a fence."""
    return json.dumps([term, number, leased]).encode()


def fence_from(kv: KeyValue) -> StoredFence:
    """Return a fence from its key."""
    term, number, leased = json.loads(kv.value)
    return StoredFence(int(term), int(number), bool(leased), revision_of(kv.mod_revision))


def checkpoint_value(revision: int) -> bytes:
    """Return the stored form of a checkpoint. The bytes compare like the revisions."""
    return revision.to_bytes(8)


def checkpoint_from(kv: KeyValue) -> int:
    """Return a checkpoint from its key. An empty value stands for the revision of its own commit."""
    return int.from_bytes(kv.value) or revision_of(kv.mod_revision)


class StoredLease(NamedTuple):
    """A stored lease.

    Attributes:
        id: the id of the etcd lease that its key is bound to.
        revision: the revision of the commit that began its term.
    """

    lease: Lease
    id: int
    revision: int


def lease_value(lease: Lease) -> bytes:
    """Return the stored form of a lease."""
    return json.dumps([lease.holder, lease.term, lease.ttl, lease.attempt, lease.acquired_at]).encode()


def lease_from(name: str, kv: KeyValue) -> StoredLease:
    """Return a lease from its key."""
    holder, term, ttl, attempt, acquired_at = json.loads(kv.value)
    lease = Lease(name, str(holder), int(term), float(ttl), str(attempt), float(acquired_at))
    return StoredLease(lease, kv.lease, revision_of(kv.mod_revision))


def anchor_value(session: str, former: Timeline | None) -> bytes:
    """Return the stored form of the anchor for a new session. Its first revision is the revision of the anchor."""
    eras = former.eras[-KNOWN_SESSIONS:] if former is not None else ()
    return json.dumps({"incarnation": session, "former": [(etcd_revision(first), id) for first, id in eras]}).encode()


def timeline_from(kv: KeyValue) -> Timeline:
    """Return the timeline from the anchor."""
    value = json.loads(kv.value)
    former = tuple((revision_of(int(first)), str(id)) for first, id in value["former"])
    return Timeline((*former, (revision_of(kv.mod_revision), str(value["incarnation"]))))
