"""Optional methods of a store beyond `Backend`: list its fences, check itself, be probed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from headway.storage._backend import Backend, Fence


class ListsFences(Protocol):
    """A store that can list its fences, so that it can be copied."""

    async def list_fences(self) -> Sequence[Fence]:
        """Return every stored fence, in order of controller and member."""
        ...


class ChecksItself(Protocol):
    """A store that can check its integrity more thoroughly than its public methods allow."""

    async def check_itself(self) -> Sequence[str]:
        """Return one sentence for each problem, so nothing if the store is consistent. Writes nothing."""
        ...


class Probed(Protocol):
    """A store with a check that it is usable, which shows more than a read does."""

    async def probe(self) -> None:
        """Raise an error if the store cannot be read or written now. Makes no revision."""
        ...


def fence_lister(backend: Backend) -> Callable[[], Awaitable[Sequence[Fence]]] | None:
    """Return the store's `ListsFences.list_fences`, or None if it has none."""
    store: object = backend
    return getattr(store, "list_fences", None)


def self_checker(backend: Backend) -> Callable[[], Awaitable[Sequence[str]]] | None:
    """Return the store's `ChecksItself.check_itself`, or None if it has none."""
    store: object = backend
    return getattr(store, "check_itself", None)


def prober(backend: Backend) -> Callable[[], Awaitable[None]] | None:
    """Return the store's `Probed.probe`, or None if it has none."""
    store: object = backend
    return getattr(store, "probe", None)
