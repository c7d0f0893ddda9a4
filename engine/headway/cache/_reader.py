"""The read methods of a cache, as mappers get them, and queries. Reconcilers have a few more. No I/O."""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from headway.base import check_selection, checked, plain_problem, repr_text
from headway.cache._indexes import Index, Path, Table
from headway.cache._isolation import Isolation
from headway.cache._projection import CachedType, Projected, Projection
from headway.cache._reading import MOST_READS, READING, note_found, note_read
from headway.errors import DeclarationError, IndexIncomplete, InvalidArgument, NotWatched
from headway.resource import LOOKING, Key, Resource, ResourceId, ResourceType, ScopedType, pb

R = TypeVar("R")
V = TypeVar("V", bound=Hashable)
R_co = TypeVar("R_co", covariant=True)
A = ParamSpec("A")
P = TypeVar("P", bound=tuple[str, ...])

_MOST = 2 * MOST_READS

_FORM = "@headway.query(TEAM, ACCOUNTS_BY_TEAM)"

OWNER_INDEX = "headway.owner"
"""The index by owner that every watched type of a controller has, and that `CacheReader.owned` reads."""

PRIORITY_INDEX = "headway.priority"
"""The index of a controller's `priority` on its managed type."""


class Query(Generic[A, R_co]):
    """A named query. Created by `query` and called with ``rt.cache.query(members_of, ...)``.

    Attributes:
        name: the function's name.
        needs: the types and indexes that a controller with this query must have.
    """

    __slots__ = ("function", "name", "needs")

    def __init__(
        self,
        function: Callable[Concatenate[CacheReader, A], R_co],
        needs: tuple[CachedType[Any] | Index[Any, Any], ...],
    ) -> None:
        self.name: str = getattr(function, "__name__", repr(function))
        self.function = function
        self.needs = needs

    def __repr__(self) -> str:
        return f"<Query {self.name}>"


@checked()
def query(
    *needs: CachedType[Any] | Index[Any, Any],
) -> Callable[[Callable[Concatenate[CacheReader, A], R_co]], Query[A, R_co]]:
    """``@headway.query(TEAM, ACCOUNTS_BY_TEAM)`` makes a query of ``def members_of(cache, team: str) -> ...``.

    The function receives the cache or the view that is queried, and the caller's arguments. To use the query in a
    controller, declare it with ``queries=[members_of]``. The controller must manage or watch the types that the query
    needs, and have its indexes. Raises DeclarationError.
    """

    def declare(function: Callable[Concatenate[CacheReader, A], R_co]) -> Query[A, R_co]:
        problem = plain_problem(function, 1, "a cache first", why="a query must not wait", may_yield=True, more=True)
        if problem:
            raise DeclarationError(f"the function of a query {problem}: {_FORM}")
        return Query(function, needs)

    return declare


class Content(Protocol):
    """The readable content of one type."""

    @property
    def revision(self) -> int:
        """The revision up to which the content is complete."""
        ...

    def find(self, key: Key) -> pb.Resource | None:
        """Return the resource with this key, or None."""
        ...

    def everything(self) -> Mapping[Key, pb.Resource]:
        """Return all resources."""
        ...

    def table(self, name: str) -> Table | None:
        """Return the index of this name, or None."""
        ...


