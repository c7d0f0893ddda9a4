"""What stores may offer beyond `Backend`: list their fences, check themselves, be probed. Found by method."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from headway.storage._backend import Backend, Fence


class ListsFences(Protocol):
    """A store that says which fences it holds, so that it can be copied."""

    async def list_fences(self) -> Sequence[Fence]:
        """Every fence as it stands, in order of controller and member."""
        ...


class ChecksItself(Protocol):
    """A store that can tell whether it is whole by more than what everybody can ask of it."""

    async def check_itself(self) -> Sequence[str]:
        """What is wrong with it, each in a sentence; nothing when it is whole. Writes nothing."""
        ...


class Probed(Protocol):
    """A store that can tell more than a read whether it can be used."""

    async def probe(self) -> None:
        """Raise why the store can't be read or written now. Changes nothing, and makes no revision."""
        ...


def fence_lister(backend: Backend) -> Callable[[], Awaitable[Sequence[Fence]]] | None:
    """The store's `ListsFences.list_fences`, if it has it."""
    store: object = backend
    return getattr(store, "list_fences", None)


def self_checker(backend: Backend) -> Callable[[], Awaitable[Sequence[str]]] | None:
    """The store's `ChecksItself.check_itself`, if it has it."""
    store: object = backend
    return getattr(store, "check_itself", None)


def prober(backend: Backend) -> Callable[[], Awaitable[None]] | None:
    """The store's `Probed.probe`, if it has it."""
    store: object = backend
    return getattr(store, "probe", None)
