"""Indexes, which find resources by a value: their declarations, and how they are read. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, SupportsIndex, TypeVar, cast

from headway.base import checked, plain_problem, repr_text
from headway.cache._isolation import Isolation
from headway.cache._projection import CachedType, Projection, stored_type
from headway.errors import DeclarationError
from headway.protobuf import Payload
from headway.resource import Key, Resource, ResourceId, ResourceType, pb, resource_id

R = TypeVar("R")
T = TypeVar("T", bound=Payload)
V = TypeVar("V", bound=Hashable)

_FORM = "headway.indexes.by(ACCOUNT, 'team', lambda account: account.data.team)"

Referred = ResourceId | pb.Reference
"""A reference to another resource in a payload. It must include its tenancy, because nothing is filled in."""

_BOUND = "bound_references"

Path = str | tuple[str, ...]
"""A value that has prefixes: a text, or a path as a tuple of texts."""


class StatusReads:
    """A note whether a function has read what the write of a status changes.

    Attributes:
        any: True if a call has, or if that is not known.
    """

    __slots__ = ("any",)

    def __init__(self) -> None:
        self.any = False


class _NotedResource(Resource[Any]):
    """A resource that notes reads of its status and its version, in whatever form. Nothing else changes with them."""

    __slots__ = ("_reads",)

    def __init__(self, type: ResourceType[Any], message: pb.Resource, reads: StatusReads) -> None:
        super().__init__(type, message)
        self._reads = reads

    @property
    def status(self) -> Mapping[str, pb.Status]:
        self._reads.any = True
        return super().status

    @property
    def version(self) -> str:
        self._reads.any = True
        return super().version

    def message(self) -> pb.Resource:
        self._reads.any = True
        return super().message()

    def original(self) -> Resource[Any]:
        self._reads.any = True
        return super().original()

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        # The function copies it by the module `copy`.
        self._reads.any = True
        return super().__reduce_ex__(protocol)


# Python shows this name, such as in the error for a resource that an index function returns: it has no hash.
_NotedResource.__name__ = Resource.__name__


class Index(Generic[R, V]):
    """A named index on a type's resources, which is also the handle for reading it. Created by `by`, for example.

    ``R`` is the type of a read's results, and ``V`` is the type of its values.

    Attributes:
        type: the type of the indexed resources.
        name: the index's name in errors and reports.
        single: True if the function returns one value (None leaves the resource out), False if several.
        raw: True if the function receives the stored message itself, which it must only read.
        normal: converts a value in a lookup to the form that the function returns; None if they are the same.
    """

    __slots__ = ("function", "name", "normal", "raw", "single", "type")

    def __init__(
        self,
        type: CachedType[R],
        name: str,
        function: Callable[[Any], Any],
        *,
        single: bool,
        raw: bool = False,
        normal: Callable[[V], V] | None = None,
    ) -> None:
        if not name:
            raise DeclarationError(f"an index on {type.name} needs a name, not {name!r}: {_FORM}")
        self.type = type
        self.name = name
        self.function = function
        self.single = single
        self.raw = raw
        self.normal = normal

    def __repr__(self) -> str:
        return f"<Index {self.name} on {self.type.name}>"

    def extract(
        self, isolation: Isolation | None = None, reads: StatusReads | None = None
    ) -> Callable[[pb.Resource], Any]:
        """Return the function on stored messages. With ``isolation``, every call of it is checked.

        ``reads`` notes if a call reads what the write of a status changes.
        """
        function, type = self.function, cast("CachedType[Any]", self.type)
        noted = StatusReads() if reads is None else reads
        if isolation is not None:
            noted.any = True
            return lambda message: self._checked(isolation, message)
        if self.raw:
            return function
        if isinstance(type, Projection):
            noted.any = True
            return lambda message: function(type.view(message))
        of = stored_type(type)
        last: list[_NotedResource] = []

        def extract(message: pb.Resource) -> Any:
            # A changed status calls the function for two states with the same payload. It only reads the payload, so
            # that one decoding serves both.
            made = _NotedResource(of, message, noted)
            if last:
                made.share_payload(last.pop())
            last.append(made)
            return function(made)

        return extract

    def _checked(self, isolation: Isolation, message: pb.Resource) -> Any:
        function = self.function
        given = message if self.raw else self.type.view(message)

        def call() -> Any:
            # A generator must be exhausted before its effects can be checked.
            return function(given) if self.single else list(check_many(function(given)))

        return isolation.reading(f"the function of {self!r}", message, given, call)


@checked()
def by(type: CachedType[R], name: str, function: Callable[[R], V | None]) -> Index[R, V]:
    """``BY_TEAM = headway.indexes.by(ACCOUNT, "team", lambda account: account.data.team)``

    Return an index with one value for each resource. If the function returns None, the index leaves the resource out.
    The function must depend only on the resource and must not modify it. Raises DeclarationError.
    """
    return checked_index(Index(type, name, function, single=True), function)


@checked()
def by_many(type: CachedType[R], name: str, function: Callable[[R], Iterable[V]]) -> Index[R, V]:
    """``BY_MEMBER = headway.indexes.by_many(TEAM, "member", lambda team: team.data.members)``

    Return an index with any number of values for each resource. Raises DeclarationError.
    """
    return checked_index(Index(type, name, function, single=False), function)


def check_many(given: Any) -> Any:
    """Return what the function of an index with many values has returned. Raise TypeError for a single value."""
    if given is None:
        raise TypeError("it returned None: return a list of values, which is empty for a resource without any")
    if isinstance(given, str | bytes):
        # Each letter would be a value.
        raise TypeError(f"it returned {repr_text(given)}: return a list of values, such as [{repr_text(given)}]")
    return given


def checked_index(index: Index[R, V], function: object) -> Index[R, V]:
    """Return the index. Raises DeclarationError if its function cannot be used."""
    problem = plain_problem(function, 1, "a resource", may_yield=not index.single)
    if problem:
        raise DeclarationError(f"the function of index {index.name!r} on {index.type.name} {problem}: {_FORM}")
    return index


@checked(key="'team'", name="'team'")
def by_metadata(type: CachedType[R], key: str, *, name: str = "") -> Index[R, str]:
    """Return an index by the value of one metadata entry. Its name defaults to the entry's key."""
    return Index(type, name or key, lambda message: message.metadata.get(key), single=True, raw=True)


