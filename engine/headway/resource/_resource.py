"""The resource that user code works with: decoded lazily, and safe to change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headway._gen.google.protobuf import Any as AnyMessage
from headway._gen.headway.resource import v1 as pb
from headway.base import did_you_mean, repr_text
from headway.errors import InvalidArgument, PayloadError
from headway.protobuf import Payload, copy_message, decode, encode
from headway.resource._given import finalizer_names, owner_id, text_map
from headway.resource._ids import ResourceId, finalizers, resource_id, set_finalizers
from headway.resource._statuses import Statuses
from headway.resource._stored import LOOKING, Stored, look_at
from headway.resource._unreadable import is_unreadable, unreadable_error

if TYPE_CHECKING:
    from headway.resource._types import ResourceType

T = TypeVar("T", bound=Payload)


class Resource(Stored, Generic[T]):
    """A resource of the type ``ResourceType[T]``, made by ``TYPE.new(...)`` or read from a cache or a client.

    A resource is a private copy: your changes affect no other object, and no other code changes it. Its parts are
    copied or decoded from the shared original on first access, so a part that you never access costs nothing.
    """

    # Invariant: mutable parts are only handed out as copies, which are kept in `_data`, `_metadata` and `_status`.
    __slots__ = ("_data", "_metadata", "_owner", "_status", "type")

    type: ResourceType[T]

    def __init__(self, type: ResourceType[T], message: pb.Resource, decoded: T | None = None) -> None:
        self.type = type
        self._message = message
        self._looking = LOOKING.get()
        self._data = decoded
        self._metadata: dict[str, str] | None = None
        # The owner that was assigned.
        self._owner: ResourceId | None = None
        self._status: dict[str, pb.Status] | None = None

    @property
    def data(self) -> T:
        """The payload.

        Raises:
            PayloadError: The stored bytes are not a message of the declared class.
            ConversionFailed: The resource is stored in another version and could not be converted.
        """
        if self._data is None:
            stored = self._message.data
            if is_unreadable(self._message):
                raise unreadable_error(self._message)
            try:
                self._data = decode(self.type.payload, stored.value if stored is not None else b"")
            except PayloadError as error:
                raise PayloadError(f"{self.id} at version {self.version or 'none'}: {error}") from error.__cause__
        return self._data

    @data.setter
    def data(self, value: T) -> None:
        self.type.check_payload(value)
        self._data = value

    @property
    def owner(self) -> ResourceId | None:
        """The owner: this resource is deleted with it. The owner can be set only at creation.

        A mutate hook may assign a missing owner. Without a uid it is the incarnation that exists when the
        write is committed. Assignment raises InvalidArgument for anything but a resource or its id.
        """
        if self._owner is not None:
            return self._owner
        owner = self._message.owner
        return None if owner is None else resource_id(owner)

    @owner.setter
    def owner(self, owner: Resource[Any] | ResourceId) -> None:
        self._owner = owner_id(str(self.id), owner)

    def share_payload(self, other: Resource[Any]) -> None:
        """Share the decoded payload of another resource if it has the same stored payload. For readers only."""
        if self._message.data is other._message.data and self.type is other.type:
            self._data = other._data

    @property
    def metadata(self) -> dict[str, str]:
        """Free-form text by key.

        Only the store sets ``deletionTimestamp``. To change ``finalizers``, use the `finalizers` attribute.
        """
        if self._metadata is None:
            self._metadata = dict(self._message.metadata)
        return self._metadata

    @metadata.setter
    def metadata(self, value: Mapping[str, str]) -> None:
        self._metadata = text_map(self.id, value)

    @property
    def status(self) -> Mapping[str, pb.Status]:
        """The statuses, by the name of their writer. They are written with ``write_status`` and never by ``write``."""
        look_at(self)
        if self._status is None:
            self._status = {key: copy_message(status) for key, status in self._message.status.items()}
        return Statuses(self._status)

    @property
    def finalizers(self) -> frozenset[str]:
        """The finalizers, which keep this resource stored while it is being deleted.

        To change them, assign another set: ``team.finalizers -= {"cleanup"}``. Assignment raises InvalidArgument if a
        name contains blanks, or if the value is a single string.
        """
        return finalizers(self._message.metadata if self._metadata is None else self._metadata)

    @finalizers.setter
    def finalizers(self, names: Iterable[str]) -> None:
        set_finalizers(self.metadata, finalizer_names(str(self.id), names))

    @property
    def field_owners(self) -> Mapping[str, tuple[str, ...]]:
        """The names of the managers that own each field, by its path: see ``fields`` of `Client.apply`."""
        if not self.type.owned_fields:
            return {}
        from headway.fields import owners_by_field

        return owners_by_field(self.type, self._message.metadata)

    def message(self) -> pb.Resource:
        """Return this resource as a new wire message. It shares no mutable state with the resource."""
        # Like `look_at`, without the call.
        if (looking := self._looking) is not None:
            looking.look(self)
        return self.changed(copy_message(self._message))

    def changed(self, made: pb.Resource) -> pb.Resource:
        """Make your changes in a copy of the message, and return it."""
        if self._metadata is not None:
            made.metadata = text_map(self.id, self._metadata)
        if self._owner is not None:
            made.owner = self._owner.message()
        if self._data is not None:
            check_fields(self._data)
            made.data = AnyMessage(type_url=self.type.type_url, value=self._encoded(self._data))
        return made

    def _encoded(self, data: T) -> bytes:
        value, stored = encode(data), self._message.data
        if stored is not None and value != stored.value and stored.type_url == self.type.type_url:
            # An unchanged payload keeps what its class cannot hold, such as nanoseconds.
            with suppress(PayloadError):
                if value == encode(decode(self.type.payload, stored.value)):
                    return stored.value
        return value

    def original(self) -> Resource[T]:
        """Return this resource as it was made or read, without your later changes."""
        made = Resource(self.type, self._message)
        made._looking = self._looking
        return made

    def copy(self) -> Resource[T]:
        """Return a copy of this resource, including your changes."""
        return Resource(self.type, self.message())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Resource):
            return NotImplemented
        return bool(self.message() == other.message())

    __hash__ = None  # type: ignore[assignment]  # it is mutable; use its id as a key

    def __repr__(self) -> str:
        return f"<Resource {self.id} version={self.version or 'new'}>"


def check_fields(payload: Any) -> None:
    """Raise PayloadError for an attribute that is not a field, because encoding ignores it. Private ones may be set."""
    fields = payload.__dataclass_fields__
    if len(payload.__dict__) != len(fields):
        for name in payload.__dict__.keys() - fields.keys():
            if not name.startswith("_") and not hasattr(type(payload), name):
                raise PayloadError(f"{type(payload).__qualname__} has no field {name!r}{did_you_mean(name, fields)}")


def check_resource(given: object) -> None:
    """Raise InvalidArgument if the argument is not a resource."""
    if not isinstance(given, Resource):
        raise InvalidArgument(f"expected a resource, as made by TYPE.new(name, data), got {repr_text(given)}")
