"""Indexes, which find resources by a value and are updated together with the entries. No I/O.

Rules:
1. A table holds a key under exactly the values that its function returns for the current entry.
2. If a function raises for a resource, that resource is left out of this index only. The entry and all other indexes
   change. The key is listed in ``failed``, and reads of the index report that it is incomplete.
3. If a function raises for a resource whose payload does not decode, the resource has no values in that index. It is
   not listed as failed: no function could do better, and one such resource must not make every read fail.
4. An index belongs to a run and is rebuilt with it; a definition holds no data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Generic, Protocol, TypeVar

from sortedcontainers import SortedList

from headway.base import answer_problem, check_keywords, plain_problem
from headway.cache._isolation import Isolation
from headway.cache._projection import CachedType, Projection
from headway.cache._type_store import Applied
from headway.errors import DeclarationError
from headway.protobuf import Payload
from headway.resource import Key, Resource, ResourceId, ResourceType, ScopedType, pb, redact_error, resource_id

R = TypeVar("R")
T = TypeVar("T", bound=Payload)
V = TypeVar("V", bound=Hashable)

_NO_ANSWERS = {CoroutineType, GeneratorType, AsyncGeneratorType}

OnFailure = Callable[[str, Key, BaseException], None]
IsUndecodable = Callable[[Key, pb.Resource], bool]

_FORM = "headway.indexes.by(ACCOUNT, 'team', lambda account: account.data.team)"

Referred = ResourceId | pb.Reference
"""A reference to another resource in a payload. It must include its tenancy, because nothing is filled in."""

_BOUND = "bound_references"

Path = str | tuple[str, ...]
"""A value that has prefixes: a text, or a path as a tuple of texts."""


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
        given: tuple[object, object] = (type, name)
        if not isinstance(given[0], ResourceType | ScopedType | Projection):
            raise DeclarationError(f"an index needs a type, not {type!r}: {_FORM}")
        if not (isinstance(given[1], str) and given[1]):
            raise DeclarationError(f"an index on {type.name} needs a name, not {name!r}: {_FORM}")
        self.type = type
        self.name = name
        self.function = function
        self.single = single
        self.raw = raw
        self.normal = normal

    def __repr__(self) -> str:
        return f"<Index {self.name} on {self.type.name}>"

    def extract(self, isolation: Isolation | None = None) -> Callable[[pb.Resource], Any]:
        """Return the function on stored messages. With ``isolation``, every call of it is checked."""
        function, view = self.function, self.type.view
        if isolation is not None:
            return lambda message: self._checked(isolation, message)
        if self.raw:
            return function
        last: list[Any] = []

        def extract(message: pb.Resource) -> Any:
            # A changed status calls the function for two states with the same payload. It only reads the payload, so
            # that one decoding serves both.
            made = view(message)
            if isinstance(made, Resource):
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
            return function(given) if self.single else list(function(given))

        return isolation.reading(f"the function of {self!r}", message, given, call)


@check_keywords
def by(type: CachedType[R], name: str, function: Callable[[R], V | None]) -> Index[R, V]:
    """``BY_TEAM = headway.indexes.by(ACCOUNT, "team", lambda account: account.data.team)``

    Return an index with one value for each resource. If the function returns None, the index leaves the resource out.
    The function must depend only on the resource and must not modify it. Raises DeclarationError.
    """
    return checked_index(Index(type, name, function, single=True), function)


@check_keywords
def by_many(type: CachedType[R], name: str, function: Callable[[R], Iterable[V]]) -> Index[R, V]:
    """Return an index with any number of values for each resource. Raises DeclarationError."""
    return checked_index(Index(type, name, function, single=False), function)


def checked_index(index: Index[R, V], function: object) -> Index[R, V]:
    """Return the index. Raises DeclarationError if its function cannot be used."""
    problem = plain_problem(function, 1, "a resource", may_yield=not index.single)
    if problem:
        raise DeclarationError(f"the function of index {index.name!r} on {index.type.name} {problem}: {_FORM}")
    return index


@check_keywords
def by_metadata(type: CachedType[R], key: str, *, name: str = "") -> Index[R, str]:
    """Return an index by the value of one metadata entry. Its name defaults to the entry's key."""
    return Index(type, name or key, lambda message: message.metadata.get(key), single=True, raw=True)


