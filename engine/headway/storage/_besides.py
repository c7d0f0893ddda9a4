"""What stores may do besides `Backend`: say which fences they hold, and check what only they know. Found by method."""

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


def fence_lister(backend: Backend) -> Callable[[], Awaitable[Sequence[Fence]]] | None:
    """The store's `ListsFences.list_fences`, if it has it."""
    store: object = backend
    return getattr(store, "list_fences", None)


def self_checker(backend: Backend) -> Callable[[], Awaitable[Sequence[str]]] | None:
    """The store's `ChecksItself.check_itself`, if it has it."""
    store: object = backend
    return getattr(store, "check_itself", None)
