"""Checks of a store that is closed and opened again, or restored (promises 1, 3, 9, 10, and how watches end)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import trio

from headway.errors import HeadwayError
from headway.resource import Bookmark, EndOfSnapshot, StreamItem
from headway.storage import Backend, Fence, FenceLowered, StoreMismatch
from headway.testing._conformance_tools import (
    EVERYTHING,
    KIND,
    OTHER_KIND,
    QUIET,
    fail,
    held,
    must,
    name_of,
    put,
    reading,
    refused,
    remove,
    thing,
    told,
    uid_of,
)
from headway.testing._conformance_truth import Truth


class Reopened:
    """One store, opened as often as a check likes: ``async with store.open() as backend``.

    Attributes:
        restore: as the store's author gave it.
    """

    def __init__(
        self,
        open: Callable[[], AbstractAsyncContextManager[Backend]],
        restore: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.open = open
        self._restore = restore

    async def restore(self) -> None:
        """Restore the closed store from a copy of itself as it is now."""
        if self._restore is None:
            fail("this store says nothing of how it is restored")
        await self._restore()


async def a_closed_store_ends_its_watches(store: Reopened) -> None:
    """Whoever waits for a change, or asks for one later, is told by a named error that the store is closed."""
    waiting = trio.Event()
    ended: list[BaseException | StreamItem] = []

    async def wait_for_more(backend: Backend) -> None:
        watch = await backend.watch(KIND, EVERYTHING)
        must(isinstance(await watch.next(), EndOfSnapshot), "a watch of nothing begins otherwise")
        waiting.set()
        for _ in range(2):
            try:
                ended.append(await watch.next())
            except HeadwayError as error:
                ended.append(error)

    with trio.move_on_after(QUIET) as patience:
        async with trio.open_nursery() as nursery, store.open() as backend:
            nursery.start_soon(wait_for_more, backend)
            await waiting.wait()
    must(not patience.cancelled_caught, "a watch of a closed store is waited for in vain")
    must(all(isinstance(each, HeadwayError) for each in ended), f"a watch of a closed store said {ended}")


async def what_was_acknowledged_is_there_again(store: Reopened) -> None:
    """Resources, kinds and what owners own, field for field and at their versions; what was deleted is not."""
    truth = Truth()
    async with store.open() as backend:
        async with truth.writing(backend):
            pass
        await put(backend, thing("other", kind=OTHER_KIND, owner_uid="o"))
        before = [await backend.list(kind, EVERYTHING) for kind in (KIND, OTHER_KIND)]
    async with store.open() as backend:
        for kind, (found, _) in zip((KIND, OTHER_KIND), before, strict=True):
            must((await backend.list(kind, EVERYTHING))[0] == found, "a list is another one after reopening")
        must(held((await backend.list(KIND, EVERYTHING))[0]) == truth.at(backend.position), "not what was acknowledged")
        must(await backend.kinds() == sorted([KIND, OTHER_KIND]), "the kinds are others after reopening")
        owned, _ = await backend.list_by_owner("o")
        must([name_of(each) for each in owned] == ["other"], "an owner owns something else after reopening")
        reader = await reading(backend)
        await reader.until_snapshot()
        must(reader.held == held(before[0][0]), "a snapshot is not what was stored before")


async def revisions_go_on_after_reopening(store: Reopened) -> None:
    """The store has its id and a new incarnation, stands no lower than it did, and its next revision is above all."""
    async with store.open() as backend:
        await put(backend, thing("a"))
        last = (await backend.raise_fence("c", "m", 0, 0)).position
    for _ in range(3):
        async with store.open() as backend:
            here = backend.position
            must(here.store_id == last.store_id, "a store has another id when it is opened again")
            must(here.session != last.session, "two openings of a store are one incarnation")
            must(here.revision >= last.revision, "a store stands lower when it is opened again")
            last = await put(backend, thing(f"n{here.revision}"))
            must(last.revision > here.revision, "a revision was given out twice")


async def positions_of_before_can_be_resumed_from(store: Reopened) -> None:
    """A watch goes on after reopening from any position of before, and says everything since, once."""
    truth = Truth()
    async with store.open() as backend:
        begun = backend.position
        positions = [begun]
        for writer in ("u", "v"):
            await truth.write(backend, writer, steps=8)
            positions.append(backend.position)
    async with store.open() as backend:
        await truth.write(backend, "w", steps=8)
        here = backend.position
        for position in positions:
            reader = await reading(backend, after=position)
            # As of this opening, or, in a store that several have open at once, as of the one that made the revision.
            resumed = [Bookmark(at, resumed=True) for at in (here._replace(revision=position.revision), position)]
            must(await reader.next() in resumed, "a watch did not say that it was resumed, and where")
            await reader.until(here.revision)
            must(told(reader.changes) == truth.after(position), "resumed over a reopening: not exactly what followed")


async def fences_outlive_a_reopening(store: Reopened) -> None:
    """What a raised fence refused it refuses afterwards, and what was settled is known."""
    async with store.open() as backend:
        raised = await backend.raise_fence("c", "m", 3, 4)
        await backend.record_checkpoint(raised.fence, raised.checkpoint + 7)
    async with store.open() as backend:
        await refused(FenceLowered, put(backend, thing("late"), fence=Fence("c", "m", 3, 3)), "a write below its fence")
        await refused(FenceLowered, backend.raise_fence("c", "m", 3, 4), "raising a fence to where it stands")
        again = await backend.raise_fence("c", "m", 0, 0)
        must(again.fence.term == 4, "a fence's next term is not one above the one before the reopening")
        must(again.checkpoint == raised.checkpoint + 7, "what was settled is forgotten after reopening")


async def a_lease_counts_as_held_after_reopening(store: Reopened) -> None:
    """For a whole ttl: nobody else gets it, its holder can keep it, and its terms go on above."""
    async with store.open() as backend:
        term = (await backend.acquire_lease("c", "a", 600.0)).held.lease.term
        ended = (await backend.acquire_lease("d", "a", 600.0)).held.lease.term
        await backend.release_lease("d", "a", ended)
    async with store.open() as backend:
        other = await backend.acquire_lease("c", "b", 600.0)
        must(not other.acquired and other.held.lease.term == term, "a lease that was held went to another")
        await backend.keep_lease("c", "a", term)
        taken = await backend.acquire_lease("d", "b", 600.0)
        must(taken.acquired and taken.held.lease.term > ended, "a term was given out twice")
        await refused(
            FenceLowered, put(backend, thing("late"), fence=Fence("d", "", ended, 9)), "a write of an old term"
        )


async def a_restored_store_is_another(store: Reopened) -> None:
    """The content is that of the copy, under a new id and above all revisions of before; no watch goes on in it."""
    async with store.open() as backend:
        at = await put(backend, kept := thing("kept", "text", owner_uid="o"))
        gone = await put(backend, deleted := thing("deleted"))
        await remove(backend, deleted, str(gone.revision))
        await backend.raise_fence("c", "m", 5, 5)
        before = backend.position
    await store.restore()
    async with store.open() as backend:
        here = backend.position
        must(here.store_id != before.store_id, "a restored store has the id of the one it was restored from")
        must(here.revision >= before.revision, "a restored store stands below the one it was restored from")
        for position in (before, at):
            await refused(StoreMismatch, backend.watch(KIND, EVERYTHING, position), "resuming in a restored store")
        found, _ = await backend.list(KIND, EVERYTHING)
        must([(name_of(each), uid_of(each)) for each in found] == [("kept", uid_of(kept))], "not the copy's content")
        owned, _ = await backend.list_by_owner("o")
        must(len(owned) == 1, "an owner owns something else after restoring")
        must((await backend.raise_fence("c", "m", 0, 0)).fence.term > 5, "a term went back by restoring")


ON_REOPENED = [
    what_was_acknowledged_is_there_again,
    revisions_go_on_after_reopening,
    positions_of_before_can_be_resumed_from,
    fences_outlive_a_reopening,
    a_lease_counts_as_held_after_reopening,
]
"""Those for stores that are durable."""

ON_RESTORED = [a_restored_store_is_another]
"""Those for stores that can be restored."""

CHECKS = [a_closed_store_ends_its_watches, *ON_REOPENED, *ON_RESTORED]