@checked()
def by_owner(type: CachedType[R], *, name: str = "owner") -> Index[R, str]:
    """Return an index by the uid of the owner, because ownership belongs to one incarnation."""
    return Index(
        type, name, lambda message: message.owner.uid if message.owner is not None else None, single=True, raw=True
    )


@checked(name="'team'")
def by_reference(type: CachedType[R], name: str, function: Callable[[R], Referred | None]) -> Index[R, ResourceId]:
    """Return an index by a single reference: ``lambda route: SERVICE.id(route.data.service)``.

    A reference always means the resource that has the name now. The uid and the version of the type are therefore
    ignored, both in the result of the function and in lookups.
    """

    def referred(resource: R) -> ResourceId | None:
        given = function(resource)
        return None if given is None else _normal(given)

    return checked_index(Index(type, name, referred, single=True, normal=_normal), function)


@checked(name="'team'")
def by_references(type: CachedType[R], name: str, function: Callable[[R], Iterable[Referred]]) -> Index[R, ResourceId]:
    """Return an index like `by_reference` for resources that each refer to any number of resources."""
    made: Index[R, ResourceId] = Index(
        type, name, lambda resource: map(_normal, function(resource)), single=False, normal=_normal
    )
    return checked_index(made, function)


@checked()
def by_bound_references(type: ResourceType[T], *, name: str = _BOUND) -> Index[Resource[T], ResourceId]:
    """Return an index like `by_references`, by the payload's field ``bound_references``, a list of references."""
    if _BOUND not in type.payload.__dataclass_fields__:
        raise DeclarationError(
            f"{type.name}: {type.payload.__name__} has no field {_BOUND!r}: add it, "
            f"`{_BOUND}: list[headway.Reference] = field(...)`, or use headway.indexes.by_references"
        )
    return by_references(type, name, lambda resource: getattr(resource.data, _BOUND))


def _normal(given: Referred) -> ResourceId:
    """Return the normal form of a reference in an index."""
    if isinstance(given, pb.Reference):
        given = resource_id(pb.Id(name=given.name, type=given.type, tenancy=given.tenancy))
    if not isinstance(given, ResourceId):
        raise TypeError(f"{given!r} is not a reference: return TYPE.id(name) or resource.id.reference()")
    return given._replace(type=given.type._replace(version=""), uid="")


class Table(Protocol):
    """The content of one index, as reads use it."""

    @property
    def index(self) -> Index[Any, Any]:
        """The index whose content this is."""
        ...

    @property
    def reads_status(self) -> bool:
        """True if the function has read what the write of a status changes, or if that is not known."""
        ...

    @property
    def failed(self) -> Collection[Key]:
        """The keys that are cached but missing here, because the function raised."""
        ...

    def keys(self, value: Hashable) -> Collection[Key]:
        """Return the keys under a value, in no particular order."""
        ...

    def starting(self, prefix: Path) -> Iterator[tuple[Any, Collection[Key]]]:
        """Yield every value of the prefix's class that begins with it, in order, together with its keys."""
        ...

    def parents(self, value: Path) -> Iterator[Collection[Key]]:
        """Yield the keys of each value that is a prefix of this one or equal to it, the shortest first."""
        ...
