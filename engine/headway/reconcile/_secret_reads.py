"""The resources with secrets that a task of a controller has read. Its errors must not show their values."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Self

from typing_extensions import override

from headway.cache import MOST_READS, READING, CachedType, LookingUp, Projected
from headway.resource import Key, Resource, TypeName, pb, redact_error, secret_types, shared_message

Find = Callable[[TypeName, Key], pb.Resource | None]
"""A function that returns the cached resource with this type and key, or None."""

MOST = 64
"""The number of resources that are kept, those that were read last."""


class SecretReads(LookingUp):
    """A list for `READING` that stays empty, and keeps the last resources with secrets that were read.

    Daemons and sources live long, so their first reads would say little about their errors. Each version of a resource
    is kept separately, because a task may still hold an older one.

    Args:
        find: returns the cached resource with this type and key, or None.
        types: the types of the controller, or those with secrets by name.

    Attributes:
        into: the list that records the reads for the journal, up to its bound; None if they are not recorded.
    """

    __slots__ = ("_kept", "_types", "into")

    def __init__(self, find: Find, types: Iterable[CachedType[Any]] | Mapping[TypeName, Any]) -> None:
        super().__init__(find)
        self._types = types if isinstance(types, Mapping) else secret_types(types)
        self._kept: OrderedDict[tuple[TypeName, Key, str], Resource[Any] | Projected[Any]] = OrderedDict()
        self.into: list[Any] | None = None

    def another(self) -> SecretReads:
        """Return a list for another task, without any reads."""
        return SecretReads(self._find, self._types)

    def __iadd__(self, read: Any) -> Self:  # type: ignore[misc]  # a list takes any iterable, and this one only reads
        into = self.into
        if into is not None and len(into) < 2 * MOST_READS:
            into += read
        name, key = read
        type = self._types.get(name)
        if type is not None and isinstance(key, tuple):
            stored = self._find(name, key)
            if stored is not None:
                self.keep(type.view(stored))
        return self

    @override
    @contextmanager
    def through(self, find: Find) -> Iterator[None]:
        with super().through(find), self.into.through(find) if isinstance(self.into, LookingUp) else nullcontext():
            yield

    @override
    def found(self, resources: Sequence[Any]) -> None:
        for each in resources[-MOST:]:
            self.keep(each)

    def keep(self, resource: Any) -> None:
        """Keep a resource that the task has been given, if its type has secrets, as it was before any change to it."""
        if isinstance(resource, Resource | Projected) and resource.type.name in self._types:
            where = (resource.type.name, resource.id.key, shared_message(resource).version)
            self._kept[where] = resource.original()
            self._kept.move_to_end(where)
            if len(self._kept) > MOST:
                self._kept.popitem(last=False)

    def forget(self) -> None:
        """Forget what was read, because the task begins another piece of work."""
        self._kept.clear()

    def kept(self) -> list[Resource[Any] | Projected[Any]]:
        """Return what is kept, the resource that was read last at the end."""
        return list(self._kept.values())

    def redact(self, error: BaseException) -> None:
        """Remove the secrets of the resources that were read from the texts of an exception."""
        redact_error(error, self.kept())

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


def read_secrets() -> list[Resource[Any] | Projected[Any]]:
    """Return the resources with secrets that the caller's task has read last."""
    reads = READING.get()
    return reads.kept() if isinstance(reads, SecretReads) else []
