"""The types that a cache can hold: stored types, and projections, which keep only a part of a large type. No I/O.

Rules of projections:
1. The cache keeps a resource's id, owner, version and generation, the selected metadata and statuses (and always the
   deletion mark and finalizers), and the payload that the function returns. It keeps nothing else.
2. The version belongs to the whole resource, whichever part of it has changed. Deletions by version therefore stay
   correct, and the cached version never decreases.
3. A change that does not affect the kept part only updates the entry and is not passed on.
4. If the function raises for a resource, it is cached without a payload, so that its existence is known. Reading its
   payload raises, and each of its changes is passed on.
5. A secret of the whole resource that the function has put into the payload stays a secret, also in a field that is not
   declared as one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from headway.base import answer_problem, checked, plain_problem, repr_text
from headway.cache._isolation import Isolation
from headway.cache._type_store import Applied
from headway.errors import DeclarationError, PayloadError
from headway.protobuf import Payload, copy_message, decode, encode, equal, holds_secrets, secret_values
from headway.resource import (
    DELETION_TIMESTAMP,
    FINALIZERS,
    LOOKING,
    AnyMessage,
    Kind,
    Resource,
    ResourceId,
    ResourceType,
    Scope,
    ScopedType,
    Statuses,
    Stored,
    TypeName,
    Within,
    finalizers,
    look_at,
    pb,
)

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T", bound=Payload)
S = TypeVar("S", bound=Payload)

_FORM = "headway.projection(REPORT, ReportName, lambda report: ReportName(title=report.data.title))"

# Shared by every cached message that has none. Never mutated, like all cached data.
_NO_METADATA: dict[str, str] = {}
_NO_STATUS: dict[str, pb.Status] = {}

UNDECODABLE = AnyMessage(type_url="undecodable")
"""A placeholder for the payload of a cached resource whose stored bytes do not decode."""


class _WithSecrets(AnyMessage):
    """A payload that contains secrets of the whole resource. Most projections keep none."""

    secrets: tuple[str | bytes, ...] = ()


@runtime_checkable
class CachedType(Protocol[R_co]):
    """The interface of types that can be read, indexed and watched: a type, a scope of it, or a `Projection`."""

    @property
    def name(self) -> TypeName:
        """The name of the stored type."""
        ...

    @property
    def kind(self) -> Kind:
        """The name without the version."""
        ...

    @property
    def scope(self) -> Scope:
        """The tenancy units that the type has."""
        ...

    def id(self, name: str, *, partition: str = "", namespace: str = "", uid: str = "") -> ResourceId:
        """Return the id of a resource of this type."""
        ...

    def name_problem(self, name: object) -> str | None:
        """Return the problem with the name of a resource of this type, or None."""
        ...

    def tenancy_problem(self, partition: str, namespace: str) -> str | None:
        """Return the problem of tenancy units for the scope, or None."""
        ...

    def view(self, message: pb.Resource) -> R_co:
        """Return a cached message in the form that user code sees."""
        ...


class Projected(Stored, Generic[S]):
    """The cached part of a resource, as a `projection` selects it. It is read-only, so you cannot pass it to a write.

    To change the resource, read all of it with the client, and write that. To delete it only if it has not changed
    since, use ``rt.client.delete(slim.id, version=slim.version)``. The version and generation belong to the whole
    resource.
    """

    __slots__ = ("_data", "type")

    type: Projection[S]

    def __init__(self, type: Projection[S], message: pb.Resource) -> None:
        self.type = type
        self._message = message
        self._looking = LOOKING.get()
        self._data: S | None = None

    @property
    def data(self) -> S:
        """The payload that the projection's function returned. Raises PayloadError if the function raised."""
        if self._data is None:
            held = self._message.data
            if held is UNDECODABLE:
                raise PayloadError(f"{self.id} at version {self.version}: its stored payload does not decode")
            if held is None:
                raise PayloadError(f"{self.id} at version {self.version}: the function of {self.type} raised")
            self._data = decode(self.type.payload, held.value)
        return self._data

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata entries that the projection keeps."""
        return dict(self._message.metadata)

    @property
    def status(self) -> Mapping[str, pb.Status]:
        """The statuses that the projection keeps, by the name of their writer."""
        look_at(self)
        return Statuses({key: copy_message(status) for key, status in self._message.status.items()})

    @property
    def finalizers(self) -> frozenset[str]:
        """The names of the finalizers, which keep this resource from being deleted."""
        return finalizers(self._message.metadata)

    @property
    def carried_secrets(self) -> tuple[str | bytes, ...]:
        """The values of the secret fields of the whole resource that this part of it contains."""
        data = self._message.data
        return data.secrets if isinstance(data, _WithSecrets) else ()

    def original(self) -> Projected[S]:
        """Return this part as it was read, without any change to its payload."""
        made = Projected(self.type, self._message)
        made._looking = self._looking
        return made

    def __repr__(self) -> str:
        return f"<Projected {self.id} as {self.type.payload.__name__}, read-only>"


class Projection(Generic[S]):
    """A partially cached type. Created by `projection`. It implements `CachedType`.

    Attributes:
        of: the stored type.
        range: the filter of the scope of the type, or everything.
        payload: the class of the kept payload.
    """

    __slots__ = ("_function", "_metadata", "_secret", "_status", "kind", "name", "of", "payload", "range", "scope")

    of: ResourceType[Any]

    def __init__(
        self,
        of: ResourceType[T] | ScopedType[T],
        payload: type[S],
        function: Callable[[Resource[T]], S],
        metadata: Collection[str],
        status: Collection[str],
    ) -> None:
        self.of = stored_type(of)
        self.range = range_of(of)
        self.name: TypeName = of.name
        self.kind: Kind = of.kind
        self.scope: Scope = of.scope
        self.payload = payload
        self._function: Callable[[Resource[T]], S] = function
        self._metadata = frozenset({*metadata, FINALIZERS, DELETION_TIMESTAMP})
        self._status = frozenset(status)
        self._secret = holds_secrets(self.of.payload)

    def __repr__(self) -> str:
        return f"<Projection {self.name} as {self.payload.__name__}>"

    def id(self, name: str, *, partition: str = "", namespace: str = "", uid: str = "") -> ResourceId:
        """Return the id of a resource of this type."""
        return self.of.id(name, partition=partition, namespace=namespace, uid=uid)

    def name_problem(self, name: object) -> str | None:
        """Return the problem with the name of a resource of the type, or None."""
        return self.of.name_problem(name)

    def tenancy_problem(self, partition: str, namespace: str) -> str | None:
        """Return the problem of tenancy units for the scope, or None."""
        return self.of.tenancy_problem(partition, namespace)

    def view(self, message: pb.Resource) -> Projected[S]:
        """Return a cached message in the form that user code sees."""
        return Projected(self, message)

    def project(self, message: pb.Resource, isolation: Isolation | None = None) -> pb.Resource:
        """Return the kept part of a stored message. Raises whatever the function raises."""
        given = Resource(self.of, message)
        if isolation is None:
            data = self._function(given)
        else:
            who = f"the function of {self!r}"
            data = isolation.reading(who, message, given, lambda: self._function(given))
        if type(data) is not self.payload:
            problem = answer_problem(data)
            if problem:
                raise TypeError(f"the function of {self}: {problem}")
            raise TypeError(f"the function of {self} returned {repr_text(data)}: return a {self.payload.__name__}(...)")
        encoded = encode(data)
        if self._secret and (secrets := tuple(each for each in _secrets(given) if _bytes(each) in encoded)):
            kept = _WithSecrets(value=encoded)
            kept.secrets = secrets
            return self._kept(message, kept)
        return self._kept(message, AnyMessage(value=encoded))

    def without_payload(self, message: pb.Resource, instead: AnyMessage | None = None) -> pb.Resource:
        """Return the kept part of a message whose payload is missing because the function raised."""
        return self._kept(message, instead)

    def _kept(self, message: pb.Resource, data: AnyMessage | None) -> pb.Resource:
        return pb.Resource(
            id=message.id,
            owner=message.owner,
            version=message.version,
            generation=message.generation,
            metadata=_chosen(message.metadata, self._metadata) or _NO_METADATA,
            status=_chosen(message.status, self._status) or _NO_STATUS,
            data=data,
        )

    def hides(self, change: Applied) -> bool:
        """Return True if the cached messages before and after a change differ at most in version and generation."""
        old, new = change.old, change.new
        if old is None or new is None:
            return False
        before, after = old.data, new.data
        if before is None or after is None or before is UNDECODABLE or after is UNDECODABLE:
            return False
        if old.metadata != new.metadata or not equal(old.owner, new.owner):
            return False
        if old.status.keys() != new.status.keys() or not all(
            equal(status, new.status[key]) for key, status in old.status.items()
        ):
            return False
        # Equal messages may have different bytes (the order of a map), so compare the decoded messages.
        return before.value == after.value or equal(
            decode(self.payload, before.value), decode(self.payload, after.value)
        )


V = TypeVar("V")


def _secrets(whole: Resource[Any]) -> Collection[str | bytes]:
    try:
        return secret_values(whole.data).values()
    except PayloadError:
        # The function has not read the payload either, or it would have raised.
        return ()


def _bytes(secret: str | bytes) -> bytes:
    return secret if isinstance(secret, bytes) else secret.encode()


def stored_type(type: object) -> ResourceType[Any]:
    """Return the stored type of a scope or a projection, or the type itself."""
    stored = type.of if isinstance(type, Projection | ScopedType) else type
    assert isinstance(stored, ResourceType)
    return stored


_EVERYTHING = Within()


def range_of(type: object) -> Within:
    """Return the filter of a scope, or of a projection of one. A whole type has everything."""
    if isinstance(type, ScopedType):
        return type.range
    return type.range if isinstance(type, Projection) else _EVERYTHING


def _chosen(every: Mapping[str, V], wanted: frozenset[str]) -> dict[str, V]:
    return {key: every[key] for key in every if key in wanted} if every else {}


@checked(metadata="['team']", status="['accounts']")
def projection(
    of: ResourceType[T] | ScopedType[T],
    payload: type[S],
    function: Callable[[Resource[T]], S],
    *,
    metadata: Collection[str] = (),
    status: Collection[str] = (),
) -> Projection[S]:
    """``NAMES = headway.projection(REPORT, ReportName, lambda report: ReportName(title=report.data.title))``

    Cache only the result of a function for each resource, instead of the whole resource. Pass the projection in place
    of the type to ``manages=`` and ``watches=``, to indexes, and to reads of the cache. A change that does not affect
    the result triggers nothing. Declare each projection only once, so that all controllers share its stream and its
    copy.

    Args:
        of: the stored type, or a scope of it.
        payload: the message class that the function returns.
        function: a function that depends only on the resource and does not change it.
        metadata: the keys of the metadata entries to keep. Finalizers and the deletion mark are always kept.
        status: the keys of the statuses to keep.

    Raises DeclarationError, with the correct form.
    """
    if not hasattr(payload, "__dataclass_fields__"):
        raise DeclarationError(f"a projection of {of!r} needs a message class, not {payload!r}: {_FORM}")
    wrong = plain_problem(function, 1, "a resource")
    if wrong:
        raise DeclarationError(f"the function of a projection of {of!r} {wrong}: {_FORM}")
    return Projection(of, payload, function, metadata, status)
