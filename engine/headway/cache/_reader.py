"""The read face of a cache: what mappers and queries are given, and what reconcilers have more of."""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from headway.cache._cached_type import CachedType
from headway.cache._indexes import Index, Path, Table
from headway.cache._isolation import Isolation
from headway.cache._projection import Projected
from headway.cache._query import Query
from headway.errors import IndexIncomplete, InvalidArgument, NotWatched
from headway.resource import Key, Resource, ResourceId, pb

R = TypeVar("R")
V = TypeVar("V", bound=Hashable)
A = ParamSpec("A")
P = TypeVar("P", bound=tuple[str, ...])

OWNER_INDEX = "headway.owner"
"""The index by owner that every watched type of a controller has; `CacheReader.owned` reads it."""


class Held(Protocol):
    """What there is of one type to read."""

    @property
    def revision(self) -> int:
        """The revision up to which it is complete."""
        ...

    def find(self, key: Key) -> pb.Resource | None:
        """What bears this key."""
        ...

    def everything(self) -> Mapping[Key, pb.Resource]:
        """All of it."""
        ...

    def table(self, name: str) -> Table | None:
        """The index of this name."""
        ...


class CacheReader(ABC):
    """Reads of a cache. Nothing waits, and nothing goes to the store.

    What is returned is yours to change. Every read raises NotWatched for a type, an index or a query that the
    controller doesn't declare, and NotPrimed while there is nothing to read: before the run is primed, and after its
    end.

    Attributes:
        manages: the controller's managed type.
        isolation: what checks the mappers that are given this; None: nothing does.
    """

    manages: CachedType[Any]
    isolation: Isolation | None = None
    _controller: str
    _queries: Collection[Query[Any, Any]]

    def get(self, type: CachedType[R], id: str | ResourceId, *, partition: str = "", namespace: str = "") -> R | None:
        """The resource, or None. ``id`` is a name, or an id (with a uid only that incarnation is found)."""
        wanted = type.id(id, partition=partition, namespace=namespace) if isinstance(id, str) else id
        if wanted.type != type.name and wanted.type.unversioned != type.kind:
            raise InvalidArgument(f"{wanted} is not a {type.name}: ask for it by its own type")
        stored = self._held(type).find((wanted.partition, wanted.namespace, wanted.name))
        if stored is None or (wanted.uid and stored.id is not None and stored.id.uid != wanted.uid):
            return None
        return type.view(stored)

    def list(
        self, type: CachedType[R], *, partition: str = "*", namespace: str = "*", name_prefix: str = ""
    ) -> builtins.list[R]:
        """All resources of a type, in order of partition, namespace and name; ``*`` is any."""
        entries = self._held(type).everything()
        keys = sorted(
            key
            for key in entries
            if partition in ("*", key[0]) and namespace in ("*", key[1]) and key[2].startswith(name_prefix)
        )
        return [type.view(entries[key]) for key in keys]

    def index(self, index: Index[R, V], value: V) -> builtins.list[R]:
        """All resources that have this value in the index, in order of key.

        Raises IndexIncomplete when the index's function has failed for some resource: the answer might lack it;
        InvalidArgument for a value that none can be.
        """
        held, table = self._table(index)
        try:
            keys = table.keys(value if index.normal is None else index.normal(value))
        except TypeError as error:
            raise InvalidArgument(f"{index!r} can't be asked for {value!r:.120}: {error}") from error
        return _views(index.type, held, [keys])

    @overload
    def index_prefix(self, index: Index[R, str], prefix: str) -> builtins.list[R]: ...
    @overload
    def index_prefix(self, index: Index[R, P], prefix: tuple[str, ...]) -> builtins.list[R]: ...
    def index_prefix(self, index: Index[R, Any], prefix: Path) -> builtins.list[R]:
        """All resources that have a value beginning so in the index, in order of that value, then of key.

        Values are texts, or paths as tuples of texts; what is asked for is of the same class. Raises as `index` does,
        and InvalidArgument for a prefix that is neither.
        """
        held, table = self._table(index)
        _check_path(index, prefix)
        return _views(index.type, held, (keys for _, keys in table.starting(prefix)))

    @overload
    def index_parents(self, index: Index[R, str], value: str) -> builtins.list[R]: ...
    @overload
    def index_parents(self, index: Index[R, P], value: tuple[str, ...]) -> builtins.list[R]: ...
    def index_parents(self, index: Index[R, Any], value: Path) -> builtins.list[R]:
        """All resources whose value in the index is a beginning of this one, or all of it: the shortest first.

        Values, and errors, as for `index_prefix`.
        """
        held, table = self._table(index)
        _check_path(index, value)
        return _views(index.type, held, (table.keys(value[:length]) for length in range(len(value) + 1)))

    def owned(self, type: CachedType[R], owner: Resource[Any] | Projected[Any] | ResourceId) -> builtins.list[R]:
        """All resources of a watched type that this incarnation owns, in order of key.

        Raises InvalidArgument for an owner without uid.
        """
        if not owner.uid:
            raise InvalidArgument(f"{owner} has no uid, and ownership is of an incarnation: read the owner first")
        held = self._held(type)
        table = held.table(OWNER_INDEX)
        if table is None:
            raise NotWatched(f"controller {self._controller} doesn't watch {type.name}: add it to `watches`")
        return _views(type, held, [table.keys(owner.uid)])

    def query(self, query: Query[A, R], *arguments: A.args, **named: A.kwargs) -> R:
        """What a declared query answers."""
        if query not in self._queries:
            raise NotWatched(f"controller {self._controller} doesn't declare {query!r}: add it to `queries`")
        return query.function(self, *arguments, **named)

    def revision(self, type: CachedType[Any]) -> int:
        """The revision up to which what is read of this type is complete."""
        return self._held(type).revision

    @abstractmethod
    def _held(self, type: CachedType[Any]) -> Held:
        """What there is of a type to read. Raises NotWatched or NotPrimed."""

    def _table(self, index: Index[Any, Any]) -> tuple[Held, Table]:
        given: object = index
        if not isinstance(given, Index):
            raise InvalidArgument(f"an index is read by what headway.indexes.by(...) returned, not by {given!r}")
        type = index.type
        held = self._held(type)
        table = held.table(index.name)
        if table is None or table.index is not index:
            another = "" if table is None else ", but another one of that name"
            raise NotWatched(
                f"controller {self._controller} declares no {index!r}{another}: give `indexes` the very one that is "
                "read"
            )
        if table.failed:
            example = min(table.failed)
            raise IndexIncomplete(
                f"index {index.name!r} on {type.name} lacks {len(table.failed)} resources for which its function "
                f"raised, such as {'/'.join(example)}"
            )
        return held, table


def _views(type: CachedType[R], held: Held, groups: Iterable[Collection[Key]]) -> list[R]:
    """What bears the keys, group by group, each in order of key; none comes twice."""
    keys = dict.fromkeys(key for group in groups for key in sorted(group))
    find, view = held.find, type.view
    return [view(stored) for key in keys if (stored := find(key)) is not None]


def _check_path(index: Index[Any, Any], given: object) -> None:
    if not (isinstance(given, str) or (isinstance(given, tuple) and all(isinstance(each, str) for each in given))):
        raise InvalidArgument(f"{index!r} is asked for what begins by a text or a tuple of texts, not by {given!r}")
