"""The stored form of a write of a kind with converters: its version, and its merge with the stored resource. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from headway.base import Steps
from headway.errors import FailedPrecondition, InvalidArgument, PayloadError
from headway.protobuf import comparing_content, decoding, encoding, equal, has_unknown_fields
from headway.resource import AnyMessage, ResourceType, TypeName, is_unreadable, pb, redact_error, resource_id
from headway.service import Update
from headway.storage import version_of
from headway.versions._chain import BadConversion, VersionChain, in_version, packing
from headway.versions._merge import different_fields, merges

Type = ResourceType[Any]

# The bytes of a payload that it may take milliseconds to convert, or to free.
_LARGE = 100_000
_REPORTED = "the server's ConversionFailed event says why"


class Reader(Protocol):
    """Shows stored resources as the versions of their kind. `headway.versions.Versions` does."""

    def converting(self, chain: VersionChain, stored: pb.Resource, wanted: str) -> Steps[pb.Resource | None]:
        """Return a stored resource as a version, or None if no converter leads there."""
        ...

    def failed(self, stored: pb.Resource, wanted: str, error: Exception, source: TypeName | None = None) -> None:
        """Report a failed conversion."""
        ...


class Storing(NamedTuple):
    """The rules for storing one write in one version of a kind. They are applied in steps.

    Attributes:
        type: the writer's version.
    """

    versions: Reader
    chain: VersionChain
    type: Type

    def created(self, resource: pb.Resource) -> Steps[pb.Resource]:
        """Return a new resource as it will be stored."""
        if is_unreadable(resource):
            raise InvalidArgument(
                f"resource.data of {resource_id(resource.id)} could not be converted, so it cannot be created"
            )
        storage = self.chain.storage
        if storage is self.type:
            return resource
        given = yield from self._payload(resource)
        if (yield from _exceeds(self.type, given, resource.data)):
            # Keep its version: a conversion would lose what this program cannot hold.
            return resource
        data, _ = yield from self._read_back(resource, given, [self._to(resource, given, storage)], storage)
        return in_version(resource, storage, data)

    def replaced(self, stored: pb.Resource, resource: pb.Resource, update: Update) -> Steps[pb.Resource]:
        """Return the resource to store in place of another one, given the function that applies a write to one."""
        if version_of(stored) not in self.chain:
            # No converter connects the two versions, so the resource moves to the writer's version.
            return (yield from self.created((yield from update(self.type, stored, resource))))
        if is_unreadable(resource):
            carried = yield from self._carried(stored, resource)
            return (yield from update(self.chain.type_of(version_of(stored)), stored, carried))
        # The update applies to what the writer sees.
        seen = yield from self._seen(stored)
        return (yield from self._updated(stored, seen, (yield from update(self.type, seen, resource))))

    def _carried(self, stored: pb.Resource, resource: pb.Resource) -> Steps[pb.Resource]:
        """Return a write with the stored payload, which the writer could not see.

        Refuses a writer who claims this of a payload that can be converted, because no hook has checked such a write.
        """
        if not is_unreadable((yield from self._shown(stored))):
            raise FailedPrecondition(
                f"resource.data of {resource_id(resource.id)} could not be converted, but the stored one now can be "
                f"read as {self.type.name}: read it again"
            )
        return in_version(resource, self.chain.type_of(version_of(stored)), stored.data)

    def _seen(self, stored: pb.Resource) -> Steps[pb.Resource]:
        """Return a stored resource as the writer sees it. Refuses one that cannot be converted."""
        seen = yield from self._shown(stored)
        if is_unreadable(seen):
            raise self._unseen(stored)
        return seen

    def _shown(self, stored: pb.Resource) -> Steps[pb.Resource]:
        shown = yield from self.versions.converting(self.chain, stored, self.type.name.version)
        assert shown is not None
        return shown

    def _unseen(self, stored: pb.Resource, error: BadConversion | None = None) -> FailedPrecondition:
        there = self.chain.type_of(version_of(stored)).name
        source, wanted = (there, self.type.name) if error is None else (error.source.name, error.wanted.name)
        return FailedPrecondition(
            f"{resource_id(stored.id)} is stored as {there}, and converting it from {source} to {wanted} failed, so "
            f"this write cannot be merged with it: {_REPORTED}; write it as {there}, or delete it"
        )

    def checking(self, stored: pb.Resource | None, resource: pb.Resource) -> Steps[None]:
        """Refuse a payload that a write could not store: in place of the stored resource, or as a new one."""
        if is_unreadable(resource):
            raise InvalidArgument(
                f"resource.data of {resource_id(resource.id)} could not be converted, so it cannot be validated"
            )
        if stored is None or version_of(stored) not in self.chain:
            yield from self.created(resource)
        else:
            yield from self._updated(stored, (yield from self._seen(stored)), resource)

    def _updated(self, stored: pb.Resource, seen: pb.Resource, updated: pb.Resource) -> Steps[pb.Resource]:
        """Return the resource to store, given what the writer saw and what the writer made of that.

        With an equal payload and equal metadata the generation stays the same. A payload that does not decode is
        replaced.
        """
        try:
            before = yield from self._payload(seen)
        except PayloadError as error:
            if seen is not stored:
                self.versions.failed(stored, self.type.name.version, error)
                # The error's own text would reveal the stored payload.
                raise self._unseen(stored) from None
            return (yield from self.created(updated))
        given = yield from self._payload(updated)
        unchanged = equal(before, given) and (yield from self._same(seen, before, updated, given))
        if unchanged:
            made = yield from self._unchanged(stored, updated)
        else:
            made = yield from self._changed(stored, updated, given)
        if unchanged and updated.metadata == stored.metadata:
            made.generation = stored.generation
        return made

    def _same(self, seen: pb.Resource, before: Any, updated: pb.Resource, given: Any) -> Steps[bool]:
        """Return True if two payloads that this program takes for equal also agree in what it cannot hold."""
        left, right = seen.data, updated.data
        if (yield from comparing_content(self.type.payload, _value(left), _value(right))):
            return True
        cut = (yield from _exceeds(self.type, before, left)) or (yield from _exceeds(self.type, given, right))
        return not cut

    def _unchanged(self, stored: pb.Resource, updated: pb.Resource) -> Steps[pb.Resource]:
        """Return an update with the stored payload, converted to the storage version if that loses nothing."""
        type, data = self.chain.type_of(version_of(stored)), stored.data
        try:
            rewritten = yield from in_storage_version(self.chain, stored)
        except (BadConversion, PayloadError):
            rewritten = None
        if rewritten is not None:
            type, data = self.chain.storage, rewritten.data
        return _as(stored, updated, type, data)

    def _changed(self, stored: pb.Resource, updated: pb.Resource, given: Any) -> Steps[pb.Resource]:
        """Return an update with the written payload, merged with the stored one.

        The two are merged in the newer one of the storage version and the version as which the resource is stored. `up`
        loses nothing, so this version holds everything that is stored. After a rollback it is newer than the storage
        version. The resource then moves to the storage version if that can hold the result, and otherwise keeps its
        version.
        """
        version, there, storage = self.type.name.version, version_of(stored), self.chain.storage
        if there == version and storage is self.type:
            return _as(stored, updated, storage, updated.data)
        there_now = yield from self.chain.payload_of(stored)
        holds_all = self.chain.newer(storage, self.chain.type_of(there))
        merges_in = holds_all.name.version
        keeps, there_type = version not in (there, merges_in), self.chain.type_of(there)
        if (
            (version != merges_in and (yield from _exceeds(self.type, given, updated.data)))
            or (there != merges_in and (yield from _exceeds(there_type, there_now, stored.data)))
            # Unknown fields survive a merge in their own version.
            or (keeps and (yield from _is_cut(there_type, there_now, stored.data)))
        ):
            if there == version:
                return _as(stored, updated, self.type, updated.data)
            raise FailedPrecondition(
                f"{resource_id(updated.id)} has content that this server's program cannot hold, such as fields that it "
                f"does not know or a time of more digits than microseconds, and storing this write as {holds_all.name} "
                f"would lose it: write version {there}, round times to microseconds, or update the server's program"
            )
        if not keeps:
            # The writer saw everything that is stored, so the old payload is replaced and need not be converted.
            results: Iterable[Steps[Any]] = [self._to(updated, given, holds_all)]
        else:
            try:
                kept = yield from self.chain.converting(there_now, there, merges_in)
                shown = yield from self.chain.converting(there_now, there, version)
                seen = yield from self.chain.converting(shown, version, merges_in)
            except BadConversion as error:
                self.versions.failed(stored, error.wanted.name.version, error, error.source.name)
                raise self._unseen(stored, error) from error
            results = merges(seen, (yield from self._to(updated, given, holds_all)), kept)
        # An older stored version, converted up, shows all of its fields.
        hidden = self.chain.newer(self.type, there_type) is not self.type
        data, result = yield from self._read_back(updated, given, results, holds_all, hidden=hidden)
        if len(data.value) > _LARGE:
            # To free the payloads takes some milliseconds each.
            there_now = kept = shown = seen = None
            yield True
            del results
            yield True
        if holds_all is not storage:
            held = yield from self._as_storage(holds_all, result, given, data)
            if held is not None:
                return _as(stored, updated, storage, held)
        return _as(stored, updated, holds_all, data)

    def _as_storage(self, type: Type, result: Any, given: Any, encoded: AnyMessage) -> Steps[AnyMessage | None]:
        """Return a newer version's payload in the storage version, or None if the conversion would lose something."""
        storage = self.chain.storage
        if (yield from _exceeds(type, result, encoded)):
            return None
        try:
            data = yield from self.chain.packing(result, type.name.version, storage.name.version)
            lost = different_fields(result, (yield from self._read(storage, data, type)))
            lost += different_fields(given, (yield from self._read(storage, data, self.type)))
        except (BadConversion, PayloadError):
            return None
        return None if lost else data

    def _read(self, stored_as: Type, data: AnyMessage, wanted: Type) -> Steps[Any]:
        """Return a stored payload as another version. Raises BadConversion and PayloadError."""
        payload = yield from decoding(stored_as.payload, data.value)
        return (yield from self.chain.converting(payload, stored_as.name.version, wanted.name.version))

    def _payload(self, resource: pb.Resource) -> Steps[Any]:
        return decoding(self.type.payload, _value(resource.data))

    def _to(self, resource: pb.Resource, given: Any, wanted: Type) -> Steps[Any]:
        """Return the given payload in the wanted version."""
        try:
            return (yield from self.chain.converting(given, self.type.name.version, wanted.name.version))
        except BadConversion as error:
            raise self._refused(resource, error, wanted) from error

    def _read_back(
        self, resource: pb.Resource, given: Any, results: Iterable[Steps[Any]], stored_as: Type, *, hidden: bool = False
    ) -> Steps[tuple[AnyMessage, Any]]:
        """Return the first result that reads back as it was written, in stored form. Refuse the write if none does.

        ``hidden`` means that the results keep stored fields that the writer's version may lack.
        """
        different: list[str] = []
        for steps in results:
            result = yield from steps
            try:
                if result is given and stored_as is self.type and resource.data is not None:
                    # Encoding it again would lose what this program cannot hold.
                    data = resource.data
                else:
                    data = yield from packing(stored_as, result)
                read = yield from self._read(stored_as, data, self.type)
            except (BadConversion, PayloadError) as error:
                raise self._refused(resource, error, stored_as) from error
            if not (different := different_fields(given, read)):
                return data, result
            del result, read
            if len(data.value) > _LARGE:
                yield True
        why = f"because the resource is stored as {stored_as.name}"
        if hidden:
            why += f" and keeps fields that {self.type.name} does not show: write values that fit them, or write it as"
            why += f" {stored_as.name}"
        else:
            why += f": write values that {stored_as.name} can hold"
        fields = ", ".join(different)
        raise InvalidArgument(
            f"resource.data of {resource_id(resource.id)}: {fields} would not be read back as written, {why}"
        )

    def _refused(self, resource: pb.Resource, error: Exception, stored_as: Type) -> InvalidArgument:
        """Report a failed conversion of a write: to the version as which it is stored, or back to the writer's."""
        failed = (error.source, error.wanted) if isinstance(error, BadConversion) else (self.type, stored_as)
        source, wanted = (each.name for each in failed)
        self.versions.failed(resource, wanted.version, error, source)
        # The converter's message is for the operator only.
        return InvalidArgument(
            f"resource.data of {resource_id(resource.id)} would be stored as {stored_as.name}, and converting it from "
            f"{source} to {wanted} failed: {_REPORTED}"
        )


