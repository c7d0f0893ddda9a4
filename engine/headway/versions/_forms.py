"""The forms of types with converters: stored resources as each version of their kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from typing_extensions import override

from headway.base import Slices, Steps, finished, in_slices
from headway.errors import PayloadError
from headway.events import ConversionFailed, Report, ignore
from headway.protobuf import SMALL
from headway.resource import (
    Changes,
    Position,
    Registry,
    ResourceType,
    SnapshotChunk,
    StreamItem,
    TypeName,
    is_unreadable,
    pb,
    redact_error,
    resource_id,
    unreadable,
)
from headway.service import Form, Forms, Update, memory_size
from headway.storage import Watch, version_of
from headway.versions._chain import BadConversion, VersionChain, chain_of, chain_with, in_version
from headway.versions._resumed import resumed_watch
from headway.versions._storing import Storing

KEPT_BYTES = 16 << 20
"""The size of a generation of the cache of converted payloads, in bytes; there are two. Many watchers of one change
share one conversion.

It includes the stored resources: a store on disk makes a new message at each read, which only the cache then keeps.
"""

# Bytes of an entry without its contents: two resources, their ids, the tuple and its slot in the dict.
_ENTRY = 600
_REPORTED = 1024

# The bytes of all payloads that are converted before the first one is used.
_AHEAD = KEPT_BYTES // 4


class Versions(Forms):
    """The forms of the types of one registry.

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

    @override
    def of(self, type: ResourceType[Any]) -> Form:
        chain = chain_with(self._registry, type)
        if chain is not None:
            return _Converted(self, chain, type)
        if self._replaced and (replaced := self.replaced_among([type])):
            return _Replaced(type, replaced)
        return Form(type)

    @override
    def views(self, stored: pb.Resource) -> Iterator[pb.Resource]:
        """Yield a resource as its kind's storage version and then as every other version, newest first."""
        type = stored.id.type  # type: ignore[union-attr]  # stored ids are whole
        chain = chain_of(self._registry, (type.group, type.kind))  # type: ignore[union-attr]  # stored ids are whole
        if chain is None or version_of(stored) not in chain:
            yield stored
            return
        for each in [chain.storage, *(each for each in reversed(chain.types) if each is not chain.storage)]:
            if (seen := finished(self.converting(chain, stored, each.name.version))) is not None:
                yield seen

    def replaced_among(self, types: Iterable[ResourceType[Any]]) -> Mapping[str, int]:
        """Return the versions of these types whose schema has replaced an incompatible one.

        Each has the last revision before that. A watch must not show earlier states of it.
        """
        replaced = self._replaced
        return {each.name.version: replaced[name] for each in types if (name := str(each.name)) in replaced}

    def converting(self, chain: VersionChain, stored: pb.Resource, wanted: str) -> Steps[pb.Resource | None]:
        """Return a stored resource as a version, in steps, or None if no converter leads there.

        Each call of a converter is one step. The same object is returned each time.
        """
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
        if is_unreadable(stored):
            return in_version(stored, type, stored.data)
        try:
            payload = yield from chain.payload_of(stored)
            data = yield from chain.packing(payload, version_of(stored), wanted)
        except (BadConversion, PayloadError) as error:
            self.failed(stored, wanted, error)
            data = unreadable(str(chain.type_of(version_of(stored)).name))
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


class _Replaced(Form):
    """The form of a type without converters whose schema has replaced an incompatible one."""

    def __init__(self, type: ResourceType[Any], replaced: Mapping[str, int]) -> None:
        super().__init__(type)
        self._replaced = replaced

    @override
    def resumed(self, watch: Watch, after: Position) -> Watch:
        return resumed_watch(watch, after, self.type.name, self._replaced)


class _Converted(Form):
    """The form of a type with converters, for one call, with turns for other tasks between its conversions.

    `view` converts a resource in one step, unless it is ready. A converter itself is always one step.
    """

    as_written = False

    def __init__(self, versions: Versions, chain: VersionChain, type: ResourceType[Any]) -> None:
        super().__init__(type)
        self._versions = versions
        self._chain = chain
        self._slices = Slices()
        self._storing = Storing(versions, chain, type)
        self.contained = ",".join(sorted(each.name.version for each in chain.types))
        self.ready = self._prepare

    @override
    def view(self, stored: pb.Resource) -> pb.Resource | None:
        return finished(self._converting(stored))

    @override
    async def seen(self, stored: pb.Resource) -> pb.Resource | None:
        return await self._slices.of(self._converting(stored))

    @override
    async def shown(self, stored: pb.Resource) -> pb.Resource:
        seen = await self.seen(stored)
        return stored if seen is None else seen

    def _converting(self, stored: pb.Resource) -> Steps[pb.Resource | None]:
        return self._versions.converting(self._chain, stored, self.type.name.version)

    async def _prepare(self, stored: pb.Resource) -> None:
        """Convert a large resource, because the cache of converted payloads is bounded."""
        if self._is_long(stored):
            await self.seen(stored)

    def _is_long(self, stored: pb.Resource) -> bool:
        data = stored.data
        return data is not None and len(data.value) > SMALL and version_of(stored) != self.type.name.version

    @override
    async def items(self, visible: Callable[[StreamItem], list[StreamItem]], item: StreamItem) -> list[StreamItem]:
        """Return what ``visible`` makes of an item of a stream, or of the parts of a long chunk, once it is ready."""
        if not isinstance(item, SnapshotChunk):
            for change in item.changes if isinstance(item, Changes) else ():
                await self._prepare(change.resource)
            return visible(item)
        found: list[StreamItem] = []
        part: list[pb.Resource] = []
        size = 0
        for resource in item.resources:
            part.append(resource)
            if self._is_long(resource):
                await self.seen(resource)
                size += memory_size(resource)
                if size > _AHEAD:
                    found += visible(SnapshotChunk(part))
                    part, size = [], 0
        return found + visible(SnapshotChunk(part)) if part else found

    @override
    def resumed(self, watch: Watch, after: Position) -> Watch:
        return resumed_watch(watch, after, self.type.name, self._versions.replaced_among(self._chain.types))

    @override
    def carries(self, resource: pb.Resource) -> bool:
        return is_unreadable(resource)

    @override
    async def created(self, resource: pb.Resource) -> pb.Resource:
        return await in_slices(self._storing.created(resource))

    @override
    def replaced(self, stored: pb.Resource, resource: pb.Resource, update: Update) -> Steps[pb.Resource]:
        return self._storing.replaced(stored, resource, update)

    @override
    async def check(self, stored: pb.Resource | None, resource: pb.Resource) -> None:
        await in_slices(self._storing.checking(stored, resource))
