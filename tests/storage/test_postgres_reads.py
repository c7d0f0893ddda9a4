"""Gathered reads of a store in PostgreSQL when it is closed."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from headway.errors import StoreUnusable
from headway.storage.postgres import _reads
from headway.storage.postgres._connection import Pool, Rows, Statement
from headway.storage.postgres._reads import GatheredReads


class SilentPool(Pool):
    """Connections that never answer."""

    def __init__(self) -> None:
        super().__init__(lambda: None, "nowhere", 1)

    async def ask(self, *statements: Statement) -> list[Rows]:  # noqa: ARG002  # it answers none
        await trio.sleep_forever()
        raise AssertionError("unreachable")


async def test_no_read_waits_for_a_store_that_was_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither those of the answer that was awaited, nor those of the next one, nor later ones."""
    monkeypatch.setattr(_reads, "MOST_READ", 1)
    reads = GatheredReads[int](SilentPool(), lambda _: ("", {}))
    refused = 0

    async def read(place: int) -> None:
        nonlocal refused
        with pytest.raises(StoreUnusable, match="closed"):
            await reads.read(place)
        refused += 1

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery, trio.open_nursery() as running:
            running.start_soon(reads.run)
            for place in range(3):
                nursery.start_soon(read, place)
            await trio.testing.wait_all_tasks_blocked()
            running.cancel_scope.cancel()
        await read(3)
    assert refused == 4
