"""What a write stores of a kind that has converters: in which version, and merged with what is stored."""

from __future__ import annotations

from typing import Any, NamedTuple

from grpclib import GRPCError

from headway.errors import PayloadError
from headway.resource import (
    AnyMessage,
    BadConversion,
    ResourceType,
    VersionChain,
    decode,
    different_fields,
    equal,
    has_unknown_fields,
    in_version,
    is_unconverted,
    merged,
    packed,
    pb,
    resource_id,
)
from headway.service._refusals import invalid, precondition
from headway.service._versions import Versions
from headway.storage import version_of

Type = ResourceType[Any]


class StorageVersion(NamedTuple):
    """How one write in one version of a kind is stored.

    Attributes:
        type: the writer's version.
    """

    versions: Versions
    chain: VersionChain
    type: Type

    def created(self, resource: pb.Resource) -> pb.Resource:
        """Return a resource that is created, as it is stored."""
        if is_unconverted(resource):
            raise invalid(f"resource.data of {resource_id(resource.id)} could not be converted, so it creates nothing")
        storage, version = self.chain.storage, self.type.name.version
        if storage is self.type:
            return resource
        given = self._payload(resource)
        if has_unknown_fields(given):
            # It stays in its version: converted, it would lose them.
            return resource
        return in_version(resource, storage, self._read_back(resource, given, self._up(resource, given, version)))

    def shown(self, stored: pb.Resource) -> pb.Resource:
        """Return what has been stored as the writer's version."""
        shown = self.versions.shown(self.type, stored)
        assert shown is not None
        return shown

    def carries_on(self, stored: pb.Resource, resource: pb.Resource) -> pb.Resource | None:
        """Return a write with the payload as it is stored, if its writer could not see that; else None.

        Refuses a writer who says so of what can be seen: no hook has judged such a write.
        """
        if not is_unconverted(resource):
            return None
        seen = self.versions.view(self.type)(stored)
        assert seen is not None
        if not is_unconverted(seen):
            raise precondition(
                f"resource.data of {resource_id(resource.id)} could not be converted, and what is stored now can be "
                f"read as {self.type.name}: read it again"
            )
        return in_version(resource, self.chain.type_of(version_of(stored)), stored.data)

    def seen(self, stored: pb.Resource) -> pb.Resource:
        """Return what is stored as the writer sees it. Refuses what can't be converted."""
        seen = self.versions.view(self.type)(stored)
        assert seen is not None
        if is_unconverted(seen):
            raise self._unseen(stored)
        return seen

    def _unseen(self, stored: pb.Resource) -> GRPCError:
        return precondition(
            f"{resource_id(stored.id)} is stored as version {version_of(stored)}, and converting it failed, so that "
            "this write can't be merged with it: write it as that version, or delete it"
        )

    def updated(self, stored: pb.Resource, seen: pb.Resource, updated: pb.Resource) -> pb.Resource:
        """Return what is stored after an update, in place of what the writer has made of what it saw.

        With the same payload and metadata the generation is the same. A payload that does not decode is replaced.
        """
        try:
            before = self._payload(seen)
        except PayloadError:
            # Its words would tell what is stored.
            if seen is not stored:
                raise self._unseen(stored) from None
            return self.created(updated)
        given = self._payload(updated)
        unchanged = equal(before, given)
        made = self._unchanged(stored, updated) if unchanged else self._changed(stored, updated, given)
        if unchanged and updated.metadata == stored.metadata:
            made.generation = stored.generation
        return made

    def _unchanged(self, stored: pb.Resource, updated: pb.Resource) -> pb.Resource:
        """The payload as it is stored: in the storage version, if nothing of it is lost by that."""
        type, data = self.chain.type_of(version_of(stored)), stored.data
        try:
            rewritten = in_storage_version(self.chain, stored)
        except (BadConversion, PayloadError):
            rewritten = None
        if rewritten is not None:
            type, data = self.chain.storage, rewritten.data
        return _as(stored, updated, type, data)

    def _changed(self, stored: pb.Resource, updated: pb.Resource, given: Any) -> pb.Resource:
        version, there, storage = self.type.name.version, version_of(stored), self.chain.storage
        if storage is self.type and there == version:
            return _as(stored, updated, storage, updated.data)
        there_now = self.chain.payload_of(stored)
        converts_stored = there != storage.name.version
        if (self.type is not storage and has_unknown_fields(given)) or (
            converts_stored and has_unknown_fields(there_now)
        ):
            if there == version:
                return _as(stored, updated, self.type, updated.data)
            raise precondition(
                f"{resource_id(updated.id)} has fields that this server's program does not know, and a conversion to "
                f"{storage.name} would lose them: update the server's program first, or write version {there}"
            )
        if storage is self.type:
            # The writer's version is all that is kept.
            return _as(stored, updated, storage, updated.data)
        if there == version:
            # The writer saw all that is kept: what was there is replaced, and need not be converted.
            return _as(stored, updated, storage, self._read_back(updated, given, self._up(updated, given, version)))
        try:
            kept = self.chain.converted(there_now, there, storage.name.version)
            seen = self.chain.converted(self._payload_seen(there_now, there), version, storage.name.version)
        except BadConversion as error:
            self.versions.failed(stored, storage.name.version, error)
            raise precondition(
                f"{resource_id(stored.id)}: converting what is stored to {storage.name} failed, so that this write "
                "can't be merged with it"
            ) from error
        result = merged(seen, self._up(updated, given, version), kept)
        return _as(stored, updated, storage, self._read_back(updated, given, result))

    def _payload_seen(self, payload: Any, version: str) -> Any:
        return self.chain.converted(payload, version, self.type.name.version)

    def _payload(self, resource: pb.Resource) -> Any:
        return decode(self.type.payload, b"" if resource.data is None else resource.data.value)

    def _up(self, resource: pb.Resource, given: Any, version: str) -> Any:
        """The given payload in the storage version."""
        try:
            return self.chain.converted(given, version, self.chain.storage.name.version)
        except BadConversion as error:
            raise self._refused(resource, error) from error

    def _read_back(self, resource: pb.Resource, given: Any, result: Any) -> AnyMessage:
        """The result as it is stored. Refuses what would not be read as it was written."""
        storage = self.chain.storage
        try:
            data = packed(storage, result)
            read = self.chain.converted(
                decode(storage.payload, data.value), storage.name.version, self.type.name.version
            )
        except (BadConversion, PayloadError) as error:
            raise self._refused(resource, error) from error
        if different := different_fields(given, read):
            raise invalid(
                f"resource.data of {resource_id(resource.id)}: {', '.join(different)} would not be read back as "
                f"written, because the resource is stored as {storage.name}: write what that version can hold"
            )
        return data

    def _refused(self, resource: pb.Resource, error: Exception) -> GRPCError:
        self.versions.failed(resource, self.chain.storage.name.version, error)
        # What the converter said is the operator's to know.
        return invalid(
            f"resource.data of {resource_id(resource.id)} can't be converted to {self.chain.storage.name}, in which it "
            "is stored: the server's ConversionFailed event says why"
        )


def in_storage_version(chain: VersionChain, stored: pb.Resource) -> pb.Resource | None:
    """Return a stored resource in its kind's storage version; None where its payload would lose something by that.

    Raises BadConversion and PayloadError.
    """
    storage, version = chain.storage, version_of(stored)
    if version == storage.name.version:
        return stored
    payload = chain.payload_of(stored)
    if has_unknown_fields(payload):
        return None
    data = packed(storage, chain.converted(payload, version, storage.name.version))
    read = chain.converted(decode(storage.payload, data.value), storage.name.version, version)
    return in_version(stored, storage, data) if equal(read, payload) else None


def _as(stored: pb.Resource, updated: pb.Resource, type: Type, data: AnyMessage | None) -> pb.Resource:
    made = in_version(updated, type, data)
    if version_of(stored) == type.name.version:
        # Shared, as all versions of one resource share it.
        made.id = stored.id
    return made
