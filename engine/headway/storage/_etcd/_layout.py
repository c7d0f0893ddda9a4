"""Where what stands under a store's prefix. Pure.

    PREFIX/store                          the store's id, made once
    PREFIX/anchor                         the incarnations: who has opened the store, and at which revision
    PREFIX/head                           put by every transaction of commits; its mod_revision is the last one's
    PREFIX/resource/GROUP/KIND/PARTITION/NAMESPACE/NAME
    PREFIX/owned/UID/GROUP/KIND/PARTITION/NAMESPACE/NAME
    PREFIX/fence/CONTROLLER/MEMBER
    PREFIX/lease/NAME                     goes with its etcd lease
    PREFIX/settled/CONTROLLER/MEMBER      notes, no commits

Each part of a name is written so that it holds no `/`.
"""

from __future__ import annotations

from typing import NamedTuple

from headway.resource import Key, Kind

STORE, ANCHOR, HEAD = b"store", b"anchor", b"head"
RESOURCE, OWNED, FENCE, LEASE, SETTLED = b"resource", b"owned", b"fence", b"lease", b"settled"


class KeyRange(NamedTuple):
    """From `key` up to but without `end`."""

    key: bytes
    end: bytes


class Layout:
    """The keys of one store.

    Args:
        prefix: without a slash at its end; empty: the store has the cluster for itself.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = f"{prefix}/".encode()
        self._skip = len(self._prefix)
        self.store = self._prefix + STORE
        self.anchor = self._prefix + ANCHOR
        self.head = self._prefix + HEAD
        self.everything = _under(self._prefix)
        # By the keys of their ids: the stores within whose keys this one's would stand.
        names = prefix.split("/")[1:]
        self.above = {f"{above}/".encode() + STORE: above for above in _paths(names[:-1])}
        self._resource = self._prefix + RESOURCE + b"/"
        self._owned = self._prefix + OWNED + b"/"

    def under(self, segment: bytes) -> KeyRange:
        """All keys of a segment."""
        return _under(self._prefix + segment + b"/")

    def split(self, key: bytes) -> tuple[bytes, bytes]:
        """A key's segment, and the rest of it."""
        segment, _, rest = key[self._skip :].partition(b"/")
        return segment, rest

    def resource(self, kind: Kind, key: Key) -> bytes:
        """Where a resource stands."""
        return self._resource + _join((*kind, *key))

    def owned(self, uid: str, kind: Kind, key: Key) -> bytes:
        """Where it is said that a resource has this owner."""
        return self._owned + _join((uid, *kind, *key))

    def owned_by(self, uid: str) -> KeyRange:
        """Everything that is said to have this owner."""
        return _under(self._owned + _join((uid,)) + b"/")

    def fence(self, controller: str, member: str) -> bytes:
        """Where a fence stands."""
        return self._prefix + FENCE + b"/" + _join((controller, member))

    def settled(self, controller: str, member: str) -> bytes:
        """Where it is noted beside a fence up to which revision nothing is owed."""
        return self._prefix + SETTLED + b"/" + _join((controller, member))

    def lease(self, name: str) -> bytes:
        """Where a lease stands."""
        return self._prefix + LEASE + b"/" + _join((name,))


def place_of(rest: bytes) -> tuple[Kind, Key]:
    """The kind and key of a resource, from the rest of its key. Raises ValueError."""
    group, kind, partition, namespace, name = _parts(rest, 5)
    return (group, kind), (partition, namespace, name)


def scope_from(rest: bytes) -> tuple[str, str]:
    """The controller and member of a fence, from the rest of its key. Raises ValueError."""
    controller, member = _parts(rest, 2)
    return controller, member


def lease_name_from(rest: bytes) -> str:
    """The name of a lease, from the rest of its key. Raises ValueError."""
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
        raise ValueError(f"{rest!r} is no key of a store")
    return [part.replace("%2F", "/").replace("%25", "%") for part in parts] if b"%" in rest else parts


def _paths(names: list[str]) -> list[str]:
    return ["".join(f"/{name}" for name in names[: count + 1]) for count in range(len(names))]


def _under(prefix: bytes) -> KeyRange:
    # Every prefix here ends with "/", so that the next byte up is "0".
    return KeyRange(prefix, prefix[:-1] + b"0")
