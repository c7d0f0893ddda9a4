"""What quotas limit, which changes they count, and the decision whether a commit fits. Pure.

Rules:
1. A commit is refused if it adds to a limited number and the number would exceed its limit. Other commits pass, even
   above the limit. So a lowered limit blocks neither deletions nor writes that make a resource smaller.
2. Some changes count but are never refused (`is_exempt`): changes that are part of a deletion, small statuses, and new
   encodings of the same content.
3. Headway's own resources do not count, except namespaces (`is_counted`). Each of them is bounded in another way.
4. A byte is a byte of a resource's encoding as it is stored, without its version (`stored_size`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from headway._gen.headway.tenancy.v1 import Quota
from headway.errors import PayloadError, QuotaExceeded
from headway.protobuf import decode, encode
from headway.resource import DEFAULT_UNIT, NAMESPACE, RESERVED_GROUPS, Key, Kind, is_marked, pb
from headway.storage import Claim

STATUS_ROOM = 4096
"""A status is never refused while all statuses of its resource take at most this many bytes.

So a status can still report that a quota is full.
"""


class Place(NamedTuple):
    """The part of a store that a quota is about.

    Attributes:
        partition: the partition.
        namespace: the namespace, or empty for the whole partition.
        kind: the only kind that counts, or None for every kind.
    """

    partition: str
    namespace: str
    kind: Kind | None

    def covers(self, kind: Kind, key: Key) -> bool:
        """Return True if a resource belongs to the part."""
        return (
            key[0] == self.partition
            and self.namespace in ("", key[1])
            and self.kind in (None, kind)
            and is_counted(kind)
        )

    def __str__(self) -> str:
        where = f"partition {self.partition}" if not self.namespace else f"namespace {self.namespace}"
        if self.namespace and self.partition != DEFAULT_UNIT:
            where += f" of partition {self.partition}"
        return where if self.kind is None else f"{'.'.join(self.kind)} in {where}"


class Use(NamedTuple):
    """A number of resources, and of their bytes. As a difference, it may be negative."""

    resources: int = 0
    bytes: int = 0

    def plus(self, other: Use) -> Use:
        """Return the sum."""
        return Use(self.resources + other.resources, self.bytes + other.bytes)


class Limit(NamedTuple):
    """A quota as it is declared.

    Attributes:
        name: the name of its resource.
        place: what it limits.
        resources: the maximum number of resources, or None.
        bytes: the maximum number of their bytes, or None.
    """

    name: str
    place: Place
    resources: int | None
    bytes: int | None


class QuotaUse(NamedTuple):
    """A quota and its use.

    Attributes:
        limit: the quota.
        use: what its part of the store holds.
        refused: the number of commits that this process has refused because of it.
    """

    limit: Limit
    use: Use
    refused: int


class Growth(NamedTuple):
    """The growth that one change of a commit causes.

    Attributes:
        by: what it adds; negative for a smaller resource.
        exempt: True if it is never refused.
    """

    kind: Kind
    key: Key
    by: Use
    exempt: bool


def is_counted(kind: Kind) -> bool:
    """Return True if quotas without a kind count this kind."""
    return kind[0] not in RESERVED_GROUPS or kind == NAMESPACE.kind


def is_exempt(old: pb.Resource | None, new: pb.Resource) -> bool:
    """Return True if a change is never refused.

    A refused mark or finalizer would keep a resource that is to be deleted. A refused status would hide from users why
    their resources do not become ready. A migration only encodes the same content in another version. A status has room
    in a marked resource too, but no more, because its caller may keep it marked with a finalizer.
    """
    # Every write of the content gives the resource another generation. A marked one keeps its content.
    if old is None or (old.generation != new.generation and not is_marked(new.metadata)):
        return False
    return _status_size(new) <= max(STATUS_ROOM, _status_size(old))


def _status_size(resource: pb.Resource) -> int:
    return len(encode(pb.Resource(status=resource.status)))


def limit_of(name: str, resource: pb.Resource) -> Limit | None:
    """Return what a stored quota declares, or None if it does not decode, as in a damaged store."""
    try:
        quota = decode(Quota, b"" if resource.data is None else resource.data.value)
    except PayloadError:
        return None
    kind = (quota.group, quota.kind) if quota.kind else None
    place = Place(quota.partition or DEFAULT_UNIT, quota.namespace, kind)
    return Limit(name, place, quota.max_resources, quota.max_bytes)


class Limits:
    """The declared quotas of a store."""

    def __init__(self) -> None:
        self._by_name: dict[str, Limit] = {}
        # Invariant: the same quotas, by what they limit. There may be one for each of thousands of namespaces.
        self._by_place: dict[tuple[str, str, Kind | None], list[Limit]] = {}
        # The number of refused commits by quota. It outlives the quota, like any counter.
        self._refused: dict[str, int] = {}

    def declare(self, name: str, resource: pb.Resource | None) -> Sequence[Place]:
        """Take a stored quota, or forget a deleted one. Return the parts that had a quota of this name, or have it."""
        changed: list[Place] = []
        former = self._by_name.pop(name, None)
        if former is not None:
            changed.append(former.place)
            left = [each for each in self._by_place.pop(former.place) if each is not former]
            if left:
                self._by_place[former.place] = left
        limit = None if resource is None else limit_of(name, resource)
        if limit is not None:
            changed.append(limit.place)
            self._by_name[name] = limit
            self._by_place[limit.place] = sorted([*self._by_place.get(limit.place, ()), limit])
        return changed

    def __iter__(self) -> Iterator[Limit]:
        # Another thread may declare some meanwhile.
        found = map(self._by_name.get, sorted(self._by_name))
        return iter([each for each in found if each is not None])

    def __len__(self) -> int:
        return len(self._by_name)

    def find(self, name: str) -> Limit | None:
        """Return the quota with this name, or None."""
        return self._by_name.get(name)

    def has(self, place: Place) -> bool:
        """Return True if a quota limits exactly this part."""
        return place in self._by_place

    def covering(self, kind: Kind, key: Key) -> Sequence[Limit]:
        """Return the quotas that count a resource, in order of name."""
        partition, namespace, _ = key
        if not partition or not is_counted(kind):
            return ()
        get, found = self._by_place.get, list[Limit]()
        for unit in ("", namespace) if namespace else ("",):
            found += get((partition, unit, None), ())
            found += get((partition, unit, kind), ())
        if len(found) > 1:
            found.sort()
        return found

    def refused(self, name: str) -> int:
        """Return the number of commits refused because of a quota."""
        return self._refused.get(name, 0)

    def count_refusal(self, error: QuotaExceeded) -> None:
        """Count a commit that has been refused. A store calls it once for each, however often it decides."""
        self._refused[error.quota] = self.refused(error.quota) + 1

    def claims(self, growths: Sequence[Growth], use_of: Callable[[Place], Use]) -> Sequence[Claim]:
        """Return what a commit adds to the quotas that it needs room in. Raise QuotaExceeded without room.

        Args:
            growths: the changes of the commit.
            use_of: returns the use of a part before the commit.
        """
        if len(growths) == 1:
            # Most commits change one resource.
            kind, key, by, exempt = growths[0]
            sums = [] if exempt else [(limit, by, by) for limit in self.covering(kind, key)]
        else:
            sums = self._sums(growths)
        claims: list[Claim] = []
        for limit, by, asked in sums:
            resources = by[0] if limit.resources is not None and asked[0] > 0 else 0
            size = by[1] if limit.bytes is not None and asked[1] > 0 else 0
            if resources > 0 or size > 0:
                claims.append(_claim(limit, Use(resources, size), use_of(limit.place)))
        return claims

    def _sums(self, growths: Sequence[Growth]) -> list[tuple[Limit, Use, Use]]:
        """Return each quota that counts some of the changes, with their sum, and with the sum of what may be refused.

        The latter leaves out what becomes smaller: a commit is refused for what grows, if all of it does not fit.
        """
        sums: dict[str, tuple[Limit, Use, Use]] = {}
        for kind, key, by, exempt in growths:
            asked = _NOTHING if exempt else Use(max(by.resources, 0), max(by.bytes, 0))
            for limit in self.covering(kind, key):
                _, before, asked_before = sums.get(limit.name, (limit, _NOTHING, _NOTHING))
                sums[limit.name] = (limit, before.plus(by), asked_before.plus(asked))
        return list(sums.values())


def _claim(limit: Limit, adds: Use, use: Use) -> Claim:
    """Return what a commit adds to a quota. Raise QuotaExceeded if there is no room."""
    free: list[int] = []
    for what, most, added, used in zip(("resources", "bytes"), limit[2:], adds, use, strict=True):
        if most is not None and added > 0 and used + added > most:
            message = (
                f"quota {limit.name!r} is exceeded: {limit.place} may have {most} {what} and has {used}, and this "
                f"write adds {added}; delete some, or raise the quota"
            )
            raise QuotaExceeded(message, limit.name, what, most, used, added)
        free.append(_UNLIMITED if most is None else most - used)
    return Claim(limit.name, adds, tuple(free))


_UNLIMITED = 2**63
_NOTHING = Use()
