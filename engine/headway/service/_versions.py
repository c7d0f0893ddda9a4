"""Stored resources as each version of their kind, for readers of a version other than the stored one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from headway.base import Slices, Steps, finished
from headway.errors import HistoryCompacted, PayloadError
from headway.events import ConversionFailed, Report, ignore
from headway.protobuf import SMALL
from headway.resource import (
    BadConversion,
    Changes,
    Position,
    Registry,
    ResourceType,
    SnapshotChunk,
    StreamItem,
    TypeName,
    VersionChain,
    in_version,
    is_unconverted,
    pb,
    redact_error,
    resource_id,
    unconverted,
)
from headway.service._sizes import memory_size
from headway.storage import version_of

View = Callable[[pb.Resource], pb.Resource | None]
"""A function that returns a stored resource as one version of its kind, or None if no converter leads there.

It returns the same object each time.
"""

KEPT_BYTES = 16 << 20
"""The size of a generation of the cache of converted payloads, in bytes; there are two. Many watchers of one change
share one conversion.

It includes the stored resources: a store on disk makes a new message at each read, which only the cache then keeps.
"""

# Bytes of an entry without its contents: two resources, their ids, the tuple and its slot in the dict.
_ENTRY = 600
_REPORTED = 1024

# Not a Python function, because it is called for each resource of a snapshot. Stored ids are complete.
_version: Callable[[pb.Resource], str] = attrgetter("id.type.group_version")


def are_of_version(resources: Sequence[pb.Resource], version: str) -> bool:
    """Return True if there are resources, and all of them are stored as this version."""
    return set(map(_version, resources)) == {version}


class Versions:
    """The versions of the kinds of one registry. All services over a store share one, because it caches conversions.

    Args:
        report: called with ConversionFailed once for each version of a resource that cannot be converted.
        replaced: the types whose schema has replaced an incompatible one, by name, with the last revision before that.
    """

    def __init__(
        self, registry: Registry, report: Report = ignore, *, replaced: Mapping[str, int] | None = None
    ) -> None:
        self._registry = registry
        self._replaced = {} if replaced is None else replaced
        self._report = report
        self._used = 0
        # Keyed by identity, because stored resources are never modified. Invariant: an entry holds its resource.
        # The number is its size: measured once, because a resource may have many parts.
        self._young: dict[tuple[int, str], tuple[pb.Resource, pb.Resource, int]] = {}
        self._old: dict[tuple[int, str], tuple[pb.Resource, pb.Resource, int]] = {}
        # The failures reported last, so that each list and reconnect does not report them again.
        self._reported: dict[tuple[object, str, str], None] = {}

    def contained(self, type: ResourceType[Any]) -> str:
        """Return the versions of the kind that a list or a watch of the type contains, in the format of a position."""
        chain = self._registry.chain_with(type)
        return "" if chain is None else ",".join(sorted(each.name.version for each in chain.types))

    def replaced(self, type: ResourceType[Any]) -> Mapping[str, int]:
        """Return the versions in a list or a watch of the type whose schema has replaced an incompatible one.

        Each has the last revision before that. A watch must not show earlier states of it.
        """
        if not self._replaced:
            return self._replaced
        chain = self._registry.chain_with(type)
        types = (type,) if chain is None else chain.types
        return {each.name.version: self._replaced[name] for each in types if (name := str(each.name)) in self._replaced}

    def check_schema(self, type: ResourceType[Any], after: Position) -> None:
        """Raise HistoryCompacted if the changes after a position include states of a schema that was replaced."""
        revision = max(self.replaced(type).values(), default=0)
        if after.revision < revision:
            raise HistoryCompacted(
                f"up to revision {revision}, {type.name} had an incompatible schema, so a watch can't resume after "
                f"{after.revision}: it must begin with a snapshot"
            )

    def view(self, type: ResourceType[Any]) -> View:
        """Return a function that converts stored resources of the type's kind to this type."""
        chain, version = self._registry.chain_with(type), type.name.version
        if chain is None:
            return lambda stored: stored if version_of(stored) == version else None
        return lambda stored: self._in(chain, stored, version)

    def converting(self, type: ResourceType[Any], stored: pb.Resource) -> Steps[None]:
        """Convert a stored resource to the type in steps, so that `view` then returns it at once.

        Each call of a converter is one step.
        """
        if version_of(stored) != type.name.version and (chain := self._registry.chain_with(type)) is not None:
            yield from self._converting(chain, stored, type.name.version)

    def conversions(self, type: ResourceType[Any]) -> Conversions | None:
        """Return the conversions to a type for one call, or None if no other version is converted to it."""
        chain = self._registry.chain_with(type)
        return None if chain is None else Conversions(self, type)

    def shown(self, type: ResourceType[Any], stored: pb.Resource | None) -> pb.Resource | None:
        """Return a resource as the type, or as it is stored if no converter leads there. None returns None."""
        if stored is None:
            return None
        seen = self.view(type)(stored)
        return stored if seen is None else seen

    def named(self, name: TypeName, stored: pb.Resource) -> pb.Resource:
        """Return a resource as the type of this name, or as it is stored if that is not possible."""
        type = self._registry.find(name)
        seen = None if type is None else self.view(type)(stored)
        return stored if seen is None else seen

    def views(self, stored: pb.Resource) -> Iterator[pb.Resource]:
        """Yield a resource as its kind's storage version and then as every other version, newest first."""
        type = stored.id.type  # type: ignore[union-attr]  # stored ids are whole
        chain = self._registry.chain((type.group, type.kind))  # type: ignore[union-attr]  # stored ids are whole
        if chain is None or version_of(stored) not in chain:
            yield stored
            return
        for each in [chain.storage, *(each for each in reversed(chain.types) if each is not chain.storage)]:
            if (seen := self._in(chain, stored, each.name.version)) is not None:
                yield seen

    def _in(self, chain: VersionChain, stored: pb.Resource, wanted: str) -> pb.Resource | None:
        return finished(self._converting(chain, stored, wanted))

    def _converting(self, chain: VersionChain, stored: pb.Resource, wanted: str) -> Steps[pb.Resource | None]:
        version = version_of(stored)
        if version == wanted:
            return stored
        if version not in chain:
            return None
        place = (id(stored), wanted)
        entry = self._young.get(place)
        if entry is not None:
            return entry[1]
        entry = self._old.get(place)
        if entry is None:
            made = yield from self._converted(chain, stored, wanted)
            size = _ENTRY + memory_size(stored) + (0 if made.data is None else len(made.data.value))
            entry = (stored, made, size)
        self._young[place] = entry
        self._used += entry[2]
        if self._used > KEPT_BYTES:
            self._old, self._young, self._used = self._young, {}, 0
        return entry[1]

    def _converted(self, chain: VersionChain, stored: pb.Resource, wanted: str) -> Steps[pb.Resource]:
        type = chain.type_of(wanted)
        if is_unconverted(stored):
            return in_version(stored, type, stored.data)
        try:
            payload = yield from chain.payload_of(stored)
            data = yield from chain.packing(payload, version_of(stored), wanted)
        except (BadConversion, PayloadError) as error:
            self.failed(stored, wanted, error)
            data = unconverted(str(chain.type_of(version_of(stored)).name))
        return in_version(stored, type, data)

    def failed(self, stored: pb.Resource, wanted: str, error: Exception, source: TypeName | None = None) -> None:
        """Report a failed conversion of a resource, unless it has already been reported.

        Args:
            source: the version that was to be converted, if it is not the version of the resource.
        """
        id = resource_id(stored.id)
        type = source or id.type
        # The converter may have read a secret of this version from an ordinary field of another one.
        redact_error(error, [self._registry.resolve(id.type).view(stored)])
        key = (id, f"{type.version} {wanted}", stored.version)
        if key in self._reported:
            return
        self._reported[key] = None
        if len(self._reported) > _REPORTED:
            del self._reported[next(iter(self._reported))]
        self._report(ConversionFailed(type, id, wanted, error))


