"""The stored form of a write of a kind with converters: its version, and its merge with the stored resource."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from grpclib import GRPCError

from headway.errors import PayloadError
from headway.protobuf import decode, different_fields, encode, equal, has_unknown_fields, merges, same_content
from headway.resource import (
    AnyMessage,
    BadConversion,
    ResourceType,
    VersionChain,
    in_version,
    is_unconverted,
    packed,
    pb,
    redact_error,
    resource_id,
)
from headway.service._refusals import invalid, precondition
from headway.service._versions import Versions
from headway.storage import version_of

Type = ResourceType[Any]

_REPORTED = "the server's ConversionFailed event says why"


class StorageVersion(NamedTuple):
    """The rules for storing one write in one version of a kind.

    Attributes:
        type: the writer's version.
    """

    versions: Versions
    chain: VersionChain
    type: Type

    def created(self, resource: pb.Resource) -> pb.Resource:
        """Return a new resource as it will be stored."""
        if is_unconverted(resource):
            raise invalid(
                f"resource.data of {resource_id(resource.id)} could not be converted, so it cannot be created"
            )
        storage = self.chain.storage
        if storage is self.type:
            return resource
        given = self._payload(resource)
        if _exceeds(self.type, given, resource.data):
            # Keep its version: a conversion would lose what this program cannot hold.
            return resource
        data, _ = self._read_back(resource, given, [self._to(resource, given, storage)], storage)
        return in_version(resource, storage, data)

    def shown(self, stored: pb.Resource) -> pb.Resource:
        """Return a stored resource as the writer's version."""
        shown = self.versions.shown(self.type, stored)
        assert shown is not None
        return shown

    def carries_on(self, stored: pb.Resource, resource: pb.Resource) -> pb.Resource | None:
        """Return a write with the stored payload, if the writer could not see that payload; otherwise None.

        Refuses a writer who claims this of a payload that can be converted, because no hook has checked such a write.
        """
        if not is_unconverted(resource):
            return None
        seen = self.versions.view(self.type)(stored)
        assert seen is not None
        if not is_unconverted(seen):
            raise precondition(
                f"resource.data of {resource_id(resource.id)} could not be converted, but the stored one now can be "
                f"read as {self.type.name}: read it again"
            )
        return in_version(resource, self.chain.type_of(version_of(stored)), stored.data)

    def seen(self, stored: pb.Resource) -> pb.Resource:
        """Return a stored resource as the writer sees it. Refuses one that cannot be converted."""
        seen = self.versions.view(self.type)(stored)
        assert seen is not None
        if is_unconverted(seen):
            raise self._unseen(stored)
        return seen

    def _unseen(self, stored: pb.Resource, error: BadConversion | None = None) -> GRPCError:
        there = self.chain.type_of(version_of(stored)).name
        source, wanted = (there, self.type.name) if error is None else (error.source.name, error.wanted.name)
        return precondition(
            f"{resource_id(stored.id)} is stored as {there}, and converting it from {source} to {wanted} failed, so "
            f"this write cannot be merged with it: {_REPORTED}; write it as {there}, or delete it"
        )

    def check(self, stored: pb.Resource | None, resource: pb.Resource) -> None:
        """Refuse a payload that a write could not store: in place of the stored resource, or as a new one."""
        if stored is None or version_of(stored) not in self.chain:
            self.created(resource)
        else:
            self.updated(stored, self.seen(stored), resource)

    def updated(self, stored: pb.Resource, seen: pb.Resource, updated: pb.Resource) -> pb.Resource:
        """Return the resource to store, given what the writer saw and what the writer made of that.

        With an equal payload and equal metadata the generation stays the same. A payload that does not decode is
        replaced.
        """
        try:
            before = self._payload(seen)
        except PayloadError as error:
            if seen is not stored:
                self.versions.failed(stored, self.type.name.version, error)
                # The error's own text would reveal the stored payload.
                raise self._unseen(stored) from None
            return self.created(updated)
        given = self._payload(updated)
        unchanged = equal(before, given) and self._same(seen, before, updated, given)
        made = self._unchanged(stored, updated) if unchanged else self._changed(stored, updated, given)
        if unchanged and updated.metadata == stored.metadata:
            made.generation = stored.generation
        return made

    def _same(self, seen: pb.Resource, before: Any, updated: pb.Resource, given: Any) -> bool:
        """Return True if two payloads that this program takes for equal also agree in what it cannot hold."""
        left, right = seen.data, updated.data
        return same_content(self.type.payload, _value(left), _value(right)) or not (
            _exceeds(self.type, before, left) or _exceeds(self.type, given, right)
        )

    def _unchanged(self, stored: pb.Resource, updated: pb.Resource) -> pb.Resource:
        """Return an update with the stored payload, converted to the storage version if that loses nothing."""
        type, data = self.chain.type_of(version_of(stored)), stored.data
        try:
            rewritten = in_storage_version(self.chain, stored)
        except (BadConversion, PayloadError):
            rewritten = None
        if rewritten is not None:
            type, data = self.chain.storage, rewritten.data
        return _as(stored, updated, type, data)

    def _changed(self, stored: pb.Resource, updated: pb.Resource, given: Any) -> pb.Resource:
        """Return an update with the written payload, merged with the stored one.

        The two are merged in the newer one of the storage version and the version as which the resource is stored. `up`
        loses nothing, so this version holds everything that is stored. After a rollback it is newer than the storage
        version. The resource then moves to the storage version if that can hold the result, and otherwise keeps its
        version.
        """
        version, there, storage = self.type.name.version, version_of(stored), self.chain.storage
        if there == version and storage is self.type:
            return _as(stored, updated, storage, updated.data)
        there_now = self.chain.payload_of(stored)
        holds_all = self.chain.newer(storage, self.chain.type_of(there))
        merges_in = holds_all.name.version
        keeps, there_type = version not in (there, merges_in), self.chain.type_of(there)
        if (
            (version != merges_in and _exceeds(self.type, given, updated.data))
            or (there != merges_in and _exceeds(there_type, there_now, stored.data))
            # Unknown fields survive a merge in their own version.
            or (keeps and _is_cut(there_type, there_now, stored.data))
        ):
            if there == version:
                return _as(stored, updated, self.type, updated.data)
            raise precondition(
                f"{resource_id(updated.id)} has content that this server's program cannot hold, such as fields that it "
                f"does not know or a time of more digits than microseconds, and storing this write as {holds_all.name} "
                f"would lose it: write version {there}, round times to microseconds, or update the server's program"
            )
        if not keeps:
            # The writer saw everything that is stored, so the old payload is replaced and need not be converted.
            results: Iterable[Any] = [self._to(updated, given, holds_all)]
        else:
            try:
                kept = self.chain.converted(there_now, there, merges_in)
                seen = self.chain.converted(self.chain.converted(there_now, there, version), version, merges_in)
            except BadConversion as error:
                self.versions.failed(stored, error.wanted.name.version, error, error.source.name)
                raise self._unseen(stored, error) from error
            results = merges(seen, self._to(updated, given, holds_all), kept)
        # An older stored version, converted up, shows all of its fields.
        hidden = self.chain.newer(self.type, there_type) is not self.type
        data, result = self._read_back(updated, given, results, holds_all, hidden=hidden)
        if holds_all is not storage and (held := self._as_storage(holds_all, result, given, data)) is not None:
            return _as(stored, updated, storage, held)
        return _as(stored, updated, holds_all, data)

    def _as_storage(self, type: Type, result: Any, given: Any, encoded: AnyMessage) -> AnyMessage | None:
        """Return a newer version's payload in the storage version, or None if the conversion would lose something."""
        storage = self.chain.storage
        if _exceeds(type, result, encoded):
            return None
        try:
            data = self.chain.packed(result, type.name.version, storage.name.version)
            lost = different_fields(result, self._read(storage, data, type))
            lost += different_fields(given, self._read(storage, data, self.type))
        except (BadConversion, PayloadError):
            return None
        return None if lost else data

    def _read(self, stored_as: Type, data: AnyMessage, wanted: Type) -> Any:
        """Return a stored payload as another version. Raises BadConversion and PayloadError."""
        payload = decode(stored_as.payload, data.value)
        return self.chain.converted(payload, stored_as.name.version, wanted.name.version)

    def _payload(self, resource: pb.Resource) -> Any:
        return decode(self.type.payload, _value(resource.data))

    def _to(self, resource: pb.Resource, given: Any, wanted: Type) -> Any:
        """Return the given payload in the wanted version."""
        try:
            return self.chain.converted(given, self.type.name.version, wanted.name.version)
        except BadConversion as error:
            raise self._refused(resource, error, wanted) from error

    def _read_back(
        self, resource: pb.Resource, given: Any, results: Iterable[Any], stored_as: Type, *, hidden: bool = False
    ) -> tuple[AnyMessage, Any]:
        """Return the first result that reads back as it was written, in stored form. Refuse the write if none does.

        ``hidden`` means that the results keep stored fields that the writer's version may lack.
        """
        different: list[str] = []
        for result in results:
            try:
                if result is given and stored_as is self.type and resource.data is not None:
                    # Encoding it again would lose what this program cannot hold.
                    data = resource.data
                else:
                    data = packed(stored_as, result)
                read = self._read(stored_as, data, self.type)
            except (BadConversion, PayloadError) as error:
                raise self._refused(resource, error, stored_as) from error
            if not (different := different_fields(given, read)):
                return data, result
        why = f"because the resource is stored as {stored_as.name}"
        if hidden:
            why += f" and keeps fields that {self.type.name} does not show: write values that fit them, or write it as"
            why += f" {stored_as.name}"
        else:
            why += f": write values that {stored_as.name} can hold"
        fields = ", ".join(different)
        raise invalid(f"resource.data of {resource_id(resource.id)}: {fields} would not be read back as written, {why}")

    def _refused(self, resource: pb.Resource, error: Exception, stored_as: Type) -> GRPCError:
        """Report a failed conversion of a write: to the version as which it is stored, or back to the writer's."""
        failed = (error.source, error.wanted) if isinstance(error, BadConversion) else (self.type, stored_as)
        source, wanted = (each.name for each in failed)
        self.versions.failed(resource, wanted.version, error, source)
        # The converter's message is for the operator only.
        return invalid(
            f"resource.data of {resource_id(resource.id)} would be stored as {stored_as.name}, and converting it from "
            f"{source} to {wanted} failed: {_REPORTED}"
        )


