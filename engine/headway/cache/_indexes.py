"""Indexes: which resources have a value, kept in step with the entries. Pure.

Rules:
1. A table holds a key under exactly the values that its function gives for the entry that is held.
2. A function that raises for a resource takes that resource out of this index alone: the entry and all other indexes
   change, the key is listed in ``failed``, and a read says that it is incomplete.
3. A resource whose payload bytes do not decode, and for which a function raises, has no values in that index. It is
   not listed as failed: no function could do better, and one resource must not end every read.
4. An index belongs to a run and is built anew with it; a definition holds no data.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Generic, Protocol, TypeVar

from sortedcontainers import SortedList

from headway._functions import answer_problem, plain_problem
from headway._keywords import check_keywords
from headway.cache._cached_type import CachedType
from headway.cache._isolation import Isolation
from headway.cache._projection import Projection
from headway.cache._type_store import Applied
from headway.errors import DeclarationError
from headway.resource import Key, ResourceType, pb

R = TypeVar("R")
V = TypeVar("V", bound=Hashable)

_NO_ANSWERS = {CoroutineType, GeneratorType, AsyncGeneratorType}

OnFailure = Callable[[str, Key, BaseException], None]
IsUndecodable = Callable[[Key, pb.Resource], bool]

_FORM = "headway.indexes.by(ACCOUNT, 'team', lambda account: account.data.team)"

Path = str | tuple[str, ...]
"""What has a beginning: a text, or a path of texts."""


class Index(Generic[R, V]):
    """A named index on a type's resources, and the handle by which it is read. Made by `index` and its like.

    ``R`` is what a read of it gives, ``V`` is what it is asked for.

    Attributes:
        type: whose resources it is on.
        name: what it is called in errors and reports.
        single: the function gives one value (or None: not in this index), not several.
        raw: the function takes the stored message itself and must only read it.
        normal: makes of a value that is asked for the one that the function gives; None: it is the same.
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
        if not isinstance(given[0], ResourceType | Projection):
            raise DeclarationError(f"an index is on a type, not on {type!r}: {_FORM}")
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
        """The function over held messages; with ``isolation`` it is checked at every call."""
        function, view = self.function, self.type.view
        if isolation is not None:
            return lambda message: self._checked(isolation, message)
        if self.raw:
            return function
        return lambda message: function(view(message))

    def _checked(self, isolation: Isolation, message: pb.Resource) -> Any:
        function = self.function
        given = message if self.raw else self.type.view(message)

        def call() -> Any:
            # One that yields its values has to be done with them before it can be judged.
            return function(given) if self.single else list(function(given))

        return isolation.reading(f"the function of {self!r}", message, given, call)


@check_keywords
def by(type: CachedType[R], name: str, function: Callable[[R], V | None]) -> Index[R, V]:
    """``BY_TEAM = headway.indexes.by(ACCOUNT, "team", lambda account: account.data.team)``

    An index with one value for each resource; None leaves the resource out. The function must depend on the resource
    alone and must not change it. Raises DeclarationError.
    """
    return checked_index(Index(type, name, function, single=True), function)


@check_keywords
def by_many(type: CachedType[R], name: str, function: Callable[[R], Iterable[V]]) -> Index[R, V]:
    """An index with any number of values for each resource. Raises DeclarationError."""
    return checked_index(Index(type, name, function, single=False), function)


def checked_index(index: Index[R, V], function: object) -> Index[R, V]:
    """Return the index. Raises DeclarationError when the program's function for it can't be used."""
    problem = plain_problem(function, 1, "a resource", may_yield=not index.single)
    if problem:
        raise DeclarationError(f"the function of index {index.name!r} on {index.type.name} {problem}: {_FORM}")
    return index


class Table(Protocol):
    """One index's content, as reads want it."""

    @property
    def index(self) -> Index[Any, Any]:
        """What it is the content of."""
        ...

    @property
    def failed(self) -> Collection[Key]:
        """The keys that are held but missing here, because the function raised."""
        ...

    def keys(self, value: Hashable) -> Collection[Key]:
        """The keys under a value, in no order."""
        ...

    def starting(self, prefix: Path) -> Iterator[tuple[Any, Collection[Key]]]:
        """Every value of the prefix's class that begins with it, in order, with its keys."""
        ...


class IndexTable:
    """Meets `Table`: one index of one run.

    Attributes:
        failed: the keys that are held but missing here, because the function raised.
        is_undecodable: tells the resources that the function could only raise for (rule 3).
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
        # The texts, and the tuples of texts, among the values. Invariant: one that is there holds exactly those of
        # `_keys`. It is made when a prefix is first asked for, so that an index that nobody asks so doesn't pay.
        self._ordered: dict[type, SortedList] = {}

    def build(self, entries: Mapping[Key, pb.Resource]) -> None:
        """Index everything that is held, once."""
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
        """Follow what the gate has applied."""
        for key, old, new, _ in applied:
            if old is not None:
                self._discard(key, old)
            if new is not None:
                self._add(key, new)

    def keys(self, value: Hashable) -> Collection[Key]:
        """See `Table`."""
        return self._keys.get(value, ())

    def starting(self, prefix: Path) -> Iterator[tuple[Any, Collection[Key]]]:
        """See `Table`. The first call of all sorts the values; from then on they are kept in order."""
        wanted = str if isinstance(prefix, str) else tuple
        ordered = self._ordered.get(wanted)
        if ordered is None:
            ordered = self._ordered[wanted] = SortedList(each for each in self._keys if _path_class(each) is wanted)
        for value in ordered.irange(prefix):
            if value[: len(prefix)] != prefix:
                return
            yield value, self._keys[value]

    def values(self) -> Iterable[Hashable]:
        """Every value that some resource has."""
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
                else:
                    held.add(key)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  # likewise
            # Nothing was added before it raised: `_values` is whole, and each value of it can be a key.
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
        except BaseException:  # noqa: BLE001  # likewise
            # The function gives another answer than it gave before, which it must not: look everywhere.
            self._sweep(key)

    def _drop(self, value: Hashable) -> None:
        del self._keys[value]
        if self._ordered and (ordered := self._ordered.get(_path_class(value))) is not None:
            ordered.remove(value)

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
        self._on_failure(self.index.name, key, error)


def _check_value(value: object) -> None:
    """Raise for a coroutine or a generator: it could be a key, and nobody would ever ask for it."""
    if type(value) in _NO_ANSWERS:
        raise TypeError(answer_problem(value))


def _path_class(value: object) -> type:
    """`str`, `tuple` for one of texts alone, and `object` for what has no order that it would share with others."""
    if isinstance(value, str):
        return str
    return tuple if isinstance(value, tuple) and all(isinstance(each, str) for each in value) else object