def in_storage_version(chain: VersionChain, stored: pb.Resource) -> Steps[pb.Resource | None]:
    """Return a stored resource in its kind's storage version, or None if its payload would lose something.

    Raises BadConversion and PayloadError.
    """
    storage, version = chain.storage, version_of(stored)
    if version == storage.name.version:
        return stored
    payload = yield from chain.payload_of(stored)
    if (yield from _exceeds(chain.type_of(version), payload, stored.data)):
        return None
    data = yield from chain.packing(payload, version, storage.name.version)
    try:
        rewritten = yield from decoding(storage.payload, data.value)
        read = yield from chain.converting(rewritten, storage.name.version, version)
    except BadConversion as error:
        # The storage version may have a secret of the stored payload in an ordinary field.
        redact_error(error, [chain.type_of(version).view(stored)])
        raise
    return in_version(stored, storage, data) if equal(read, payload) else None


def _exceeds(type: Type, payload: Any, data: AnyMessage | None) -> Steps[bool]:
    """Return True if a conversion of a decoded payload would lose a part of its data, which no converter can see."""
    return has_unknown_fields(payload) or (yield from _is_cut(type, payload, data))


def _is_cut(type: Type, payload: Any, data: AnyMessage | None) -> Steps[bool]:
    """Return True if decoding has dropped a part of the data, such as nanoseconds."""
    encoded = yield from encoding(payload)
    return not (yield from comparing_content(type.payload, encoded, _value(data)))


def _value(data: AnyMessage | None) -> bytes:
    return b"" if data is None else data.value


def _as(stored: pb.Resource, updated: pb.Resource, type: Type, data: AnyMessage | None) -> pb.Resource:
    made = in_version(updated, type, data)
    if version_of(stored) == type.name.version:
        # Share the id, as all versions of one resource do.
        made.id = stored.id
    return made