def in_storage_version(chain: VersionChain, stored: pb.Resource) -> pb.Resource | None:
    """Return a stored resource in its kind's storage version, or None if its payload would lose something.

    Raises BadConversion and PayloadError.
    """
    storage, version = chain.storage, version_of(stored)
    if version == storage.name.version:
        return stored
    payload = chain.payload_of(stored)
    if _exceeds(chain.type_of(version), payload, stored.data):
        return None
    data = chain.packed(payload, version, storage.name.version)
    try:
        read = chain.converted(decode(storage.payload, data.value), storage.name.version, version)
    except BadConversion as error:
        # The storage version may have a secret of the stored payload in an ordinary field.
        redact_error(error, [chain.type_of(version).view(stored)])
        raise
    return in_version(stored, storage, data) if equal(read, payload) else None


def _exceeds(type: Type, payload: Any, data: AnyMessage | None) -> bool:
    """Return True if a conversion of a decoded payload would lose a part of its data, which no converter can see."""
    return has_unknown_fields(payload) or _is_cut(type, payload, data)


def _is_cut(type: Type, payload: Any, data: AnyMessage | None) -> bool:
    """Return True if decoding has dropped a part of the data, such as nanoseconds."""
    return not same_content(type.payload, encode(payload), _value(data))


def _value(data: AnyMessage | None) -> bytes:
    return b"" if data is None else data.value


def _as(stored: pb.Resource, updated: pb.Resource, type: Type, data: AnyMessage | None) -> pb.Resource:
    made = in_version(updated, type, data)
    if version_of(stored) == type.name.version:
        # Share the id, as all versions of one resource do.
        made.id = stored.id
    return made
