"""The content of an index, which is updated together with the entries. No I/O.

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
from typing import Any

from sortedcontainers import SortedList

from headway.base import answer_problem, function_text
from headway.cache._indexes import Index, Path, StatusReads, check_many
from headway.cache._isolation import Isolation
from headway.cache._type_store import Applied
from headway.resource import LOOKING, Key, pb, redact_error, unseen

_NO_ANSWERS = {CoroutineType, GeneratorType, AsyncGeneratorType}

OnFailure = Callable[[str, Key, BaseException], None]
IsUndecodable = Callable[[Key, pb.Resource], bool]


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
        # Invariant: this function was called for every entry. If no call has read a status, no value depends on one.
        self._status_reads = StatusReads()
        self._extract = index.extract(isolation, self._status_reads)
        self._on_failure = on_failure
        self._keys: dict[Hashable, set[Key]] = {}
        # The values that are texts, and those that are tuples of texts, in order. A list is created at the first lookup
        # of a prefix, so other indexes don't pay for it. Invariant: a list has all values of its kind in `_keys`.
        self._ordered: dict[type, SortedList] = {}
        # The number of values of each length, for the lookups of parents too. Few values differ in length.
        self._lengths: dict[type, Counter[int]] = {}

    @property
    def reads_status(self) -> bool:
        """True if the function has read what the write of a status changes, or if that is not known."""
        return self._status_reads.any

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
        raw, reads = self.index.raw, self._status_reads
        for key, old, new, _ in applied:
            if (
                not reads.any
                and (old is not None and new is not None and _differ_in_status(old, new, raw=raw))
                # A function that has raised is called again.
                and not (key in self.failed or key in self._left_out)
            ):
                continue
            if LOOKING.get() is None:
                self._replace(key, old, new)
                continue
            # The change is a write of a reconcile, in whose task this is called.
            with unseen():
                self._replace(key, old, new)

    def _replace(self, key: Key, old: pb.Resource | None, new: pb.Resource | None) -> None:
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
            ordered = self._ordered[wanted] = SortedList(self._paths(wanted))
        for value in ordered.irange(prefix):
            if value[: len(prefix)] != prefix:
                return
            yield value, self._keys[value]

    def parents(self, value: Path) -> Iterator[Collection[Key]]:
        """Yield the keys of each prefix. The first call ever counts the lengths of values; later they are kept."""
        wanted = str if isinstance(value, str) else tuple
        lengths = self._lengths.get(wanted)
        if lengths is None:
            lengths = self._lengths[wanted] = Counter(map(len, self._paths(wanted)))
        for length in sorted(lengths):
            if length > len(value):
                return
            keys = self._keys.get(value[:length])
            if keys is not None:
                yield keys

    def values(self) -> Iterable[Hashable]:
        """Return every value that a resource has."""
        return self._keys.keys()

    def _paths(self, wanted: type) -> Iterator[Any]:
        return (each for each in self._keys if _path_class(each) is wanted)

    def _values(self, resource: pb.Resource) -> Iterable[Hashable]:
        return values_of(self.index, self._extract(resource))

    def _add(self, key: Key, resource: pb.Resource) -> None:
        try:
            for value in self._values(resource):
                held = self._keys.get(value)
                if held is None:
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
            # Nothing was added before it raised, because `_values` has checked every value.
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
        if isinstance(error, TypeError) and str(error).startswith("unhashable type"):
            # Python's text names neither the function nor what to return.
            error.add_note(
                f"the values of index {self.index.name!r} must be hashable: in {function_text(self.index.function)} "
                "return a tuple instead of a list, and resource.id or a field instead of a resource or a message"
            )
        redact_error(error, [self.index.type.view(resource)])
        self._on_failure(self.index.name, key, error)


def values_of(index: Index[Any, Any], given: Any) -> Iterable[Hashable]:
    """Return the values in what an index's function has returned. Raises an error if one cannot be a value."""
    if index.single:
        values: Iterable[Hashable] = () if given is None else (given,)
    else:
        if type(given) is CoroutineType:
            _check_value(given)
        values = set(check_many(given))
    for value in values:
        _check_value(value)
    return values


def _differ_in_status(old: pb.Resource, new: pb.Resource, *, raw: bool) -> bool:
    """Return True if two states share everything but their status and version, or for raw indexes what those read.

    A write of a status in the same process makes such states. Over a network, each state has its own parts.
    """
    shared = old.metadata is new.metadata and old.owner is new.owner
    return shared and (raw or (old.data is new.data and old.id is new.id and old.generation == new.generation))


def _check_value(value: object) -> None:
    """Raise TypeError for a coroutine or a generator. It is hashable, but no lookup would ever find it."""
    if type(value) in _NO_ANSWERS:
        raise TypeError(answer_problem(value))


def _path_class(value: object) -> type:
    """Return `str`, `tuple` for a tuple of texts, and `object` for a value without a common order."""
    if isinstance(value, str):
        return str
    return tuple if isinstance(value, tuple) and all(isinstance(each, str) for each in value) else object
