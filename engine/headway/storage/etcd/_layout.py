"""The keys under a store's prefix. Pure.

    PREFIX/store                          the store's id, written once
    PREFIX/anchor                         the sessions, each with its first revision
    PREFIX/head                           put by every transaction of commits; its mod_revision is the last one's
    PREFIX/resource/GROUP/KIND/PARTITION/NAMESPACE/NAME
    PREFIX/owned/UID/GROUP/KIND/PARTITION/NAMESPACE/NAME
    PREFIX/fence/CONTROLLER/MEMBER
    PREFIX/lease/NAME                     deleted with its etcd lease
    PREFIX/settled/CONTROLLER/MEMBER      checkpoints; writing one is not a commit

Each part of a name is escaped so that it contains no `/`.
"""

from __future__ import annotations

from typing import NamedTuple

from headway.resource import Key, Kind

STORE, ANCHOR, HEAD = b"store", b"anchor", b"head"
RESOURCE, OWNED, FENCE, LEASE, CHECKPOINT = b"resource", b"owned", b"fence", b"lease", b"settled"


class KeyRange(NamedTuple):
    """The keys from `key` up to but not including `end`."""

    key: bytes
    end: bytes


class Layout:
    """The keys of one store.

    Args:
        prefix: the prefix without a slash at its end. If it is empty, the store uses the whole cluster.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = f"{prefix}/".encode()
        self._skip = len(self._prefix)
        self.store = self._prefix + STORE
        self.anchor = self._prefix + ANCHOR
        self.head = self._prefix + HEAD
        self.everything = _under(self._prefix)
        # The prefixes of possible stores above this one, by the keys of their ids. Such a store would include this one.
        names = prefix.split("/")[1:]
        self.above = {f"{above}/".encode() + STORE: above for above in _paths(names[:-1])}
        self._resource = self._prefix + RESOURCE + b"/"
        self._owned = self._prefix + OWNED + b"/"

    def under(self, segment: bytes) -> KeyRange:
        """Return the range of all keys of a segment."""
        return _under(self._prefix + segment + b"/")

    def split(self, key: bytes) -> tuple[bytes, bytes]:
        """Return the segment of a key and the rest of it."""
        segment, _, rest = key[self._skip :].partition(b"/")
        return segment, rest

    def resource(self, kind: Kind, key: Key) -> bytes:
        """Return the key of a resource."""
        return self._resource + _join((*kind, *key))

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