class CacheReader(ABC):
    """The read methods of a cache. They never wait and never access the store, and you may modify their results.

    A read raises NotWatched if the controller does not declare the type, the index or the query. It raises NotPrimed
    before the run is primed and after it has ended.

    Attributes:
        manages: the controller's managed type. The cache of a program without a controller has none.
        isolation: checks the mappers that get this cache; None disables the checks.
    """

    manages: CachedType[Any]
    isolation: Isolation | None = None
    # The subject of errors, such as "controller accounts".
    _whose: str
    _queries: Collection[Query[Any, Any]]

    def get(self, type: CachedType[R], id: str | ResourceId, *, partition: str = "", namespace: str = "") -> R | None:
        """Return the resource or None. Pass a name or an id. An id with a uid finds only that incarnation."""
        try:
            wanted = type.id(id, partition=partition, namespace=namespace) if isinstance(id, str) else id
            if wanted.type != type.name and wanted.type.unversioned != type.kind:
                raise InvalidArgument(f"{wanted} is not a {type.name}: pass its own type")
        except AttributeError:
            if not isinstance(type, ResourceType | ScopedType | Projection):
                raise not_a_type(type) from None
            raise InvalidArgument(
                f"id must be a name or an id, such as 'core' or resource.id, not {repr_text(id)}"
            ) from None
        key = (wanted.partition, wanted.namespace, wanted.name)
        stored = self._content(type).find(key)
        # Like `note_read`, without the call: most reads of a cache are these.
        reads = READING.get()
        if reads is not None and len(reads) < _MOST:
            reads += (type.name, key)
        if stored is None or (wanted.uid and stored.id is not None and stored.id.uid != wanted.uid):
            return None
        return type.view(stored)

    def list(
        self, type: CachedType[R], *, partition: str = "*", namespace: str = "*", name_prefix: str = ""
    ) -> builtins.list[R]:
        """Return all resources of a type, in order of partition, namespace and name. ``*`` matches any."""
        check_selection(partition, namespace, name_prefix)
        entries = self._content(type).everything()
        note_read(type.name, "list")
        keys = sorted(
            key
            for key in entries
            if partition in ("*", key[0]) and namespace in ("*", key[1]) and key[2].startswith(name_prefix)
        )
        found = [type.view(entries[key]) for key in keys]
        note_found(found)
        return found

    def index(self, index: Index[R, V], value: V) -> builtins.list[R]:
        """Return all resources that have this value in the index, in order of key.

        Raises IndexIncomplete if the index's function has failed for a resource, because that resource might be missing
        from the result. Raises InvalidArgument for a value that the index cannot contain.
        """
        content, table = self._table(index)
        try:
            keys = table.keys(value if index.normal is None else index.normal(value))
        except TypeError as error:
            raise InvalidArgument(f"{index!r} cannot be read with {repr_text(value)}: {error}") from error
        return _views(index.type, content, [keys])

    @overload
    def index_prefix(self, index: Index[R, str], prefix: str) -> builtins.list[R]: ...
    @overload
    def index_prefix(self, index: Index[R, P], prefix: tuple[str, ...]) -> builtins.list[R]: ...
    def index_prefix(self, index: Index[R, Any], prefix: Path) -> builtins.list[R]:
        """Return all resources with a value in the index that has this prefix, in order of that value, then of key.

        Values are texts, or paths as tuples of texts. The prefix must be of the same class. Raises the errors of
        `index`, and InvalidArgument for a prefix of another class.
        """
        content, table = self._table(index)
        _check_path(index, prefix)
        return _views(index.type, content, (keys for _, keys in table.starting(prefix)))

    @overload
    def index_parents(self, index: Index[R, str], value: str) -> builtins.list[R]: ...
    @overload
    def index_parents(self, index: Index[R, P], value: tuple[str, ...]) -> builtins.list[R]: ...
    def index_parents(self, index: Index[R, Any], value: Path) -> builtins.list[R]:
        """Return all resources whose value in the index is a prefix of this one or equal to it, the shortest first.

        Values and errors are as for `index_prefix`.
        """
        content, table = self._table(index)
        _check_path(index, value)
        return _views(index.type, content, table.parents(value))

    def owned(self, type: CachedType[R], owner: Resource[Any] | Projected[Any] | ResourceId) -> builtins.list[R]:
        """Return all resources of a watched type that this incarnation owns, in order of key.

        Raises InvalidArgument for an owner without uid.
        """
        try:
            owns = bool(owner.uid)
        except AttributeError:
            raise InvalidArgument(f"owner must be a resource, or its id with its uid, not {repr_text(owner)}") from None
        if not owns:
            raise InvalidArgument(f"{owner} has no uid, and ownership is of an incarnation: read the owner first")
        content = self._content(type)
        table = content.table(OWNER_INDEX)
        note_read(type.name, "owner")
        if table is None:
            raise NotWatched(f"{self._whose} doesn't watch {type.name}: add it to `watches`")
        return _views(type, content, [table.keys(owner.uid)])

    def query(self, query: Query[A, R], *arguments: A.args, **named: A.kwargs) -> R:
        """Return the result of a declared query."""
        if query not in self._queries:
            raise NotWatched(f"{self._whose} doesn't declare {query!r}: add it to `queries`")
        return query.function(self, *arguments, **named)

    def revision(self, type: CachedType[Any]) -> int:
        """Return the revision up to which this type is complete."""
        return self._content(type).revision

    @abstractmethod
    def _content(self, type: CachedType[Any]) -> Content:
        """Return the readable content of a type. Raises NotWatched or NotPrimed."""

    def _table(self, index: Index[Any, Any]) -> tuple[Content, Table]:
        given: object = index
        if not isinstance(given, Index):
            raise InvalidArgument(f"reading an index needs what headway.indexes.by(...) returned, not {given!r}")
        type = index.type
        content = self._content(type)
        note_read(type.name, f"index {index.name}")
        table = content.table(index.name)
        if table is None or table.index is not index:
            another = "" if table is None else ", but another one of that name"
            raise NotWatched(
                f"{self._whose} doesn't declare {index!r}{another}: use the same object in `indexes` and in the read"
            )
        if table.reads_status and (looking := LOOKING.get()) is not None:
            looking.look_at_all(type.kind)
        if table.failed:
            example = min(table.failed)
            raise IndexIncomplete(
                f"index {index.name!r} on {type.name} lacks {len(table.failed)} resources because its function "
                f"raised, such as {'/'.join(example)}"
            )
        return content, table


def state_of(reader: CacheReader, type: CachedType[Any], key: Key) -> pb.Resource | None:
    """Return the message with this key, or None. It does not count as a read."""
    return reader._content(type).find(key)


def not_a_type(given: object) -> InvalidArgument:
    """Return the error for a read whose type is not a type."""
    return InvalidArgument(f"a cache is read by a type, as app.type(...) returned it, not {repr_text(given)}")


def _views(type: CachedType[R], content: Content, groups: Iterable[Collection[Key]]) -> list[R]:
    """Return the resources of the keys, group by group, each in order of key, without duplicates."""
    keys: dict[Key, None] = {}
    for group in groups:
        keys.update(dict.fromkeys(sorted(group) if len(group) > 1 else group))
    find, view = content.find, type.view
    found = [view(stored) for key in keys if (stored := find(key)) is not None]
    note_found(found)
    return found


def _check_path(index: Index[Any, Any], given: object) -> None:
    if not (isinstance(given, str) or (isinstance(given, tuple) and all(isinstance(each, str) for each in given))):
        raise InvalidArgument(f"{index!r} is read with a prefix that is a text or a tuple of texts, not {given!r}")
