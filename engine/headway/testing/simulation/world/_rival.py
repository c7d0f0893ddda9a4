"""The protocol of another writer, which disturbs a run at a chosen time."""

from __future__ import annotations

from typing import Protocol, TypeVar

World = TypeVar("World", contravariant=True)


class Rival(Protocol[World]):
    """Another writer, which acts before a reconcile begins, or when the scenario is over."""

    async def before_reconcile(self, world: World) -> None:
        """Act before a reconcile begins."""

    async def at_the_end(self, world: World) -> None:
        """Act when the scenario is over and all work is done."""
