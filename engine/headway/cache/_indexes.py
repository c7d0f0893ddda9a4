"""Indexes: which resources have a value, kept in step with the entries. Pure.

Rules:
1. A table holds a key under exactly the values that its function gives for the entry that is held.
2. A function that raises for a resource takes that resource out of this index alone: the entry and all other indexes
   change, the key is listed in ``failed``, and a read says that it is incomplete.
3. An index belongs to a run and is built anew with it; a definition holds no data.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from headway.cache._gate import Applied
from headway.errors import DeclarationError
from headway.resource import Key, Payload, Resource, ResourceType, pb

T = TypeVar("T", bound=Payload)

Extract = Callable[[pb.Resource], "Iterable[Hashable]"]
OnFailure = Callable[[str, Key, Exception], None]


class Index(Generic[T]):
    """A named index on a type's resources. Make one by `index`, `index_metadata` or `index_owner`.

    Attributes:
        name: how it is asked for.
        single: the function gives one value (or None: not in this index), not several.
        raw: the function takes the stored message itself and must only read it.
    """

    __slots__ = ("function", "name", "raw", "single")

    def __init__(self, name: str, function: Callable[[Any], Any], *, single: bool, raw: bool = False) -> None:
        given: object = name
        if not (isinstance(given, str) and given):
            raise DeclarationError(f"an index needs a name, not {given!r}: index('team', lambda account: ...)")
        if not callable(function):
            raise DeclarationError(f"index {name!r} needs a function, not {function!r}")
        self.name = name
        self.function = function
        self.single = single
        self.raw = raw

    def extract(self, type: ResourceType[Any]) -> Callable[[pb.Resource], Any]:
        """The function over stored messages."""
        function = self.function
        if self.raw:
            return function
        return lambda message: function(Resource(type, message))


def index(name: str, function: Callable[[Resource[T]], Hashable | None]) -> Index[T]:
    """An index with one value for each resource; None leaves the resource out.

    The function must depend on the resource alone and must not change it.
    """
    return Index(name, function, single=True)


def index_many(name: str, function: Callable[[Resource[T]], Iterable[Hashable]]) -> Index[T]:
    """An index with any number of values for each resource."""
    return Index(name, function, single=False)


def index_metadata(name: str, key: str) -> Index[Any]:
    """An index by the text of one metadata entry."""
    return Index(name, lambda message: message.metadata.get(key), single=True, raw=True)


def index_owner(name: str = "owner") -> Index[Any]:
    """An index by the uid of the owner."""
    return Index(name, lambda message: message.owner.uid if message.owner is not None else None, single=True, raw=True)


class IndexTable:
    """One index of one run.

    Attributes:
        failed: the keys that are held but missing here, because the function raised.
    """

    def __init__(self, index: Index[Any], type: ResourceType[Any], on_failure: OnFailure) -> None:
        self.name = index.name
        self.failed: set[Key] = set()
        self._single = index.single
        self._extract = index.extract(type)
        self._on_failure = on_failure
        self._keys: dict[Hashable, set[Key]] = {}

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
                        keys[value] = {key}
                    else:
                        held.add(key)
            except Exception as error:  # noqa: BLE001  # a user's function may raise anything, or give a list
                self._fail(key, error)

    def apply(self, applied: Iterable[Applied]) -> None:
        """Follow what the gate has applied."""
        for key, old, new, _ in applied:
            if old is not None:
                self._discard(key, old)
            if new is not None:
                self._add(key, new)

    def keys(self, value: Hashable) -> Iterable[Key]:
        """The keys under a value, in no order."""
        return self._keys.get(value, ())

    def keys_from(self, prefix: str) -> Iterable[Key]:
        """The keys under every value that is a string and begins so."""
        return {
            key
            for value, keys in self._keys.items()
            if isinstance(value, str) and value.startswith(prefix)
            for key in keys
        }

    def values(self) -> Iterable[Hashable]:
        """Every value that some resource has."""
        return self._keys.keys()

    def _values(self, resource: pb.Resource) -> Iterable[Hashable]:
        if self._single:
            value = self._extract(resource)
            return () if value is None else (value,)
        values: Iterable[Hashable] = set(self._extract(resource))
        return values

    def _add(self, key: Key, resource: pb.Resource) -> None:
        try:
            for value in self._values(resource):
                self._keys.setdefault(value, set()).add(key)
        except Exception as error:  # noqa: BLE001  # likewise
            # Nothing was added before it raised: `_values` is whole, and each value of it can be a key.
            self._fail(key, error)

    def _discard(self, key: Key, resource: pb.Resource) -> None:
        if key in self.failed:
            self.failed.discard(key)
            return
        try:
            for value in self._values(resource):
                keys = self._keys[value]
                keys.remove(key)
                if not keys:
                    del self._keys[value]
        except Exception:  # noqa: BLE001  # likewise
            # The function gives another answer than it gave before, which it must not: look everywhere.
            self._sweep(key)

    def _sweep(self, key: Key) -> None:
        for value in [value for value, keys in self._keys.items() if key in keys]:
            self._keys[value].discard(key)
            if not self._keys[value]:
                del self._keys[value]

    def _fail(self, key: Key, error: Exception) -> None:
        self.failed.add(key)
        self._on_failure(self.name, key, error)
