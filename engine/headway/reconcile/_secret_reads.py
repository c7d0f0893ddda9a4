"""The resources with secrets that a daemon or a source has read. Its errors must not show their values."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

from headway.cache import READING, CachedType, CacheReader
from headway.resource import Key, Resource, TypeName, redact_error, secret_types

MOST = 64
"""The number of resources that are kept, those that were read last."""


class SecretReads(list[Any]):
    """A list for `READING` that stays empty, and keeps the last resources with secrets that were read.

    Daemons and sources live long, so a list of what they have read first would say little about their errors.
    """

    __slots__ = ("_cache", "_kept", "_types")

    def __init__(self, cache: CacheReader, types: Iterable[CachedType[Any]] | Mapping[TypeName, Any]) -> None:
        super().__init__()
        self._cache = cache
        self._types = types if isinstance(types, Mapping) else secret_types(types)
        self._kept: OrderedDict[tuple[TypeName, Key], Resource[Any]] = OrderedDict()

    def another(self) -> SecretReads:
        """Return one for another task, which has read nothing yet."""
        return SecretReads(self._cache, self._types)

    def __iadd__(self, read: Any) -> Self:  # type: ignore[misc]  # a list takes any iterable, and this one only reads
        name, key = read
        type = self._types.get(name)
        if type is not None and isinstance(key, tuple):
            partition, namespace, of = key
            with _unnoted():
                found = self._cache.get(type, type.id(of, partition=partition, namespace=namespace))
            if found is not None:
                self.keep(found)
        return self

    def keep(self, resource: Any) -> None:
        """Keep a resource that the task has been given, if its type has secrets."""
        if resource.type.name in self._types:
            where = (resource.type.name, resource.id.key)
            self._kept[where] = resource
            self._kept.move_to_end(where)
            if len(self._kept) > MOST:
                self._kept.popitem(last=False)

    def redact(self, error: BaseException) -> None:
        """Remove the secrets of the resources that were read from the texts of an exception."""
        redact_error(error, list(self._kept.values()))

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Keep what is read in the block, and redact an exception that leaves it."""
        token = READING.set(self)
        try:
            yield
        except BaseException as error:
            self.redact(error)
            raise
        finally:
            READING.reset(token)


def redact_reads(error: BaseException) -> None:
    """Redact an exception that does not leave the block of `SecretReads.noted`, if the caller is in one."""
    reads = READING.get()
    if isinstance(reads, SecretReads):
        reads.redact(error)


@contextmanager
def _unnoted() -> Iterator[None]:
    token = READING.set(None)
    try:
        yield
    finally:
        READING.reset(token)
