"""The reads of a cache that notifications repeat, and which of them a change affects. No Trio, no I/O.

Finding the affected reads takes one look-up for each change, however many reads there are of other resources or other
values of an index.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from headway.cache import CachedType, CacheReader, Index, values_of
from headway.notify._handle import Answer
from headway.resource import Key, Position, ResourceId, TypeName, pb

T = TypeVar("T")

Ended = Callable[[Answer[Any]], object]
"""A function that is called when the last handle of a read was closed."""


class Difference(NamedTuple):
    """A resource whose state is not the same at two revisions."""

    key: Key
    old: pb.Resource | None
    new: pb.Resource | None


class Shown(Protocol):
    """The state of the cache that the reads show: one revision of all types."""

    @property
    def reader(self) -> CacheReader:
        """The cache at that revision."""
        ...

    @property
    def position(self) -> Position | None:
        """The position of that revision."""
        ...

    def age(self, type: TypeName) -> float:
        """Return the time, in seconds, for which a type has been cut off."""
        ...


class Read(Answer[T]):
    """A read that is repeated when a change affects it."""

    def __init__(
        self, key: Hashable, ended: Ended, type: CachedType[Any], shown: Shown, read: Callable[[CacheReader], T]
    ) -> None:
        super().__init__(key, ended)
        self.type = type
        self._shown = shown
        self._read = read

    @property
    def position(self) -> Position | None:
        """The position of the cache that the value is from."""
        return self._shown.position

    @property
    def age(self) -> float:
        """The time, in seconds, for which the type has been cut off."""
        return self._shown.age(self.type.name)

    def read(self) -> T:
        """Return the present result of the read, which the caller may change."""
        return self._read(self._shown.reader)

    @abstractmethod
    def place(self) -> tuple[Hashable, ...]:
        """Return under which key a change finds this read. Changes of `ListRead`s are compared one by one."""


class GetRead(Read[T]):
    """The read of one resource."""

    def __init__(self, key: Hashable, ended: Ended, type: CachedType[Any], shown: Shown, wanted: ResourceId) -> None:
        super().__init__(key, ended, type, shown, lambda reader: cast("T", reader.get(type, wanted)))
        self._wanted: Key = wanted.key

    def place(self) -> tuple[Hashable, ...]:
        """Return the resource's key."""
        return ("get", self._wanted)


class ListRead(Read[T]):
    """The read of all resources within some bounds."""

    def __init__(
        self,
        key: Hashable,
        ended: Ended,
        type: CachedType[Any],
        shown: Shown,
        bounds: tuple[str, str, str],
    ) -> None:
        named = dict(zip(("partition", "namespace", "name_prefix"), bounds, strict=True))
        super().__init__(key, ended, type, shown, lambda reader: cast("T", reader.list(type, **named)))
        self._bounds = bounds

    def place(self) -> tuple[Hashable, ...]:
        """Return the same for all lists."""
        return ("list",)

    def covers(self, key: Key) -> bool:
        """Return True if a key is within the bounds."""
        partition, namespace, prefix = self._bounds
        return partition in ("*", key[0]) and namespace in ("*", key[1]) and key[2].startswith(prefix)


class IndexRead(Read[T]):
    """The read of all resources with a value in an index."""

    def __init__(self, key: Hashable, ended: Ended, shown: Shown, index: Index[Any, Any], value: Hashable) -> None:
        super().__init__(key, ended, index.type, shown, lambda reader: cast("T", reader.index(index, value)))
        self.index = index
        self._value = value if index.normal is None else index.normal(value)

    def place(self) -> tuple[Hashable, ...]:
        """Return the index and the value."""
        return ("index", self.index.name, self._value)


class AffectedReads:
    """The reads of one type, and a search for those that changes affect."""

    def __init__(self) -> None:
        self._reads: dict[tuple[Hashable, ...], dict[Read[Any], None]] = {}
        # The number of reads of each index.
        self._indexes: dict[Index[Any, Any], int] = {}

    def __iter__(self) -> Iterator[Read[Any]]:
        return iter([read for reads in self._reads.values() for read in reads])

    def __len__(self) -> int:
        return len(self._reads)

    def add(self, read: Read[Any]) -> None:
        """Add a read."""
        self._reads.setdefault(read.place(), {})[read] = None
        if isinstance(read, IndexRead):
            self._indexes[read.index] = self._indexes.get(read.index, 0) + 1

    def remove(self, read: Read[Any]) -> None:
        """Remove a read that was added."""
        reads = self._reads[read.place()]
        del reads[read]
        if not reads:
            del self._reads[read.place()]
        if isinstance(read, IndexRead):
            self._indexes[read.index] -= 1
            if not self._indexes[read.index]:
                del self._indexes[read.index]

    def affected(self, differences: Iterable[Difference]) -> dict[Read[Any], None]:
        """Return the reads whose result may differ."""
        found: dict[Read[Any], None] = {}
        for key, old, new in differences:
            found.update(self._reads.get(("get", key), {}))
            for read in self._reads.get(("list",), {}):
                if isinstance(read, ListRead) and read.covers(key):
                    found[read] = None
            for index in self._indexes:
                found.update(self._with_value(index, old, new))
        return found

    def _with_value(
        self, index: Index[Any, Any], old: pb.Resource | None, new: pb.Resource | None
    ) -> dict[Read[Any], None]:
        extract = index.extract()
        found: dict[Read[Any], None] = {}
        try:
            for state in (old, new):
                if state is not None:
                    for value in values_of(index, extract(state)):
                        found.update(self._reads.get(("index", index.name, value), {}))
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001  # a user's function or its values may raise anything, as in the index
            # The index is or was incomplete, so every read of it raises IndexIncomplete, or no longer does.
            return {read: None for read in self if isinstance(read, IndexRead) and read.index is index}
        return found