@check_keywords
def by_owner(type: CachedType[R], *, name: str = "owner") -> Index[R, str]:
    """Return an index by the uid of the owner, because ownership belongs to one incarnation."""
    return Index(
        type, name, lambda message: message.owner.uid if message.owner is not None else None, single=True, raw=True
    )


@check_keywords
def by_reference(type: CachedType[R], name: str, function: Callable[[R], Referred | None]) -> Index[R, ResourceId]:
    """Return an index by a single reference: ``lambda route: SERVICE.id(route.data.service)``.

    A reference always means the resource that has the name now. The uid and the version of the type are therefore
    ignored, both in the result of the function and in lookups.
    """

    def referred(resource: R) -> ResourceId | None:
        given = function(resource)
        return None if given is None else _normal(given)

    return checked_index(Index(type, name, referred, single=True, normal=_normal), function)


@check_keywords
def by_references(type: CachedType[R], name: str, function: Callable[[R], Iterable[Referred]]) -> Index[R, ResourceId]:
    """Return an index like `by_reference` for resources that each refer to any number of resources."""
    made: Index[R, ResourceId] = Index(
        type, name, lambda resource: map(_normal, function(resource)), single=False, normal=_normal
    )
    return checked_index(made, function)


@check_keywords
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


class IndexTable:
    """An implementation of `Table` for one index of one run.

    Attributes:
        failed: the keys that are cached but missing here, because the function raised.
        is_undecodable: returns True for resources whose payload does not decode (rule 3).
    """

    def __init__(
        self,
        index: Index[Any, Any],
        on_failure: OnFailure,
        isolation: Isolation | None = None,
        is_undecodable: IsUndecodable = lambda _, __: False,
    ) -> None:
        self.index = index
        self.failed: set[Key] = set()
        self.is_undecodable = is_undecodable
        self._left_out: set[Key] = set()
        self._single = index.single
        self._extract = index.extract(isolation)
        self._on_failure = on_failure
        self._keys: dict[Hashable, set[Key]] = {}
        # The texts, and the tuples of texts, among the values, in order. Invariant: an existing list holds exactly
        # those of `_keys`. A list is created at the first lookup of a prefix, so other indexes don't pay for it.
        self._ordered: dict[type, SortedList] = {}
        # The number of values of each length, likewise for the lookups of parents. Few values differ in length.
        self._lengths: dict[type, Counter[int]] = {}

    def build(self, entries: Mapping[Key, pb.Resource]) -> None:
        """Index all cached resources once."""
        if not self._single:
            for key, resource in entries.items():
                self._add(key, resource)
            return
        extract, keys = self._extract, self._keys
        for key, resource in entries.items():
            try:
                value = extract(resource)
                if value is not None:
                    held = keys.get(value)
                    if held is None:
                        _check_value(value)
                        keys[value] = {key}
                    else:
                        held.add(key)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001  # a user's function may raise anything, or give a list
                self._fail(key, resource, error)

    def apply(self, applied: Iterable[Applied]) -> None:
        """Apply changes that the store has applied."""
        raw = self.index.raw
        for key, old, new, _ in applied:
            if raw and old is not None and new is not None and _differ_in_status(old, new):
                continue
            if old is not None:
                self._discard(key, old)
            if new is not None:
                self._add(key, new)

    def keys(self, value: Hashable) -> Collection[Key]:
        """Return the keys under a value, in no particular order."""
        return self._keys.get(value, ())

    def starting(self, prefix: Path) -> Iterator[tuple[Any, Collection[Key]]]:
        """Yield the values with this prefix. The first call ever sorts the values; later they are kept in order."""
        wanted = str if isinstance(prefix, str) else tuple
        ordered = self._ordered.get(wanted)
        if ordered is None:
            ordered = self._ordered[wanted] = SortedList(each for each in self._keys if _path_class(each) is wanted)
        for value in ordered.irange(prefix):
            if value[: len(prefix)] != prefix:
                return
            yield value, self._keys[value]

    def parents(self, value: Path) -> Iterator[Collection[Key]]:
        """Yield the keys of each prefix. The first call ever counts the lengths of values; later they are kept."""
        wanted = str if isinstance(value, str) else tuple
        lengths = self._lengths.get(wanted)
        if lengths is None:
            lengths = self._lengths[wanted] = Counter(
                len(each) for each in self._keys if isinstance(each, str | tuple) and _path_class(each) is wanted
            )
        for length in sorted(lengths):
            if length > len(value):
                return
            keys = self._keys.get(value[:length])
            if keys is not None:
                yield keys

    def values(self) -> Iterable[Hashable]:
        """Return every value that a resource has."""
        return self._keys.keys()

    def _values(self, resource: pb.Resource) -> Iterable[Hashable]:
        if self._single:
            value = self._extract(resource)
            return () if value is None else (value,)
        given = self._extract(resource)
        if type(given) is CoroutineType:
            _check_value(given)
        if given is None:
            raise TypeError("it returned None: return a list of values, which is empty for a resource without any")
        values: Iterable[Hashable] = set(given)
        return values

    def _add(self, key: Key, resource: pb.Resource) -> None:
        try:
            for value in self._values(resource):
                held = self._keys.get(value)
                if held is None:
                    _check_value(value)
                    self._keys[value] = {key}
                    if self._ordered and (ordered := self._ordered.get(_path_class(value))) is not None:
                        ordered.add(value)
                    if self._lengths:
                        self._count_length(value, 1)
                else:
                    held.add(key)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  # see above
            # Nothing was added before it raised: `_values` is complete, and each of its values is hashable.
            self._fail(key, resource, error)

    def _discard(self, key: Key, resource: pb.Resource) -> None:
        if key in self.failed or key in self._left_out:
            self.failed.discard(key)
            self._left_out.discard(key)
            return
        try:
            for value in self._values(resource):
                keys = self._keys[value]
                keys.remove(key)
                if not keys:
                    self._drop(value)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001  # see above
            # The function returned a different result than before, which it must not do. Search every value.
            self._sweep(key)

    def _drop(self, value: Hashable) -> None:
        del self._keys[value]
        if self._ordered and (ordered := self._ordered.get(_path_class(value))) is not None:
            ordered.remove(value)
        if self._lengths:
            self._count_length(value, -1)

    def _count_length(self, value: Hashable, change: int) -> None:
        lengths = self._lengths.get(_path_class(value))
        if lengths is not None and isinstance(value, str | tuple):
            lengths[len(value)] += change
            if not lengths[len(value)]:
                del lengths[len(value)]

    def _sweep(self, key: Key) -> None:
        for value in [value for value, keys in self._keys.items() if key in keys]:
            self._keys[value].discard(key)
            if not self._keys[value]:
                self._drop(value)

    def _fail(self, key: Key, resource: pb.Resource, error: BaseException) -> None:
        if self.is_undecodable(key, resource):
            self._left_out.add(key)
            return
        self.failed.add(key)
        if (view := getattr(self.index.type, "view", None)) is not None:
            redact_error(error, [view(resource)])
        self._on_failure(self.index.name, key, error)


def _differ_in_status(old: pb.Resource, new: pb.Resource) -> bool:
    """Return True if two states share their metadata and owner, so that no index of one of these has changed.

    A write of a status in the same process makes such states. Over a network, each state has its own parts.
    """
    return old.metadata is new.metadata and old.owner is new.owner


def _check_value(value: object) -> None:
    """Raise TypeError for a coroutine or a generator. It is hashable, but no lookup would ever find it."""
    if type(value) in _NO_ANSWERS:
        raise TypeError(answer_problem(value))


def _path_class(value: object) -> type:
    """Return `str`, `tuple` for a tuple of texts, and `object` for a value without a common order."""
    if isinstance(value, str):
        return str
    return tuple if isinstance(value, tuple) and all(isinstance(each, str) for each in value) else object
