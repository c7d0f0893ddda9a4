"""Stores that are not Headway's own, which a test names on the command line."""

from pathlib import Path
from typing import Any

from headway.storage import MemoryBackend, SqliteBackend
from headway.testing import Capability, StoreUnderTest


class LowersFences(MemoryBackend):
    """A store that forgets a fence when it should refuse to lower it."""

    async def raise_fence(self, controller: str, member: str, term: int, number: int) -> Any:
        if term:
            self._fences.pop((controller, member), None)
        return await super().raise_fence(controller, member, term, number)


def open_sqlite(place: Path, *, max_changes: int = 100_000) -> SqliteBackend:
    return SqliteBackend(place, max_changes=max_changes)


def open_memory(_: Path, *, max_changes: int = 100_000) -> MemoryBackend:
    return MemoryBackend(max_changes=max_changes)


memory = StoreUnderTest(open_memory, lacks=frozenset({Capability.DURABILITY, Capability.KEPT_HISTORY}))
lowers = StoreUnderTest(lambda _, max_changes=100_000: LowersFences(max_changes=max_changes))
NOTHING = 7