# The bytes of all payloads that are converted before the first one is used.
_AHEAD = KEPT_BYTES // 4


class Conversions:
    """The conversions to one type for one call, with turns for other tasks between.

    A `View` converts a resource in one step, unless it is ready. A converter itself is always one step.
    """

    def __init__(self, versions: Versions, type: ResourceType[Any]) -> None:
        self._versions = versions
        self._type = type
        self._slices = Slices()

    def needs(self, stored: pb.Resource) -> bool:
        """Return True if a resource should be made ready before its view is asked."""
        data = stored.data
        return data is not None and len(data.value) > SMALL and version_of(stored) != self._type.name.version

    async def ready(self, stored: pb.Resource) -> None:
        """Convert a resource. Its view must be asked soon, because the cache of converted payloads is bounded."""
        await self._slices.of(self._versions.converting(self._type, stored))

    async def seen(self, item: StreamItem, visible: Callable[[StreamItem], list[StreamItem]]) -> list[StreamItem]:
        """Return what ``visible`` makes of an item of a stream, or of the parts of a long chunk, once it is ready."""
        if not isinstance(item, SnapshotChunk):
            for change in item.changes if isinstance(item, Changes) else ():
                if self.needs(change.resource):
                    await self.ready(change.resource)
            return visible(item)
        found: list[StreamItem] = []
        part: list[pb.Resource] = []
        size = 0
        for resource in item.resources:
            part.append(resource)
            if self.needs(resource):
                await self.ready(resource)
                size += memory_size(resource)
                if size > _AHEAD:
                    found += visible(SnapshotChunk(part))
                    part, size = [], 0
        return found + visible(SnapshotChunk(part)) if part else found


async def made_ready(
    conversions: Conversions | None, visible: Callable[[StreamItem], list[StreamItem]], item: StreamItem
) -> list[StreamItem]:
    """Return what ``visible`` makes of an item of a stream, whose resources have been made ready."""
    return visible(item) if conversions is None else await conversions.seen(item, visible)
